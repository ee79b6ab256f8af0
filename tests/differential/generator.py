"""Random sequences of steps from a seed. The same seed, size and set of operations give the same sequence everywhere.

A small model of what probably exists makes most operations meaningful; it need not be right.
"""

import random

from differential import words
from differential.words import ROOT

SLOTS = 4
SEQUENTIAL = (2, 3, 6)
BURST_MAX = 8
# Weights of the operations.
WEIGHTS = {
    "create": 13, "create2": 6, "createContainer": 3, "createTTL": 4, "delete": 10, "setData": 12, "setACL": 4, "exists": 7,
    "getData": 8, "getChildren": 5, "getChildren2": 5, "getACL": 4, "sync": 1, "multi": 9, "multiRead": 4, "reconfig": 0.5,
    "checkWatches": 2, "removeWatches": 3, "addWatch": 5, "setWatches": 1, "setWatches2": 2, "getEphemerals": 2,
    "getAllChildrenNumber": 2, "whoAmI": 1, "ping": 1, "auth": 2,
}  # fmt: skip
# Kinds of steps other than operations, in parts of a thousand.
STEPS = {"reconnect": 25, "take_over": 6, "drop": 6, "close": 6, "stranger": 5, "fatal": 8, "raw": 3, "mutated": 30, "big": 2}
LAST_STEPS = ("deleteContainer", "createSession", "long_acl", "negative_count", "read_in_multi", "no_utf8", "many_auths", "sasl")
LAST_PERCENT = 3
# Sequences that set quotas, and how often these read or change a quota's znodes.
QUOTA_SHARE, QUOTA_PATH_SHARE = 0.25, 0.06
MULTI_WRITES = ("create", "create2", "createContainer", "createTTL", "delete", "setData", "check")


