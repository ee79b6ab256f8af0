"""Connections that move frames, and a super session on each server.

The session marks where a case begins, reads the tree after it, and cleans up.
"""

from differential import mapping, operations, words
from support import jute
from support.client import Closed, Connection

EVENT_HEAD = b"\xff\xff\xff\xff"
SUPER_PASSWORD = "superpw"
SUPER_DIGEST = "super:g9oN2HttPfn8MMWJZ2r45Np/LIA="
SESSION_MS = 400_000
READS = ("getChildren", "getData", "getACL")


class Wire(Connection):
    """One TCP connection. `state` is open, closed (by the server) or silent (nothing came within the limit)."""

    state = "open"

    def send(self, data):
        try:
            self.send_bytes(data)
        except OSError:
            self.state = "closed"

    def frames(self, replies, to_the_end=False):
        """The frames up to the given number of replies, events not counted, or up to the end of the connection."""
        found = []
        try:
            while replies > 0 or to_the_end:
                found.append(self.frame())
                replies -= found[-1][:4] != EVENT_HEAD
        except Closed:
            self.state = "closed"
        except TimeoutError:
            self.state = "silent"
        return found


def connect_frame(options, session, last_zxid):
    """The connect request that the options of a step describe. `session` is (id, password) or None."""
    session_id, password = session or (0, b"\0" * 16)
    kind = options.get("password", "right")
    if kind == "wrong":
        password = bytes(byte ^ 0x5A for byte in password)
    elif kind != "right":
        password = {"zeros": b"\0" * 16, "short": password[:8], "empty": b"", "null": None}[kind]
    body = jute.connect_request(options.get("timeout", 30_000), session_id, password, last_zxid, read_only=options.get("read_only", False))
    return jute.frame(body[: len(body) - options.get("cut", 0)])


class Control:
    def __init__(self, address, names, limit_s):
        self.names, self.last_xid = names, 0
        self.wire = Wire(address, limit_s)
        self.wire.send(connect_frame({"timeout": SESSION_MS}, None, 0))
        self.wire.frames(1)
        self.replies([["auth", 0, "digest", f"super:{SUPER_PASSWORD}"]])

    def replies(self, ops):
        """Sends all operations at once and returns the frames of the replies."""
        sent = []
        for op in ops:
            self.last_xid += 1
            sent.append(operations.frame(op, self.last_xid))
        self.wire.send(b"".join(sent))
        frames = self.wire.frames(len(ops))
        if len(frames) < len(ops):
            raise RuntimeError(f"the control session is {self.wire.state}: {len(frames)} of {len(ops)} replies received")
        return frames

    def begin(self):
        """Zxids count from here."""
        (frame,) = self.replies([["sync", "/"]])
        self.names.begin_sequence(int.from_bytes(frame[4:12], "big"))

    def tree(self):
        """Every znode by path, see `znode`."""
        self.replies([["sync", "/"]])
        found, level = {}, ["/"]
        while level:
            ops = [[name, path, *([False] if name != "getACL" else [])] for path in level for name in READS]
            frames = zip(ops, self.replies(ops))
            values = (mapping.reply(frame, operations.op_code(op), self.names)[2:] for op, frame in frames)
            below = []
            for path in level:
                replies = (next(values), next(values), next(values))
                found[path] = znode(*replies)
                below += [f"{path.rstrip('/')}/{name.decode()}" for name in replies[0][1] or ()]
            level = [path for path in below if path != words.CONFIG_PATH or not words.IS_ENSEMBLE]
        return found

    def clean(self, tree):
        """Removes the case's znodes, and restores the data and ACL of the system's own."""
        # The root gets a newer zxid. From here on both servers count alike, also after a case in which they differ on purpose.
        self.begin()
        self.expect(["create", "/level", None, words.OPEN, 0])
        extra = sorted(tree.keys() - set(words.SYSTEM_PATHS), key=lambda path: path.count("/"), reverse=True)
        self.expect(["multi", [["delete", path, -1] for path in [*extra, "/level"]]])
        for path in words.SYSTEM_PATHS:
            _, data, acl, _ = tree[path]
            if data:
                self.expect(["setData", path, "", -1])
            wanted = words.CONFIG_ACL if path == words.CONFIG_PATH else words.OPEN
            if acl != tuple((perms, scheme.encode(), ident.encode()) for perms, scheme, ident in wanted):
                self.expect(["setACL", path, wanted, -1])

    def expect(self, op):
        """Sends an operation that must succeed, and so must every part of a multi."""
        (frame,) = self.replies([op])
        _, _, error, value, _ = mapping.reply(frame, operations.op_code(op), self.names)
        if error or (op[0] == "multi" and any(code for _, code, _ in value[:-1])):
            raise RuntimeError(f"cannot clean up: {str(op)[:300]} was answered {error}, {str(value)[:300]}")


def znode(children, data, acl):
    """(children, data, ACL, Stat), or the replies as they came if one is an error or the Stats differ."""
    replies = (children, data, acl)
    if any(error or rest for error, _, rest in replies) or data[1][1] != acl[1][1]:
        return replies
    return (children[1], data[1][0], *acl[1])


def compare(left, right):
    """The znodes whose values in the two trees differ: (path, value, other value), in order."""
    paths = sorted(left.keys() | right.keys())
    return [(path, left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)]
