"""Faults at random on four servers under load: kill -9, rolling restarts, pauses, membership changes whose leader is lost, cut links.

A second test damages the state of one of three servers while another one is down and the leader dies. Each fault is a round of
oracle/rounds.py, which judges it. The servers are in network namespaces, for root and where there is `ip`; else
no link is cut. The last line tells how long clients of the other servers waited for a write.
"""

import time
from concurrent.futures import ThreadPoolExecutor

from campaigns import namespaces
from ensemble.cluster import LEADING, REPLACED, SUPER, Ensemble, mark_of, mode_of, pause, resume
from ensemble.config import lines_and_version, read, reconfig
from ensemble.sessions import connect, connect_to_new_leader
from oracle import trees
from oracle.model import Mismatch
from oracle.rounds import SETTINGS, Rounds
from support.client import Closed, Refused
from support.wait import TooLate, wait_until

SERVERS, SESSION_MS = 4, 8_000
LIMIT_S = 60
# Of the faults, by weight, and in so many rounds one that waits for sessions to expire.
WEIGHTS = {"kill": 5, "restart": 1, "pause": 2, "change": 4, "cut": 4}
SETTLE_EVERY = 20
# How many servers are killed at once.
VICTIM_WEIGHTS = (5, 2, 1, 2)
# Data that a server needs some time to receive, and a time within which the leader dies.
BULK, BULK_BYTES, HEALS_S = 100, 900_000, 1


class Nemesis:
    """What is done to the servers of some rounds."""

    def __init__(self, ensemble, seed):
        self.ensemble, self.rounds = ensemble, Rounds(ensemble, seed, session_ms=SESSION_MS)
        self.random, self.counts = self.rounds.random, self.rounds.counts
        self.may_cut, self.pool = isinstance(ensemble, namespaces.Apart), ThreadPoolExecutor(1)

    def round(self):
        """Returns what was done."""
        names = [name for name in WEIGHTS if name != "cut" or self.may_cut]
        name = self.random.choices(names, [WEIGHTS[name] for name in names])[0]
        getattr(self, name)()
        self.counts[name] += 1
        return name

    def kill(self):
        count = self.random.choices(range(1, SERVERS + 1), VICTIM_WEIGHTS)[0]
        self.rounds.kill(self.random.sample(self.ensemble.members, count))

    def restart(self):
        """SIGTERM and a new start, server after server."""
        for member in self.random.sample(self.ensemble.members, SERVERS):
            fleet, moment = self.rounds.begin(), time.monotonic()
            member.terminate()
            self.load(fleet, lambda member=member: member.process.poll() is not None, "the server ends")
            if member.process.poll() != 0:
                raise Mismatch(f"SIGTERM ended the server at {member.address[1]} with {member.process.poll()}")
            member.launch()
            self.load(fleet, member.is_serving, "the server serves")
            self.rounds.note_gaps("restart", moment, [member])
            self.rounds.end(fleet)

    def pause(self):
        """SIGSTOP of the leader until another one leads."""
        leader, fleet, moment = self.ensemble.leader(), self.rounds.begin(), time.monotonic()
        self.without(leader, fleet)
        self.rounds.load(fleet, self.rounds.some_writes())
        self.rounds.note_gaps("pause", moment, [leader])
        self.rounds.end(fleet)

    def without(self, leader, fleet):
        pause(leader)
        others = [member for member in self.ensemble.members if member is not leader]
        try:
            self.load(fleet, lambda: any(mode_of(member) == LEADING for member in others), "another server leads")
        finally:
            resume(leader)

    def change(self):
        """A server leaves the list or loses its vote, and the leader is lost meanwhile. Then all have their votes again."""
        leader, number = self.ensemble.leader(), self.random.randint(1, SERVERS)
        asked = self.random.choice(({"leaving": str(number)}, {"joining": self.spec(number).replace("participant", "observer")}))
        fleet, moment = self.rounds.begin(), time.monotonic()
        client = connect(self.random.choice(self.ensemble.members))
        client.auth("digest", SUPER)
        answer = self.pool.submit(change_list, client, **asked)
        time.sleep(self.random.uniform(0, 0.05))
        if self.random.random() < 0.5:
            leader.kill()
            self.rounds.load(fleet, self.rounds.some_writes())
            leader.launch()
        else:
            self.without(leader, fleet)
        self.load(fleet, answer.done, "the change is answered")
        self.rounds.note_gaps("change", moment, [leader])
        lines, told = answer.result()
        self.counts[f"changes told {told}"] += 1
        if lines:
            self.load(fleet, lambda: self.shown(lines), "the list is that of the answer")
        self.load(fleet, self.all_vote, "all servers have their votes")
        self.rounds.end(fleet)

    def spec(self, number):
        return f"server.{number}={self.ensemble.specs[number]}"

    def shown(self, lines):
        """Whether some server that leads shows this list."""
        try:
            with connect_to_new_leader(self.ensemble.members) as client:
                client.sync()
                return sorted(lines_and_version(read(client)[0])[0]) == lines
        except (Closed, Refused, OSError, TooLate):
            return False

    def all_vote(self):
        """Asks for a list of all servers; whether all have their votes."""
        try:
            with connect_to_new_leader(self.ensemble.members) as client:
                client.auth("digest", SUPER)
                reconfig(client, members=",".join(self.spec(number) for number in self.ensemble.specs))
        except (Closed, Refused, OSError, TooLate):
            return False
        modes = sorted(str(mode) for mode in self.ensemble.modes().values())
        return modes == ["follower"] * (SERVERS - 1) + [LEADING]

    def cut(self):
        """One server is cut off, from all or from one, one way or both ways. All others are served meanwhile."""
        members = self.ensemble.members
        lone = self.random.choice((self.ensemble.leader(), *members))
        others = [member for member in members if member is not lone]
        if self.random.random() < 0.3:
            others = [self.random.choice([member for member in others if mode_of(member) == LEADING] or others)]
        ways = self.random.choice(("both", "outgoing", "incoming"))
        fleet, moment = self.rounds.begin(), time.monotonic()
        for other in others:
            if ways in ("both", "outgoing"):
                self.ensemble.cut(lone, other)
            if ways in ("both", "incoming"):
                self.ensemble.cut(other, lone)
        try:
            served = [worker for worker in self.rounds.workers if worker.member is not lone and not worker.session.closed]
            self.load(fleet, lambda: all(worker.session.closed or worker.heard > moment for worker in served), "the majority is served")
            self.rounds.load(fleet, self.rounds.some_writes())
            self.rounds.note_gaps("cut", moment, [lone])
        finally:
            self.ensemble.network.heal()
        self.rounds.load(fleet, self.rounds.some_writes())
        self.rounds.end(fleet)

    def load(self, fleet, condition, what):
        """Loads until the condition, which is looked at some times a second."""
        deadline, look = time.monotonic() + LIMIT_S, 0

        def met():
            nonlocal look
            now = time.monotonic()
            if now > deadline:
                raise Mismatch(f"{what}: not within {LIMIT_S} s")
            if now < look:
                return False
            look = now + 0.05
            return condition()

        self.rounds.load(fleet, met)


