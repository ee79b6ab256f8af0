#!/usr/bin/env python3
"""Records the golden transcripts in this directory from a running ZooKeeper server.

usage: record.py HOST:PORT OUTDIR

The committed files were taken from an Apache ZooKeeper 3.9.4 standalone server whose configuration had
`extendedTypesEnabled=true` and a tickTime of 2000. The server must hold nothing at /golden; the script leaves nothing
there. It speaks raw sockets, so what it sends is what is written here, byte for byte. Times, session ids, passwords
and zxids differ from run to run; everything else should not.

A transcript is text. `#` starts a comment, which names what follows. Every other line is

    MARK OP HEX

with HEX the whole frame, its length word included. MARK is `>` for a request, `<` for a reply or a notification, `!` for
a request whose record the server refused with MARSHALLINGERROR (-5). OP is the operation's name, `connect` for the two
frames without a header, `notification` for a watch event.
"""
import os
import socket
import struct
import sys

OPEN = [(31, "world", "anyone")]
OPS = {
    "create": 1, "delete": 2, "exists": 3, "getData": 4, "setData": 5, "getACL": 6, "setACL": 7, "getChildren": 8,
    "sync": 9, "ping": 11, "getChildren2": 12, "check": 13, "multi": 14, "create2": 15, "reconfig": 16,
    "checkWatches": 17, "removeWatches": 18, "createContainer": 19, "deleteContainer": 20, "createTTL": 21,
    "multiRead": 22, "auth": 100, "setWatches": 101, "sasl": 102, "getEphemerals": 103, "getAllChildrenNumber": 104,
    "setWatches2": 105, "addWatch": 106, "whoAmI": 107, "closeSession": -11,
}
XIDS = {"ping": -2, "auth": -4, "setWatches": -8, "setWatches2": -8}
MARSHALLINGERROR = -5


def i32(value):
    return struct.pack(">i", value)


def i64(value):
    return struct.pack(">q", value)


def flag(value):
    return b"\x01" if value else b"\x00"


def buf(value):
    return i32(-1) if value is None else i32(len(value)) + value


def text(value):
    return buf(None if value is None else value.encode())


def acl(entries):
    if entries is None:
        return i32(-1)
    return i32(len(entries)) + b"".join(i32(p) + text(s) + text(i) for p, s, i in entries)


def texts(values):
    return i32(-1) if values is None else i32(len(values)) + b"".join(map(text, values))


def create(path, data=b"", mode=0, entries=OPEN):
    return text(path) + buf(data) + acl(entries) + i32(mode)


def entry(op, record):
    return i32(OPS[op]) + flag(False) + i32(-1) + record


END = i32(-1) + flag(True) + i32(-1)


class Transcript:
    """One output file."""

    def __init__(self, directory, name):
        self.file = open(os.path.join(directory, name + ".txt"), "w", encoding="ascii")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def comment(self, words):
        self.file.write(f"# {words}\n")

    def line(self, mark, op, frame):
        self.file.write(f"{mark} {op} {frame.hex()}\n")


class Client:
    """One connection; writes what it sends and receives to the transcript."""

    def __init__(self, address, log, note, session=0, password=bytes(16), read_only=0, timeout=10000):
        self.log, self.xid = log, 0
        self.socket = socket.create_connection(address)
        self.socket.settimeout(20)
        body = i32(0) + i64(0) + i32(timeout) + i64(session) + buf(password)
        if read_only is not None:
            body += flag(read_only)
        log.comment(note)
        frame = buf(body)
        log.line(">", "connect", frame)
        self.socket.sendall(frame)
        reply = self.receive()
        log.line("<", "connect", reply)
        self.session = struct.unpack_from(">q", reply, 12)[0]
        self.password = reply[24:40]

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("the server closed the connection")
            data += more
        return data

    def receive(self):
        word = self.exactly(4)
        return word + self.exactly(struct.unpack(">i", word)[0])

    def event(self):
        """Waits for one notification."""
        frame = self.receive()
        assert struct.unpack_from(">i", frame, 4)[0] == -1, frame.hex()
        self.log.line("<", "notification", frame)

    def call(self, note, op, record=b"", expect=0):
        """Sends one request, waits for its reply, checks the error code; gives the reply's record."""
        if op in XIDS:
            xid = XIDS[op]
        else:
            self.xid += 1
            xid = self.xid
        frame = buf(i32(xid) + i32(OPS[op]) + record)
        self.socket.sendall(frame)
        lines = []
        while True:
            reply = self.receive()
            got, _, error = struct.unpack_from(">iqi", reply, 4)
            if got == -1:
                lines.append(("<", "notification", reply))
                continue
            assert got == xid, f"{note}: xid {got} for {xid}"
            lines.append(("<", op, reply))
            break
        assert error == expect, f"{note}: error {error}"
        self.log.comment(f"{op}: {note}" + (f", error {error}" if error else ""))
        self.log.line("!" if error == MARSHALLINGERROR else ">", op, frame)
        for line in lines:
            self.log.line(*line)
        return reply[20:]

    def close(self):
        self.call("the server closes the connection behind the reply", "closeSession")
        assert self.socket.recv(1) == b"", "still open"
        self.socket.close()


