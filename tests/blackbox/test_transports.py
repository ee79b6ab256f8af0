"""What clients see of a server alone on the ring, of one without it, as where the kernel has none, and of a follower of three.

The other tests here have a server alone, on the ring.
"""

import socket

import pytest

from ensemble.follower import Follower
from support import jute
from support.client import Closed, Connection, Event, exists_or_none, four_letter_command, words_table
from support.expect import equal, refuses
from support.server import SMALL_LOG, Corral
from support.wait import wait_until

CONNECTIONS_MAX = 12
SETTINGS = {**SMALL_LOG, "limits.connections_per_ip_max": CONNECTIONS_MAX, "containers.check_interval_ms": 200}
FRAME_ROOM = 200


@pytest.fixture(scope="module", params=("auto", "stream", "follower"))
def server(request, shards, only_corral):
    if request.param == "follower":
        made = Follower(3, shards, tick_ms=500, settings=SETTINGS)
    else:
        made = Corral(shards, settings={"runtime.transport": request.param, **SETTINGS})
    try:
        yield made.start()
    finally:
        made.dispose()


def test_requests_of_each_kind(context):
    client = context.client()
    root = context.root(client)
    path, stat = client.create2(f"{root}/a", b"1")
    equal((path, client.get(path), client.exists(path)), (f"{root}/a", (b"1", stat), stat))
    equal(client.set(path, b"22", 0).version, 1)
    equal(client.create(f"{root}/s-", flags=jute.SEQUENTIAL), f"{root}/s-0000000001")
    equal(client.create(f"{root}/e", flags=jute.EPHEMERAL), f"{root}/e")
    equal(client.children(root), ["a", "e", "s-0000000001"])
    equal(client.children2(root)[1], client.exists(root))
    equal((client.ephemerals(), client.count_descendants(root)), ([f"{root}/e"], 3))
    client.auth("digest", b"u:p")
    equal(client.set_acl(path, ((jute.ALL, "auth", ""),)).aversion, 1)
    equal(client.get_acl(path)[0][0][1], "digest")
    results = client.multi((jute.CREATE, jute.create_body(f"{root}/m")), (jute.CHECK, jute.check_body(f"{root}/m", 0)))
    equal([(kind, error) for kind, error, _ in results], [(jute.CREATE, 0), (jute.CHECK, 0)])
    results = client.multi((jute.DELETE, jute.delete_body(f"{root}/m")), (jute.CHECK, jute.check_body(path, 9)))
    equal([error for _, error, _ in results], [0, jute.BAD_VERSION])
    body = client.call(jute.MULTI_READ, jute.multi_body([(jute.GET_DATA, jute.read_body(path))]))
    equal((body.int32(), body.boolean(), body.int32(), body.buffer()), (jute.GET_DATA, False, 0, b"22"))
    equal(client.sync(root), root)
    client.delete(f"{root}/m")
    refuses(jute.NO_NODE, client.get, f"{root}/m")
    refuses(jute.BAD_VERSION, client.set, path, b"", 7)
    refuses(jute.RECONFIG_DISABLED, client.call, jute.RECONFIG, jute.reconfig_body(leaving="1"))
    client.ping()


def test_an_emptied_container_goes(context):
    client = context.client()
    path = f"{context.root(client)}/c"
    client.call(jute.CREATE_CONTAINER, jute.create_body(path, flags=jute.CONTAINER))
    client.delete(client.create(f"{path}/child"))
    wait_until(lambda: exists_or_none(client, path) is None, "the container goes")


def test_watches_of_each_kind(context):
    watcher, other = context.client(), context.client()
    root = context.root(other)
    a = other.create(f"{root}/a")
    watcher.sync()
    watcher.get(a, watch=True)
    watcher.children(root, watch=True)
    refuses(jute.NO_NODE, watcher.exists, f"{root}/b", watch=True)
    watcher.add_watch(f"{root}/deep", 1)
    other.set(a, b"1")
    other.create(f"{root}/b")
    other.create(f"{root}/deep")
    other.create(f"{root}/deep/er")
    watcher.sync()
    created = [(jute.CREATED, f"{root}/{name}") for name in ("b", "deep", "deep/er")]
    expected = [(jute.CHANGED, a), created[0], (jute.CHILDREN_CHANGED, root), *created[1:]]
    equal(watcher.take_events(), expected)
    watcher.send(jute.SET_WATCHES, jute.set_watches_body(0, [a]), jute.SET_WATCHES_XID)
    event = watcher.receive()
    assert isinstance(event, Event) and (event.zxid, event.kind) == (-1, jute.CHANGED), event
    equal(watcher.reply().error, 0)


def test_the_event_comes_before_the_read_that_shows_its_cause(context):
    watcher, other = context.client(), context.client()
    root = context.root(other)
    watcher.sync()
    for number in range(20):
        watcher.get(root, watch=True)
        other.set(root, b"%d" % number)
        watcher.sync()
        equal((watcher.get(root)[0], [event.kind for event in watcher.events]), (b"%d" % number, [jute.CHANGED]))
        watcher.events.clear()


