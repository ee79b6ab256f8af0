"""Hostile and broken clients: each is refused on its own, and a polite client beside them is served.

After every test the server's memory is compared with what it was at the start, and the log must hold no panic. The limits on memory and
the log line about the offender are asked of corral alone. Random and mutated requests are fuzz targets (`corral-sim fuzz`), and how long
polite clients wait is measured by the campaign `hostile`.
"""

import resource
import socket
import struct

import pytest

from support import jute
from support.client import Client, Connection
from support.expect import equal, refuses
from support.pipeline import Pipelined
from support.wait import wait_until

SESSIONLESS_MS = 2000
SETTINGS = {
    "corral": {"sessions.sessionless_timeout_ms": SESSIONLESS_MS, "limits.reply_buffer_bytes_hard_max": 16 << 20},
    "zookeeper": {"nio.sessionlessCnxnTimeout": SESSIONLESS_MS},
}
# Sessions may last for 40 s.
TICK_MS = 2000
GROWTH_KIB_MAX = 96 * 1024
HANDSHAKE = jute.frame(jute.connect_request(10_000))


def peer_name(connection):
    return "{}:{}".format(*connection.socket.getsockname())


def expect_closed(context, connection, what):
    """The server closes the connection and says so in its log."""
    name = peer_name(connection)
    assert connection.is_closed(), f"{what}: the connection stays open"
    if context.is_corral:
        wait_until(lambda: name in context.server.log(), f"{what}: a log line about {name}")
        lines = [line for line in context.server.log().splitlines() if name in line]
        assert len(lines) <= 2, f"{what}: {len(lines)} log lines about one connection: {lines}"
    connection.drop()


def test_illegal_lengths(context):
    for length in (-1, -(2**31), 2**31 - 1, jute.FRAME_BYTES_MAX + 1):
        for connection in (Connection(context.address), Client(context.address)):
            connection.send_bytes(jute.int32(length))
            expect_closed(context, connection, f"length {length}")


def test_other_protocols(context):
    greetings = {
        "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
        "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
        "zeros": bytes(100),
        "ones": b"\xff" * 100,
    }
    for what, greeting in greetings.items():
        connection = Connection(context.address)
        connection.send_bytes(greeting)
        expect_closed(context, connection, what)
        if context.is_corral and what in ("HTTP", "TLS"):
            said = [line for line in context.server.log().splitlines() if f"{what} spoken on the plain client port" in line]
            equal(len(said), 1, f"lines about {what}")


def test_truncated_frames(context, note):
    """A client that dies in the middle of a frame, gently or with a reset."""
    whole = HANDSHAKE + jute.frame(jute.int32(1) + jute.int32(jute.CREATE) + jute.create_body("/never", b"x" * 200))
    for size in range(1, len(whole)):
        connection = Connection(context.address)
        connection.send_bytes(whole[:size])
        if size % 2:
            linger = struct.pack("ii", 1, 0)
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.drop()
    client = context.client()
    equal("never" in client.children("/"), False)
    note(f"{len(whole) - 1} connections cut off")


def test_silent_and_slow_connections(context, note):
    """Connections that never finish their connect request are closed; the slow ones however often they send a byte."""
    silent = [Connection(context.address) for _ in range(100)]
    slow = [Connection(context.address) for _ in range(50)] if context.is_corral else []
    offsets = dict.fromkeys(slow, 0)

    def all_slow_are_closed():
        for connection in list(offsets):
            try:
                connection.send_bytes(HANDSHAKE[offsets[connection] : offsets[connection] + 1])
                offsets[connection] = min(offsets[connection] + 1, len(HANDSHAKE) - 2)
                connection.socket.setblocking(False)
                gone = connection.socket.recv(1) == b""
            except BlockingIOError:
                gone = False
            except OSError:
                gone = True
            if gone:
                del offsets[connection]
        return not offsets

    wait_until(all_slow_are_closed, "slow connections are closed")
    for connection in silent:
        assert connection.is_closed(), "a silent connection stays open"
    for connection in silent + slow:
        connection.drop()
    note(f"{len(silent)} silent and {len(slow)} slow connections closed")


