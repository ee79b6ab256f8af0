"""Operations as plain JSON values, and their bytes.

An operation is a list: its name and its arguments, as the tables below name them. Data is text of bytes (latin-1), or a number
of bytes to fill, or null. A number in the place of a zxid is relative to the zxid at the start of the sequence; the word "seen"
stands for the newest zxid the session saw. Wrappers change the bytes of the operation inside them: ["cut", n, op],
["tail", hex, op], ["poke", offset, hex, op], ["xid", xid, op].
"""

from support import jute
from support.jute import acl, boolean, buffer, int32, int64, string, strings, vector

CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL, MULTI_READ, RECONFIG = 19, 20, 21, 22, 16
CHECK_WATCHES, REMOVE_WATCHES, SASL = 17, 18, 102
GET_EPHEMERALS, GET_ALL_CHILDREN_NUMBER, SET_WATCHES2, ADD_WATCH, WHO_AM_I = 103, 104, 105, 106, 107
CREATE_SESSION = -10
WRAPPERS = ("cut", "tail", "poke", "xid")
# What a zxid that is far ahead of any server looks like.
FAR_ZXID = 2**62

OP_CODES = {
    "create": jute.CREATE, "create2": jute.CREATE2, "createContainer": CREATE_CONTAINER, "createTTL": CREATE_TTL,
    "delete": jute.DELETE, "deleteContainer": DELETE_CONTAINER, "setData": jute.SET_DATA, "setACL": jute.SET_ACL,
    "exists": jute.EXISTS, "getData": jute.GET_DATA, "getChildren": jute.GET_CHILDREN, "getChildren2": jute.GET_CHILDREN2,
    "getACL": jute.GET_ACL, "sync": jute.SYNC, "check": jute.CHECK, "multi": jute.MULTI, "multiRead": MULTI_READ,
    "reconfig": RECONFIG, "checkWatches": CHECK_WATCHES, "removeWatches": REMOVE_WATCHES, "addWatch": ADD_WATCH,
    "setWatches": jute.SET_WATCHES, "setWatches2": SET_WATCHES2, "getEphemerals": GET_EPHEMERALS,
    "getAllChildrenNumber": GET_ALL_CHILDREN_NUMBER, "whoAmI": WHO_AM_I, "ping": jute.PING, "auth": jute.AUTH, "sasl": SASL,
    "close": jute.CLOSE, "createSession": CREATE_SESSION,
}  # fmt: skip
OWN_XIDS = {
    "ping": jute.PING_XID, "auth": jute.AUTH_XID, "setWatches": jute.SET_WATCHES_XID, "setWatches2": jute.SET_WATCHES_XID,
}  # fmt: skip


def data_bytes(value):
    """The bytes that stand for a data argument."""
    if value is None:
        return None
    return b"x" * value if isinstance(value, int) else value.encode("latin-1")


def entries_bytes(entries):
    """A vector of ACL entries; a number is a vector without entries that claims this count."""
    return int32(entries) if isinstance(entries, int) else acl(entries)


def create_bytes(path, data, entries, flags):
    return string(path) + buffer(data_bytes(data)) + entries_bytes(entries) + int32(flags)


def create_ttl_bytes(path, data, entries, flags, ttl):
    assert flags in (5, 6), "createTTL is for the TTL modes"
    return create_bytes(path, data, entries, flags) + int64(ttl)


def set_data_bytes(path, data, version):
    return string(path) + buffer(data_bytes(data)) + int32(version)


def set_acl_bytes(path, entries, version):
    return string(path) + entries_bytes(entries) + int32(version)


def path_and_int(path, number):
    return string(path) + int32(number)


def multi_bytes(operations):
    parts = [int32(op_code(op)) + boolean(False) + int32(-1) + body(op) for op in operations]
    return b"".join(parts) + int32(-1) + boolean(True) + int32(-1)


def reconfig_bytes(joining, leaving, members, version):
    return string(joining) + string(leaving) + string(members) + int64(version)


def nothing():
    return b""


BODIES = {
    "create": create_bytes, "create2": create_bytes, "createContainer": create_bytes, "createTTL": create_ttl_bytes,
    "delete": path_and_int, "deleteContainer": string, "setData": set_data_bytes, "setACL": set_acl_bytes,
    "exists": jute.read_body, "getData": jute.read_body, "getChildren": jute.read_body, "getChildren2": jute.read_body,
    "getACL": string, "sync": string, "check": path_and_int, "multi": multi_bytes, "multiRead": multi_bytes,
    "reconfig": reconfig_bytes, "checkWatches": path_and_int, "removeWatches": path_and_int, "addWatch": path_and_int,
    "getEphemerals": string, "getAllChildrenNumber": string, "whoAmI": nothing, "ping": nothing,
    "auth": lambda kind, scheme, data: int32(kind) + string(scheme) + buffer(data_bytes(data)),
    "sasl": lambda token: buffer(data_bytes(token)), "close": nothing, "createSession": int32,
    "setWatches": lambda zxid, *paths: int64(zxid) + b"".join(map(path_list, paths)),
    "setWatches2": lambda zxid, *paths: int64(zxid) + b"".join(map(path_list, paths)),
}  # fmt: skip


def path_list(paths):
    return vector(None) if paths is None else strings(paths)


def plain(op):
    """The operation inside all wrappers."""
    while op[0] in WRAPPERS:
        op = op[-1]
    return op


def op_code(op):
    op = plain(op)
    return op[1] if op[0] == "unknown" else OP_CODES[op[0]]


def xid_of(op):
    """The xid the operation prescribes, or None."""
    while op[0] in WRAPPERS:
        if op[0] == "xid":
            return op[1]
        op = op[-1]
    return OWN_XIDS.get(op[0])


def body(op, zxid_of=None):
    """The bytes behind the request header. `zxid_of` turns the zxids of an operation into those of a server."""
    name = op[0]
    if name == "cut":
        inner = body(op[2], zxid_of)
        return inner[: max(0, len(inner) - op[1])]
    if name == "tail":
        return body(op[2], zxid_of) + bytes.fromhex(op[1])
    if name == "poke":
        inner, new = body(op[3], zxid_of), bytes.fromhex(op[2])
        offset = op[1] % max(1, len(inner))
        return (inner[:offset] + new + inner[offset + len(new) :])[: len(inner)]
    if name == "xid":
        return body(op[2], zxid_of)
    if name == "unknown":
        return bytes.fromhex(op[2])
    if name in ("setWatches", "setWatches2"):
        return BODIES[name](zxid_of(op[1]), *op[2:])
    return BODIES[name](*op[1:])


def needs_zxid(op):
    return plain(op)[0] in ("setWatches", "setWatches2")


def frame(op, xid, zxid_of=None):
    """The whole request: length, header and body."""
    content = body(op, zxid_of)
    return int32(8 + len(content)) + int32(xid) + int32(op_code(op)) + content


def is_write(op):
    """Whether the operation can change what other sessions see."""
    return plain(op)[0] in ("create", "create2", "createContainer", "createTTL", "delete", "setData", "setACL", "multi",
                            "reconfig", "close", "deleteContainer", "createSession", "unknown")  # fmt: skip


def overtakes(op):
    """Whether ZooKeeper reacts ahead of requests that came before this one and are not answered yet."""
    op = plain(op)
    too_long = op[0] == "setData" and isinstance(op[2], int) and op[2] > jute.FRAME_BYTES_MAX - 100
    return op[0] in ("auth", "sasl", "check", "unknown") or too_long
