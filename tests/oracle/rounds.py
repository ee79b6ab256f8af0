"""Rounds of faults under load on one server or an ensemble, each judged by the oracle.

Sessions with full pipelines write at every server. After each round all servers must have the same tree at the same zxid, and that tree
must be the one the oracle expects: every acknowledged write with its zxid and Stat, of the unanswered ones a prefix of each session's,
multis all or nothing, no zxid twice, every ephemeral of a living session and none of an expired one.
"""

import random
import time
from collections import Counter

from ensemble.sessions import connect
from oracle import trees
from oracle.history import History
from oracle.model import Mismatch
from support.client import Closed
from support.pipeline import Fleet
from support.wait import wait_until

ANSWER_LIMIT_S = 60
RESUME_SHARE, STAY_SHARE = 0.8, 0.6
# Snapshots are written often enough to fall between the faults, so that recovery meets snapshot and log together.
SETTINGS = {
    "snapshot.floor_bytes": 1 << 20,
    "snapshot.txns_max": 2_000,
    "snapshot.interval_min_ms": 100,
    "log.segment_bytes": 4 << 20,
    "limits.frame_bytes_max": 1_000_000,
}


class Alone:
    """A single server, with what the rounds ask of an ensemble."""

    def __init__(self, server):
        self.members = [server]

    def leader(self):
        return self.members[0]

    def start(self):
        if self.members[0].process.poll() is not None:
            self.members[0].start()


