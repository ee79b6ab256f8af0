"""Mixed load with bursts and random idle times; no reply may take a second.

Reads, writes, watches, new and closed sessions by turns: full pipelines for a while, single requests, then silence, so that
the server's executors go to sleep and have to wake again and again. Prints the largest latency and the watchdog's count. A reply
that is late because the machine stalled is told apart by an idle server beside. `--minutes` sets how long.
"""

import random
import re
import time
from collections import Counter

import pytest

from campaigns.probe import Probe
from support import jute
from support.client import four_letter_command, words_table
from support.pipeline import Fleet, Pipelined
from support.server import Corral

TICK_MS = 2000
STALL_S = 1.0
SESSIONS, DEPTH, NODES = 12, 16, 200
IDLE_MAX_S, BURST_MAX_S = 0.5, 1.0
# A reply that has not come after this long is not waited for any more: the run fails.
GIVE_UP_S = 30
SAY_S = 10
ROOT = "/soak"
# `runtime.watchdog_frozen_ms` as it is unless configured.
FROZEN_MS = 250


class Soak:
    """All sessions of the run and what they have seen."""

    def __init__(self, server, beside, seed):
        """`beside` is a probe of an idle server, whose largest pause is the machine's own."""
        self.server, self.beside, self.random = server, beside, random.Random(seed)
        with server.client() as client:
            client.create(ROOT)
            for number in range(NODES):
                client.create(f"{ROOT}/{number}", b"0" * 100)
        self.sessions = [Pipelined(server.address, DEPTH) for _ in range(SESSIONS)]
        self.largest_s, self.stalls, self.counts, self.first_kib = 0, [], Counter(), server.memory().own_kib

    def request(self):
        """A random request; all of them succeed whatever the others do."""
        path = f"{ROOT}/{self.random.randrange(NODES)}"
        kind = self.random.random()
        if kind < 0.55:
            return jute.GET_DATA, jute.read_body(path, watch=self.random.random() < 0.2)
        if kind < 0.65:
            return jute.GET_CHILDREN2, jute.read_body(ROOT)
        if kind < 0.9:
            return jute.SET_DATA, jute.set_body(path, b"x" * self.random.randrange(500))
        if kind < 0.95:
            return jute.SYNC, jute.string(path)
        pair = [(jute.SET_DATA, jute.set_body(path, b"m")), (jute.CHECK, jute.check_body(path))]
        return jute.MULTI, jute.multi_body(pair)

    def turn(self, fleet):
        for session, answers in fleet.turn():
            assert not session.closed, "the server closed a connection"
            for answer in answers:
                assert answer.error == 0, f"error {answer.error}"
                self.counts["replies"] += 1
                self.largest_s = max(self.largest_s, answer.seconds)
                if answer.seconds > STALL_S:
                    self.late(answer.seconds)

    def late(self, seconds):
        """A reply took too long: a stall, unless the idle server paused as well."""
        if self.beside.lap().largest > seconds / 2:
            self.counts["starved"] += 1
        else:
            self.stalls.append(seconds)

    def drain(self, fleet):
        """Waits for every reply that is still open."""
        begin = time.monotonic()
        while any(session.waiting for session in fleet.members):
            self.turn(fleet)
            assert time.monotonic() - begin < GIVE_UP_S, f"a reply did not come within {GIVE_UP_S} s"

    def burst(self):
        """Some sessions at a random depth for a random while."""
        busy = self.random.sample(self.sessions, self.random.randrange(1, SESSIONS + 1))
        depth = self.random.choice((1, 1, 4, DEPTH))
        fleet, end = Fleet(busy), time.monotonic() + self.random.uniform(0.01, BURST_MAX_S)
        while time.monotonic() < end:
            for session in busy:
                while len(session.waiting) < depth:
                    session.submit(*self.request())
            self.turn(fleet)
        self.drain(fleet)
        fleet.close()
        self.counts["bursts"] += 1

    def idle(self):
        """Silence of a random length, then one request of each session, so that each shard has to wake."""
        self.counts["idles"] += 1
        time.sleep(self.random.expovariate(1) * IDLE_MAX_S / 3)
        fleet = Fleet(self.sessions)
        for session in self.sessions:
            session.submit(*self.request())
        self.drain(fleet)
        fleet.close()

    def renew(self):
        """One session closes and a new one takes its place."""
        index = self.random.randrange(SESSIONS)
        old = self.sessions[index]
        self.counts["events"] += old.events
        old.submit(jute.CLOSE, b"")
        fleet = Fleet([old])
        while not old.closed:
            fleet.turn()
        fleet.close()
        old.drop()
        self.sessions[index] = Pipelined(self.server.address, DEPTH)
        self.counts["renewed"] += 1

    def step(self):
        self.random.choices((self.burst, self.idle, self.renew), (2, 4, 1))[0]()

    def summary(self):
        counts, events = self.counts, self.counts["events"] + sum(session.events for session in self.sessions)
        return (
            f"{counts['replies']} replies in {counts['bursts']} bursts after {counts['idles']} idle times, {counts['renewed']} sessions "
            f"renewed, {events} watch events; largest reply latency {self.largest_s * 1000:.0f} ms, {len(self.stalls)} above "
            f"{STALL_S:.0f} s, {counts['starved']} more that the idle server had as well; resident {self.first_kib // 1024} -> "
            f"{self.server.memory().own_kib // 1024} MiB; {watchdog_count(self.server)}"
        )


def watchdog_count(server):
    """How often the watchdog found a frozen core, as mntr counts it, and how often one that slept, which mntr does not count.

    The log has a line for each core that stalled by itself; those that waited for a CPU are not all in it.
    """
    table = words_table(four_letter_command(server.address, "mntr"), "\t")
    counters = {key: value for key, value in table.items() if "watchdog" in key}
    asleep = re.findall(r"makes no progress.*own_ms=(\d+) state=S", server.log())
    own = sum(int(own_ms) >= FROZEN_MS for own_ms in asleep)
    return f"watchdog: {counters or 'no counter in mntr'}, {own} of a core asleep"


@pytest.fixture
def beside(shards):
    server = Corral(shards)
    try:
        probe = Probe(server.start().address)
        yield probe
        probe.stop()
    finally:
        server.dispose()


def test_no_reply_takes_a_second(context, beside, is_over, seed, say, note):
    say(f"seed {seed}")
    soak, next_report = Soak(context.server, beside, seed), time.monotonic() + SAY_S
    while not is_over():
        soak.step()
        if time.monotonic() > next_report:
            next_report += SAY_S
            say(soak.summary())
    assert not soak.stalls, f"seed {seed}: replies took {soak.stalls[:10]} s; {soak.summary()}"
    note(f"seed {seed}: {soak.summary()}")
