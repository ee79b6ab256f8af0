"""The resource that holders of recipes use, on a Unix socket, and the judgement of their sections.

It accepts a fencing token only if none larger was accepted before, and records each section. It knows nothing of processes and servers.
"""

import contextlib
import math
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from campaigns.section import REFUSED

LOST, TIMED_OUT, KILLED, STUCK = 15, 19, -9, -1
# Exit codes besides 0 that a contender may have after a fault.
AFTER = {
    "killed": {KILLED}, "paused": {LOST, REFUSED}, "disturbed": {LOST}, "interrupted": {130, 143}, "limited": {TIMED_OUT},
}  # fmt: skip


@dataclass(eq=False)
class Contender:
    """One attempt to hold something. The times are of the monotonic clock."""

    number: int
    kind: str
    action: str
    space: "Space"
    hold_s: float = 0
    limit_s: float | None = None
    delay_s: float = 0
    item: str = ""
    on_lost: str = "kill"
    # An item that is printed, in place of a section.
    prints: bool = False
    # Keys of AFTER.
    faults: set = field(default_factory=set)
    begun: float = math.inf
    returned: float = math.inf
    code: int | None = None
    errors: str = ""
    process: object = None
    sections: list = field(default_factory=list)

    @property
    def is_shared(self):
        return self.action == "read"

    @property
    def may_overlap(self):
        """A paused holder may go on without its session. So may a client of another project whose server was lost."""
        ignores = self.on_lost == "ignore" and self.code == LOST
        return "paused" in self.faults or ignores or (self.kind != "corral" and "disturbed" in self.faults)

    @property
    def may_have_lost(self):
        """Whether its znode may have been gone before it ended. With code 0 a contender of corral had it to the end."""
        faults = self.faults & {"killed", "paused", "disturbed", "interrupted"}
        return bool(faults) and (self.kind != "corral" or self.code != 0)

    def holds(self):
        return bool(self.sections) and self.sections[-1].end == math.inf

    def __str__(self):
        shown = ", ".join(map(str, self.sections))
        return f"{self.kind} {self.action} {self.number} {sorted(self.faults)} code {self.code} [{shown}] {self.errors[-300:]}".strip()


@dataclass(eq=False)
class Section:
    contender: Contender
    token: int
    item: str
    pid: int
    begin: float
    end: float = math.inf
    # How it ended: it was complete, refused, or its connection was closed.
    how: str = "open"

    def __str__(self):
        return f"token {self.token:#x} {self.item} {self.how} {self.begin:.3f}-{self.end:.3f}"