def connects(address, log):
    first = Client(address, log, "connect: a new session")
    second = Client(address, log, "connect: the same session resumed", first.session, first.password)
    refused = Client(address, log, "connect: a wrong password, which looks expired", first.session, b"x" * 16)
    refused.socket.close()
    second.socket.close()
    third = Client(address, log, "connect: the same session again", first.session, first.password)
    third.call("with xid -2", "ping")
    third.close()
    old = Client(address, log, "connect: an old client, no readOnly byte", read_only=None)
    old.close()
    Client(address, log, "connect: a null password, a timeout to be raised", password=None, timeout=1).close()
    Client(address, log, "connect: a client content with a read-only server", read_only=1).close()


def creates(address, log):
    c = Client(address, log, "connect")
    c.call("PERSISTENT", "create", create("/golden", b"root"))
    c.call("null data", "create", create("/golden/null", None))
    c.call("EPHEMERAL", "create", create("/golden/e", b"x", 1))
    c.call("PERSISTENT_SEQUENTIAL", "create", create("/golden/s-", b"", 2))
    c.call("EPHEMERAL_SEQUENTIAL", "create", create("/golden/es-", b"", 3))
    c.call("two ACL entries", "create", create("/golden/acl", b"", 0, OPEN + [(1, "ip", "127.0.0.1")]))
    c.call("letters beyond ASCII", "create", create("/golden/\u00fc\u4e2d", "\u20ac".encode()))
    c.call("PERSISTENT", "create2", create("/golden/c2", b"data"))
    c.call("EPHEMERAL_SEQUENTIAL", "create2", create("/golden/c2-", b"data", 3))
    c.call("CONTAINER", "createContainer", create("/golden/con", b"", 4))
    c.call("PERSISTENT_WITH_TTL", "createTTL", create("/golden/ttl", b"", 5) + i64(600000))
    c.call("PERSISTENT_SEQUENTIAL_WITH_TTL", "createTTL", create("/golden/ttl-", b"", 6) + i64(600000))
    c.call("exists", "create", create("/golden"), -110)
    c.call("no parent", "create", create("/golden/no/no"), -101)
    c.call("below an ephemeral", "create", create("/golden/e/no"), -108)
    c.call("bad path", "create", create("/golden/"), -8)
    c.call("null ACL", "create", create("/golden/x", b"", 0, None), -114)
    c.call("empty ACL", "create", create("/golden/x", b"", 0, []), -114)
    c.call("unknown flag", "create", create("/golden/x", b"", 7), -8)
    c.call("of this session", "getEphemerals", text("/golden"))
    c.call("null prefix", "getEphemerals", text(None))
    c.call("all descendants", "getAllChildrenNumber", text("/golden"))
    c.call("accepted from a client", "deleteContainer", text("/golden/con"))
    c.close()


def reads(address, log):
    c = Client(address, log, "connect")
    c.call("with children", "exists", text("/golden") + flag(False))
    c.call("no znode", "exists", text("/golden/none") + flag(False), -101)
    c.call("some data", "getData", text("/golden") + flag(False))
    c.call("null data", "getData", text("/golden/null") + flag(False))
    c.call("no znode", "getData", text("/golden/none") + flag(False), -101)
    c.call("new data", "setData", text("/golden") + buf(b"new") + i32(0))
    c.call("null data, any version", "setData", text("/golden/c2") + buf(None) + i32(-1))
    c.call("old version", "setData", text("/golden") + buf(b"no") + i32(0), -103)
    c.call("several", "getChildren", text("/golden") + flag(False))
    c.call("none", "getChildren", text("/golden/null") + flag(False))
    c.call("several", "getChildren2", text("/golden") + flag(False))
    c.call("none", "getChildren2", text("/golden/null") + flag(False))
    c.call("no znode", "getChildren2", text("/golden/none") + flag(False), -101)
    c.call("any text comes back", "sync", text("/golden"))
    c.call("keeps alive", "ping")
    c.call("with children", "delete", text("/golden") + i32(-1), -111)
    c.call("old version", "delete", text("/golden/c2") + i32(0), -103)
    c.call("right version", "delete", text("/golden/c2") + i32(1))
    c.call("switched off", "reconfig", text("") + text(None) + text("x") + i64(-1), -123)
    c.close()


