"""The leader is killed (kill -9), or is stopped \(SIGSTOP\) and comes back, at each step of a membership change.

Servers join, leave and change their roles, and leaders take themselves out, under a load as in rounds.py. Messages between
servers are slow meanwhile, so that each step lasts for an exchange of messages; `zk_reconfig_step` of the leader's mntr tells
which it is. Afterwards all servers have one list, the new one if the client was told so; the client of the change was
answered or disconnected; trees, sessions and ephemerals are what the oracle of rounds.py expects; and the next round begins with
another change, which must succeed. `--times N` sets how often, `--changes TEXT` chooses rounds by change, step and way.
"""

import threading
import time

from durability.oracle import Mismatch
from ensemble import trees
from ensemble.cluster import FORM_LIMIT_S, LEADING, PROBE_LIMIT_S, SUPER, mode_of, pause, resume
from ensemble.config import lines_and_version, read, reconfig
from ensemble.links import Linked
from ensemble.rounds import SETTINGS, Rounds
from ensemble.sessions import connect

from support.client import Closed, Refused, four_letter_command, words_table
from support.wait import TooLate, wait_until

TICK_MS, ELECTION_MS, HOLD_MS = 500, 500, 1500
DELAY_S = 0.08
STEP_LIMIT_S, ANSWER_LIMIT_S, LIST_LIMIT_S = 10, 60, 30
STEPS = ("catching-up", "entering", "joint", "answering")
CHANGES = ("join", "leave", "demote", "promote", "leave myself", "demote myself")
WAYS = ("kill", "pause")
# How often each step of each change is met, each way.
TIMES = 2
# Each change, each step and each way at least once.
QUICK = (
    ("join", "catching-up", "kill"), ("leave", "entering", "kill"), ("join", "joint", "pause"),
    ("leave myself", "joint", "kill"), ("promote", "entering", "pause"), ("demote", "answering", "kill"),
    ("leave myself", "entering", "pause"), ("join", "answering", "pause"),
)  # fmt: skip


class Present:
    """The servers of the list, for the load."""

    def __init__(self, ensemble):
        self.ensemble, self.members = ensemble, list(ensemble.members[:3])

    def leader(self):
        return wait_until(self.leads_now, "a server leads", FORM_LIMIT_S)

    def leads_now(self):
        return next((member for member in self.members if mode_of(member) == LEADING), None)


class Asker(threading.Thread):
    """A client that asks one server for a change, and what it was told: the list, an error, or nothing."""

    def __init__(self, member, asked):
        super().__init__(daemon=True)
        self.client, self.asked = connect(member), asked
        self.client.auth("digest", SUPER)
        self.client.socket.settimeout(ANSWER_LIMIT_S)
        self.list, self.told = None, None

    def run(self):
        try:
            self.list, self.told = sorted(lines_and_version(reconfig(self.client, **self.asked)[0])[0]), "the new list"
        except Refused as refused:
            self.told = f"error {refused.code}"
        except TimeoutError:
            self.told = "nothing at all"
        except (Closed, OSError):
            self.told = "CONNECTIONLOSS"
        self.client.drop()


def step_of(member):
    """What mntr tells, None when it cannot be asked."""
    try:
        return words_table(four_letter_command(member.address, "mntr", PROBE_LIMIT_S), "\t").get("zk_reconfig_step")
    except OSError:
        return None


