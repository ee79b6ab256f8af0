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

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "tests"))

from differential.operations import OPERATIONS, OWN_XIDS  # noqa: E402
from support import jute  # noqa: E402
from support.client import Connection  # noqa: E402
from support.jute import MARSHALLING_ERROR, acl, boolean, buffer, create_body, int32, int64, read_body, string, strings  # noqa: E402

OPEN = [(31, "world", "anyone")]
CODES = {"closeSession": jute.CLOSE, **{op: code for op, (code, _) in OPERATIONS.items()}}
END = jute.multi_body([])


def entry(op, record):
    return jute.multi_body([(CODES[op], record)]).removesuffix(END)


class Client(Connection):
    """One connection; writes what it sends and receives to the transcript."""

    def __init__(self, address, log, note, session=0, password=bytes(16), read_only=False, timeout=10000):
        super().__init__(address)
        self.log, self.xid = log, 0
        self.comment(note)
        request = jute.connect_request(timeout, session, password, read_only=read_only)
        self.line(">", "connect", request)
        self.send_frame(request)
        reply = self.frame()
        self.line("<", "connect", reply)
        self.session, self.password = jute.Reader(reply, 8).int64(), reply[20:36]

    def comment(self, words):
        print("#", words, file=self.log)

    def line(self, mark, op, body):
        print(mark, op, jute.frame(body).hex(), file=self.log)

    def event(self):
        """Waits for one notification."""
        body = self.frame()
        assert jute.Reader(body).int32() == jute.EVENT_XID, body.hex()
        self.line("<", "notification", body)

    def call(self, note, op, record=b"", expect=0):
        """Sends one request, waits for its reply, checks the error code; gives a reader of the reply's record."""
        self.xid += op not in OWN_XIDS
        xid, received = OWN_XIDS.get(op, self.xid), []
        request = int32(xid) + int32(CODES[op]) + record
        self.send_frame(request)
        while not received or received[-1][0] == "notification":
            reader = jute.Reader(self.frame())
            got, _, error = reader.int32(), reader.int64(), reader.int32()
            received.append(("notification" if got == jute.EVENT_XID else op, reader.data))
        assert (got, error) == (xid, expect), f"{note}: xid {got} for {xid}, error {error}"
        self.comment(f"{op}: {note}" + (f", error {error}" if error else ""))
        self.line("!" if error == MARSHALLING_ERROR else ">", op, request)
        for name, body in received:
            self.line("<", name, body)
        return reader

    def close(self):
        self.call("the server closes the connection behind the reply", "closeSession")
        assert self.is_closed(), "still open"


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
    c.call("PERSISTENT", "create", create_body("/golden", b"root"))
    c.call("null data", "create", create_body("/golden/null", None))
    c.call("EPHEMERAL", "create", create_body("/golden/e", b"x", 1))
    c.call("PERSISTENT_SEQUENTIAL", "create", create_body("/golden/s-", b"", 2))
    c.call("EPHEMERAL_SEQUENTIAL", "create", create_body("/golden/es-", b"", 3))
    c.call("two ACL entries", "create", create_body("/golden/acl", b"", 0, OPEN + [(1, "ip", "127.0.0.1")]))
    c.call("letters beyond ASCII", "create", create_body("/golden/\u00fc\u4e2d", "\u20ac".encode()))
    c.call("PERSISTENT", "create2", create_body("/golden/c2", b"data"))
    c.call("EPHEMERAL_SEQUENTIAL", "create2", create_body("/golden/c2-", b"data", 3))
    c.call("CONTAINER", "createContainer", create_body("/golden/con", b"", 4))
    c.call("PERSISTENT_WITH_TTL", "createTTL", create_body("/golden/ttl", b"", 5) + int64(600000))
    c.call("PERSISTENT_SEQUENTIAL_WITH_TTL", "createTTL", create_body("/golden/ttl-", b"", 6) + int64(600000))
    c.call("exists", "create", create_body("/golden"), -110)
    c.call("no parent", "create", create_body("/golden/no/no"), -101)
    c.call("below an ephemeral", "create", create_body("/golden/e/no"), -108)
    c.call("bad path", "create", create_body("/golden/"), -8)
    c.call("null ACL", "create", create_body("/golden/x", b"", 0, None), -114)
    c.call("empty ACL", "create", create_body("/golden/x", b"", 0, []), -114)
    c.call("unknown flag", "create", create_body("/golden/x", b"", 7), -8)
    c.call("of this session", "getEphemerals", string("/golden"))
    c.call("null prefix", "getEphemerals", string(None))
    c.call("all descendants", "getAllChildrenNumber", string("/golden"))
    c.call("accepted from a client", "deleteContainer", string("/golden/con"))
    c.close()