def acls(address, log):
    c = Client(address, log, "connect")
    c.call("two entries", "getACL", text("/golden/acl"))
    c.call("without auth", "whoAmI")
    c.call("digest", "auth", i32(0) + text("digest") + buf(b"user:secret"))
    c.call("with digest", "whoAmI")
    c.call("auth expands to the digest", "setACL", text("/golden/acl") + acl([(31, "auth", "")]) + i32(0))
    c.call("the digest", "getACL", text("/golden/acl"))
    c.call("old aversion", "setACL", text("/golden/acl") + acl(OPEN) + i32(0), -103)
    other = Client(address, log, "connect: somebody else")
    other.call("not granted", "getData", text("/golden/acl") + flag(False), -102)
    other.call("server without SASL answers null", "sasl", buf(b""))
    other.call("unknown scheme, then close", "auth", i32(0) + text("none") + buf(b"x"), -115)
    c.call("open again", "setACL", text("/golden/acl") + acl(OPEN) + i32(-1))
    c.call("no znode", "getACL", text("/golden/none"), -101)
    c.close()


def multis(address, log):
    c = Client(address, log, "connect")
    c.call("empty", "multi", END)
    every = [
        entry("create", create("/golden/m", b"m")),
        entry("create2", create("/golden/m/2", b"", 1)),
        entry("create2", create("/golden/m/s-", b"", 2)),
        entry("createContainer", create("/golden/m/con", b"", 4)),
        entry("createTTL", create("/golden/m/ttl", b"", 5) + i64(600000)),
        entry("setData", text("/golden/m") + buf(b"M") + i32(0)),
        entry("check", text("/golden/m") + i32(1)),
        entry("delete", text("/golden/m/2") + i32(-1)),
    ]
    c.call("every type", "multi", b"".join(every) + END)
    failing = [
        entry("create", create("/golden/m/x")),
        entry("delete", text("/golden/m/none") + i32(-1)),
        entry("check", text("/golden/m") + i32(0)),
        entry("create", create("/golden/m/y")),
    ]
    c.call("the second fails, the header says 0", "multi", b"".join(failing) + END)
    c.call("the only one fails", "multi", entry("check", text("/golden/m") + i32(9)) + END)
    get = entry("getData", text("/golden/m") + flag(False))
    names = entry("getChildren", text("/golden/m") + flag(False))
    none = entry("getData", text("/golden/none") + flag(True))
    c.call("one of them fails", "multiRead", get + none + names + END)
    c.call("empty", "multiRead", END)
    c.call("a read in a multi", "multi", get + END, MARSHALLINGERROR)
    c.call("a write in a multiRead", "multiRead", failing[0] + END, MARSHALLINGERROR)
    c.call("reads and writes", "multi", failing[0] + get + END, MARSHALLINGERROR)
    alien = entry("setACL", text("/golden") + acl(OPEN) + i32(-1))
    c.call("a type that cannot be here", "multi", alien + END, MARSHALLINGERROR)
    c.call("unknown flag", "multi", entry("create", create("/golden/m/x", b"", 7)) + END, MARSHALLINGERROR)
    ttl = entry("create2", create("/golden/m/x", b"", 5))
    c.call("a TTL flag without a TTL", "multi", ttl + END, MARSHALLINGERROR)
    unknown = entry("createTTL", create("/golden/m/x", b"", 7) + i64(1))
    c.call("unknown flag with a TTL fails by itself", "multi", unknown + END)
    c.call("create as container", "multi", entry("create", create("/golden/m/as", b"", 4)) + END)
    c.call("no end", "multi", failing[0], MARSHALLINGERROR)
    c.close()


