"""Connecting, resuming, expiring and closing sessions."""

import re
import socket
import time
from collections import Counter

import pytest

from support import jute
from support.client import Client, Closed, Connection, exists_or_none, four_letter_command
from support.expect import closes, equal, refuses
from support.wait import wait_until

NO_PASSWORD = b"\0" * 16


def handshake(context, request):
    """Sends a connect request and returns the connection and the body of the response."""
    connection = Connection(context.address)
    context.clients.append(connection)
    connection.send_frame(request)
    return connection, connection.frame()


def syncs(context):
    """How often the server has synced its log."""
    lines = dict(line.split("\t", 1) for line in four_letter_command(context.address, "mntr").splitlines() if "\t" in line)
    return int(lines["zk_cnt_fsynctime"])


def is_refused(client):
    return (client.timeout_ms, client.session_id, client.password) == (0, 0, NO_PASSWORD)


def test_timeouts_are_clamped(context):
    # The bounds are 2 and 20 ticks of 500 ms.
    for asked, granted in ((1, 1000), (-5, 1000), (0, 1000), (1500, 1500), (10**7, 10_000), (2**31 - 1, 10_000)):
        equal(context.client(timeout_ms=asked).timeout_ms, granted, f"timeout {asked}")


def test_response_has_the_read_only_byte_only_if_the_request_had_it(context):
    equal(context.client(read_only=None).tail, b"")
    equal(context.client(read_only=False).tail, b"\0")
    equal(context.client(read_only=True).tail, b"\0", "a server that can write is not read-only")


def test_new_sessions_get_different_ids_and_passwords(context):
    clients = [context.client() for _ in range(20)]
    equal(len({client.session_id for client in clients}), 20)
    equal(len({client.password for client in clients}), 20)
    assert all(client.session_id and len(client.password) == 16 and client.protocol == 0 for client in clients)


def test_protocol_version_and_short_passwords_do_not_matter(context):
    for password in (NO_PASSWORD, b"", None):
        request = jute.connect_request(5000, password=password)
        _, response = handshake(context, jute.int32(5) + request[4:])
        equal(response[:8], jute.int32(0) + jute.int32(5000), f"password {password}")


def test_unknown_session_is_told_expired_and_closed(context):
    request = jute.connect_request(5000, session_id=0x77, password=b"\1" * 16)
    connection, response = handshake(context, request)
    reader = jute.Reader(response)
    equal((reader.int32(), reader.int32(), reader.int64(), reader.buffer()), (0, 0, 0, NO_PASSWORD))
    assert connection.is_closed()


def test_wrong_password_is_told_expired_and_keeps_the_session(context):
    owner = context.client()
    root = context.root(owner)
    owner.create(f"{root}/e", flags=jute.EPHEMERAL)
    password, owner.password = owner.password, b"\1" * 16
    thief = context.client(resume=owner)
    assert is_refused(thief) and thief.is_closed()
    owner.password = password
    if context.is_corral:
        owner.ping()
    else:
        assert owner.is_closed(), "difference 1 is gone"
    again = context.client(resume=owner)
    equal(again.session_id, owner.session_id)
    equal(again.exists(f"{root}/e").ephemeral_owner, owner.session_id)


def test_wrong_passwords_keep_no_dead_session_alive(context, note):
    """Session ids are public. One attempt a second with a wrong password kept the lock of a crashed client for ever."""
    watcher, doomed = context.client(timeout_ms=10_000), context.client(timeout_ms=1000)
    root = context.root(watcher)
    doomed.create(f"{root}/lock", flags=jute.EPHEMERAL)
    session, right = watcher.exists(f"{root}/lock").ephemeral_owner, doomed.password
    equal(session, doomed.session_id, "the id is public")
    doomed.drop()
    wrong = [bytes([right[0] ^ 1]) + right[1:], right[:-1] + bytes([right[-1] ^ 1]), NO_PASSWORD, b"", None, right[:15], right + b"\0"]
    attempts = 0

    def is_gone():
        nonlocal attempts
        request = jute.connect_request(1000, session_id=session, password=wrong[attempts % len(wrong)])
        connection, response = handshake(context, request)
        equal(response[:16], jute.int32(0) + jute.int32(0) + b"\0" * 8, "the attempt is refused")
        connection.drop()
        context.clients.remove(connection)
        attempts += 1
        return exists_or_none(watcher, f"{root}/lock") is None

    wait_until(is_gone, "the lock of the dead session goes")
    doomed.password = right
    assert is_refused(context.client(resume=doomed)), "the session is over"
    note(f"{attempts} attempts")


