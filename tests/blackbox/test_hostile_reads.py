"""Requests that read very much, and clients that do not read at all: the server goes on serving a polite client, and its memory
stays within its limits. Each test fails on a server without the limits it is about."""

import socket
import threading
from contextlib import contextmanager

import pytest

from support import jute
from support.client import Closed, Refused
from support.expect import equal

REPLIES_MIB_MAX = 16
# Polite and hostile clients shall share a core.
SHARDS = 1
SETTINGS = {
    "corral": {
        "features.keeper_extensions": "true",
        "limits.reply_buffer_bytes_total_max": REPLIES_MIB_MAX << 20,
    },
    "zookeeper": {},
}
# The limit, 16 KiB for each connection, and what the allocator keeps.
MEMORY_MIB_MAX = 3 * REPLIES_MIB_MAX
TICK_MS = 2000
MULTI_FRAME_BYTES = 900_000
# A create below a parent of more than 131,072 children weighs more: a multi of some 4,600 of them is refused as a whole.
MULTI_CREATES_MAX = 2000


def client_that_does_not_read(context):
    """Reads nothing, and its kernel takes little."""
    client = context.client(timeout_ms=40_000)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return client


pytestmark = pytest.mark.usefixtures("only_corral")


@contextmanager
def polite_client(context):
    """Asks for the root all the time meanwhile. Each request must be answered."""
    client, stop, failures = context.client(timeout_ms=40_000), threading.Event(), []

    def ask():
        try:
            while not stop.is_set():
                client.get("/")
                stop.wait(0.005)
        except (Closed, OSError) as failure:
            failures.append(failure)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    equal(failures, [], "of the polite client")


def grow(client, parent, count, name="c", data=b""):
    """Creates children with names of `name` and seven digits, as few multis as fit."""
    multi, size = [], 0
    for number in range(count):
        body = jute.create_body(f"{parent}/{name}{number:07d}", data)
        multi.append((jute.CREATE, body))
        size += len(body) + 9
        if size > MULTI_FRAME_BYTES or len(multi) == MULTI_CREATES_MAX or number == count - 1:
            equal({error for _, error, _ in client.multi(*multi)}, {0}, "errors of creates")
            multi, size = [], 0


def frames_of(request, count, first_xid=1):
    op, body = request
    return b"".join(jute.frame(jute.int32(xid) + jute.int32(op) + body) for xid in range(first_xid, first_xid + count))


def replies_of(client, count):
    return [client.reply() for _ in range(count)]


def feed(clients, sent):
    """Sends parts of a large request, as far as the sockets take them. Whether any took more."""
    part, more = b"\x00\x0f\xff\xff" + bytes(900_000), False
    for number, client in enumerate(clients):
        try:
            taken = client.socket.send(part[sent[number] :])
        except OSError:
            taken = 0
        sent[number] += taken
        more |= taken > 0
    return more


def slow_clients(context, count):
    clients = [context.client(timeout_ms=40_000) for _ in range(count)]
    for client in clients:
        client.socket.setblocking(False)
    return clients


def test_requests_that_are_not_whole(context, note):
    """Beside the limit, each connection may hold what one read of its socket brings, 64 KiB, and the allocator as much again."""
    before, most = context.server.memory().own_kib, 0
    slow, sent = slow_clients(context, 200), [0] * 200
    with polite_client(context):
        polite, rounds = context.client(timeout_ms=40_000), 0
        # Until no socket takes more, although the server has read for as long as it takes to answer others.
        while rounds < 5:
            rounds = 0 if feed(slow, sent) else rounds + 1
            for _ in range(20):
                polite.get("/")
            most = max(most, context.server.memory().own_kib)
    grown = (most - before) >> 10
    note(f"{grown} MiB of {sum(sent) >> 20} MiB sent")
    assert grown < 100, f"the server took {grown} MiB for parts of requests"
    for client in slow:
        client.drop()


def test_watches_on_long_paths(context, note):
    hostile = context.client(timeout_ms=40_000)
    before = context.server.memory().own_kib
    refused = 0
    with polite_client(context):
        for number in range(200):
            try:
                hostile.add_watch(f"/{number:03d}{'x' * 900_000}", 1)
            except Refused as refusal:
                equal(refusal.code, -127)
                refused += 1
            except Closed as closed:
                raise AssertionError("refused watches do not end the connection") from closed
    grown = (context.server.memory().own_kib - before) >> 10
    note(f"{grown} MiB")
    assert refused > 0 and grown < 150, f"one connection's watches take {grown} MiB, {refused} were refused"


def test_clients_that_do_not_read_their_lists(context, note):
    client = context.client()
    root = context.root(client)
    grow(client, root, 30_000, name="n" * 60)
    before = context.server.memory().own_kib
    stalled = [client_that_does_not_read(context) for _ in range(40)]
    most = 0
    with polite_client(context):
        for one in stalled:
            one.send(jute.GET_CHILDREN, jute.read_body(root))
        # A client that takes its list gets it, although others do not take theirs.
        late = context.client(timeout_ms=40_000)
        late.send(jute.GET_CHILDREN, jute.read_body(root))
        replies = []
        reader = threading.Thread(target=lambda: replies.append(late.reply()))
        reader.start()
        while reader.is_alive():
            most = max(most, context.server.memory().own_kib)
            reader.join(0.02)
    equal([len(reply.body.strings()) for reply in replies], [30_000], "the list of the client that reads")
    grown = (most - before) >> 10
    note(f"{grown} MiB")
    assert grown < MEMORY_MIB_MAX, f"the server took {grown} MiB for replies that no client reads"
    for one in stalled:
        one.drop()


def test_watchers_that_do_not_read_their_events(context, note):
    writer = context.client()
    root = context.root(writer)
    paths = [f"{root}/{number}{'x' * 400}" for number in range(20)]
    for path in paths:
        writer.create(path)
    stalled = [client_that_does_not_read(context) for _ in range(120)]
    for one in stalled:
        one.add_watch(root, 1)
    before, most = context.server.memory().own_kib, 0
    sets = [(jute.SET_DATA, jute.set_body(path, b"")) for path in paths] * 75
    with polite_client(context):
        for round_number in range(6):
            writer.call(jute.MULTI, jute.multi_body(sets), xid=100_000 + round_number)
            most = max(most, context.server.memory().own_kib)
    grown = (most - before) >> 10
    note(f"{grown} MiB")
    assert grown < MEMORY_MIB_MAX, f"the server took {grown} MiB for events that no client reads"
    for one in stalled:
        one.drop()


def test_multi_reads_of_much(context):
    client = context.client()
    root = context.root(client)
    acl = [(jute.READ, "digest", f"user{number}:{'x' * 27}=") for number in range(254)] + [(31, "world", "anyone")]
    client.create(f"{root}/dear", b"", acl=acl)
    grow(client, root, 30_000, name="n" * 20)
    reads = {
        "an ACL of 255 entries": jute.multi_body([(jute.GET_DATA, jute.read_body(f"{root}/dear"))] * 15_000),
        "lists": jute.multi_body([(jute.GET_CHILDREN, jute.read_body(root))] * 3000),
    }
    for what, body in reads.items():
        hostile = context.client(timeout_ms=40_000)
        with polite_client(context):
            hostile.send_bytes(frames_of((jute.MULTI_READ, body), 3))
            errors = [reply.error for reply in replies_of(hostile, 3)]
        equal(errors, [-127] * 3, what)
