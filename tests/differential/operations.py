"""Operations as plain JSON values, and their bytes.

An operation is a list: its name and its arguments, see OPERATIONS. Data is text of bytes (latin-1), a number of bytes to fill, or null.
A zxid counts from the start of the case, or is the word "seen" for the newest zxid that the session received. Wrappers change the
bytes of the operation inside them: ["cut", n, op], ["tail", hex, op], ["poke", offset, hex, op], ["xid", xid, op].
"""

from support import jute
from support.jute import acl, buffer, int32, int64, string, strings, vector

CREATE_SESSION, WHO_AM_I = -10, 107
# What a zxid that is far ahead of any server looks like.
FAR_ZXID = 2**62


def data_bytes(value):
    """The bytes that stand for a data argument."""
    if value is None:
        return None
    return b"x" * value if isinstance(value, int) else value.encode("latin-1")


def create(path, data, entries, flags):
    return string(path) + buffer(data_bytes(data)) + acl_bytes(entries) + int32(flags)


def create_ttl(path, data, entries, flags, ttl):
    assert flags in (5, 6), "createTTL is for the TTL modes"
    return create(path, data, entries, flags) + int64(ttl)


def acl_bytes(entries):
    """A vector of ACL entries. A number is a vector without entries that claims this count."""
    return int32(entries) if isinstance(entries, int) else acl(entries)


def multi(operations):
    return jute.multi_body([(op_code(op), body(op)) for op in operations])


def set_watches(zxid, *lists):
    return int64(zxid) + b"".join(vector(None) if paths is None else strings(paths) for paths in lists)


# Name -> op code, and what makes the body of the arguments.
OPERATIONS = {
    "create": (jute.CREATE, create), "create2": (jute.CREATE2, create), "createContainer": (jute.CREATE_CONTAINER, create),
    "createTTL": (jute.CREATE_TTL, create_ttl), "delete": (jute.DELETE, jute.path_and_int), "deleteContainer": (jute.DELETE_CONTAINER, string),
    "setData": (jute.SET_DATA, lambda path, data, version: string(path) + buffer(data_bytes(data)) + int32(version)),
    "setACL": (jute.SET_ACL, lambda path, entries, version: string(path) + acl_bytes(entries) + int32(version)),
    "exists": (jute.EXISTS, jute.read_body), "getData": (jute.GET_DATA, jute.read_body), "getACL": (jute.GET_ACL, string),
    "getChildren": (jute.GET_CHILDREN, jute.read_body), "getChildren2": (jute.GET_CHILDREN2, jute.read_body),
    "sync": (jute.SYNC, string), "check": (jute.CHECK, jute.path_and_int), "multi": (jute.MULTI, multi), "multiRead": (jute.MULTI_READ, multi),
    "reconfig": (jute.RECONFIG, jute.reconfig_body), "checkWatches": (jute.CHECK_WATCHES, jute.path_and_int),
    "removeWatches": (jute.REMOVE_WATCHES, jute.path_and_int), "addWatch": (jute.ADD_WATCH, jute.path_and_int),
    "setWatches": (jute.SET_WATCHES, set_watches), "setWatches2": (jute.SET_WATCHES2, set_watches),
    "getEphemerals": (jute.GET_EPHEMERALS, string), "getAllChildrenNumber": (jute.COUNT_DESCENDANTS, string),
    "whoAmI": (WHO_AM_I, bytes), "ping": (jute.PING, bytes), "close": (jute.CLOSE, bytes), "createSession": (CREATE_SESSION, int32),
    "auth": (jute.AUTH, lambda kind, scheme, data: int32(kind) + string(scheme) + buffer(data_bytes(data))),
    "sasl": (jute.SASL, lambda token: buffer(data_bytes(token))), "unknown": (None, lambda _, body: bytes.fromhex(body)),
}  # fmt: skip
OWN_XIDS = {
    "ping": jute.PING_XID, "auth": jute.AUTH_XID, "setWatches": jute.SET_WATCHES_XID, "setWatches2": jute.SET_WATCHES_XID,
}  # fmt: skip


def poke(inner, offset, data):
    offset, new = offset % max(1, len(inner)), bytes.fromhex(data)
    return (inner[:offset] + new + inner[offset + len(new) :])[: len(inner)]


# Name -> what makes the body of that of the operation inside.
WRAPPERS = {
    "cut": lambda inner, size: inner[: max(0, len(inner) - size)],
    "tail": lambda inner, data: inner + bytes.fromhex(data),
    "poke": poke,
    "xid": lambda inner, _: inner,
}


def plain(op):
    """The operation inside all wrappers."""
    return plain(op[-1]) if op[0] in WRAPPERS else op


def op_code(op):
    op = plain(op)
    return op[1] if op[0] == "unknown" else OPERATIONS[op[0]][0]


def xid_of(op):
    """The xid the operation prescribes, or None."""
    if op[0] == "xid":
        return op[1]
    return xid_of(op[-1]) if op[0] in WRAPPERS else OWN_XIDS.get(op[0])


def body(op, zxid_of=None):
    """The bytes behind the request header. `zxid_of` turns the zxids of an operation into those of a server."""
    name, *arguments = op
    if name in WRAPPERS:
        return WRAPPERS[name](body(arguments.pop(), zxid_of), *arguments)
    if name in ("setWatches", "setWatches2"):
        arguments[0] = zxid_of(arguments[0])
    return OPERATIONS[name][1](*arguments)


def frame(op, xid, zxid_of=None):
    """The whole request: length, header and body."""
    content = body(op, zxid_of)
    return int32(8 + len(content)) + int32(xid) + int32(op_code(op)) + content


def is_write(op):
    """Whether the operation can change what other sessions see."""
    return plain(op)[0] in ("create", "create2", "createContainer", "createTTL", "delete", "setData", "setACL", "multi",
                            "reconfig", "close", "deleteContainer", "createSession", "unknown")  # fmt: skip


def overtakes(op):
    """Whether ZooKeeper handles it ahead of earlier requests that are not answered yet."""
    op = plain(op)
    too_long = op[0] == "setData" and isinstance(op[2], int) and op[2] > jute.FRAME_BYTES_MAX - 100
    return op[0] in ("auth", "sasl", "check", "unknown") or too_long
