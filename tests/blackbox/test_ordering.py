"""Pipelining: the order of replies, reading one's own writes, and what a read between two writes sees."""

import random

from support import jute
from support.expect import equal

DEPTH = 16


def send_write(client, path, number):
    return client.send(jute.SET_DATA, jute.set_body(path, b"%d" % number))


def send_read(client, path):
    return client.send(jute.GET_DATA, jute.read_body(path))


def test_a_read_between_two_writes_sees_exactly_the_first(context):
    client = context.client()
    root = context.root(client)
    for number in range(0, 400, 2):
        sent = [send_write(client, root, number), send_read(client, root), send_write(client, root, number + 1)]
        replies = [client.reply() for _ in sent]
        equal([reply.xid for reply in replies], sent)
        equal(replies[1].body.buffer(), b"%d" % number)


def test_reads_and_writes_interleaved_at_depth(context, note):
    client = context.client()
    root = context.root(client)
    paths = [client.create(f"{root}/{name}", b"-1") for name in range(4)]
    generator = random.Random(1)
    values, waiting, written = dict.fromkeys(paths, b"-1"), [], 0

    def receive():
        sent, expected = waiting.pop(0)
        reply = client.reply()
        equal((reply.xid, reply.error), (sent, 0))
        if expected is not None:
            equal(reply.body.buffer(), expected)

    for number in range(4000):
        path = generator.choice(paths)
        if generator.random() < 0.5:
            waiting.append((send_write(client, path, number), None))
            values[path] = b"%d" % number
            written += 1
        else:
            waiting.append((send_read(client, path), values[path]))
        if len(waiting) == DEPTH:
            receive()
    while waiting:
        receive()
    equal({path: client.get(path)[0] for path in paths}, values)
    note(f"{written} writes and {4000 - written} reads at depth {DEPTH}")


def test_writes_of_one_session_are_done_in_order(context):
    client = context.client()
    root = context.root(client)
    for _ in range(500):
        client.send(jute.CREATE, jute.create_body(f"{root}/s-", flags=jute.SEQUENTIAL))
    replies = [client.reply() for _ in range(500)]
    equal([reply.body.string() for reply in replies], [f"{root}/s-{number:010}" for number in range(500)])
    zxids = [reply.zxid for reply in replies]
    assert zxids == sorted(set(zxids)), "zxids of one session's writes do not rise"


def test_versions_decide_between_two_sessions(context):
    clients = [context.client() for _ in range(4)]
    root = context.root(clients[0])
    for version in range(100):
        for client in clients:
            client.send(jute.SET_DATA, jute.set_body(root, b"", version))
        errors = sorted(client.reply().error for client in clients)
        equal(errors, [jute.BAD_VERSION] * 3 + [0])


def test_zxids_of_all_sessions_are_one_order(context):
    clients = [context.client() for _ in range(8)]
    root = context.root(clients[0])
    stats = []
    for _ in range(50):
        for client in clients:
            client.send(jute.CREATE2, jute.create_body(f"{root}/s-", flags=jute.SEQUENTIAL))
        for client in clients:
            body = client.reply().body
            stats.append((body.string(), body.stat().czxid))
    by_name, by_zxid = sorted(stats), sorted(stats, key=lambda pair: pair[1])
    equal(by_name, by_zxid, "names in the order of zxids")
    equal(len({zxid for _, zxid in stats}), 400)


def test_one_connection_does_not_wait_for_another(context):
    busy, other = context.client(), context.client()
    root = context.root(busy)
    other.sync()
    for number in range(500):
        send_write(busy, root, number)
    equal(other.get(root)[1].ephemeral_owner, 0)
    for _ in range(500):
        equal(busy.reply().error, 0)


def test_large_and_small_replies_keep_their_order(context):
    client = context.client()
    root = context.root(client)
    client.create(f"{root}/big", b"x" * 500_000)
    client.create(f"{root}/small", b"y")
    for _ in range(10):
        send_read(client, f"{root}/big")
        send_read(client, f"{root}/small")
    equal([len(client.reply().body.buffer()) for _ in range(20)], [500_000, 1] * 10)


def test_what_one_client_was_answered_every_other_reads(context):
    writer, readers = context.client(), [context.client() for _ in range(4)]
    root = context.root(writer)
    for number in range(150):
        path = writer.create(f"{root}/{number}")
        for reader in readers:
            reader.exists(path)
        stat = writer.set(path, b"x")
        for reader in readers:
            equal(reader.get(path)[1], stat)
            equal(reader.children2(root)[1].num_children, number + 1)
