"""Random sequences of steps from a seed. The same seed gives the same sequence everywhere."""

from differential import words
from differential.draw import Draw
from differential.words import ROOT

SLOTS = 4
BURST_MAX = 8
OPERATIONS = 110
# Kinds of steps other than operations, in parts of a thousand.
STEPS = {"reconnect": 25, "take_over": 6, "drop": 6, "close": 6, "stranger": 5, "fatal": 8, "raw": 3, "mutated": 30, "big": 2}
LAST_PERCENT = 3
# Sequences that set quotas.
QUOTA_SHARE = 0.25


class Generator(Draw):
    """Makes one sequence."""

    def __init__(self, seed):
        super().__init__(seed)
        self.open, self.sessions = set(), set()

    def sequence(self):
        steps, operations = [], 0
        for slot in range(self.random.choice((2, 3, 3, SLOTS))):
            steps.append(self.new_session(slot))
        first = ["create", ROOT, "", self.random.choice(words.ACLS) if self.chance(0.08) else words.OPEN, 0]
        steps.append(["send", 0, [first], ""])
        self.known[ROOT] = [0, 0, 0, False]
        if self.chance(QUOTA_SHARE):
            steps.append(["send", 0, self.quotas_created(), ""])
        while operations < OPERATIONS:
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
