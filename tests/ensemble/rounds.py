"""Servers of an ensemble are killed (kill -9), one, two or all, or restarted in turn (SIGTERM), round after round under load.

Sessions with full pipelines write at every server. After each round all servers must have the same tree at the same zxid, and
that tree must be the one a linear oracle expects: every acknowledged write with its zxid and Stat, of the unanswered ones a
prefix of each session's, multis all or nothing, no zxid and no sequence number twice, every session alive that was heard from,
every ephemeral with its living session and none of a dead one's. (Of ZooKeeper the prefix is too much to ask: it may do a later
request of a connection that ended and not an earlier one.) A rolling restart is one round a server; how long the clients of the
others wait for a write, and which requests stay unanswered, is counted.
"""

import random
import statistics
import time

from durability.history import History
from durability.oracle import Mismatch
from ensemble import trees
from ensemble.cluster import FORM_LIMIT_S
from ensemble.sessions import connect
from support.client import Closed
from support.pipeline import Fleet
from support.wait import TooLate, wait_until

TICK_MS, SESSION_MS = 500, 8_000
WORKERS = 6
# Every so many rounds the load goes on until the ephemerals of all dead sessions are gone.
SETTLE_EVERY = 20
SETTLE_LIMIT_S = 2 * SESSION_MS / 1000 + 10
ANSWER_LIMIT_S = 40
RESUME_SHARE, STAY_SHARE = 0.8, 0.6
# How many servers are killed at once, and how often.
VICTIMS, VICTIM_WEIGHTS = (1, 2, 3), (5, 2, 3)
# Snapshots are written often enough to fall between the kills, so that recovery meets snapshot and log together.
SETTINGS = {
    "snapshot.floor_bytes": 1 << 20,
    "snapshot.txns_max": 20_000,
    "snapshot.interval_min_ms": 100,
    "log.segment_bytes": 4 << 20,
    "limits.frame_bytes_max": 1_000_000,
}


