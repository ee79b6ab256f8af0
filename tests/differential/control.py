"""The tester's own session on each server: it marks where a sequence begins, reads what it left and removes it."""

import sys

from differential import mapping, operations, words
from differential.pair import SUPER_PASSWORD
from support import jute
from support.client import Client

SYSTEM = words.SYSTEM_PATHS
SESSION_MS = 60_000
READS = ("getChildren2", "getData", "getACL")
DELETES_AT_ONCE_MAX = 500
CONFIG_ACL = ((jute.READ, "world", "anyone"),)


class Control:
    """A super session on one side."""

    def __init__(self, side):
        self.side = side
        self.client = Client(side.address, timeout_ms=SESSION_MS)
        self.client.auth("digest", f"super:{SUPER_PASSWORD}".encode())

    def begin(self):
        """Zxids count from here."""
        self.client.call(jute.SYNC, jute.string("/"))
        self.side.names.begin_sequence(self.client.zxid)

    def replies(self, ops):
        """Sends all at once and yields the frames of the replies."""
        sent = []
        for op in ops:
            self.client.last_xid += 1
            sent.append(operations.frame(op, self.client.last_xid))
        self.client.send_bytes(b"".join(sent))
        return [self.client.frame() for _ in ops]

    def tree(self):
        """Every znode with its children, data, Stat and ACL, as comparable values by path."""
        self.client.call(jute.SYNC, jute.string("/"))
        found, level = {}, ["/"]
        while level:
            ops = [[name, path, *([False] if name != "getACL" else [])] for path in level for name in READS]
            values = iter([self.value(frame, op) for op, frame in zip(ops, self.replies(ops))])
            below = []
            for path in level:
                found[path] = (next(values), next(values), next(values))
                names = found[path][0][1][0] if found[path][0][1] else ()
                below += [f"{path.rstrip('/')}/{name.decode()}" for name in names]
            level = [path for path in below if path != words.CONFIG_PATH or not words.HAS_LIST]
        return found

    def value(self, frame, op):
        return mapping.reply(frame, operations.op_code(op), self.side.names)[2:]

    def clean(self, tree):
        """Removes what a sequence left, and gives the system's own znodes their first data and ACL back."""
        extra = [path for path in tree if path not in SYSTEM]
        extra.sort(key=lambda path: path.count("/"), reverse=True)
        for begin in range(0, len(extra), DELETES_AT_ONCE_MAX):
            part = [["delete", path, -1] for path in extra[begin : begin + DELETES_AT_ONCE_MAX]]
            self.expect(["multi", part], mapping.multi)
        for path in SYSTEM:
            _, (_, (data, _), _), (_, (acl, _), _) = tree[path]
            if data:
                self.expect(["setData", path, "", -1])
            entries = CONFIG_ACL if path == words.CONFIG_PATH else jute.OPEN_ACL
            if acl != tuple((perms, scheme.encode(), ident.encode()) for perms, scheme, ident in entries):
                self.expect(["setACL", path, [list(entry) for entry in entries], -1])

    def level(self):
        """Gives the root a newer zxid that both servers count alike."""
        self.begin()
        self.expect(["create", "/level", None, [[31, "world", "anyone"]], 0])
        self.expect(["delete", "/level", -1])

    def expect(self, op, decode=None):
        (frame,) = self.replies([op])
        reader = jute.Reader(frame, 12)
        error = reader.int32()
        errors = [error] if decode is None or error else [code for _, code, _ in decode(reader, self.side.names)[:-1]]
        if any(errors):
            print(f"control on {self.side.kind}: {str(op)[:300]} was answered {errors}", file=sys.stderr)
            raise RuntimeError(f"the tester cannot clean up on {self.side.kind}")


def compare(left, right):
    """Where two trees differ: (path, value, other value) of each znode, in order."""
    paths = sorted(left.keys() | right.keys())
    return [(path, left.get(path), right.get(path)) for path in paths if left.get(path) != right.get(path)]
