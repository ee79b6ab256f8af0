"""Turns the messages of a server into values that can be compared with those of another server.

Values are equal exactly if the messages are, but for what must differ. Zxids are counted from the start of the case. A time must be
that of the transaction which the zxid beside it names. Sessions are numbered in the order in which the case opened them. Names of
children and ephemerals are sorted. Everything else stays as it came, also bytes behind a record.
"""

import re
import time
from bisect import bisect_right
from itertools import groupby

from differential import operations
from support import jute
from support.jute import Reader

CLOCK_SLACK_MS = 2000
# A challenge of SASL, with its length and its nonce.
CHALLENGE = re.compile(rb'(?s)^....(realm="[^"]*",nonce=)"[^"]*"')
TIMES_KEPT_MAX = 200_000


class Names:
    """The mapping of one server's zxids, times and session ids."""

    def __init__(self):
        self.bases, self.times, self.sessions = [0], {}, {}
        self.begin_ms = time.time() * 1000 - CLOCK_SLACK_MS

    def begin_sequence(self, zxid):
        """From here on zxids are counted from this one, and sessions from zero."""
        if zxid > self.bases[-1]:
            self.bases.append(zxid)
        self.sessions = {}
        if len(self.times) > TIMES_KEPT_MAX:
            self.times = {}

    def zxid(self, zxid):
        if zxid <= 0:
            return zxid
        if zxid > self.bases[-1]:
            return zxid - self.bases[-1]
        # Older than the case: how many beginnings ago, and the distance from that one.
        index = bisect_right(self.bases, zxid - 1) - 1
        return ("old", len(self.bases) - 1 - index, zxid - self.bases[index])

    def real_zxid(self, zxid):
        """The zxid of the server for one that counts from the start of the case."""
        return zxid if zxid <= 0 or zxid >= operations.FAR_ZXID else self.bases[-1] + zxid

    def time(self, zxid, stamp):
        """True if the time is that of the transaction."""
        if stamp == 0:
            return 0
        if self.times.setdefault(zxid, stamp) != stamp:
            return ("another time than before for this zxid", stamp - self.times[zxid])
        if self.begin_ms <= stamp <= time.time() * 1000 + CLOCK_SLACK_MS:
            return True
        return ("far from now", stamp)

    def owner(self, session_id):
        return f"session {self.sessions[session_id]}" if session_id in self.sessions else session_id

    def opened(self, session_id):
        return self.sessions.setdefault(session_id, len(self.sessions))

    def stat(self, stat):
        return (
            self.zxid(stat.czxid), self.zxid(stat.mzxid), self.time(stat.czxid, stat.ctime), self.time(stat.mzxid, stat.mtime),
            stat.version, stat.cversion, stat.aversion, self.owner(stat.ephemeral_owner), stat.data_length,
            stat.num_children, self.zxid(stat.pzxid),
        )  # fmt: skip


def vector(reader, take, order=lambda items: items):
    count = reader.int32()
    return None if count < 0 else tuple(order([take() for _ in range(count)]))


def sorted_strings(reader, _):
    return vector(reader, reader.buffer, sorted)


def multi(reader, names):
    results = []
    while True:
        kind, done, error = reader.int32(), reader.take(1), reader.int32()
        if done != b"\0":
            return (*results, (kind, done, error))
        value = RECORDS[kind](reader, names) if kind in RECORDS else reader.int32() if kind == -1 else None
        results.append((kind, error, value))


def stat(reader, names):
    return names.stat(reader.stat())


def bytes_and_stat(reader, names):
    return (reader.buffer(), names.stat(reader.stat()))


RECORDS = {
    jute.CREATE: lambda reader, _: reader.buffer(),
    **dict.fromkeys((jute.EXISTS, jute.SET_DATA, jute.SET_ACL), stat),
    **dict.fromkeys((jute.CREATE2, jute.CREATE_CONTAINER, jute.CREATE_TTL, jute.GET_DATA, jute.RECONFIG), bytes_and_stat),
    **dict.fromkeys((jute.GET_CHILDREN, jute.GET_EPHEMERALS), sorted_strings),
    **dict.fromkeys((jute.MULTI, jute.MULTI_READ), multi),
    jute.GET_CHILDREN2: lambda reader, names: (sorted_strings(reader, names), stat(reader, names)),
    jute.GET_ACL: lambda reader, names: (
        vector(reader, lambda: (reader.int32(), reader.buffer(), reader.buffer())), stat(reader, names)
    ),
    operations.WHO_AM_I: lambda reader, _: vector(reader, lambda: (reader.buffer(), reader.buffer()), sorted),
}  # fmt: skip


def reply(frame, op_code, names):
    """(xid, zxid, error, value, bytes left over) of a reply to a request with this op code."""
    reader = Reader(frame)
    try:
        xid, zxid, error = reader.int32(), reader.int64(), reader.int32()
        value = None
        if reader.position < len(frame) and op_code in RECORDS:
            value = RECORDS[op_code](reader, names)
    except (IndexError, ValueError) as problem:
        return ("undecodable", str(problem), bytes(frame))
    return (xid, names.zxid(zxid), error, value, CHALLENGE.sub(rb'\1"N"', reader.rest()))


def event(frame, names):
    """("event", zxid, kind, state, path, bytes left over)."""
    reader = Reader(frame)
    try:
        _, zxid, error = reader.int32(), reader.int64(), reader.int32()
        return ("event", names.zxid(zxid), error, reader.int32(), reader.int32(), reader.buffer(), reader.rest())
    except IndexError as problem:
        return ("undecodable event", str(problem), bytes(frame))


def connect_response(frame, names):
    """("connected", protocol, timeout, session, password length or zeros, rest) of the first message of a connection."""
    reader = Reader(frame)
    try:
        protocol, timeout_ms, session_id, password = reader.int32(), reader.int32(), reader.int64(), reader.buffer()
    except IndexError as problem:
        return ("undecodable connect response", str(problem), bytes(frame)), None
    if session_id:
        names.opened(session_id)
    secret = password if not password or not any(password) else ("secret", len(password))
    message = ("connected", protocol, timeout_ms, names.owner(session_id), secret, reader.rest())
    return message, (session_id, password) if session_id else None


def is_event(message):
    return message[0] == "event"


def order_closing(messages, closing_zxids):
    """Sorts the events of each closeSession among themselves: it deletes ephemerals in no promised order."""
    result = []
    for closing, group in groupby(messages, lambda message: is_event(message) and message[1] in closing_zxids and message[1]):
        result += sorted(group) if closing else group
    return result