class Rounds:
    """The ensemble, the workers with their sessions, and what has been counted."""

    def __init__(self, ensemble, seed, workers=WORKERS):
        self.ensemble, self.random = ensemble, random.Random(seed)
        with connect(ensemble.leader()) as client:
            self.history = History(client, ensemble.members[0].address, workers, SESSION_MS, seed)
        self.workers = self.history.workers
        # Sessions that nobody keeps alive: when each was last heard from.
        self.left = {}
        self.resumed = self.stayed = self.renewed = 0
        self.kills = self.restarts = self.broken = 0
        # Requests without an answer: of clients of the server that was restarted, and of others.
        self.unanswered = {"there": 0, "elsewhere": 0}
        self.gaps = {"leader": [], "follower": []}
        self.largest = 0
        for worker in self.workers:
            worker.session, worker.member, worker.heard = None, None, 0
        self.connect()

    # The load.

    def connect(self):
        """Every worker gets a connection: keeps its own, takes its session to some server, or begins a new one."""
        for worker in self.workers:
            old = worker.session
            fresh = time.monotonic() - worker.heard < SESSION_MS / 2000
            if old and not old.closed and fresh and self.random.random() < STAY_SHARE:
                self.stayed += 1
                continue
            if old and not old.closed:
                old.drop()
            if old and self.random.random() < RESUME_SHARE and self.resume(worker):
                self.resumed += 1
                continue
            if old:
                self.left[old.session_id] = worker.heard
                self.renewed += 1
            self.place(worker, resume=False)

    def resume(self, worker):
        """Takes the session to some server. False when it has expired, which it must not have before its time."""
        if self.place(worker, resume=True):
            return True
        silent_s = time.monotonic() - worker.heard
        if silent_s < SESSION_MS / 1000:
            raise Mismatch(f"worker {worker.number}: its session was silent for {silent_s:.1f} s and cannot be resumed")
        return False

    def place(self, worker, resume):
        """A connection at some server, tried until one takes it; whether it has a session."""

        def tried():
            worker.member = self.random.choice(self.ensemble.members)
            worker.address = worker.member.address
            try:
                return "yes" if worker.connect(resume) else "no"
            except (OSError, Closed):
                return None

        answer = wait_until(tried, "a server gives a session", ANSWER_LIMIT_S)
        worker.heard = time.monotonic()
        return answer == "yes"

    def load(self, fleet, until, fill=True):
        """Keeps the pipelines full until `until()`; connections that end are left alone."""
        of_session = {worker.session: worker for worker in self.workers}
        while not until():
            for worker in self.workers if fill else ():
                worker.fill()
            for session, answers in fleet.turn(0.01):
                worker = of_session[session]
                for answer in answers:
                    self.history.record(worker.answered(answer))
                if answers:
                    now = time.monotonic()
                    worker.times.append(now)
                    worker.heard = now

    def for_seconds(self, low, high):
        end = time.monotonic() + self.random.uniform(low, high)
        return lambda: time.monotonic() > end

    def finish(self, fleet):
        """Waits for the answers of every connection that is still open."""
        deadline = time.monotonic() + ANSWER_LIMIT_S

        def done():
            if time.monotonic() > deadline:
                waiting = {worker.number: len(worker.pending) for worker in self.workers if not worker.session.closed}
                raise Mismatch(f"no answer within {ANSWER_LIMIT_S} s, waiting by worker: {waiting}")
            return all(worker.session.closed or not worker.pending for worker in self.workers)

        self.load(fleet, done, fill=False)
        fleet.close()

    def settled(self):
        """Whether no server shows ephemerals of dead sessions any more; looked at twenty times a second."""
        next_look, deadline = 0, time.monotonic() + SETTLE_LIMIT_S

        def look():
            nonlocal next_look
            now = time.monotonic()
            if now > deadline:
                raise Mismatch(f"ephemerals of dead sessions are still there after {SETTLE_LIMIT_S} s")
            if now < next_look:
                return False
            next_look = now + 0.05
            for member in self.ensemble.members:
                with connect(member) as client:
                    client.sync()
                    if self.history.has_ephemerals_of(client, self.left):
                        return False
            self.history.forget_ephemerals(self.left)
            self.left.clear()
            return True

        return look

    # The rounds.

    def begin(self, number):
        """Loads all connections for a while, and in some rounds until the ephemerals of dead sessions are gone."""
        for worker in self.workers:
            worker.times = []
        fleet = Fleet(worker.session for worker in self.workers)
        if number % SETTLE_EVERY == SETTLE_EVERY - 1:
            self.load(fleet, self.settled())
        self.load(fleet, self.for_seconds(0.02, 0.3))
        return fleet

    def kill_round(self, number):
        fleet = self.begin(number)
        count = self.random.choices(VICTIMS, VICTIM_WEIGHTS)[0]
        victims = self.random.sample(self.ensemble.members, count)
        for victim in victims:
            victim.kill()
        self.kills += count
        self.load(fleet, self.for_seconds(0, 0.5))
        self.ensemble.start()
        self.load(fleet, self.for_seconds(0.02, 0.3))
        self.end(fleet)

    def rolling_round(self, number):
        """SIGTERM and start again, server after server; what the clients of the others notice is counted."""
        for member in self.random.sample(self.ensemble.members, len(self.ensemble.members)):
            fleet, role = self.begin(number), "leader" if self.ensemble.leader() is member else "follower"
            others = [worker for worker in self.workers if worker.member is not member]
            moment = time.monotonic()
            member.terminate()
            self.load(fleet, lambda member=member: member.process.poll() is not None or time.monotonic() > moment + FORM_LIMIT_S)
            code = member.process.poll()
            if code != 0:
                raise Mismatch(f"SIGTERM ended the server at {member.address[1]} with {code}")
            member.launch()
            self.load(fleet, member.is_serving)
            self.load(fleet, self.for_seconds(0.1, 0.2))
            self.restarts += 1
            self.gaps[role] += [gap(worker.times, moment) for worker in others if not worker.session.closed]
            self.broken += sum(worker.session.closed for worker in others)
            for worker in self.workers:
                if worker.session.closed:
                    self.unanswered["there" if worker.member is member else "elsewhere"] += len(worker.pending)
            self.end(fleet)

    def end(self, fleet):
        """Nothing is written any more: all servers are compared with each other and with the oracle."""
        self.finish(fleet)
        tree, zxid = trees.equal_trees(self.ensemble.members)
        self.largest = max(self.largest, len(tree))
        silent_since = time.monotonic() - SESSION_MS / 1000
        heard = self.left | {worker.session.session_id: worker.heard for worker in self.workers}
        dead = {session for session, moment in heard.items() if moment < silent_since}
        found = {root: trees.below(tree, root) for root in self.history.roots()}
        self.history.judge(found, zxid, dead)
        self.connect()

    def summary(self):
        text = (
            f"{self.history.summary()}; sessions: {self.stayed} times kept, {self.resumed} moved, {self.renewed} left to expire; "
            f"trees of up to {self.largest} znodes equal on all servers every time"
        )
        if self.restarts:
            text += (
                f"; {self.broken} connections to other servers closed, {self.unanswered['elsewhere']} requests there and "
                f"{self.unanswered['there']} at the restarted ones unanswered"
            )
            text += "".join(f"; write gap at a restart of {told_gaps(role, gaps)}" for role, gaps in self.gaps.items() if gaps)
        return text


def gap(times, moment):
    """The longest time without an answer that ends after the moment, in ms."""
    after = [time for time in times if time > moment]
    before = max((time for time in times if time <= moment), default=moment)
    return max((late - early for early, late in zip([before, *after], after)), default=0) * 1000


def told_gaps(role, gaps):
    gaps = sorted(gaps)
    p99 = gaps[min(len(gaps) - 1, int(len(gaps) * 0.99))]
    return f"a {role} {statistics.median(gaps):.0f} ms median, {p99:.0f} ms p99, {gaps[-1]:.0f} ms at most ({len(gaps)} clients)"


def run(ensemble, kind, rounds, seed, say, report_every=20):
    """The rounds of one kind on a running ensemble; returns what they did. `say` prints a line now and then."""
    state = Rounds(ensemble, f"{seed}-{kind}")
    for number in range(rounds):
        try:
            state.kill_round(number) if kind == "kill" else state.rolling_round(number)
        except (Mismatch, TooLate, trees.Differ, TimeoutError) as error:
            raise AssertionError(f"round {number} of seed {seed}: {error}") from error
        if number % report_every == report_every - 1:
            say(f"{number + 1} rounds: {state.summary()}")
    did = f"{state.kills} servers killed" if kind == "kill" else f"{state.restarts} servers restarted"
    return f"{rounds} rounds, {did}, {state.summary()}"
