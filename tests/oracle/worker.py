"""A worker: one session that makes up operations, checks their answers and keeps those without an answer."""

import random
from collections import deque

from oracle.model import Binding, Change, Mismatch, Model, Operation, settle
from support import jute
from support.pipeline import Pipelined

DEPTH = 16
NODES_MAX = 40
EPHEMERALS_MAX = 5
TOP = "/oracle"


class Worker:
    """One for all rounds; its session may be resumed after a crash or left to expire."""

    def __init__(self, number, address, timeout_ms, client, seed):
        self.number, self.address, self.timeout_ms = number, address, timeout_ms
        self.random = random.Random(f"{seed}-{number}")
        self.root, self.ephemeral_root = f"{TOP}/w{number}", f"{TOP}/e{number}"
        _, stat = client.create2(self.root)
        client.create(self.ephemeral_root)
        self.model = Model(self.root, stat)
        self.predicted, self.pending = self.model.copy(), deque()
        self.names = self.acknowledged = self.last_zxid = 0
        # Where it is connected, when it sent the last request that was answered, and when answers came.
        self.session, self.member, self.heard, self.times = None, None, 0, []

    def connect(self, resume):
        """Takes a new session or the last one again. Returns whether there is a session now."""
        session = Pipelined(self.address, DEPTH, self.timeout_ms, self.session if resume else None)
        if session.session_id == 0:
            session.drop()
            return False
        self.session = session
        return True

    def fill(self, depth=None):
        """Submits operations until the pipeline is full, or so many are in flight."""
        while self.session.has_room and (depth is None or len(self.pending) < depth):
            operation = self.next_operation()
            self.predicted.apply(operation)
            self.pending.append(operation)
            self.session.submit(*operation.request(), tag=operation)

    def answered(self, answer):
        """Checks an answer against the model; all before it have been answered."""
        operation = self.pending.popleft()
        assert operation is answer.tag
        expected, binding = self.model.apply(operation), Binding()
        what = f"worker {self.number} {operation.name}"
        if answer.error:
            raise Mismatch(f"{what}: error {answer.error}")
        if operation.is_multi:
            results = jute.multi_results(answer.body)
            self._check_multi(what, operation, results, expected, binding)
        else:
            change, (path, stat) = operation.changes[0], expected[0]
            if change.op == jute.CREATE2:
                binding.match(f"{what} path", path, answer.body.string())
            if stat:
                binding.match_stat(what, stat, answer.body.stat())
        if not operation.refused:
            binding.match(f"{what} zxid of the reply", operation.zxid, answer.zxid)
            if answer.zxid <= self.last_zxid:
                raise Mismatch(f"{what}: zxid {answer.zxid:#x} is not above {self.last_zxid:#x}")
            self.last_zxid = answer.zxid
            self.acknowledged += 1
        binding.keep()
        return operation

    @staticmethod
    def _check_multi(what, operation, results, expected, binding):
        if operation.refused:
            codes = [0] * (len(results) - 1) + [jute.BAD_VERSION]
            binding.match(f"{what} results", [(-1, code, code) for code in codes], results)
            return
        binding.match(f"{what} errors", [0] * len(operation.changes), [error for _, error, _ in results])
        for (kind, _, value), (path, stat) in zip(results, expected):
            if kind == jute.CREATE2:
                binding.match(f"{what} path", path, value[0])
                value = value[1]
            if stat:
                binding.match_stat(what, stat, value)

    def recover(self, found, dead_sessions):
        """Compares with what is found after a restart, where ephemerals of `dead_sessions` may have gone.

        Returns the unanswered operations that happened and the number of those that did not.
        """
        for path, node in list(self.model.ephemerals.items()):
            if node.owner in dead_sessions and path not in found.ephemerals:
                del self.model.ephemerals[path]
        self.model, adopted = settle(self.model, list(self.pending), found)
        happened, lost = list(self.pending)[:adopted], len(self.pending) - adopted
        known = [operation.zxid.value for operation in happened if operation.zxid.value is not None]
        self.last_zxid = max([self.last_zxid, *known])
        self.pending.clear()
        self.predicted = self.model.copy()
        return happened, lost

    def forget_ephemerals(self, dead_sessions):
        """The ephemerals of dead sessions are known to be gone."""
        for model in (self.model, self.predicted):
            for path in [path for path, node in model.ephemerals.items() if node.owner in dead_sessions]:
                del model.ephemerals[path]

    def next_operation(self):
        """Something that must succeed on the predicted state, or a multi that must fail as a whole."""
        choices = [self._create, self._sequence, self._multi, self._refused_multi]
        weights = [4, 3, 2, 1]
        if self._children():
            choices += [self._set, self._delete]
            weights += [6, 3]
        if len(self._children()) >= NODES_MAX:
            return self._delete()
        own = [node for node in self.predicted.ephemerals.values() if node.owner == self.session.session_id]
        if len(own) < EPHEMERALS_MAX:
            choices.append(self._ephemeral)
            weights.append(1)
        return self.random.choices(choices, weights)[0]()

    def _children(self):
        return self.predicted.nodes[self.root].children

    def _some_child(self):
        """A path and its version."""
        path = self.random.choice(sorted(self._children()))
        return path, self.predicted.nodes[path].version

    def _new_path(self, parent):
        self.names += 1
        return f"{parent}/n{self.names}"

    def _data(self):
        return f"{self.number}-{self.names}-".encode() * self.random.randrange(8)

    def _operation(self, name, *changes, refused=False):
        return Operation(name, list(changes), self.session.session_id, refused)

    def _create(self):
        return self._operation("create", Change(jute.CREATE2, self._new_path(self.root), self._data()))

    def _sequence(self):
        return self._operation("create sequential", Change(jute.CREATE2, f"{self.root}/s-", self._data(), jute.SEQUENTIAL))

    def _ephemeral(self):
        return self._operation("create ephemeral", Change(jute.CREATE2, self._new_path(self.ephemeral_root), flags=jute.EPHEMERAL))

    def _set(self):
        path, version = self._some_child()
        return self._operation("set", Change(jute.SET_DATA, path, self._data(), version=version))

    def _delete(self):
        path, version = self._some_child()
        return self._operation("delete", Change(jute.DELETE, path, version=version))

    def _multi(self):
        first, second = self._new_path(self.root), self._new_path(self.root)
        changes = [
            Change(jute.CREATE2, first, self._data()),
            Change(jute.CREATE2, second, self._data()),
            Change(jute.SET_DATA, first, self._data(), version=0),
            Change(jute.CREATE2, f"{self.root}/m-", self._data(), jute.SEQUENTIAL),
        ]
        if self._children():
            changes.append(Change(jute.DELETE, self._some_child()[0]))
        return self._operation("multi", *changes)

    def _refused_multi(self):
        path = self._new_path(self.root)
        changes = (Change(jute.CREATE2, path), Change(jute.SET_DATA, path, b"x", version=9))
        return self._operation("refused multi", *changes, refused=True)
