"""Records tests/golden/digests.txt: the transactions of a ZooKeeper (3.8 or newer) with the digests that it computed.

The transaction log of ZooKeeper holds, behind each transaction, the digest of the tree (version 2). This reads the log; each line
of the output is: zxid, time, digest, session, operations. Data are in hexadecimal, `-` is null.

    record_digests.py run PORT        a history through the client port of a ZooKeeper that was started empty
    record_digests.py read LOG_FILE   prints the lines
"""
import socket
import struct
import sys
import zlib

OPEN = struct.pack(">ii", 1, 31) + b"".join(struct.pack(">i", len(t)) + t for t in (b"world", b"anyone"))
UNREADABLE = struct.pack(">ii", 1, 30) + b"".join(struct.pack(">i", len(t)) + t for t in (b"world", b"anyone"))


def blob(value):
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def create(path, data=b"", flags=0):
    return blob(path.encode()) + blob(data) + OPEN + struct.pack(">i", flags)


def setdata(path, data, version=-1):
    return blob(path.encode()) + blob(data) + struct.pack(">i", version)


def delete(path, version=-1):
    return blob(path.encode()) + struct.pack(">i", version)


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.frame(struct.pack(">iqiq", 0, 0, 10000, 0) + blob(bytes(16)))
        self.reply()
        self.xid = 0

    def frame(self, payload):
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)

    def reply(self):
        def exactly(count):
            out = b""
            while len(out) < count:
                out += self.socket.recv(count - len(out)) or sys.exit("connection closed")
            return out
        return exactly(struct.unpack(">i", exactly(4))[0])

    def call(self, kind, body):
        self.xid += 1
        self.frame(struct.pack(">ii", self.xid, kind) + body)
        return self.reply()

    def multi(self, ops):
        body = b"".join(struct.pack(">ibi", kind, 0, -1) + op for kind, op in ops)
        return self.call(14, body + struct.pack(">ibi", -1, 1, -1))


def run(port):
    one, two = Client(port), Client(port)
    one.call(1, create("/a", b"first"))
    one.call(1, create("/a/b", None))
    one.call(1, create("/a/\u00e4\u20ac", b"\x00\xff"))
    one.call(5, setdata("/a", b""))
    one.call(5, setdata("/a", None))
    one.call(5, setdata("/a/none", b"x"))
    one.call(5, setdata("/a", b"y" * 5000))
    one.call(1, create("/a/under-large", b""))
    one.call(2, delete("/a/under-large"))
    one.call(7, blob(b"/a") + UNREADABLE + struct.pack(">i", -1))
    one.call(7, blob(b"/a") + OPEN + struct.pack(">i", -1))
    one.call(5, setdata("/a", b"small again"))
    one.call(5, setdata("/", b"the root"))
    one.call(1, create("/a/s-", b"", 2))
    one.call(1, create("/a/s-", b"", 2))
    two.call(1, create("/a/e", b"mine", 1))
    two.call(1, create("/a/es-", b"mine", 3))
    one.call(19, create("/c", b"", 4))
    one.call(1, create("/c/kid", b""))
    one.call(2, delete("/c/kid"))
    one.call(21, create("/t", b"ttl", 5) + struct.pack(">q", 86_400_000))
    one.multi([(1, create("/m")), (1, create("/m/x", b"1")), (5, setdata("/m/x", b"2")), (2, delete("/m/x")), (13, delete("/m", 0))])
    one.multi([(1, create("/no")), (2, delete("/none"))])
    one.call(2, delete("/a/b"))
    one.call(1, create("/zookeeper/quota/q", b"left out"))
    one.call(5, setdata("/zookeeper/quota/q", b"left out as well"))
    one.call(5, setdata("/zookeeper", b"counts"))
    two.call(-11, b"")
    for at in range(130):
        one.call(1, create(f"/a/n{at}", bytes([at]) * at))
    for at in range(0, 130, 3):
        one.call(2, delete(f"/a/n{at}"))
    one.call(-11, b"")


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from(">" + form, self.data, self.at)
        self.at += struct.calcsize(">" + form)
        return values if len(values) > 1 else values[0]

    def blob(self):
        length = self.take("i")
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length:self.at]


def operation(kind, body):
    text = lambda: body.blob().decode()
    show = lambda data: "-" if data is None else "x" + data.hex()

    def acl():
        entries = [(body.take("i"), body.blob(), body.blob()) for _ in range(body.take("i"))]
        return str(entries[0][0])
    if kind in (1, 15):
        path, data, _ = text(), body.blob(), acl()
        ephemeral, _ = body.take("?i")
        return f"create {path} {show(data)} {int(ephemeral)}"
    if kind == 19:
        path, data, _ = text(), body.blob(), acl()
        body.take("i")
        return f"container {path} {show(data)}"
    if kind == 21:
        path, data, _ = text(), body.blob(), acl()
        _, ttl = body.take("iq")
        return f"ttl {path} {show(data)} {ttl}"
    if kind in (2, 20):
        return f"delete {text()}"
    if kind == 5:
        path, data = text(), body.blob()
        body.take("i")
        return f"set {path} {show(data)}"
    if kind == 7:
        path, perms = text(), acl()
        body.take("i")
        return f"acl {path} {perms}"
    if kind == 13:
        path = text()
        body.take("i")
        return f"check {path}"
    if kind == -10:
        body.take("i")
        return "session"
    if kind == -11:
        if len(body.data) - body.at > 12:
            [text() for _ in range(body.take("i"))]
        return "close"
    if kind == -1:
        body.take("i")
        return "error"
    if kind == 14:
        ops = []
        for _ in range(body.take("i")):
            inner = body.take("i")
            ops.append(operation(inner, Reader(body.blob())))
        return " ; ".join(ops)
    sys.exit(f"unknown type {kind}")


def read(name):
    log = Reader(open(name, "rb").read())
    assert log.take("iiq")[:2] == (0x5A4B4C47, 2)
    while log.at + 12 < len(log.data):
        checksum, length = log.take("qi")
        if length == 0:
            break
        txn = log.data[log.at:log.at + length]
        assert zlib.adler32(txn) == checksum
        log.at += length + 1
        body = Reader(txn)
        session, _, zxid, time, kind = body.take("qiqqi")
        done = operation(kind, body)
        digest = "-"
        if body.at < len(body.data):
            version, digest = body.take("iq")
            assert version == 2
            digest %= 2**64
        print(f"{zxid:x} {time} {digest} {session} {done}")


if __name__ == "__main__":
    run(int(sys.argv[2])) if sys.argv[1] == "run" else read(sys.argv[2])