def reads(address, log):
    c = Client(address, log, "connect")
    c.call("with children", "exists", read_body("/golden"))
    c.call("no znode", "exists", read_body("/golden/none"), -101)
    c.call("some data", "getData", read_body("/golden"))
    c.call("null data", "getData", read_body("/golden/null"))
    c.call("no znode", "getData", read_body("/golden/none"), -101)
    c.call("new data", "setData", string("/golden") + buffer(b"new") + int32(0))
    c.call("null data, any version", "setData", string("/golden/c2") + buffer(None) + int32(-1))
    c.call("old version", "setData", string("/golden") + buffer(b"no") + int32(0), -103)
    c.call("several", "getChildren", read_body("/golden"))
    c.call("none", "getChildren", read_body("/golden/null"))
    c.call("several", "getChildren2", read_body("/golden"))
    c.call("none", "getChildren2", read_body("/golden/null"))
    c.call("no znode", "getChildren2", read_body("/golden/none"), -101)
    c.call("any text comes back", "sync", string("/golden"))
    c.call("keeps alive", "ping")
    c.call("with children", "delete", string("/golden") + int32(-1), -111)
    c.call("old version", "delete", string("/golden/c2") + int32(0), -103)
    c.call("right version", "delete", string("/golden/c2") + int32(1))
    c.call("switched off", "reconfig", string("") + string(None) + string("x") + int64(-1), -123)
    c.close()


def acls(address, log):
    c = Client(address, log, "connect")
    c.call("two entries", "getACL", string("/golden/acl"))
    c.call("without auth", "whoAmI")
    c.call("digest", "auth", int32(0) + string("digest") + buffer(b"user:secret"))
    c.call("with digest", "whoAmI")
    c.call("auth expands to the digest", "setACL", string("/golden/acl") + acl([(31, "auth", "")]) + int32(0))
    c.call("the digest", "getACL", string("/golden/acl"))
    c.call("old aversion", "setACL", string("/golden/acl") + acl(OPEN) + int32(0), -103)
    other = Client(address, log, "connect: another client")
    other.call("not granted", "getData", read_body("/golden/acl"), -102)
    other.call("server without SASL answers null", "sasl", buffer(b""))
    other.call("unknown scheme, then close", "auth", int32(0) + string("none") + buffer(b"x"), -115)
    c.call("open again", "setACL", string("/golden/acl") + acl(OPEN) + int32(-1))
    c.call("no znode", "getACL", string("/golden/none"), -101)
    c.close()


def multis(address, log):
    c = Client(address, log, "connect")
    c.call("empty", "multi", END)
    every = [
        entry("create", create_body("/golden/m", b"m")),
        entry("create2", create_body("/golden/m/2", b"", 1)),
        entry("create2", create_body("/golden/m/s-", b"", 2)),
        entry("createContainer", create_body("/golden/m/con", b"", 4)),
        entry("createTTL", create_body("/golden/m/ttl", b"", 5) + int64(600000)),
        entry("setData", string("/golden/m") + buffer(b"M") + int32(0)),
        entry("check", string("/golden/m") + int32(1)),
        entry("delete", string("/golden/m/2") + int32(-1)),
    ]
    c.call("every type", "multi", b"".join(every) + END)
    failing = [
        entry("create", create_body("/golden/m/x")),
        entry("delete", string("/golden/m/none") + int32(-1)),
        entry("check", string("/golden/m") + int32(0)),
        entry("create", create_body("/golden/m/y")),
    ]
    c.call("the second fails, the header says 0", "multi", b"".join(failing) + END)
    c.call("the only one fails", "multi", entry("check", string("/golden/m") + int32(9)) + END)
    get = entry("getData", read_body("/golden/m"))
    names = entry("getChildren", read_body("/golden/m"))
    none = entry("getData", read_body("/golden/none", True))
    c.call("one of them fails", "multiRead", get + none + names + END)
    c.call("empty", "multiRead", END)
    c.call("a read in a multi", "multi", get + END, MARSHALLING_ERROR)
    c.call("a write in a multiRead", "multiRead", failing[0] + END, MARSHALLING_ERROR)
    c.call("reads and writes", "multi", failing[0] + get + END, MARSHALLING_ERROR)
    alien = entry("setACL", string("/golden") + acl(OPEN) + int32(-1))
    c.call("a type that cannot be here", "multi", alien + END, MARSHALLING_ERROR)
    c.call("unknown flag", "multi", entry("create", create_body("/golden/m/x", b"", 7)) + END, MARSHALLING_ERROR)
    ttl = entry("create2", create_body("/golden/m/x", b"", 5))
    c.call("a TTL flag without a TTL", "multi", ttl + END, MARSHALLING_ERROR)
    unknown = entry("createTTL", create_body("/golden/m/x", b"", 7) + int64(1))
    c.call("unknown flag with a TTL fails by itself", "multi", unknown + END)
    c.call("create as container", "multi", entry("create", create_body("/golden/m/as", b"", 4)) + END)
    c.call("no end", "multi", failing[0], MARSHALLING_ERROR)
    c.close()


