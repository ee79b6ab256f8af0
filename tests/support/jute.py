"""Jute encoding and the records of the ZooKeeper protocol that the tests need.

Plain functions from values to bytes and a reader back. It does not know sockets, sessions or servers, and shares no code
with the server under test on purpose: a mistake made twice would not show.
"""

import struct
from collections import namedtuple

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC = range(1, 10)
PING, GET_CHILDREN2, CHECK, MULTI, CREATE2 = 11, 12, 13, 14, 15
RECONFIG, CHECK_WATCHES, REMOVE_WATCHES, CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = range(16, 22)
AUTH, SET_WATCHES, SASL, GET_EPHEMERALS, COUNT_DESCENDANTS, SET_WATCHES2, ADD_WATCH = range(100, 107)
MULTI_READ = 22
FILTERED_LIST, CHECK_NOT_EXISTS, CREATE_IF_NOT_EXISTS, REMOVE_RECURSIVE, CHECK_STAT, TRY_REMOVE = range(500, 506)
FILTERED_LIST_WHOLE, LIST_RECURSIVE = 506, 507
CLOSE = -11

PERSISTENT, EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL, CONTAINER, TTL = range(6)
EVENT_XID, PING_XID, AUTH_XID, SET_WATCHES_XID = -1, -2, -4, -8
CREATED, DELETED, CHANGED, CHILDREN_CHANGED = 1, 2, 3, 4

OK = 0
MARSHALLING_ERROR, UNIMPLEMENTED, BAD_ARGUMENTS = -5, -6, -8
NO_NODE, NO_AUTH, BAD_VERSION = -101, -102, -103
NODE_EXISTS, NOT_EMPTY, INVALID_ACL, AUTH_FAILED = -110, -111, -114, -115
RECONFIG_DISABLED, SESSION_CLOSED_REQUIRE_AUTH, QUOTA_EXCEEDED = -123, -124, -125

READ, ALL = 1, 31
OPEN_ACL = ((ALL, "world", "anyone"),)
FRAME_BYTES_MAX = 0xFFFFF

Stat = namedtuple("Stat", "czxid mzxid ctime mtime version cversion aversion ephemeral_owner data_length num_children pzxid")
STAT = struct.Struct(">qqqqiiiqiiq")


def int32(value):
    return struct.pack(">i", value)


def int64(value):
    return struct.pack(">q", value)


def boolean(value):
    return b"\1" if value else b"\0"


def buffer(value):
    """Length and bytes; None is the null buffer."""
    return int32(-1) if value is None else int32(len(value)) + value


def string(value):
    return buffer(None if value is None else value.encode("utf-8", "surrogatepass"))


def vector(items):
    """Count and encoded elements; None is the null vector."""
    return int32(-1) if items is None else int32(len(items)) + b"".join(items)


def strings(values):
    return vector([string(value) for value in values])


def acl(entries):
    """A vector of (permissions, scheme, id)."""
    if entries is None:
        return vector(None)
    return vector([int32(perms) + string(scheme) + string(ident) for perms, scheme, ident in entries])


def frame(body):
    return int32(len(body)) + body


def connect_request(timeout_ms, session_id=0, password=b"\0" * 16, last_zxid=0, read_only=False):
    """The first message of a connection; `read_only=None` leaves the byte out, as clients before 3.4 did."""
    tail = b"" if read_only is None else boolean(read_only)
    return int32(0) + int64(last_zxid) + int32(timeout_ms) + int64(session_id) + buffer(password) + tail


def create_body(path, data=b"", flags=PERSISTENT, entries=OPEN_ACL):
    return string(path) + buffer(data) + acl(entries) + int32(flags)


def path_and_int(path, number=-1):
    return string(path) + int32(number)


delete_body = check_body = path_and_int


def set_body(path, data, version=-1):
    return string(path) + buffer(data) + int32(version)


def set_acl_body(path, entries, version=-1):
    return string(path) + acl(entries) + int32(version)


def read_body(path, watch=False):
    return string(path) + boolean(watch)


def set_watches_body(zxid, data=(), exist=(), child=()):
    return int64(zxid) + strings(data) + strings(exist) + strings(child)


def reconfig_body(joining=None, leaving=None, members=None, version=-1):
    return string(joining) + string(leaving) + string(members) + int64(version)


def multi_body(operations):
    """Operations are (op code, encoded record)."""
    parts = [int32(op) + boolean(False) + int32(-1) + body for op, body in operations]
    return b"".join(parts) + int32(-1) + boolean(True) + int32(-1)


class Reader:
    """Takes values off the front of bytes; struct.error or IndexError when they end early."""

    def __init__(self, data, position=0):
        self.data, self.position = data, position

    def take(self, size):
        piece = self.data[self.position : self.position + size]
        if len(piece) != size:
            raise IndexError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        self.position += size
        return piece

    def int32(self):
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self):
        return int.from_bytes(self.take(8), "big", signed=True)

    def boolean(self):
        return self.take(1) != b"\0"

    def buffer(self):
        size = self.int32()
        return None if size < 0 else bytes(self.take(size))

    def string(self):
        value = self.buffer()
        return None if value is None else value.decode()

    def strings(self):
        return [self.string() for _ in range(self.int32())]

    def stat(self):
        return Stat(*STAT.unpack(self.take(STAT.size)))

    def acl(self):
        return [(self.int32(), self.string(), self.string()) for _ in range(self.int32())]

    def rest(self):
        return bytes(self.data[self.position :])


def multi_results(reader):
    """The body of a multi's reply as a list of (type, error, value)."""
    results = []
    while True:
        kind, done, error = reader.int32(), reader.boolean(), reader.int32()
        if done:
            return results
        value = None
        if kind == -1:
            value = reader.int32()
        elif kind in (CREATE, CREATE_IF_NOT_EXISTS):
            value = reader.string()
        elif kind == CREATE2:
            value = (reader.string(), reader.stat())
        elif kind == SET_DATA:
            value = reader.stat()
        results.append((kind, error, value))
