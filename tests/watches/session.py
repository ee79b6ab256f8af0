"""A connection that sends many requests ahead, keeps what it receives as messages for the checker, and remembers its watches as
a client library does, so that it can set them again on its next connection.
"""

import time
from collections import deque

from support import jute
from support.client import Client
from support.pipeline import send_some
from support.wait import TooLate
from watches.checker import EVENT, REPLY
from watches.model import ACLS, USERS, Belief

RECEIVE_BYTES = 1 << 18
WAIT_S = 60
MULTI_OPS = {"create": jute.CREATE, "delete": jute.DELETE, "set": jute.SET_DATA}
# As the Java client does, paths are set again in several requests if they are many; here few fit one, so that it happens.
SET_WATCHES_PATHS = 40


def record_of(request):
    """The op code and the encoded record of a request."""
    name, *rest = request
    if name == "create":
        path, data, flags, acl = rest
        return jute.CREATE, jute.create_body(path, data, flags, ACLS[acl])
    if name == "delete":
        return jute.DELETE, jute.delete_body(*rest)
    if name == "set":
        return jute.SET_DATA, jute.set_body(*rest)
    if name == "acl":
        return jute.SET_ACL, jute.set_acl_body(rest[0], ACLS[rest[1]])
    if name == "multi":
        return jute.MULTI, jute.multi_body([(MULTI_OPS[one[0]], record_of(one)[1]) for one in rest[0]])
    if name in ("get", "exists", "children"):
        op = {"get": jute.GET_DATA, "exists": jute.EXISTS, "children": jute.GET_CHILDREN}[name]
        return op, jute.read_body(*rest)
    if name in ("add", "check", "remove"):
        op = {"add": jute.ADD_WATCH, "check": jute.CHECK_WATCHES, "remove": jute.REMOVE_WATCHES}[name]
        return op, jute.string(rest[0]) + jute.int32(rest[1])
    if name == "set_watches":
        zxid, data, exist, child, persistent, recursive = rest
        if persistent or recursive:
            return jute.SET_WATCHES2, jute.set_watches2_body(zxid, data, exist, child, persistent, recursive)
        return jute.SET_WATCHES, jute.set_watches_body(zxid, data, exist, child)
    if name == "auth":
        return jute.AUTH, jute.int32(0) + jute.string("digest") + jute.buffer(USERS[rest[0]])
    return {"ping": (jute.PING, b""), "sync": (jute.SYNC, jute.string("/")), "close": (jute.CLOSE, b"")}[name]


XIDS = {"ping": jute.PING_XID, "auth": jute.AUTH_XID, "set_watches": jute.SET_WATCHES_XID}


class Session:
    """One session, over any number of connections."""

    def __init__(self, address, users, timeout_ms=30_000):
        self.address, self.users, self.timeout_ms = address, users, timeout_ms
        self.client, self.belief, self.zxid = None, Belief(), 0
        self.connect()

    def connect(self):
        """Begins the session or attaches it again; then proves who it is, and sets its watches again."""
        self.client = Client(self.address, timeout_ms=self.timeout_ms, resume=self.client, last_zxid=self.zxid)
        assert self.client.session_id, "the session is lost"
        self.client.socket.setblocking(False)
        self.asked, self.messages, self.incoming, self.outgoing = deque(), [], b"", bytearray()
        self.last_xid, self.closed = 0, False
        for user in self.users:
            self.ask(("auth", user))
        for request in self.lists():
            self.ask(request)
        self.flush()
        return self.client.session_id

    def lists(self):
        """The setWatches requests that bring the watches back."""
        lists = self.belief.lists()
        for start in range(0, max(map(len, lists)), SET_WATCHES_PATHS):
            yield ("set_watches", self.zxid, *(one[start : start + SET_WATCHES_PATHS] for one in lists))

    def ask(self, request):
        op, record = record_of(request)
        xid = XIDS.get(request[0])
        if xid is None:
            self.last_xid += 1
            xid = self.last_xid
        self.asked.append((xid, request))
        self.outgoing += jute.frame(jute.int32(xid) + jute.int32(op) + record)

    def flush(self):
        send_some(self.client.socket, self.outgoing)

    def receive(self):
        """Takes what has arrived. True while the connection lives."""
        try:
            while piece := self.client.socket.recv(RECEIVE_BYTES):
                self.incoming += piece
                if len(piece) < RECEIVE_BYTES:
                    break
            else:
                self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        self.parse()
        return not self.closed

    def parse(self):
        data, position = self.incoming, 0
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            self.take(jute.Reader(data[:end] if end < len(data) else data, position + 4))
            position = end
        self.incoming = data[position:]

    def take(self, reader):
        xid, zxid, error = reader.int32(), reader.int64(), reader.int32()
        if xid == jute.EVENT_XID:
            kind, state, path = reader.int32(), reader.int32(), reader.string()
            self.messages.append((EVENT, zxid, kind, state, path))
            self.belief.told(kind, path)
            self.zxid = max(self.zxid, zxid)
            return
        due, request = self.asked.popleft()
        assert xid == due, f"a reply to {xid}, expected {due}: {request}"
        self.messages.append((REPLY, request, zxid, error, reader.rest()))
        self.zxid = max(self.zxid, zxid)
        self.believe(request, error)

    def believe(self, request, error):
        """What the client library notes after a reply."""
        name = request[0]
        if name in ("get", "children") and error == jute.OK and request[2]:
            (self.belief.data if name == "get" else self.belief.child).add(request[1])
        elif name == "exists" and request[2] and error in (jute.OK, jute.NO_NODE):
            (self.belief.data if error == jute.OK else self.belief.exist).add(request[1])
        elif name == "add" and error == jute.OK:
            (self.belief.recursive if request[2] else self.belief.persistent).add(request[1])
        elif name == "remove" and error == jute.OK:
            self.belief.removed(request[1], request[2])

    def hand_over(self):
        """The messages since the last call."""
        messages, self.messages = self.messages, []
        return messages

    def drop(self):
        self.client.drop()


def await_all(selector, sessions, limit_s=WAIT_S):
    """Runs the connections until every request is answered, or the connection has ended."""
    deadline = time.monotonic() + limit_s
    while any(session.asked and not session.closed for session in sessions):
        if time.monotonic() > deadline:
            waiting = [(session.zxid, list(session.asked)[:2]) for session in sessions if session.asked]
            raise TooLate(f"not answered within {limit_s} s: {waiting}")
        turn(selector, sessions, 0.1)


def turn(selector, sessions, limit_s=0.0):
    """Sends and receives what can be without waiting longer than the limit."""
    for session in sessions:
        if session.outgoing and not session.closed:
            session.flush()
    for key, _ in selector.select(limit_s):
        if not key.data.receive():
            selector.unregister(key.fileobj)