def refusals(address, log):
    c = Client(address, log, "connect")
    c.call("nothing behind the header", "getData", b"", MARSHALLINGERROR)
    c.call("cut in the path", "getData", text("/golden")[:-1], MARSHALLINGERROR)
    c.call("no watch byte", "getData", text("/golden"), MARSHALLINGERROR)
    c.call("negative length", "getData", i32(-2) + b"/x" + flag(False), MARSHALLINGERROR)
    c.call("huge length", "getData", i32(2**31 - 1) + b"/x" + flag(False), MARSHALLINGERROR)
    c.call("negative buffer length", "setData", text("/golden") + i32(-9) + i32(-1), MARSHALLINGERROR)
    c.call("huge count", "create", text("/golden/x") + buf(b"") + i32(2**31 - 1) + i32(0), MARSHALLINGERROR)
    c.call("count beyond the entries", "setACL", text("/golden") + i32(2) + acl(OPEN)[4:] + i32(-1), MARSHALLINGERROR)
    c.call("cut in a list", "setWatches", i64(0) + texts(["/a"]) + texts(["/b"])[:-1], MARSHALLINGERROR)
    c.close()


def watches(address, log):
    c = Client(address, log, "connect: who watches")
    d = Client(address, log, "connect: who changes")
    c.call("a watch on nothing", "exists", text("/golden/w") + flag(True), -101)
    d.call("fires NodeCreated elsewhere", "create", create("/golden/w"))
    c.event()
    c.call("a data watch", "getData", text("/golden/w") + flag(True))
    c.call("fires NodeDataChanged, before the reply", "setData", text("/golden/w") + buf(b"1") + i32(-1))
    c.call("a child watch", "getChildren", text("/golden/w") + flag(True))
    d.call("fires NodeChildrenChanged elsewhere", "create", create("/golden/w/c", b"", 1))
    c.event()
    c.call("a child watch", "getChildren2", text("/golden/w/c") + flag(True))
    d.call("fires NodeDeleted elsewhere", "delete", text("/golden/w/c") + i32(-1))
    c.event()
    c.call("persistent", "addWatch", text("/golden/w") + i32(0))
    c.call("persistent recursive", "addWatch", text("/golden") + i32(1))
    c.call("no watch", "exists", text("/golden/w") + flag(False))
    c.call("fires twice", "create", create("/golden/w/r", b"", 1))
    c.call("persistent", "checkWatches", text("/golden/w") + i32(4))
    c.call("no such watch", "checkWatches", text("/golden/none") + i32(2), -121)
    c.call("any", "removeWatches", text("/golden/w") + i32(3))
    c.call("recursive", "removeWatches", text("/golden") + i32(5))
    c.call("no such watch", "removeWatches", text("/golden/w") + i32(3), -121)
    lists = texts(["/golden/w", "/golden/none"]) + texts(["/golden/w", "/golden/none2"]) + texts(["/golden/w"])
    c.call("events of the past", "setWatches", i64(0) + lists)
    c.call("empty lists", "setWatches", i64(2**62) + texts([]) * 3)
    c.call("empty lists", "setWatches2", i64(2**62) + texts([]) * 5)
    more = texts(["/golden/p"]) + texts(["/golden/r"])
    c.call("persistent ones too", "setWatches2", i64(0) + lists + more)
    c.close()
    d.close()


def names_of(reply):
    """The list at the front of a getChildren or getChildren2 reply."""
    count, at, names = struct.unpack_from(">i", reply)[0], 4, []
    for _ in range(count):
        length = struct.unpack_from(">i", reply, at)[0]
        names.append(reply[at + 4:at + 4 + length].decode())
        at += 4 + length
    return names


def cleans(address, log):
    c = Client(address, log, "connect")
    for name in names_of(c.call("what is left", "getChildren2", text("/golden/m") + flag(False))):
        c.call("one child", "delete", text("/golden/m/" + name) + i32(-1))
    for name in names_of(c.call("what is left", "getChildren", text("/golden") + flag(False))):
        c.call("one child", "delete", text("/golden/" + name) + i32(-1))
    c.call("the root of it all", "delete", text("/golden") + i32(-1))
    c.close()


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    steps = [connects, creates, reads, acls, multis, refusals, watches, cleans]
    for step in steps:
        with Transcript(sys.argv[2], step.__name__) as log:
            step((host, int(port)), log)


if __name__ == "__main__":
    main()