def test_wrong_passwords_take_no_log_entries(context):
    if not context.is_corral:
        pytest.skip("ZooKeeper's log is not looked at")
    owner = context.client()
    owner.create(context.path)
    before = syncs(context)
    for _ in range(50):
        request = jute.connect_request(5000, session_id=owner.session_id, password=b"\1" * 16)
        connection, response = handshake(context, request)
        equal(response[:8], jute.int32(0) + jute.int32(0))
        connection.drop()
        context.clients.remove(connection)
    took = syncs(context) - before
    assert took < 20, f"50 attempts took {took} syncs of the log"
    owner.ping()


def test_resume_moves_the_session_and_closes_the_old_connection(context):
    first = context.client(timeout_ms=3000)
    root = context.root(first)
    first.create(f"{root}/e", flags=jute.EPHEMERAL)
    first.get(root, watch=True)
    second = context.client(resume=first, timeout_ms=4000)
    equal((second.session_id, second.timeout_ms, second.password), (first.session_id, 4000, first.password))
    assert first.is_closed(), "the old connection stays open"
    equal(second.exists(f"{root}/e").ephemeral_owner, first.session_id)
    second.set(root, b"new")
    equal(second.take_events(), [], "watches of the old connection")


def test_resume_many_times(context):
    client = context.client()
    first = client
    for _ in range(20):
        client = context.client(resume=client)
        equal(client.session_id, first.session_id)
    client.ping()


def test_last_zxid_seen(context):
    client = context.client()
    root = context.root(client)
    zxid = client.exists(root).czxid
    context.client(last_zxid=zxid).ping()
    closes(Client, context.address, last_zxid=zxid + 1_000_000)
    closes(Client, context.address, last_zxid=2**63 - 1)
    context.client(last_zxid=-1).ping()


def test_requests_behind_the_connect_request(context):
    connection = Connection(context.address)
    context.clients.append(connection)
    ping = jute.int32(jute.PING_XID) + jute.int32(jute.PING)
    read = jute.int32(1) + jute.int32(jute.EXISTS) + jute.read_body("/")
    bodies = (jute.connect_request(5000), ping, read)
    connection.send_bytes(b"".join(map(jute.frame, bodies)))
    equal(len(connection.frame()), 37)
    equal(jute.Reader(connection.frame()).int32(), jute.PING_XID)
    equal(jute.Reader(connection.frame()).int32(), 1)


def test_close_answers_then_closes_and_ends_the_session(context):
    client, other = context.client(), context.client()
    root = context.root(client)
    client.create(f"{root}/e", flags=jute.EPHEMERAL)
    client.close()
    other.sync()
    equal(other.children(root), [])
    assert is_refused(context.client(resume=client))


def test_requests_behind_close_are_not_answered(context):
    client = context.client()
    sent = client.send(jute.CLOSE)
    try:
        client.send(jute.PING, xid=jute.PING_XID)
    except OSError:
        pass
    equal(client.reply().xid, sent)
    closes(client.reply)


def test_a_session_expires_after_its_timeout(context, note):
    watcher, doomed = context.client(timeout_ms=10_000), context.client(timeout_ms=1000)
    root = context.root(watcher)
    doomed.create(f"{root}/e", flags=jute.EPHEMERAL)
    doomed.drop()
    begin = time.monotonic()
    wait_until(lambda: exists_or_none(watcher, f"{root}/e") is None, "the ephemeral goes")
    took = time.monotonic() - begin
    assert took >= 0.9, f"expired after {took:.2f} s, asked for 1 s"
    assert is_refused(context.client(resume=doomed))
    note(f"after {took:.2f} s")