def test_announced_frames_take_no_memory(context, note):
    before = context.server.memory().own_kib if context.is_corral else 0
    connections = [context.client() for _ in range(100)]
    for connection in connections:
        connection.send_bytes(jute.int32(jute.FRAME_BYTES_MAX) + b"begin")
    other = context.client()
    other.ping()
    grown = context.server.memory().own_kib - before if context.is_corral else 0
    for connection in connections:
        connection.drop()
    assert grown < 32 * 1024, f"100 announced frames of 1 MiB grow the server by {grown} KiB"
    note(f"grown by {grown} KiB")


def test_a_client_that_never_reads(context, note):
    """Asks for 400 MB it never reads, and has watches fire; its requests wait, and memory stays bounded."""
    writer = context.client()
    root = context.root(writer)
    writer.create(f"{root}/big", b"x" * 500_000)
    writer.create(f"{root}/watched")
    stalled = Pipelined(context.address, depth=1000)
    for _ in range(800):
        stalled.submit(jute.GET_DATA, jute.read_body(f"{root}/big"))
    stalled.flush()
    for number in range(200):
        stalled.submit(jute.GET_DATA, jute.read_body(f"{root}/watched", watch=True))
        stalled.flush()
        writer.set(f"{root}/watched", b"%d" % number)
    for _ in range(50):
        writer.get(f"{root}/big")
    shown = f"{context.server.memory()} meanwhile" if context.server.process else ""
    if context.is_corral:
        check_growth(context)
    stalled.drop()
    note(shown)


def test_a_thousand_connections_at_once(context):
    clients = []
    for _ in range(1000):
        clients.append(Connection(context.address))
        clients[-1].send_bytes(HANDSHAKE)
    sessions = {jute.Reader(client.frame()[8:]).int64() for client in clients}
    equal(len(sessions), 1000, "different sessions")
    for client in clients:
        client.send_frame(jute.int32(1) + jute.int32(jute.EXISTS) + jute.read_body("/"))
    equal({jute.Reader(client.frame()[12:]).int32() for client in clients}, {0})
    for client in clients:
        client.drop()


def test_the_costliest_frames(context):
    """Frames of a megabyte made of the smallest parts: fifty thousand operations, a hundred thousand watches."""
    client = context.client()
    results = client.multi(*[(jute.CHECK, jute.check_body("/"))] * 50_000)
    equal({error for _, error, _ in results}, {0})
    names = ["/"] * 100_000
    client.call(jute.SET_WATCHES, jute.set_watches_body(2**62, names, [], names), jute.SET_WATCHES_XID)
    acl = [(1, "digest", f"u:{number}") for number in range(20_000)] + list(jute.OPEN_ACL)
    if context.is_corral:
        refuses(jute.INVALID_ACL, client.create, context.path, acl=acl)
        acl = acl[-256:]
    client.create(context.path, acl=acl)
    equal(len(client.get_acl(context.path)[0]), len(acl))
    client.call(jute.SYNC, jute.string("/" + "a" * 1_000_000))


def check_growth(context):
    grown = context.server.memory().own_kib - context.server.baseline_kib
    assert grown < GROWTH_KIB_MAX, f"the server grew by {grown} KiB"


@pytest.fixture(scope="module")
def baseline(server):
    """The server's memory is compared with what it is now."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server.baseline_kib = server.memory().own_kib if server.process else 0


@pytest.fixture(autouse=True)
def others_are_served(context, baseline):
    """A client that came before the test is served after it, and the server has not grown."""
    polite = context.client(timeout_ms=40_000)
    polite.create(f"{context.path}-polite", b"before")
    yield
    equal(polite.get(f"{context.path}-polite")[0], b"before")
    polite.set(f"{context.path}-polite", b"after")
    polite.delete(f"{context.path}-polite")
    if context.is_corral:
        check_growth(context)
