"""Records tests/golden/digests.txt: the transactions of a ZooKeeper (3.8 or newer) with the digests that it computed.

The transaction log of ZooKeeper holds, behind each transaction, the digest of the tree (version 2). This reads the log; each line
of the output is: zxid, time, digest, session, operations. Data are in hexadecimal, `-` is null.

    record_digests.py run PORT        a history through the client port of a ZooKeeper that was started empty
    record_digests.py read LOG_FILE   prints the lines
"""

import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "tests"))

from differential import operations  # noqa: E402
from support import jute  # noqa: E402
from support.client import Client  # noqa: E402

OPEN, UNREADABLE = [(31, "world", "anyone")], [(30, "world", "anyone")]
CREATE_SESSION, ERROR = -10, -1
# How a transaction is shown, and its fields: text, data, ACL, boolean, int, long.
FORMS = {
    jute.CREATE: ("create {0} {1} {3:d}", "sdabi"),
    jute.CREATE2: ("create {0} {1} {3:d}", "sdabi"),
    jute.CREATE_CONTAINER: ("container {0} {1}", "sdai"),
    jute.CREATE_TTL: ("ttl {0} {1} {4}", "sdaiq"),
    jute.DELETE: ("delete {0}", "s"),
    jute.DELETE_CONTAINER: ("delete {0}", "s"),
    jute.SET_DATA: ("set {0} {1}", "sdi"),
    jute.SET_ACL: ("acl {0} {1}", "sai"),
    jute.CHECK: ("check {0}", "si"),
    CREATE_SESSION: ("session", "i"),
    ERROR: ("error", "i"),
}


def create(path, data="", flags=jute.PERSISTENT):
    return ["create", path, data, OPEN, flags]


def set_data(path, data):
    return ["setData", path, data, -1]


def delete(path, version=-1):
    return ["delete", path, version]


FIRST = [
    create("/a", "first"), create("/a/b", None), create("/a/\u00e4\u20ac", "\x00\xff"), set_data("/a", ""), set_data("/a", None),
    set_data("/a/none", "x"), set_data("/a", "y" * 5000), create("/a/under-large"), delete("/a/under-large"),
    ["setACL", "/a", UNREADABLE, -1], ["setACL", "/a", OPEN, -1], set_data("/a", "small again"), set_data("/", "the root"),
    create("/a/s-", "", jute.SEQUENTIAL), create("/a/s-", "", jute.SEQUENTIAL),
]  # fmt: skip
OF_ANOTHER_SESSION = [create("/a/e", "mine", jute.EPHEMERAL), create("/a/es-", "mine", jute.EPHEMERAL_SEQUENTIAL)]
NEXT = [
    ["createContainer", "/c", "", OPEN, jute.CONTAINER], create("/c/kid"), delete("/c/kid"),
    ["createTTL", "/t", "ttl", OPEN, jute.TTL, 86_400_000],
    ["multi", [create("/m"), create("/m/x", "1"), set_data("/m/x", "2"), delete("/m/x"), ["check", "/m", 0]]],
    ["multi", [create("/no"), delete("/none")]], delete("/a/b"), create("/zookeeper/quota/q", "left out"),
    set_data("/zookeeper/quota/q", "left out as well"), set_data("/zookeeper", "counts"),
]  # fmt: skip
LAST = [*(create(f"/a/n{at}", chr(at) * at) for at in range(130)), *(delete(f"/a/n{at}") for at in range(0, 130, 3)), ["close"]]


def run(port):
    one, two = (Client(("127.0.0.1", port)) for _ in range(2))
    for client, history in ((one, FIRST), (two, OF_ANOTHER_SESSION), (one, NEXT), (two, [["close"]]), (one, LAST)):
        for op in history:
            client.send(operations.op_code(op), operations.body(op))
            client.reply()


def shown(data):
    return "-" if data is None else "x" + data.hex()


def operation(kind, body):
    if kind == jute.CLOSE:
        return "close"
    if kind == jute.MULTI:
        parts = [(body.int32(), jute.Reader(body.buffer())) for _ in range(body.int32())]
        return " ; ".join(operation(*part) for part in parts)
    readers = (body.string, lambda: shown(body.buffer()), lambda: body.acl()[0][0], body.boolean, body.int32, body.int64)
    take = dict(zip("sdabiq", readers, strict=True))
    form, fields = FORMS[kind]
    return form.format(*[take[field]() for field in fields])


def read(name):
    log = jute.Reader(Path(name).read_bytes())
    assert (log.take(4), log.int32(), log.int64()) == (b"ZKLG", 2, 0)
    while log.position + 12 < len(log.data):
        checksum, transaction = log.int64(), log.buffer()
        if not transaction:
            break
        log.take(1)
        assert zlib.adler32(transaction) == checksum
        body = jute.Reader(transaction)
        session, _, zxid, time, kind = body.int64(), body.int32(), body.int64(), body.int64(), body.int32()
        done, digest = operation(kind, body), "-"
        # The digest, behind its version, is the end.
        if len(transaction) - body.position >= 12:
            end = jute.Reader(transaction[-12:])
            assert end.int32() == 2
            digest = end.int64() % 2**64
        print(f"{zxid:x} {time} {digest} {session} {done}")


if __name__ == "__main__":
    run(int(sys.argv[2])) if sys.argv[1] == "run" else read(sys.argv[2])