def change_list(client, **asked):
    """The list that a client is answered, None without one, and what it was told."""
    try:
        return sorted(lines_and_version(reconfig(client, **asked)[0])[0]), "done"
    except Refused as refused:
        return None, f"error {refused.code}"
    except (Closed, OSError):
        return None, "nothing"
    finally:
        client.drop()


def new_ensemble(shards):
    if reason := namespaces.why_not():
        return Ensemble("corral", SERVERS, shards, settings=SETTINGS), reason
    return namespaces.Apart(SERVERS, shards, settings=SETTINGS), None


def test_nothing_acknowledged_is_lost(only_corral, run_ensemble, shards, seed, is_over, say, note):
    made, reason = new_ensemble(shards)
    say(f"seed {seed}" + (f"; no link is cut: {reason}" if reason else ""))
    nemesis, number, name = Nemesis(run_ensemble(made, keep=True), seed), 0, "begin"
    while not is_over():
        try:
            name = nemesis.round()
            if number % SETTLE_EVERY == SETTLE_EVERY - 1:
                nemesis.rounds.settle()
        except (Mismatch, TooLate, trees.Differ, TimeoutError) as error:
            raise AssertionError(f"round {number} of seed {seed}, behind {name}: {error}") from error
        number += 1
        say(f"round {number}, {name}: {nemesis.rounds.history.acknowledged} acknowledged writes")
    note(f"seed {seed}: {nemesis.rounds.summary()}")


def damage(ensemble, rounds):
    """One server is down, the state of another one cannot be trusted, and the leader dies while that server takes a new state."""
    victim, down = rounds.random.sample(ensemble.members, 2)
    fleet, begin = rounds.begin(), len(victim.log())
    victim.kill()
    mark_of(victim).write_text("another digest\n")
    victim.launch()
    wait_until(lambda: "the state cannot be trusted" in victim.log()[begin:], "it distrusts its state")
    moment = time.monotonic()
    down.kill()
    rounds.load(fleet, rounds.some_writes(1, 200))
    rounds.note_gaps("repair", moment, [victim, down])
    time.sleep(rounds.random.uniform(0, HEALS_S))
    leader = ensemble.leader()
    leader.kill()
    leader.launch()
    rounds.load(fleet, rounds.some_writes())
    ensemble.start()
    rounds.load(fleet, lambda: REPLACED in victim.log()[begin:])
    rounds.counts["damaged"] += 1
    rounds.end(fleet)


def test_a_repair_of_a_state_loses_nothing(only_corral, run_ensemble, shards, seed, is_over, say, note):
    say(f"seed {seed}")
    ensemble = run_ensemble(Ensemble("corral", 3, shards, settings=SETTINGS), keep=True)
    with connect(ensemble.leader()) as client:
        client.create("/bulk")
        for number in range(BULK):
            client.create(f"/bulk/{number}", bytes([number]) * BULK_BYTES)
    rounds, number = Rounds(ensemble, seed, session_ms=SESSION_MS), 0
    while not is_over():
        try:
            damage(ensemble, rounds)
        except (Mismatch, TooLate, trees.Differ, TimeoutError) as error:
            raise AssertionError(f"round {number} of seed {seed}: {error}") from error
        number += 1
        say(f"round {number}: {rounds.history.acknowledged} acknowledged writes")
    note(f"seed {seed}: {rounds.summary()}")
