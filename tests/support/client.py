"""A blocking ZooKeeper client on a raw socket, one call a request, that shows everything the server sends.

Unlike a real client it never retries, pings or reconnects by itself, and it can send what no real client would.
"""

import socket
from collections import namedtuple

from support import jute

Reply = namedtuple("Reply", "xid zxid error body")
Event = namedtuple("Event", "zxid kind state path")
REPLY_LIMIT_S = 60


class Closed(Exception):
    """The server closed the connection."""


class Refused(Exception):
    """The server answered a request with an error code."""

    def __init__(self, code):
        super().__init__(f"error {code}")
        self.code = code


class Connection:
    """A TCP connection that speaks frames and has no session yet."""

    def __init__(self, address, limit_s=REPLY_LIMIT_S):
        self.socket = self.connect(address, limit_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()

    def connect(self, address, limit_s):
        return socket.create_connection(address, timeout=limit_s)

    def send_bytes(self, data):
        self.socket.sendall(data)

    def send_frame(self, body):
        self.send_bytes(jute.frame(body))

    def take(self, size):
        """Exactly `size` bytes; raises Closed when the connection ends first."""
        while len(self.received) < size:
            try:
                piece = self.socket.recv(65536)
            except (ConnectionResetError, BrokenPipeError) as error:
                raise Closed from error
            if not piece:
                raise Closed
            self.received += piece
        taken = bytes(self.received[:size])
        del self.received[:size]
        return taken

    def frame(self):
        """The body of the next frame."""
        return self.take(int.from_bytes(self.take(4), "big"))

    def is_closed(self, limit_s=REPLY_LIMIT_S):
        """Whether the server closes within the limit; whatever it still sends is dropped."""
        self.socket.settimeout(limit_s)
        try:
            while True:
                self.take(1)
        except Closed:
            return True
        except TimeoutError:
            return False

    def drop(self):
        """Closes the socket without a word, as a client that died would."""
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drop()


class Client(Connection):
    """A connection with a session."""

    def __init__(self, address, timeout_ms=10_000, resume=None, last_zxid=0, read_only=False):
        """`resume` is another client whose session is taken over. Raises Closed when refused without an answer.

        As real clients do, a resuming one tells the last zxid it saw, so that it never sees an older state.
        """
        super().__init__(address)
        last_zxid = last_zxid or (resume.zxid if resume else 0)
        session = (resume.session_id, resume.password) if resume else (0, b"\0" * 16)
        self.last_xid, self.events, self.zxid = 0, [], 0
        self.send_frame(jute.connect_request(timeout_ms, *session, last_zxid, read_only))
        reader = jute.Reader(self.frame())
        self.protocol, self.timeout_ms, self.session_id = reader.int32(), reader.int32(), reader.int64()
        self.password, self.tail = reader.buffer(), reader.rest()

    def send(self, op, body=b"", xid=None):
        """Sends a request and returns its xid."""
        if xid is None:
            self.last_xid += 1
            xid = self.last_xid
        self.send_frame(jute.int32(xid) + jute.int32(op) + body)
        return xid

    def receive(self):
        """The next Reply or Event."""
        reader = jute.Reader(self.frame())
        xid, zxid, error = reader.int32(), reader.int64(), reader.int32()
        if xid == jute.EVENT_XID:
            return Event(zxid, reader.int32(), reader.int32(), reader.string())
        self.zxid = max(self.zxid, zxid)
        return Reply(xid, zxid, error, reader)

    def reply(self):
        """The next Reply; events before it are kept in `events`."""
        while True:
            message = self.receive()
            if isinstance(message, Reply):
                return message
            self.events.append(message)

    def call(self, op, body=b"", xid=None):
        """Sends, waits for the reply and returns its body; raises Refused for an error."""
        sent = self.send(op, body, xid)
        reply = self.reply()
        assert reply.xid == sent, f"reply to xid {reply.xid}, expected {sent}"
        if reply.error:
            raise Refused(reply.error)
        return reply.body

    def take_events(self):
        """The (kind, path) of all events so far, in order. A ping behind them proves that none is still on its way."""
        self.ping()
        events, self.events = self.events, []
        return [(event.kind, event.path) for event in events]

    def create(self, path, data=b"", flags=jute.PERSISTENT, acl=jute.OPEN_ACL):
        return self.call(jute.CREATE, jute.create_body(path, data, flags, acl)).string()

    def create2(self, path, data=b"", flags=jute.PERSISTENT, acl=jute.OPEN_ACL):
        body = self.call(jute.CREATE2, jute.create_body(path, data, flags, acl))
        return body.string(), body.stat()

    def delete(self, path, version=-1):
        self.call(jute.DELETE, jute.delete_body(path, version))

    def exists(self, path, watch=False):
        return self.call(jute.EXISTS, jute.read_body(path, watch)).stat()

    def get(self, path, watch=False):
        body = self.call(jute.GET_DATA, jute.read_body(path, watch))
        return body.buffer(), body.stat()

    def set(self, path, data, version=-1):
        return self.call(jute.SET_DATA, jute.set_body(path, data, version)).stat()

    def children(self, path, watch=False):
        return sorted(self.call(jute.GET_CHILDREN, jute.read_body(path, watch)).strings())

    def children2(self, path, watch=False):
        body = self.call(jute.GET_CHILDREN2, jute.read_body(path, watch))
        return sorted(body.strings()), body.stat()

    def get_acl(self, path):
        body = self.call(jute.GET_ACL, jute.string(path))
        return body.acl(), body.stat()

    def set_acl(self, path, acl, version=-1):
        return self.call(jute.SET_ACL, jute.set_acl_body(path, acl, version)).stat()

    def sync(self, path="/"):
        """After this the client sees what all others were told is done."""
        return self.call(jute.SYNC, jute.string(path)).string()

    def multi(self, *operations):
        return jute.multi_results(self.call(jute.MULTI, jute.multi_body(operations)))

    def add_watch(self, path, mode):
        """Mode 0 is persistent, 1 persistent recursive."""
        return self.call(jute.ADD_WATCH, jute.string(path) + jute.int32(mode)).int32()

    def ephemerals(self, prefix="/"):
        return sorted(self.call(jute.GET_EPHEMERALS, jute.string(prefix)).strings())

    def count_descendants(self, path):
        return self.call(jute.COUNT_DESCENDANTS, jute.string(path)).int32()

    def auth(self, scheme, credentials):
        self.call(jute.AUTH, jute.int32(0) + jute.string(scheme) + jute.buffer(credentials), jute.AUTH_XID)

    def ping(self):
        self.call(jute.PING, xid=jute.PING_XID)

    def close(self):
        """Closes the session in good order: the reply, then the end of the connection."""
        self.call(jute.CLOSE)
        assert self.is_closed(), "the server keeps the connection after closeSession"
        self.drop()


def exists_or_none(client, path, watch=False):
    """The Stat, or None if there is no such node."""
    try:
        return client.exists(path, watch)
    except Refused as refused:
        if refused.code != jute.NO_NODE:
            raise
        return None


def four_letter_command(address, word, limit_s=REPLY_LIMIT_S):
    """The whole answer to a four-letter command as text; empty if the server just closes."""
    with socket.create_connection(address, timeout=limit_s) as connection:
        connection.sendall(word.encode())
        parts = []
        try:
            while piece := connection.recv(65536):
                parts.append(piece)
        except ConnectionResetError:
            pass
    return b"".join(parts).decode()


def words_table(text, separator):
    """The `key<separator>value` lines of srvr or mntr as a dictionary."""
    lines = (line.split(separator, 1) for line in text.splitlines())
    return {parts[0].strip(): parts[1].strip() for parts in lines if len(parts) == 2}
