"""Three servers in network namespaces, cut from each other one way and both ways while every server has a client that writes.

Of each cut is asked: the side with a majority goes on writing, the other acknowledges nothing, the leader changes once or not at
all, no term passes without a leader (none at all where the leader keeps its majority), and after the cut is healed all servers have
the same tree with every acknowledged write in it. Needs root and `ip`; skipped otherwise. A cut lasts longer in the full size.
"""

import re
import threading
import time

import pytest

from ensemble import namespaces, trees
from ensemble.cluster import mode_of
from ensemble.sessions import connect

from support.client import Client, Closed, Refused
from support.expect import equal
from support.wait import wait_until

CUT_S, CUT_QUICK_S = 10, 4
# In the short form the servers have long timeouts: a machine that builds meanwhile would make them hold elections of its own making.
LONG_TIMEOUTS = {"ensemble.election_ms": 1000, "ensemble.heartbeat_ms": 100}
# How soon the majority must write again, and how soon all is well after healing. A shared machine adds its own.
RESUME_LIMIT_S, HEAL_LIMIT_S = 5, 20
# Until a leader that has lost its majority knows it.
STEP_DOWN_S = 3
WRITE_LIMIT_S = 2
# Of a client between two writes.
PAUSE_S = 0.02


class Writer(threading.Thread):
    """Creates znodes at one server, one after the other, with a new session whenever that is lost."""

    def __init__(self, member, top):
        super().__init__(daemon=True)
        self.member, self.top, self.over = member, top, False
        # Paths, and when each was sent and acknowledged.
        self.answers = []

    def run(self):
        client, turn = None, 0
        while not self.over:
            try:
                if client is None:
                    client = Client(self.member.address)
                    client.socket.settimeout(WRITE_LIMIT_S)
                    if not client.session_id:
                        raise Closed
                turn += 1
                path, sent = f"{self.top}/{self.member.number}-{turn}", time.monotonic()
                client.create(path, b"x" * 100)
                self.answers.append((path, sent, time.monotonic()))
                # The whole tree is read at the end of each cut.
                time.sleep(PAUSE_S)
            except (OSError, Closed, Refused):
                if client:
                    client.drop()
                client = None
                time.sleep(0.02)

    def between(self, begin, end):
        """Writes that were sent and acknowledged in this time."""
        return [path for path, sent, told in self.answers if sent >= begin and told <= end]


def terms(ensemble):
    """The highest term any server has told of, and how many leaderships they have told of."""
    led = re.compile(r'leadership changed role="?(\w+)"? term=(\d+)')
    found = [(int(term), role) for member in ensemble.members for role, term in led.findall(member.log())]
    return max(term for term, _ in found), len({term for term, role in found if role == "leader"})


