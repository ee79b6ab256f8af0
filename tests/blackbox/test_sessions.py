"""How sessions end. Connect requests are in the recordings, moves in test_transports.py, wrong passwords in src/core/tests/all/proof.rs."""

import re
import time
from collections import Counter

import pytest

from support import jute
from support.client import Connection
from support.expect import equal, refuses
from support.wait import wait_until


def test_a_session_expires_after_its_timeout(context, note):
    watcher, doomed = context.client(timeout_ms=10_000), context.client(timeout_ms=1000)
    root = context.root(watcher)
    path = doomed.create(f"{root}/e", flags=jute.EPHEMERAL)
    watcher.sync()
    watcher.exists(path, watch=True)
    doomed.drop()
    begin = time.monotonic()
    event = watcher.receive()
    took = time.monotonic() - begin
    equal((event.kind, event.path), (jute.DELETED, path), "the ephemeral goes")
    assert took >= 0.9, f"expired after {took:.2f} s, asked for 1 s"
    refused = context.client(resume=doomed)
    equal((refused.timeout_ms, refused.session_id, refused.password), (0, 0, b"\0" * 16))
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


def test_a_write_of_a_closed_session_is_never_done(context):
    client, other = context.client(), context.client()
    root = context.root(other)
    close = jute.int32(1) + jute.int32(jute.CLOSE)
    create = jute.int32(2) + jute.int32(jute.CREATE) + jute.create_body(f"{root}/late", flags=jute.EPHEMERAL)
    client.send_bytes(jute.frame(close) + jute.frame(create))
    assert client.is_closed()
    other.sync()
    refuses(jute.NO_NODE, other.exists, f"{root}/late")


def test_identities_belong_to_the_connection(context):
    bob = context.client()
    bob.auth("digest", b"bob:pw")
    path = bob.create(context.path, acl=((jute.ALL, "auth", ""),))
    again = context.client(resume=bob)
    refuses(jute.NO_AUTH, again.get, path)
    again.auth("digest", b"bob:pw")
    again.get(path)


def test_the_protocol_version_of_a_connect_request_does_not_matter(context):
    with Connection(context.address) as connection:
        connection.send_frame(jute.int32(5) + jute.connect_request(5000)[4:])
        equal(connection.frame()[:8], jute.int32(0) + jute.int32(5000))