class Rounds:
    """The servers, the workers with their sessions, and what was counted."""

    def __init__(self, servers, seed, workers=6, session_ms=8_000):
        self.servers, self.session_s, self.random = servers, session_ms / 1000, random.Random(seed)
        with connect(servers.leader()) as client:
            self.history = History(client, servers.members[0].address, workers, session_ms, seed)
        self.workers = self.history.workers
        # Sessions that no client keeps alive: when each sent the last request that was answered.
        self.left = {}
        self.counts, self.gaps = Counter(), {}
        self.connect()

    # The load.

    def connect(self):
        """Every worker gets a connection: keeps its own, takes its session to some server, or begins a new one."""
        for worker in self.workers:
            old = worker.session
            fresh = time.monotonic() - worker.heard < self.session_s / 2
            if old and not old.closed and fresh and self.random.random() < STAY_SHARE:
                self.counts["kept"] += 1
                continue
            if old and not old.closed:
                old.drop()
            if old and self.random.random() < RESUME_SHARE and self.resume(worker):
                self.counts["moved"] += 1
                continue
            if old:
                self.left[old.session_id] = worker.heard
                self.counts["left to expire"] += 1
            self.place(worker, resume=False)

    def resume(self, worker):
        """Takes the session to some server. False when it has expired, which it must not have before its time."""
        if self.place(worker, resume=True):
            return True
        silent_s = time.monotonic() - worker.heard
        if silent_s < self.session_s:
            raise Mismatch(f"worker {worker.number}: its session was silent for {silent_s:.1f} s and cannot be resumed")
        return False

    def place(self, worker, resume):
        """A connection at some server, tried until one takes it; whether it has a session."""

        def tried():
            worker.member, begin = self.random.choice(self.servers.members), time.monotonic()
            worker.address = worker.member.address
            try:
                return worker.connect(resume), begin
            except (OSError, Closed):
                return None

        has_session, begin = wait_until(tried, "a server gives a session", ANSWER_LIMIT_S)
        if has_session:
            worker.heard = begin
        return has_session

    def load(self, fleet, until, depth=None):
        """Keeps the pipelines full, or `depth` requests in flight, until `until()`. Connections that end are left alone."""
        of_session = {worker.session: worker for worker in self.workers}
        while not until():
            for worker in self.workers:
                if depth is None or len(worker.pending) < depth:
                    worker.fill(depth)
            for session, answers in fleet.turn(0.01):
                worker, now = of_session[session], time.monotonic()
                for answer in answers:
                    self.history.record(worker.answered(answer))
                    # The server has received the request later than it was sent, so that the session lives on from then at least.
                    worker.heard = max(worker.heard, now - answer.seconds)
                if answers:
                    worker.times.append(now)

    def some_writes(self, low=50, high=1500):
        """A condition: that many more writes are acknowledged, or no connection is left."""
        wanted, deadline = self.history.acknowledged + self.random.randint(low, high), time.monotonic() + ANSWER_LIMIT_S

        def done():
            if time.monotonic() > deadline:
                raise Mismatch(f"no {high} writes are acknowledged within {ANSWER_LIMIT_S} s")
            return self.history.acknowledged >= wanted or all(worker.session.closed for worker in self.workers)

        return done

    def finish(self, fleet):
        """Waits for the answers of every connection that is still open."""
        deadline = time.monotonic() + ANSWER_LIMIT_S

        def done():
            waiting = {worker.number: len(worker.pending) for worker in self.workers if not worker.session.closed and worker.pending}
            if waiting and time.monotonic() > deadline:
                raise Mismatch(f"no answer within {ANSWER_LIMIT_S} s, waiting by worker: {waiting}")
            return not waiting

        self.load(fleet, done, depth=0)
        fleet.close()

    def settle(self):
        """Goes on, with one request of each worker at a time, until no server shows ephemerals of sessions that were left."""
        deadline = time.monotonic() + self.session_s + ANSWER_LIMIT_S

        def gone():
            if time.monotonic() > deadline:
                raise Mismatch("ephemerals of expired sessions are still there")
            for member in self.servers.members:
                with connect(member) as client:
                    client.sync()
                    if self.history.has_ephemerals_of(client, self.left):
                        return False
            self.history.forget_ephemerals(self.left)
            self.left.clear()
            return True

        fleet = self.begin()
        self.load(fleet, gone, depth=1)
        self.end(fleet)

    # The rounds.

    def begin(self):
        """All connections are loaded for a while."""
        for worker in self.workers:
            worker.times = []
        fleet = Fleet(worker.session for worker in self.workers)
        self.load(fleet, self.some_writes())
        return fleet

    def kill(self, victims):
        """kill -9 under load, and all start again. A majority that is left goes on meanwhile."""
        fleet, moment = self.begin(), time.monotonic()
        for victim in victims:
            victim.kill()
        self.counts["killed"] += len(victims)
        if len(victims) * 2 < len(self.servers.members):
            self.load(fleet, self.some_writes())
            self.note_gaps("kill", moment, victims)
        self.servers.start()
        self.load(fleet, self.some_writes())
        self.end(fleet)

    def note_gaps(self, what, moment, victims):
        """How long the clients of other servers than these waited for an answer."""
        others = [worker for worker in self.workers if worker.member not in victims and not worker.session.closed]
        self.gaps.setdefault(what, []).extend(gap_ms(worker.times, moment) for worker in others)

    def end(self, fleet):
        """No client writes any more: all servers are compared with each other and with the oracle."""
        self.finish(fleet)
        tree, zxid = trees.equal_trees(self.servers.members)
        self.judge({root: trees.below(tree, root) for root in self.history.roots()}, zxid)
        self.counts["rounds"] += 1
        self.connect()

    def judge(self, found, zxid):
        silent_since = time.monotonic() - self.session_s
        heard = self.left | {worker.session.session_id: worker.heard for worker in self.workers}
        self.history.judge(found, zxid, {session for session, moment in heard.items() if moment < silent_since})

    def summary(self):
        counted = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        waits = "".join(f"; write gap at a {what}: {told_gaps(gaps)}" for what, gaps in self.gaps.items() if gaps)
        return f"{counted}; {self.history.summary()}{waits}"


def gap_ms(times, moment):
    """The longest time without an answer that ends after the moment."""
    after = [time for time in times if time > moment]
    before = max((time for time in times if time <= moment), default=moment)
    return max((late - early for early, late in zip([before, *after], after)), default=0) * 1000


def told_gaps(gaps):
    gaps = sorted(gaps)
    p99 = gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))]
    return f"{gaps[len(gaps) // 2]:.0f} ms median, {p99:.0f} ms p99, {gaps[-1]:.0f} ms at most ({len(gaps)} clients)"