class Trial:
    """One cut, with its writers."""

    def __init__(self, ensemble, seconds):
        self.ensemble, self.seconds = ensemble, seconds
        self.leader, self.followers = ensemble.leader(), ensemble.followers()
        with connect(self.leader) as client:
            top = client.create(f"/cut-{time.time_ns():x}")
        self.writers = {member: Writer(member, top) for member in ensemble.members}

    def run(self, pairs, majority, leader_stays):
        """Cuts the pairs of (sender, receiver), heals, and judges. `majority`: the servers that can go on."""
        for writer in self.writers.values():
            writer.start()
        wait_until(lambda: all(len(writer.answers) > 20 for writer in self.writers.values()), "everybody writes")
        before = terms(self.ensemble)
        begin = time.monotonic()
        for sender, receiver in pairs:
            self.ensemble.cut(sender, receiver)
        cut = time.monotonic()
        time.sleep(self.seconds)
        during = terms(self.ensemble)
        leaders = [member for member, mode in self.ensemble.modes().items() if mode == "leader"]
        end = time.monotonic()
        self.ensemble.network.heal()
        return self.judge(before, during, (begin, cut, end), majority, leaders, leader_stays)

    def judge(self, before, during, moments, majority, leaders, leader_stays):
        _, cut, end = moments
        resumed = {member: self.first_after(member, cut) for member in majority}
        late = {member.number: after for member, after in resumed.items() if after is None or after > RESUME_LIMIT_S}
        equal(late, {}, f"servers of the majority where no write was acknowledged within {RESUME_LIMIT_S} s of the cut")
        for member, writer in self.writers.items():
            if member not in majority:
                equal(writer.between(cut + STEP_DOWN_S, end), [], f"the cut off server {member.number} acknowledged")
        equal(len(leaders), 1, "leaders while it is cut")
        if leader_stays:
            equal(during, before, "terms and leaderships: the leader keeps its majority")
            equal(leaders[0].number, self.leader.number, "the leader")
        else:
            equal(during[1], before[1] + 1, "leaderships: exactly one more")
            assert during[0] - before[0] <= 3, f"terms run away: {before[0]} before, {during[0]} after {self.seconds} s"
        return self.heal(leaders[0], during, max(resumed.values()))

    def first_after(self, member, moment):
        """Seconds until the first write that was sent after the moment was acknowledged."""
        return next((told - moment for _, sent, told in self.writers[member].answers if sent >= moment), None)

    def heal(self, leader, during, resumed_s):
        healed = time.monotonic()
        wait_until(
            lambda: all(self.first_after(member, healed) for member in self.writers), "everybody writes again", HEAL_LIMIT_S
        )
        after = time.monotonic() - healed
        for writer in self.writers.values():
            writer.over = True
        for writer in self.writers.values():
            writer.join(WRITE_LIMIT_S + 1)
        tree, _ = trees.equal_trees(self.ensemble.members)
        acknowledged = [path for writer in self.writers.values() for path, _, _ in writer.answers]
        equal([path for path in acknowledged if path not in tree][:5], [], "acknowledged writes that are lost")
        equal(terms(self.ensemble), during, "terms and leaderships: healing changes nobody's leader")
        equal(mode_of(leader), "leader", f"server {leader.number} after healing")
        return (
            f"{len(acknowledged)} writes acknowledged, none lost; the majority wrote {resumed_s * 1000:.0f} ms after the cut at "
            f"the latest, everybody {after * 1000:.0f} ms after its end; term {during[0]}"
        )


@pytest.fixture(scope="module")
def new_ensemble(options, shards, only_corral):
    if reason := namespaces.why_not():
        pytest.skip(reason)
    return namespaces.Apart(shards=shards, settings={} if options.full else LONG_TIMEOUTS)


@pytest.fixture
def trial(ensemble, options):
    yield Trial(ensemble, CUT_S if options.full else CUT_QUICK_S)
    ensemble.network.heal()


def both_ways(left, right):
    return [(left, right), (right, left)]


def test_a_follower_is_cut_off(trial, note):
    cut_off, other = trial.followers
    pairs = both_ways(cut_off, other) + both_ways(cut_off, trial.leader)
    note(trial.run(pairs, [trial.leader, other], leader_stays=True))


def test_the_leader_is_cut_off(trial, note):
    first, second = trial.followers
    pairs = both_ways(trial.leader, first) + both_ways(trial.leader, second)
    note(trial.run(pairs, [first, second], leader_stays=False))


def test_a_follower_does_not_hear_the_leader(trial, note):
    isolated, other = trial.followers
    note(trial.run([(trial.leader, isolated)], [trial.leader, other], leader_stays=True))


def test_the_leader_does_not_hear_a_follower(trial, note):
    unheard, other = trial.followers
    note(trial.run([(unheard, trial.leader)], [trial.leader, other], leader_stays=True))


def test_a_follower_hears_nobody(trial, note):
    isolated, other = trial.followers
    note(trial.run([(trial.leader, isolated), (other, isolated)], [trial.leader, other], leader_stays=True))


def test_the_leader_hears_nobody(trial, note):
    first, second = trial.followers
    note(trial.run([(first, trial.leader), (second, trial.leader)], [first, second], leader_stays=False))


def test_nobody_hears_the_leader(trial, note):
    first, second = trial.followers
    note(trial.run([(trial.leader, first), (trial.leader, second)], [first, second], leader_stays=False))


def test_the_leader_and_a_follower_are_cut_from_each_other(trial, note):
    cut_off, other = trial.followers
    note(trial.run(both_ways(trial.leader, cut_off), [trial.leader, other], leader_stays=True))
