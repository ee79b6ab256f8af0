"""Single random operations, most of them meaningful by a small model of what probably exists; it need not be right."""

import random

from differential import words
from differential.words import ROOT

SEQUENTIAL = (2, 3, 6)
# Weights of the operations.
WEIGHTS = {
    "create": 13, "create2": 6, "createContainer": 3, "createTTL": 4, "delete": 10, "setData": 12, "setACL": 4, "exists": 7,
    "getData": 8, "getChildren": 5, "getChildren2": 5, "getACL": 4, "sync": 1, "multi": 9, "multiRead": 4, "reconfig": 0.5,
    "checkWatches": 2, "removeWatches": 3, "addWatch": 5, "setWatches": 1, "setWatches2": 2, "getEphemerals": 2,
    "getAllChildrenNumber": 2, "whoAmI": 1, "ping": 1, "auth": 2,
}  # fmt: skip
MULTI_WRITES = ("create", "create2", "createContainer", "createTTL", "delete", "setData", "check")
# How often a sequence with quotas reads or changes one of their znodes.
QUOTA_PATH_SHARE = 0.06


class Draw:
    """Draws operations from a seed."""

    def __init__(self, seed, without=()):
        self.random = random.Random(seed)
        self.without = set(without)
        self.names = [name for name in WEIGHTS if name not in self.without]
        self.weights = [WEIGHTS[name] for name in self.names]
        # Path -> [version, aversion, number of children created, whether it is ephemeral].
        self.known = {}
        # The paths below /zookeeper/quota that have limits.
        self.quotas = set()

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, choices):
        return choices[int(self.random.random() * len(choices))]

    def operation(self):
        name = self.random.choices(self.names, self.weights)[0]
        return getattr(self, "make_" + name)()

    def operation_for_burst(self):
        """Any operation that may stand anywhere.

        Not a multi with a null ACL id: what it created before ZooKeeper broke it off stays among the changes that ZooKeeper expects,
        and a request right behind it that builds on them is never answered there.
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
        """Not limits without usage beside them: ZooKeeper refuses all writes below."""
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
        path, flag = self.creatable(self.new_path()), self.pick(flags)
        if self.chance(0.015):
            flag = self.pick(words.BAD_FLAGS)
        if flag in (2, 3) and self.chance(0.3):
            path = f"{self.existing().rstrip('/')}/"
        acl = self.acl()
        self.learn(path, flag, acl)
        return [name, path, self.data(path), acl, flag]

    def make_create2(self):
        return self.make_create("create2")

    def make_quotas(self):
        """Creates quotas; the limits always together with the usage, without which ZooKeeper refuses what is below."""
        ops = []
        for path in ("/zookeeper/quota/d", "/zookeeper/quota/d/a")[: self.pick((1, 1, 2))]:
            ops.append(["create", path, "", words.OPEN, 0])
            self.quotas.add(path)
            for name in ("zookeeper_limits", "zookeeper_stats"):
                ops.append(["create", f"{path}/{name}", self.data(name), words.OPEN, 0])
        return ops

    def make_createContainer(self):
        return self.make_create("createContainer", (4,) * 20 + (0, 2))

    def make_createTTL(self):
        path, flag = self.creatable(self.new_path()), self.pick((5, 5, 6))
        acl, ttl = self.acl(), self.pick(words.BAD_TTLS if self.chance(0.1) else words.TTLS)
        self.learn(path, flag, acl)
        return ["createTTL", path, self.data(path), acl, flag, ttl]

    def make_delete(self):
        path = self.path()
        # Usage is never deleted: ZooKeeper refuses all writes below a quota without it.
        path = path.replace("zookeeper_stats", "zookeeper_limits") if path else path
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


def has_null_acl_id(operations):
    lists = [part for operation in operations for part in operation if isinstance(part, (list, tuple))]
    return any(isinstance(entry, (list, tuple)) and entry[-1] is None for entries in lists for entry in entries)