class Generator:
    """Makes one sequence."""

    def __init__(self, seed, size, without=()):
        self.random = random.Random(seed)
        self.size, self.without = size, set(without)
        self.names = [name for name in WEIGHTS if name not in self.without]
        self.weights = [WEIGHTS[name] for name in self.names]
        # Path -> [version, aversion, number of children created, whether it is ephemeral].
        self.known = {}
        self.open, self.sessions, self.quotas = set(), set(), False

    def sequence(self):
        steps, operations = [], 0
        for slot in range(self.random.choice((2, 3, 3, SLOTS))):
            steps.append(self.new_session(slot))
        first = ["create", ROOT, "", self.random.choice(words.ACLS) if self.chance(0.08) else words.OPEN, 0]
        steps.append(["send", 0, [first], ""])
        self.known[ROOT] = [0, 0, 0, False]
        self.quotas = self.chance(QUOTA_SHARE)
        if self.quotas:
            steps.append(["send", 0, [self.make_quota() for _ in range(self.random.randint(1, 6))], ""])
        while operations < self.size:
            step = self.step()
            steps.append(step)
            operations += len(step[2]) if step[0] == "send" else 1
        if self.chance(LAST_PERCENT / 100) and self.open:
            op = getattr(self, self.pick(LAST_STEPS))()
            steps.append(["send", self.pick(sorted(self.open)), op if isinstance(op[0], list) else [op], "maybe"])
        return steps

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, choices):
        return choices[int(self.random.random() * len(choices))]

    # --- steps

    def step(self):
        if not self.open:
            return self.new_session(0)
        number = self.random.random() * 1000
        for kind, share in STEPS.items():
            number -= share
            if number < 0 and kind not in self.without:
                return getattr(self, kind)()
        slot = self.pick(sorted(self.open))
        count = 1 if self.chance(0.3) else self.random.randint(2, BURST_MAX)
        ops = [self.operation() for _ in range(count)]
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
        """Comes back with the session's password; the next steps often set the watches again."""
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
        """The session of a living connection comes back on a new one."""
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
        """A connect request that must fail: a session nobody knows, a zxid from the future, a request cut short."""
        options = self.pick((
            {"unknown": 0x123456789}, {"unknown": -1}, {"unknown": 0x0100_0000_0000_0001}, {"zxid": "ahead"},
            {"unknown": 1, "read_only": None}, {"cut": 9}, {"cut": 20}, {"cut": 37},
        ))  # fmt: skip
        return ["connect", 9, options]

    def drop(self):
        slot = self.pick(sorted(self.open))
        self.open.discard(slot)
        return ["drop", slot]

    def close(self):
        slot = self.pick(sorted(self.open))
        self.open.discard(slot)
        self.sessions.discard(slot)
        return ["send", slot, [self.operation_for_burst() for _ in range(self.random.randint(0, 2))] + [["close"]], "ends"]

    def fatal(self):
        """A request after which the server closes the connection."""
        slot = self.pick(sorted(self.open))
        self.open.discard(slot)
        if self.chance(0.4) and "auth" not in self.without:
            return ["send", slot, [["auth", *self.pick(words.FATAL_AUTHS)]], "maybe"]
        if self.chance(0.3):
            return ["send", slot, [["check", self.path(), -1]], "ends"]
        code = self.pick(words.UNKNOWN_OPS)
        return ["send", slot, [["unknown", code, self.pick(("", "00000001", "00" * 20))]], "ends"]

    def raw(self):
        slot = self.pick(sorted(self.open))
        self.open.discard(slot)
        return ["raw", slot, self.pick(words.RAW)]

    def mutated(self):
        """An operation cut short, with bytes behind it, with bytes changed, or with an odd xid."""
        slot = self.pick(sorted(self.open))
        op = self.operation_for_burst()
        kind = self.pick(("cut", "cut", "cut", "tail", "xid", "poke"))
        # A changed byte in these could turn one operation into another, or one mode into another.
        fragile = op[0] in ("createTTL", "multi", "multiRead")
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
        name = self.random.choices(self.names, self.weights)[0]
        return getattr(self, "make_" + name)()

    def operation_for_burst(self):
        """Any operation that may stand anywhere."""
        while True:
            op = self.operation()
            if op[0] != "auth":
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
        return self.pick(words.DATA)

    def learn(self, path, flag, acl):
        """Takes the path for existing if its creation can succeed."""
        parent = self.known.get(path.rpartition("/")[0]) if path else None
        if parent is None or parent[3] or path in words.BAD_PATHS or acl not in words.ACLS:
            return
        if flag in SEQUENTIAL:
            path += "%010d" % parent[2]
        if path not in self.known:
            parent[2] += 1
            self.known[path] = [0, 0, 0, flag in (1, 3)]

    def make_create(self, name="create", flags=(0,) * 12 + (1,) * 6 + (2,) * 3 + (3,) * 3 + (4,)):
        path, flag = self.new_path(), self.pick(flags)
        if self.chance(0.015):
            flag = self.pick(words.BAD_FLAGS)
        if flag in (2, 3) and self.chance(0.3):
            path = f"{self.existing().rstrip('/')}/"
        acl = self.acl()
        self.learn(path, flag, acl)
        return [name, path, self.data(path), acl, flag]

    def make_create2(self):
        return self.make_create("create2")

    def make_quota(self):
        path = self.pick(words.QUOTA_PATHS)
        return ["create", path, self.data(path), words.OPEN, 0]

    def make_createContainer(self):
        return self.make_create("createContainer", (4,) * 20 + (0, 2))

    def make_createTTL(self):
        path, flag = self.new_path(), self.pick((5, 5, 6))
        acl, ttl = self.acl(), self.pick(words.BAD_TTLS if self.chance(0.1) else words.TTLS)
        self.learn(path, flag, acl)
        return ["createTTL", path, self.data(path), acl, flag, ttl]

    def make_delete(self):
        path = self.path()
        version = self.version(path)
        if not any(other.startswith(f"{path}/") for other in self.known) and path != ROOT:
            self.known.pop(path, None)
        return ["delete", path, version]

    def make_setData(self):
        path = self.path()
        op = ["setData", path, self.data(path), self.version(path)]
        if path in self.known:
            self.known[path][0] += 1
        return op

    def make_setACL(self):
        path = self.path()
        op = ["setACL", path, self.acl(), self.version(path, 1)]
        if path in self.known:
            self.known[path][1] += 1
        return op

    def make_check(self):
        path = self.path()
        return ["check", path, self.version(path)]

    def make_multi(self):
        if self.chance(0.03):
            return ["multi", []]
        if self.chance(0.02):
            strangers = ["getData", ROOT, False], ["setACL", ROOT, words.OPEN, -1], ["sync", ROOT], ["multi", []]
            return ["multi", [self.pick(strangers)]]
        return ["multi", [self.make(self.pick(MULTI_WRITES)) for _ in range(self.random.randint(1, 5))]]

    def make(self, name):
        return getattr(self, "make_" + name)() if name not in self.without else self.make_delete()

    def make_multiRead(self):
        reads = [[self.pick(("getData", "getChildren")), self.path(), self.chance(0.2)] for _ in range(self.random.randint(0, 4))]
        return ["multiRead", reads]

    def read(self, name):
        path = self.pick(words.WATCHED) if self.chance(0.4) else self.path()
        return [name, path, self.chance(0.6)]

    def make_exists(self):
        return self.read("exists")

    def make_getData(self):
        return self.read("getData")

    def make_getChildren(self):
        return self.read("getChildren")

    def make_getChildren2(self):
        return self.read("getChildren2")

    def make_getACL(self):
        return ["getACL", self.path()]

    def make_sync(self):
        return ["sync", self.path()]

    def make_getEphemerals(self):
        return ["getEphemerals", self.pick(words.PREFIXES) if self.chance(0.8) else self.path()]

    def make_getAllChildrenNumber(self):
        return ["getAllChildrenNumber", self.path()]

    def make_whoAmI(self):
        return ["whoAmI"]

    def make_ping(self):
        return ["ping"]

    def make_auth(self):
        return ["auth", *self.pick(words.AUTHS)]

    def watched(self):
        return self.pick(words.WATCHED) if self.chance(0.8) else self.path()

    def make_addWatch(self):
        return ["addWatch", self.watched(), self.pick((0, 0, 0, 1, 1, 1, 1, 2)) if self.chance(0.95) else self.pick((-1, 3, 99))]

    def make_checkWatches(self):
        return ["checkWatches", self.watched(), self.pick((1, 2, 3, 4, 5)) if self.chance(0.95) else self.pick((0, 6, -1))]

    def make_removeWatches(self):
        return ["removeWatches", *self.make_checkWatches()[1:]]

    def make_setWatches(self, name="setWatches", lists=3):
        zxid = "seen" if self.chance(0.6) else self.pick((0, 1, 5, 10, 20, 50, -1, 2**62))
        return [name, zxid, *([self.watched() for _ in range(self.pick((0, 0, 1, 2, 3)))] for _ in range(lists))]

    def make_setWatches2(self):
        return self.make_setWatches("setWatches2", 5)

    def make_reconfig(self):
        return ["reconfig", *self.pick(words.RECONFIGS)]

    # --- what corral does unlike ZooKeeper: the last step of a sequence, because the servers part there

    def deleteContainer(self):
        return ["deleteContainer", self.path()]

    def createSession(self):
        return ["createSession", 30_000]

    def no_utf8(self):
        return self.pick((
            ["create", f"{ROOT}/\ud800", "", words.OPEN, 0], ["getData", f"{ROOT}/\udfff", False], ["sync", "\ud800"],
            ["setACL", ROOT, [[31, "digest", "a:\udc00"]], -1],
        ))  # fmt: skip

    def many_auths(self):
        return [["auth", 0, "digest", f"user{number}:secret"] for number in range(16)]

    def sasl(self):
        return ["sasl", self.pick(("", None, "token", "\0ann\0secret", 1000))]

    def long_acl(self):
        return ["create", f"{ROOT}/long", "", [[31, "ip", f"10.0.{i >> 8}.{i & 255}"] for i in range(257)], 0]

    def negative_count(self):
        return ["create", f"{ROOT}/negative", "", -2, 0]

    def read_in_multi(self):
        return ["multiRead", [["getData", ROOT, False], ["delete", f"{ROOT}/a", -1]]]
