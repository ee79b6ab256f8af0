"""The linear oracle: what the tree must look like after the acknowledged writes and some prefix of the others.

Each worker writes below nodes of its own, one operation after the other, so after a crash its part of the tree must equal the
state after all acknowledged operations and the first n of those without an answer, for exactly one n. Numbers that only the
server knows (zxids, times) are `Unknown` until an answer or a read binds them; bound once, they must never change.
"""

import copy
import itertools
from dataclasses import dataclass, field

from support import jute
from support.jute import Stat


class Unknown:
    """A number the server chose; bound at first sight."""

    def __init__(self):
        self.value = None

    def __deepcopy__(self, _):
        return self


class Mismatch(Exception):
    """The server's state is not the expected one."""


class Binding:
    """Values seen for unknowns during one comparison; taken over only if all of it fits."""

    def __init__(self):
        self.values = {}

    def match(self, what, expected, actual):
        if isinstance(expected, Unknown):
            expected = self.values.setdefault(expected, actual if expected.value is None else expected.value)
        if expected != actual:
            raise Mismatch(f"{what}: found {actual!r}, expected {expected!r}")

    @staticmethod
    def match_names(what, expected, actual):
        if expected != actual:
            raise Mismatch(f"{what}: missing {sorted(expected - actual)[:3]}, too many {sorted(actual - expected)[:3]}")

    def match_stat(self, what, expected, actual):
        for name, left, right in zip(Stat._fields, expected, actual):
            self.match(f"{what}.{name}", left, right)

    def keep(self):
        for unknown, value in self.values.items():
            unknown.value = value


@dataclass
class Node:
    data: bytes
    czxid: object
    mzxid: object
    ctime: object
    mtime: object
    pzxid: object
    owner: int = 0
    version: int = 0
    creates: int = 0
    children: set = field(default_factory=set)

    def stat(self):
        cversion = 2 * self.creates - len(self.children)
        return Stat(
            self.czxid, self.mzxid, self.ctime, self.mtime, self.version, cversion, 0, self.owner, len(self.data),
            len(self.children), self.pzxid,
        )  # fmt: skip


@dataclass
class Change:
    """One create, set or delete of an operation."""

    op: int
    path: str
    data: bytes = b""
    flags: int = 0
    version: int = -1

    def request(self):
        if self.op == jute.CREATE2:
            return jute.create_body(self.path, self.data, self.flags)
        if self.op == jute.SET_DATA:
            return jute.set_body(self.path, self.data, self.version)
        return jute.delete_body(self.path, self.version)


class Operation:
    """One request: its changes happen together or not at all. `refused` ones must change nothing."""

    numbers = itertools.count()

    def __init__(self, name, changes, session_id, refused=False):
        self.name, self.changes, self.session_id, self.refused = name, changes, session_id, refused
        self.zxid, self.time, self.number = Unknown(), Unknown(), next(self.numbers)

    @property
    def is_multi(self):
        return len(self.changes) > 1

    def request(self):
        """The op code and body."""
        if self.is_multi:
            return jute.MULTI, jute.multi_body([(change.op, change.request()) for change in self.changes])
        return self.changes[0].op, self.changes[0].request()


class Model:
    """A worker's part of the tree: its nodes and its ephemerals."""

    def __init__(self, root, stat):
        # Paths to nodes; the root's own creation is known.
        self.root = root
        self.nodes = {root: Node(b"", stat.czxid, stat.mzxid, stat.ctime, stat.mtime, stat.pzxid)}
        self.ephemerals = {}

    def copy(self):
        return copy.deepcopy(self)

    def apply(self, operation):
        """Does the operation and returns the expected (path or None, Stat or None) of each change."""
        if operation.refused:
            return [None] * len(operation.changes)
        return [self._change(change, operation) for change in operation.changes]

    def _change(self, change, operation):
        zxid, time = operation.zxid, operation.time
        parent = self.nodes.get(change.path.rpartition("/")[0])
        if change.op == jute.SET_DATA:
            node = self.nodes[change.path]
            node.data, node.mzxid, node.mtime, node.version = change.data, zxid, time, node.version + 1
            return None, node.stat()
        if change.op == jute.DELETE:
            del self.nodes[change.path]
            parent.children.remove(change.path)
            parent.pzxid = zxid
            return None, None
        node = Node(change.data, zxid, zxid, time, time, zxid)
        if change.flags == jute.EPHEMERAL:
            node.owner = operation.session_id
            self.ephemerals[change.path] = node
            return change.path, node.stat()
        path = f"{change.path}{parent.creates:010}" if change.flags == jute.SEQUENTIAL else change.path
        self.nodes[path] = node
        parent.children.add(path)
        parent.creates, parent.pzxid = parent.creates + 1, zxid
        return path, node.stat()

    def compare(self, found, binding):
        """Raises Mismatch unless the found part of the tree is this one."""
        binding.match_names("nodes", set(self.nodes), set(found.nodes))
        for path, node in self.nodes.items():
            data, stat = found.nodes[path]
            binding.match(f"{path} data", node.data, data)
            binding.match_stat(path, node.stat(), stat)
        binding.match_names("ephemerals", set(self.ephemerals), set(found.ephemerals))
        for path, node in self.ephemerals.items():
            binding.match_stat(path, node.stat(), found.ephemerals[path])


@dataclass
class Found:
    """What a read of the server found of a worker's part: paths to (data, Stat), and to Stat."""

    nodes: dict
    ephemerals: dict


def settle(model, pending, found):
    """How many of the pending operations happened; the model becomes the found state. Raises Mismatch if no number fits."""
    problems = []
    candidate = model.copy()
    for count in range(len(pending) + 1):
        if count:
            candidate.apply(pending[count - 1])
        binding = Binding()
        try:
            candidate.compare(found, binding)
        except Mismatch as mismatch:
            problems.append(f"after {count} of {len(pending)} unanswered operations: {mismatch}")
            continue
        binding.keep()
        return candidate, count
    raise Mismatch("no prefix of the unanswered operations explains what was found\n  " + "\n  ".join(problems))