def test_large_requests_and_replies(context):
    client = context.client()
    root = context.root(client)
    data = b"d" * (jute.FRAME_BYTES_MAX - FRAME_ROOM)
    client.create(f"{root}/large", data)
    names = [f"{number:05}{'n' * 200}" for number in range(20_000)]
    for first in range(0, len(names), 2000):
        client.multi(*[(jute.CREATE, jute.create_body(f"{root}/large/{name}")) for name in names[first : first + 2000]])
    for _ in range(4):
        client.send(jute.GET_DATA, jute.read_body(f"{root}/large"))
        client.send(jute.GET_CHILDREN, jute.read_body(f"{root}/large"))
    for _ in range(4):
        equal(client.reply().body.buffer(), data)
        equal(sorted(client.reply().body.strings()), names)


def test_pipelined_requests_are_answered_in_order(context):
    client = context.client()
    root = context.root(client)
    for number in range(300):
        client.send(jute.SET_DATA, jute.set_body(root, b"%d" % number))
        client.send(jute.GET_DATA, jute.read_body(root))
    for number in range(300):
        equal(client.reply().error, 0)
        equal(client.reply().body.buffer(), b"%d" % number)


def test_frames_in_pieces(context):
    root = context.root(context.client())
    read = jute.int32(1) + jute.int32(jute.EXISTS) + jute.read_body(root)
    whole = jute.frame(jute.connect_request(10_000)) + jute.frame(read)
    splits = {f"split at {size}": (whole[:size], whole[size:]) for size in range(1, len(whole))}
    for what, pieces in {**splits, "byte by byte": [bytes([byte]) for byte in whole]}.items():
        with Connection(context.address) as connection:
            for piece in pieces:
                connection.send_bytes(piece)
            equal((len(connection.frame()), jute.Reader(connection.frame()).int32()), (37, 1), what)


def test_close_ends_session_and_connection(context):
    client, other = context.client(), context.client()
    root = context.root(other)
    client.sync()
    client.create(f"{root}/e", flags=jute.EPHEMERAL)
    client.close()
    other.sync()
    equal(other.children(root), [])


def test_a_client_that_sends_no_more_gets_what_it_asked_for(context):
    client = context.client()
    for xid in range(1, 4):
        client.send(jute.EXISTS, jute.read_body("/"), xid)
    client.socket.shutdown(socket.SHUT_WR)
    equal([client.reply().xid for _ in range(3)], [1, 2, 3])
    assert client.is_closed(), "all its requests are answered"


def test_a_silent_session_expires(context):
    watcher, doomed = context.client(), context.client(timeout_ms=1000)
    root = context.root(watcher)
    doomed.sync()
    path = doomed.create(f"{root}/e", flags=jute.EPHEMERAL)

    def is_gone():
        watcher.ping()
        return exists_or_none(watcher, path) is None

    wait_until(is_gone, "the ephemeral goes")
    assert doomed.is_closed(), "the connection of an expired session stays open"


def test_a_session_moves_to_another_connection(context):
    first = context.client()
    second = context.client(resume=first)
    equal((second.session_id, second.password), (first.session_id, first.password))
    assert first.is_closed(), "the old connection stays open"
    stranger = context.client()
    stranger.password = b"x" * 16
    equal(context.client(resume=stranger).session_id, 0, "with a wrong password")


def test_bad_frames_close(context):
    for length in (-1, jute.FRAME_BYTES_MAX + 1):
        client = context.client()
        client.send_bytes(jute.int32(length))
        assert client.is_closed(), f"length {length}"
    client = context.client()
    sent = client.send(999)
    equal(client.reply()[::2], (sent, jute.UNIMPLEMENTED))
    assert client.is_closed(), "an unknown op code"


def test_connections_beyond_the_limit_are_closed(context):
    def opened():
        """As many as there may be at once; those of the tests before may not be gone yet."""
        for client in context.clients:
            client.drop()
        context.clients.clear()
        try:
            for _ in range(CONNECTIONS_MAX):
                context.client()
        except (Closed, OSError):
            return False
        return True

    wait_until(opened, "all places are free")
    with Connection(context.address) as refused:
        assert refused.is_closed(), "one connection too many stays open"
    for client in context.clients:
        client.ping()


def test_words(context):
    equal(four_letter_command(context.address, "ruok"), "imok")
    mode = words_table(four_letter_command(context.address, "srvr"), ":")["Mode"]
    equal(mode, "follower" if isinstance(context.server, Follower) else "standalone")
    equal(words_table(four_letter_command(context.address, "mntr"), "\t")["zk_server_state"], mode)
    # As netcat does: it closes its side behind the word and reads on.
    for word in ("ruok", "srvr", "mntr", "cons", "envi", "dump"):
        with socket.create_connection(context.address, timeout=60) as connection:
            connection.sendall(word.encode())
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(4), f"no answer to {word} for a client that sends no more"


def test_a_killed_server_comes_back_with_everything(context):
    client = context.client()
    root = context.root(client)
    client.create(f"{root}/e", b"x", flags=jute.EPHEMERAL)
    context.server.restart()
    again = context.client(resume=client)
    equal(again.session_id, client.session_id)
    again.sync()
    equal(again.exists(f"{root}/e").ephemeral_owner, client.session_id)
