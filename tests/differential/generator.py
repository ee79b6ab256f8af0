"""Random sequences of steps from a seed. A small model of the znodes that probably exist makes most operations meaningful."""

import random

from differential import words
from differential.words import ROOT

SLOTS = 4
BURST_MAX = 8
OPERATIONS_MIN = 110
# Kinds of steps other than operations, in parts of a thousand.
STEPS = {"reconnect": 25, "take_over": 6, "drop": 6, "close": 6, "stranger": 5, "fatal": 8, "raw": 3, "mutated": 30, "big": 2}
LAST_PERCENT = 3
# Sequences that set quotas.
QUOTA_SHARE = 0.25
SEQUENTIAL = (2, 3, 6)
MULTI_WRITES = ("create", "create2", "createContainer", "createTTL", "delete", "setData", "check")
# How often a sequence with quotas reads or changes one of their znodes.
QUOTA_PATH_SHARE = 0.06


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = self.random.choice
        # The slots whose connection is open, and those that hold a session.
        self.open, self.sessions = set(), set()
        # Path -> [version, aversion, number of children created, whether it is ephemeral].
        self.known = {}
        # The paths below /zookeeper/quota that have limits.
        self.quotas = set()

    def chance(self, probability):
        return self.random.random() < probability

    def sequence(self):
        steps, operations = [], 0
        for slot in range(self.pick((2, 3, 3, SLOTS))):
            steps.append(self.new_session(slot))
        first = ["create", ROOT, "", self.pick(words.ACLS) if self.chance(0.08) else words.OPEN, 0]
        steps.append(["send", 0, [first], ""])
        self.known[ROOT] = [0, 0, 0, False]
        if self.chance(QUOTA_SHARE):
            steps.append(["send", 0, self.quotas_created(), ""])
        while operations < OPERATIONS_MIN:
            step = self.step()
            steps.append(step)
            operations += len(step[2]) if step[0] == "send" else 1
        if self.chance(LAST_PERCENT / 100) and self.open:
            steps.append(["send", self.pick(sorted(self.open)), list(self.pick(words.LAST_BURSTS)), "maybe"])
        return steps

    # --- steps

    def step(self):
        if not self.open:
            return self.new_session(0)
        number = self.random.random() * 1000
        for kind, share in STEPS.items():
            number -= share
            if number < 0:
                return getattr(self, kind)()
        slot = self.pick(sorted(self.open))
        count = 1 if self.chance(0.3) else self.random.randint(2, BURST_MAX)
        ops = [self.operation_for_burst() if number + 1 < count else self.operation() for number in range(count)]
        # Auth packets overtake the requests in front of them.
        auths = [op for op in ops if op[0] == "auth"]
        return ["send", slot, auths[:1] + [op for op in ops if op[0] != "auth"], ""]

    def new_session(self, slot):
        options = {"timeout": self.pick((30_000, 30_000, 60_000, 40_000, 1, 0, -1, 2**31 - 1, 6000))}
        if self.chance(0.1):
            options["read_only"] = None if self.chance(0.5) else True
        if self.chance(0.1):
            options["password"] = self.pick(("short", "empty", "null", "zeros"))
        if options["timeout"] < 30_000:
            options["timeout"] = options["timeout"] if self.chance(0.2) else 30_000
        self.open.add(slot)
        self.sessions.add(slot)
        return ["connect", slot, options]

    def reconnect(self):
        """Resumes a session that has no connection."""
        away = sorted(self.sessions - self.open)
        if not away:
            return self.drop()
        slot = self.pick(away)
        options = {"session": slot, "timeout": 30_000, "zxid": "seen"}
        if self.chance(0.06):
            options["password"] = self.pick(("wrong", "zeros", "short", "empty", "null"))
        elif self.chance(0.04):
            options["zxid"] = "ahead"
        else:
            self.open.add(slot)
        if self.chance(0.05):
            options["read_only"] = None
        return ["connect", slot, options]

    def take_over(self):
        """Resumes the session of an open connection on a new one."""
        free = sorted(set(range(SLOTS + 2)) - self.open - self.sessions)
        if not free:
            return self.drop()
        source = self.pick(sorted(self.open))
        options = {"session": source, "zxid": "seen"}
        if self.chance(0.15):
            options["password"] = "wrong"
        else:
            self.open.add(free[0])
            self.sessions.add(free[0])
            self.sessions.discard(source)
        self.open.discard(source)
        return ["connect", free[0], options]

    def stranger(self):
        """A connect request that must fail: an unknown session, a zxid from the future, a request cut short."""
        options = self.pick((
            {"unknown": 0x123456789}, {"unknown": -1}, {"unknown": 0x0100_0000_0000_0001}, {"zxid": "ahead"},
            {"unknown": 1, "read_only": None}, {"cut": 9}, {"cut": 20}, {"cut": 37},
        ))  # fmt: skip
        return ["connect", 9, options]

    def ended(self):
        """A slot whose connection this step ends."""
        slot = self.pick(sorted(self.open))
        self.open.discard(slot)
        return slot

    def drop(self):
        return ["drop", self.ended()]

    def close(self):
        slot = self.ended()
        self.sessions.discard(slot)
        return ["send", slot, [self.operation_for_burst() for _ in range(self.random.randint(0, 2))] + [["close"]], "ends"]

    def fatal(self):
        """A request after which the server closes the connection."""
        slot = self.ended()
        if self.chance(0.4):
            return ["send", slot, [["auth", *self.pick(words.FATAL_AUTHS)]], "maybe"]
        if self.chance(0.3):
            return ["send", slot, [["check", self.path(), -1]], "ends"]
        code = self.pick(words.UNKNOWN_OPS)
        return ["send", slot, [["unknown", code, self.pick(("", "00000001", "00" * 20))]], "ends"]

    def raw(self):
        return ["raw", self.ended(), self.pick(words.RAW)]

    def mutated(self):
        """An operation cut short, with bytes behind it, with bytes changed, or with an odd xid."""
        slot = self.pick(sorted(self.open))
        op = self.operation_for_burst()
        kind = self.pick(("cut", "cut", "cut", "tail", "xid", "poke"))
        # A changed byte in these could turn one operation into another, one mode into another, or one server's zxid into a
        # number that the other reads otherwise.
        fragile = op[0] in ("createTTL", "multi", "multiRead", "setWatches", "setWatches2")
        if kind == "cut" or (kind == "poke" and fragile):
            op = ["cut", self.pick((1, 1, 2, 3, 4, 5, 8, 9, 12, 20, 100)), op]
        elif kind == "tail":
            op = ["tail", self.pick(("00", "ffffffff", "01" * 9)), op]
        elif kind == "poke":
            op = ["poke", self.pick((0, 0, 1, 2, 3)), self.pick(("ff", "80", "ffffffff", "7fffffff", "00", "00000000")), op]
        else:
            op = ["xid", self.pick((0, -3, 5, 2**31 - 1, -(2**31), -2, -4, -8)), op]
        return ["send", slot, [op], "maybe"]

    def big(self):
        """Frames around the largest size."""
        slot = self.pick(sorted(self.open))
        overhead = 8 + 4 + len(ROOT) + 4 + 4
        size = 0xFFFFF - overhead + self.pick((0, 0, -1, -100_000, 1))
        if size + overhead > 0xFFFFF:
            self.open.discard(slot)
        return ["send", slot, [["setData", ROOT, size, -1]], "maybe"]

    # --- operations

    def operation(self):
        return self.make(self.random.choices(list(OPERATIONS), WEIGHTS)[0])

    def make(self, name):
        return [name, *OPERATIONS[name][1](self)]

    def operation_for_burst(self):
        """Any operation that may stand anywhere.

        A multi with a null ACL id may not. ZooKeeper keeps what it created among the outstanding changes, and never answers a request
        behind it that builds on them.
        """
        while True:
            op = self.operation()
            if op[0] != "auth" and not (op[0] == "multi" and has_null_acl_id(op[1])):
                return op

    def existing(self):
        return self.pick(list(self.known)) if self.known else ROOT

    def path(self):
        if self.quotas and self.chance(QUOTA_PATH_SHARE):
            return self.pick(words.QUOTA_PATHS)
        number = self.random.random()
        if number < 0.78:
            return self.existing()
        if number < 0.90:
            return f"{ROOT}/{self.pick(words.NAMES)}"
        if number < 0.94:
            return self.pick(words.ODD_PATHS)
        if number < 0.97:
            return self.pick(words.BAD_PATHS)
        return self.pick(words.SYSTEM_PATHS + words.QUOTA_PATHS)

    def new_path(self):
        number = self.random.random()
        if number < 0.6:
            return f"{ROOT}/{self.pick(words.NAMES)}"
        if number < 0.8:
            return f"{self.existing().rstrip('/')}/{self.pick('abcn')}"
        return self.path()

    def creatable(self, path):
        """Replaces limits without usage beside them: ZooKeeper rejects all writes below such limits."""
        parent, _, name = (path or "").rpartition("/")
        return f"{ROOT}/a" if name == "zookeeper_limits" and parent not in self.quotas else path

    def version(self, path, which=0):
        number = self.random.random()
        if number < 0.6:
            return -1
        if number < 0.85:
            return self.known.get(path, (0, 0, 0))[which]
        return self.pick(words.VERSIONS)

    def acl(self):
        number = self.random.random()
        return words.OPEN if number < 0.8 else self.pick(words.ACLS) if number < 0.96 else self.pick(words.BAD_ACLS)

    def data(self, path):
        if path and path.endswith("zookeeper_limits"):
            return self.pick(words.QUOTA_TEXTS)
        if path and path.endswith("zookeeper_stats"):
            return self.pick(words.USAGE_TEXTS)
        return self.pick(words.DATA)

    def learn(self, path, flag, acl):
        """Adds the path to the model if its creation can succeed."""
        parent = self.known.get(path.rpartition("/")[0]) if path else None
        if parent is None or parent[3] or path in words.BAD_PATHS or acl not in words.ACLS:
            return
        if flag in SEQUENTIAL:
            path += f"{parent[2]:010d}"
        if path not in self.known:
            parent[2] += 1
            self.known[path] = [0, 0, 0, flag in (1, 3)]

    def create(self, flags=(0,) * 12 + (1,) * 6 + (2,) * 3 + (3,) * 3 + (4,)):
        path, flag = self.creatable(self.new_path()), self.pick(flags)
        if self.chance(0.015):
            flag = self.pick(words.BAD_FLAGS)
        if flag in (2, 3) and self.chance(0.3):
            path = f"{self.existing().rstrip('/')}/"
        acl = self.acl()
        self.learn(path, flag, acl)
        return [path, self.data(path), acl, flag]

    def create_ttl(self):
        path, flag, acl = self.creatable(self.new_path()), self.pick((5, 5, 6)), self.acl()
        self.learn(path, flag, acl)
        return [path, self.data(path), acl, flag, self.pick(words.BAD_TTLS if self.chance(0.1) else words.TTLS)]

    def quotas_created(self):
        """Creates quotas, limits always together with usage (see `creatable`)."""
        ops = []
        for path in ("/zookeeper/quota/d", "/zookeeper/quota/d/a")[: self.pick((1, 1, 2))]:
            ops.append(["create", path, "", words.OPEN, 0])
            self.quotas.add(path)
            for name in ("zookeeper_limits", "zookeeper_stats"):
                ops.append(["create", f"{path}/{name}", self.data(name), words.OPEN, 0])
        return ops

    def delete(self):
        path = self.path()
        # Usage is never deleted, see `creatable`.
        path = path.replace("zookeeper_stats", "zookeeper_limits") if path else path
        version = self.version(path)
        if not any(other.startswith(f"{path}/") for other in self.known) and path != ROOT:
            self.known.pop(path, None)
        return [path, version]

    def write(self, value, which):
        """A new value of a znode. `which` is the place of its version in `known`."""
        path = self.path()
        arguments = [path, value(path), self.version(path, which)]
        if path in self.known:
            self.known[path][which] += 1
        return arguments

    def multi(self):
        if self.chance(0.03):
            return [[]]
        if self.chance(0.02):
            return [[self.pick(words.NO_PARTS)]]
        return [[self.make(self.pick(MULTI_WRITES)) for _ in range(self.random.randint(1, 5))]]

    def multi_read(self):
        return [[[self.pick(("getData", "getChildren")), self.path(), self.chance(0.2)] for _ in range(self.random.randint(0, 4))]]

    def read(self):
        return [self.pick(words.WATCHED) if self.chance(0.4) else self.path(), self.chance(0.6)]

    def watched(self):
        return self.pick(words.WATCHED) if self.chance(0.8) else self.path()

    def watches(self, kinds, bad_kinds):
        return [self.watched(), self.pick(kinds if self.chance(0.95) else bad_kinds)]

    def check_watches(self):
        return self.watches((1, 2, 3, 4, 5), (0, 6, -1))

    def set_watches(self, lists):
        zxid = "seen" if self.chance(0.6) else self.pick((0, 1, 5, 10, 20, 50, -1, 2**62))
        return [zxid, *([self.watched() for _ in range(self.pick((0, 0, 1, 2, 3)))] for _ in range(lists))]