class Space:
    """The contenders of one path."""

    def __init__(self, recipe, limit=1):
        self.recipe, self.limit, self.contenders = recipe, limit, []
        self.exclusive_max = self.shared_max = 0

    def accepts(self, contender, token):
        if self.recipe not in ("lock", "rwlock", "elect"):
            return True
        if contender.is_shared:
            self.shared_max = max(self.shared_max, token)
            return token >= self.exclusive_max
        if token < max(self.exclusive_max, self.shared_max):
            return False
        self.exclusive_max = token
        return True

    def judge(self):
        """The findings, as texts."""
        sections = sorted((section for contender in self.contenders for section in contender.sections), key=lambda one: one.begin)
        findings = [f"unexpected code: {one}" for one in self.contenders if not is_expected(one)]
        findings += getattr(self, f"judge_{self.recipe}")(
            [section for section in sections if section.how != "refused" or section.end > section.begin]
        )
        if self.recipe in ("lock", "rwlock", "elect", "semaphore"):
            findings += [f"refused: {one.contender}" for one in sections if one.how == "refused" and not one.contender.may_overlap]
            holders = Counter(token for token, _ in {(one.token, one.contender.number) for one in sections})
            findings += [f"a token of {count} holders: {token:#x}" for token, count in holders.items() if count > 1 or not token]
        return findings

    def judge_lock(self, sections):
        pairs = [(old, new) for place, new in enumerate(sections) for old in sections[:place] if old.end > new.begin]
        return [
            f"two holders at once: {old.contender} and {new.contender}"
            for old, new in pairs
            if not (old.contender.is_shared and new.contender.is_shared) and not old.contender.may_overlap
        ]

    judge_rwlock = judge_elect = judge_lock

    def judge_semaphore(self, sections):
        findings = []
        for place, new in enumerate(sections):
            held = [old for old in sections[:place] if old.end > new.begin and not old.contender.may_overlap]
            if len(held) >= self.limit:
                findings.append(f"more than {self.limit} leases: {', '.join(str(one.contender) for one in [*held, new])}")
        return findings

    def judge_barrier(self, sections):
        begun, findings = sorted(contender.begun for contender in self.contenders), []
        begun = begun[self.limit - 1] if len(begun) >= self.limit else math.inf
        findings += [f"passed before {self.limit} were in: {one.contender}" for one in sections if one.begin < begun]
        for section in sections:
            early = [one for one in self.contenders if one.code == 0 and one.returned < section.end and not section.contender.may_have_lost]
            findings += [f"returned before {section.contender} left: {one}" for one in early]
        return findings

    def judge_queue(self, sections):
        findings = []
        for item in {section.item for section in sections}:
            takers = {section.contender for section in sections if section.item == item and not section.contender.may_have_lost}
            if len(takers) > 1:
                findings.append(f"item {item} was taken twice: {', '.join(map(str, takers))}")
        done = {section.item for section in sections if section.how == "complete"}
        put = [one for one in self.contenders if one.action == "put" and one.code == 0]
        return findings + [f"an item was lost: {one}" for one in put if one.item not in done]


def is_expected(contender):
    """Whether the exit code is in the specification, and fits the faults."""
    expected = {0}.union(*(AFTER[fault] for fault in contender.faults))
    if contender.kind != "corral" and contender.faults & {"paused", "disturbed", "killed"}:
        expected |= {LOST, TIMED_OUT, REFUSED}
    return contender.code in expected


class Resource(threading.Thread):
    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.contenders, self.strays, self.open, self.is_over = address, {}, [], {}, False
        self.listener, self.selector = socket.socket(socket.AF_UNIX), selectors.DefaultSelector()
        self.listener.bind(address)
        self.listener.listen(1000)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.start()

    def run(self):
        while not self.is_over:
            ready = [key.fileobj for key, _ in self.selector.select(0.5)]
            # A connection that was closed ended before any call that comes with it.
            calls = [(one, received(one)) for one in ready if one is not self.listener]
            for connection, text in sorted(calls, key=lambda call: bool(call[1])):
                self.called(connection, text) if text else self.closed(connection)
            if self.listener in ready:
                self.selector.register(self.listener.accept()[0], selectors.EVENT_READ)

    def called(self, connection, text):
        number, token, *item = text.split()
        contender, now = self.contenders.get(int(number)), time.monotonic()
        if contender is None:
            self.strays.append(f"a call after the end of its round: {text}")
            return self.answer(connection, "refused")
        if not (section := self.open.get(connection)):
            pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            section = self.open[connection] = Section(contender, int(token), "".join(item), pid, now)
            contender.sections.append(section)
        if not contender.space.accepts(contender, section.token):
            section.end, section.how = now, "refused"
            return self.answer(connection, "refused")
        if now >= section.begin + contender.hold_s:
            section.end, section.how = now, "complete"
            return self.answer(connection, "end")
        return self.answer(connection, "go")

    def answer(self, connection, word):
        with contextlib.suppress(OSError):
            connection.send(f"{word}\n".encode())

    def closed(self, connection):
        section = self.open.pop(connection, None)
        if section and section.how == "open":
            section.end, section.how = time.monotonic(), "closed"
        self.selector.unregister(connection)
        connection.close()


def received(connection):
    try:
        return connection.recv(4096).decode()
    except OSError:
        return ""