def refusals(address, log):
    c = Client(address, log, "connect")
    c.call("nothing behind the header", "getData", b"", MARSHALLING_ERROR)
    c.call("cut in the path", "getData", string("/golden")[:-1], MARSHALLING_ERROR)
    c.call("no watch byte", "getData", string("/golden"), MARSHALLING_ERROR)
    c.call("negative length", "getData", int32(-2) + b"/x" + boolean(False), MARSHALLING_ERROR)
    c.call("huge length", "getData", int32(2**31 - 1) + b"/x" + boolean(False), MARSHALLING_ERROR)
    c.call("negative buffer length", "setData", string("/golden") + int32(-9) + int32(-1), MARSHALLING_ERROR)
    c.call("huge count", "create", string("/golden/x") + buffer(b"") + int32(2**31 - 1) + int32(0), MARSHALLING_ERROR)
    c.call("count beyond the entries", "setACL", string("/golden") + int32(2) + acl(OPEN)[4:] + int32(-1), MARSHALLING_ERROR)
    c.call("cut in a list", "setWatches", int64(0) + strings(["/a"]) + strings(["/b"])[:-1], MARSHALLING_ERROR)
    c.close()


def watches(address, log):
    c = Client(address, log, "connect: the watching client")
    d = Client(address, log, "connect: the changing client")
    c.call("a watch on nothing", "exists", read_body("/golden/w", True), -101)
    d.call("fires NodeCreated elsewhere", "create", create_body("/golden/w"))
    c.event()
    c.call("a data watch", "getData", read_body("/golden/w", True))
    c.call("fires NodeDataChanged, before the reply", "setData", string("/golden/w") + buffer(b"1") + int32(-1))
    c.call("a child watch", "getChildren", read_body("/golden/w", True))
    d.call("fires NodeChildrenChanged elsewhere", "create", create_body("/golden/w/c", b"", 1))
    c.event()
    c.call("a child watch", "getChildren2", read_body("/golden/w/c", True))
    d.call("fires NodeDeleted elsewhere", "delete", string("/golden/w/c") + int32(-1))
    c.event()
    c.call("persistent", "addWatch", string("/golden/w") + int32(0))
    c.call("persistent recursive", "addWatch", string("/golden") + int32(1))
    c.call("no watch", "exists", read_body("/golden/w"))
    c.call("fires twice", "create", create_body("/golden/w/r", b"", 1))
    c.call("persistent", "checkWatches", string("/golden/w") + int32(4))
    c.call("no such watch", "checkWatches", string("/golden/none") + int32(2), -121)
    c.call("any", "removeWatches", string("/golden/w") + int32(3))
    c.call("recursive", "removeWatches", string("/golden") + int32(5))
    c.call("no such watch", "removeWatches", string("/golden/w") + int32(3), -121)
    lists = strings(["/golden/w", "/golden/none"]) + strings(["/golden/w", "/golden/none2"]) + strings(["/golden/w"])
    c.call("events of the past", "setWatches", int64(0) + lists)
    c.call("empty lists", "setWatches", int64(2**62) + strings([]) * 3)
    c.call("empty lists", "setWatches2", int64(2**62) + strings([]) * 5)
    more = strings(["/golden/p"]) + strings(["/golden/r"])
    c.call("persistent ones too", "setWatches2", int64(0) + lists + more)
    c.close()
    d.close()


def cleans(address, log):
    c = Client(address, log, "connect")
    for parent, op in (("/golden/m", "getChildren2"), ("/golden", "getChildren")):
        for name in c.call("what is left", op, read_body(parent)).strings():
            c.call("one child", "delete", string(f"{parent}/{name}") + int32(-1))
    c.call("the root of it all", "delete", string("/golden") + int32(-1))
    c.close()


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    for step in (connects, creates, reads, acls, multis, refusals, watches, cleans):
        with open(Path(sys.argv[2], f"{step.__name__}.txt"), "w", encoding="ascii") as log:
            step((host, int(port)), log)


if __name__ == "__main__":
    main()