class Steps:
    """Rounds of one ensemble of four servers, of which some are in the list."""

    def __init__(self, ensemble, seed):
        self.ensemble, self.present = ensemble, Present(ensemble)
        self.rounds = Rounds(self.present, seed)
        self.number, self.told, self.met = 0, {}, {}

    # The list.

    def spec(self, number, role="participant"):
        return f"server.{number}={self.ensemble.specs[number].replace('participant', role)}"

    def list_now(self):
        """The list, when all servers in it show the same one and serve; else None."""
        shown = {}
        for member in self.ensemble.members:
            if mode_of(member) is None:
                continue
            try:
                with connect(member, limit_s=1) as client:
                    client.sync()
                    shown[member] = sorted(lines_and_version(read(client)[0])[0])
            except (TooLate, Closed, Refused, OSError):
                continue
        leader = next((member for member in shown if mode_of(member) == LEADING), None)
        if leader is None or step_of(leader) != "none":
            return None
        lines = shown[leader]
        listed = [self.ensemble.members[int(line.split("=")[0].removeprefix("server.")) - 1] for line in lines]
        if any(shown.get(member) != lines for member in listed):
            return None
        self.present.members = listed
        return lines

    def one_list(self):
        return wait_until(self.list_now, "all servers of the list show the same list", LIST_LIMIT_S)

    def base(self, change):
        """The list a change begins with, by a change that must succeed."""
        lines = [self.spec(number) for number in range(1, 4 if change == "join" else 5)]
        leader = self.present.leader()
        if change == "promote":
            last = next(number for number in range(4, 0, -1) if self.ensemble.members[number - 1] is not leader)
            lines[last - 1] = self.spec(last, "observer")
        # A leader goes with its seat: it must not be the one who is not wanted.
        if sorted(lines) != self.one_list():
            with connect(leader) as client:
                client.auth("digest", SUPER)
                client.socket.settimeout(ANSWER_LIMIT_S)
                try:
                    reconfig(client, members=",".join(lines))
                except (Closed, OSError):
                    assert change == "join", "the leader that answers stays"
            wait_until(lambda: self.one_list() == sorted(lines), "the further change is done", LIST_LIMIT_S)

    # One round.

    def asked(self, change, leader):
        """The change, as a client asks for it, and the servers that stay."""
        own, listed = self.ensemble.number(leader), [self.ensemble.number(member) for member in self.present.members]
        other = max(number for number in listed if number != own)
        match change:
            case "join":
                return {"joining": self.spec(4)}, listed
            case "leave" | "leave myself":
                gone = own if change.endswith("myself") else other
                return {"leaving": str(gone)}, [number for number in listed if number != gone]
            case "demote" | "demote myself":
                return {"joining": self.spec(own if change.endswith("myself") else other, "observer")}, listed
            case _:
                observer = next(number for number in listed if mode_of(self.ensemble.members[number - 1]) == "observer")
                return {"joining": self.spec(observer)}, listed

    def run(self, change, step, way):
        self.base(change)
        before, leader = self.one_list(), self.present.leader()
        asked, staying = self.asked(change, leader)
        others = [number for number in staying if self.ensemble.members[number - 1] is not leader]
        # An answer can only be met on its way to another server; else both are asked in turn.
        at = others[0] if step == "answering" or self.number % 2 else self.ensemble.number(leader)
        fleet = self.rounds.begin(self.number)
        asker = Asker(self.ensemble.members[at - 1], asked)
        self.ensemble.links.delay_s = DELAY_S
        asker.start()
        self.rounds.load(fleet, self.met_step(leader, step))
        self.lose(leader, way, fleet, asker)
        after = self.one_list()
        told = asker.told
        if told == "nothing at all" or told == "the new list" and asker.list != after:
            raise Mismatch(f"the client was told {told} {asker.list}, the list is {after}, and was {before}")
        if told.startswith("error") and after != before:
            raise Mismatch(f"the client was told {told}, and the list is {after}")
        self.told[told] = self.told.get(told, 0) + 1
        self.rounds.end(fleet)
        self.number += 1

    def met_step(self, leader, wanted):
        """Whether the leader has come to the step, or to a later one."""
        seen, deadline = [], time.monotonic() + STEP_LIMIT_S
        # What comes to an end says none, as what has not begun does.
        order = [*STEPS[:3], "none"]

        def met():
            step = step_of(leader)
            if step is None and "joint" in seen:
                # A leader that took itself out has ended it, and serves nobody.
                step = "none"
            if step in order and (step != "none" or seen):
                seen.append(step)
                at = STEPS[order.index(step)]
                if STEPS.index(at) >= STEPS.index(wanted):
                    self.met[at] = self.met.get(at, 0) + 1
                    return True
            if time.monotonic() > deadline:
                raise Mismatch(f"the leader did not come to {wanted}, but told {sorted(set(seen))} and at last {step}")
            return False

        return met

    def lose(self, leader, way, fleet, asker):
        """The leader goes, and comes back when another leads."""
        (leader.kill if way == "kill" else lambda: pause(leader))()
        self.ensemble.links.delay_s = 0
        others, deadline = [member for member in self.ensemble.members if member is not leader], time.monotonic() + FORM_LIMIT_S

        def another_leads():
            if time.monotonic() > deadline:
                raise Mismatch("no other server leads")
            return any(mode_of(member) == LEADING for member in others)

        try:
            self.rounds.load(fleet, another_leads)
        finally:
            (leader.launch if way == "kill" else lambda: resume(leader))()
        self.rounds.load(fleet, lambda: not asker.is_alive())

    def summary(self):
        met = ", ".join(f"{times} times {step}" for step, times in sorted(self.met.items()))
        told = ", ".join(f"{times} times {what}" for what, times in sorted(self.told.items()))
        return f"{self.number} rounds; met: {met}; the client was told {told}; {self.rounds.summary()}"


def test_a_leader_is_lost_at_each_step(only_corral, run_ensemble, options, shards, seed, say, note):
    """The rounds on a running ensemble of three and a server that waits."""
    times = options.sized("times", 0, TIMES)
    rounds = [(change, step, way) for change in CHANGES for step in STEPS for way in WAYS] * times if times else QUICK
    rounds = [one for one in rounds if (options.changes or "") in " ".join(one)]
    settings = {**SETTINGS, "ensemble.election_ms": ELECTION_MS, "ensemble.hold_ms": HOLD_MS}
    ensemble = run_ensemble(Linked(shards=shards, tick_ms=TICK_MS, settings=settings), keep=True)
    ensemble.joiner("participant").launch()
    state = Steps(ensemble, seed)
    for number, (change, step, way) in enumerate(rounds):
        try:
            state.run(change, step, way)
        except (Mismatch, TooLate, trees.Differ, TimeoutError) as error:
            raise AssertionError(f"round {number} of seed {seed}, {way} at {step} of {change}: {error}") from error
        if number % 20 == 19:
            say(state.summary())
    # The last one is followed by a change, too.
    state.base("leave")
    note(state.summary())