# Name -> weight, and what draws the arguments. A weight of 0 is for parts of multis.
OPERATIONS = {
    "create": (13, Generator.create), "create2": (6, Generator.create),
    "createContainer": (3, lambda draw: draw.create((4,) * 20 + (0, 2))),
    "createTTL": (4, Generator.create_ttl), "delete": (10, Generator.delete), "setData": (12, lambda draw: draw.write(draw.data, 0)),
    "setACL": (4, lambda draw: draw.write(lambda _: draw.acl(), 1)), "check": (0, lambda draw: [path := draw.path(), draw.version(path)]),
    "exists": (7, Generator.read), "getData": (8, Generator.read), "getChildren": (5, Generator.read), "getChildren2": (5, Generator.read),
    "getACL": (4, lambda draw: [draw.path()]), "sync": (1, lambda draw: [draw.path()]), "multi": (9, Generator.multi),
    "multiRead": (4, Generator.multi_read), "reconfig": (0 if words.IS_ENSEMBLE else 0.5, lambda draw: draw.pick(words.RECONFIGS)),
    "checkWatches": (2, Generator.check_watches), "removeWatches": (3, Generator.check_watches),
    "addWatch": (5, lambda draw: draw.watches((0, 0, 0, 1, 1, 1, 1, 2), (-1, 3, 99))),
    "setWatches": (1, lambda draw: draw.set_watches(3)), "setWatches2": (2, lambda draw: draw.set_watches(5)),
    "getEphemerals": (2, lambda draw: [draw.pick(words.PREFIXES) if draw.chance(0.8) else draw.path()]),
    "getAllChildrenNumber": (2, lambda draw: [draw.path()]), "whoAmI": (1, lambda _: []), "ping": (1, lambda _: []),
    "auth": (2, lambda draw: draw.pick(words.AUTHS)),
}  # fmt: skip
WEIGHTS = [weight for weight, _ in OPERATIONS.values()]


def has_null_acl_id(operations):
    lists = [part for operation in operations for part in operation if isinstance(part, (list, tuple))]
    return any(isinstance(entry, (list, tuple)) and entry[-1] is None for entries in lists for entry in entries)