def test_many_sessions_that_expire_at_once_leave_few_lines_in_the_log(context, note):
    if not context.is_corral:
        pytest.skip("the lines of corral's log")
    sessions, begin = 400, len(context.server.log())
    doomed = [context.client(timeout_ms=1000) for _ in range(sessions)]
    for client in doomed:
        client.drop()

    def logged():
        return context.server.log()[begin:].splitlines()

    def counted():
        rest = [int(match[1]) for line in logged() if (match := re.search(r"more sessions expired.* sessions=(\d+)", line))]
        return sum("session expired" in line for line in logged()) + sum(rest)

    wait_until(lambda: counted() >= sessions, "all are told of")
    seconds = Counter(line[:19] for line in logged() if "expired" in line)
    # Twenty lines a second for sessions, and one each tenth of a second that counts the others.
    limit = 30 * (len(seconds) + 1)
    assert sum(seconds.values()) <= limit, seconds
    note(f"{sum(seconds.values())} lines")


def test_pings_keep_a_session(context):
    """It outlives one of the same timeout that is silent."""
    silent, client = context.client(timeout_ms=4000), context.client(timeout_ms=4000)
    root = context.root(client)
    client.create(f"{root}/pinged", flags=jute.EPHEMERAL)
    silent.create(f"{root}/silent", flags=jute.EPHEMERAL)
    silent.drop()

    def is_gone():
        client.ping()
        return client.children(root) == ["pinged"]

    wait_until(is_gone, "the silent session expires")
    equal(client.exists(f"{root}/pinged").ephemeral_owner, client.session_id)


def test_an_expired_session_is_disconnected(context):
    client = context.client(timeout_ms=1000)
    assert client.is_closed(), "the connection of an expired session stays open"


def test_ephemerals_of_a_session_go_with_one_zxid(context):
    owner, watcher = context.client(), context.client()
    root = context.root(watcher)
    paths = [owner.create(f"{root}/e-", flags=jute.EPHEMERAL_SEQUENTIAL) for _ in range(5)]
    watcher.sync()
    for path in paths:
        watcher.exists(path, watch=True)
    owner.close()
    watcher.sync()
    zxids = {event.zxid for event in watcher.events}
    equal((len(zxids), len(watcher.events)), (1, 5))
    equal(watcher.exists(root).pzxid, *zxids)


def test_a_write_of_a_closed_session_is_never_done(context):
    client, other = context.client(), context.client()
    root = context.root(other)
    close = jute.int32(1) + jute.int32(jute.CLOSE)
    create = jute.int32(2) + jute.int32(jute.CREATE) + jute.create_body(f"{root}/late", flags=jute.EPHEMERAL)
    client.send_bytes(jute.frame(close) + jute.frame(create))
    assert client.is_closed()
    other.sync()
    refuses(jute.NO_NODE, other.exists, f"{root}/late")


def test_a_cut_connect_request_is_closed(context):
    whole = jute.connect_request(5000)
    for size in (0, 3, 20, 43):
        connection = Connection(context.address)
        context.clients.append(connection)
        connection.send_frame(whole[:size])
        try:
            connection.take(1)
        except Closed:
            continue
        raise AssertionError(f"{size} bytes of a connect request are answered")


def test_a_client_that_sends_no_more_gets_what_it_asked_for(context):
    """ZooKeeper drops such a connection, with or without the replies."""
    if not context.is_corral:
        pytest.skip("ZooKeeper may drop the replies")
    root = context.root(context.client())
    for number in range(20):
        client = context.client()
        path = f"{root}/{number}"
        for xid in range(1, 4):
            client.send(jute.CREATE, jute.create_body(f"{path}-{xid}", b""))
        client.send(jute.GET_DATA, jute.read_body(root))
        client.socket.shutdown(socket.SHUT_WR)
        equal([client.reply().xid for _ in range(4)], [1, 2, 3, 4])
        assert client.is_closed(), "nothing is owed to it any more"
