"""Hostile loads on the real binary, beside a polite client that reads and writes a znode in turn.

Each load has a server, an attacker and a polite client of its own. At the same time another polite client uses a second server, which is
idle: its largest pause is the machine's own. Servers have one shard, so that all clients share it. Prints a row for each load, in
Markdown. A load fails when the polite client pauses for 100 ms longer than the other one, or when the server ends. All loads share the
time of `--minutes`; `--part TEXT` chooses some.
"""

import contextlib
import threading
import time

import pytest

from campaigns.attacks import LOADS, Attacker
from campaigns.probe import Probe
from support.client import Closed
from support.server import Corral

PAUSE_MAX_MS = 100
# Of one load, unless --minutes is given, and at least.
SECONDS, SECONDS_MIN = 8, 3
# A load that fails is run again: it fails when it does so each time.
RUNS_MAX = 3
HEADING = (
    "| load | attacker sent, bytes | polite p50, ms | p99 | p100 | beside, idle p50, ms | p99 | p100 | resident at most, MiB | "
    "disk bytes for each byte sent | server |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)


class Memory(threading.Thread):
    """Looks every few ms how much memory the server has."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.over, self.most_kib = server, threading.Event(), 0
        self.start()

    def run(self):
        while not self.over.wait(0.02):
            try:
                self.most_kib = max(self.most_kib, self.server.memory().own_kib)
            except (OSError, KeyError, ValueError):
                return


def written_bytes(server):
    """What the process has written to files since it began."""
    with open(f"/proc/{server.process.pid}/io", encoding="ascii") as counters:
        return next(int(line.split()[1]) for line in counters if line.startswith("write_bytes"))


def attack_for(steps, seconds):
    """Attacks. What has begun is ended, however long it takes. The server's end is judged by its exit code."""
    end = time.monotonic() + seconds
    with contextlib.suppress(StopIteration, Closed, OSError):
        while time.monotonic() < end:
            next(steps)


def measure(name, seconds):
    """Runs one load. Returns its row, and why it failed, or None."""
    load, probes = LOADS[name], []
    servers = attacked, idle = Corral(shards=1, settings=load.settings), Corral(shards=1)
    try:
        attacked.start()
        idle.start()
        attacker = Attacker(attacked.address)
        steps = load.steps(attacker)
        next(steps)
        probes = [Probe(server.address) for server in servers]
        memory, before = Memory(attacked), written_bytes(attacked)
        attacker.sent = 0
        attack_for(steps, seconds)
        time.sleep(load.wait_s)
        memory.over.set()
        if (code := attacked.process.poll()) is not None:
            return f"| {name} | {attacker.sent} | | | | | | | | | ended with code {code} |", f"the server ended with code {code}"
        laps, written = [probe.lap() for probe in probes], written_bytes(attacked) - before
        cells = [f"{figure * 1000:.1f}" for lap in laps for figure in (lap.median, lap.p99, lap.largest)]
        ratio = f"{written / attacker.sent:.1f}" if attacker.sent else "-"
        row = f"| {name} | {attacker.sent} | {' | '.join(cells)} | {memory.most_kib / 1024:.0f} | {ratio} | serves |"
        pause_ms = (laps[0].largest - laps[1].largest) * 1000
        return row, f"the polite client pauses for {pause_ms:.0f} ms more than beside an idle server" if pause_ms > PAUSE_MAX_MS else None
    finally:
        for probe in probes:
            probe.stop()
        for server in servers:
            server.dispose()


@pytest.fixture(scope="module")
def table(say):
    for line in HEADING.splitlines():
        say(line)
    return say


@pytest.mark.parametrize("name", LOADS, ids=[name.replace(" ", "_") for name in LOADS])
def test_a_polite_client_is_served(name, options, table):
    if options.part and options.part not in name:
        pytest.skip("another part is asked for")
    seconds = SECONDS if options.minutes is None else max(options.minutes * 60 / len(LOADS), SECONDS_MIN)
    # What the machine did to one run it does not do to another one.
    for _ in range(RUNS_MAX):
        row, failed = measure(name, seconds)
        table(row)
        if not failed:
            return
    raise AssertionError(failed)
