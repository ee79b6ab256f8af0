"""Hostile loads on the real binary, beside polite clients: one reads a znode every 5 ms, one writes it every 50 ms.

Each load has a server, an attacker and polite clients of its own. At the same time other polite clients use a second
server, which is idle: their largest pauses are the machine's own. Servers have one shard, so that all clients share it. Prints a row for each load, in
Markdown. A load fails when the polite client pauses for 100 ms longer than its like beside the idle server, or when the server ends. All loads
share the time of `--minutes`; `--part TEXT` chooses some.
"""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from campaigns.attacks import ATTACKS
from campaigns.polite import EVERY_S, READY
from support.server import Corral

PAUSE_MAX_MS = 100
# Of one load, unless --minutes is given, and at least.
SECONDS, SECONDS_MIN = 8, 3
# A load that fails is run again: it fails when it does so each time.
RUNS_MAX = 3
HEADING = (
    "| load | attacker sent, bytes | polite reads p50, ms | p99 | p100 | beside, idle p50, ms | p99 | p100 | "
    "polite writes p100, ms | beside, idle p100, ms | resident at most, MiB | disk bytes for each byte sent | server |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)


def process(*words):
    """A process of polite.py, once it says that it is ready; None if it ends before."""
    command = [sys.executable, "-m", "campaigns.polite", *map(str, words)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    one = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[1], text=True, **pipes)
    return one if one.stdout.readline().strip() == READY else None


def tell(one):
    """A line to a process, and the line it says then; empty if it has ended."""
    try:
        one.stdin.write("go\n")
        one.stdin.flush()
    except OSError:
        pass
    return one.stdout.readline().strip()


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


def figures(out):
    """p50, p99 and p100 of a polite client's output; None when it was cut off."""
    try:
        latencies = json.loads(out)
    except ValueError:
        return None
    return [latencies[int((len(latencies) - 1) * share)] for share in (0.5, 0.99, 1)]


def written_bytes(server):
    """What the process has written to files since it began."""
    with open(f"/proc/{server.process.pid}/io", encoding="ascii") as counters:
        return next(int(line.split()[1]) for line in counters if line.startswith("write_bytes"))


def measure(name, seconds):
    """Runs one load. Gives its row, and why it failed, or None."""
    load = ATTACKS[name]
    attacked, idle = Corral(shards=1, settings=load.settings), Corral(shards=1)
    started = []

    def begin(*words):
        started.append(process(*words))
        if started[-1] is None:
            raise RuntimeError(f"{words[0]} could not begin")
        return started[-1]

    try:
        attacked.start()
        idle.start()
        attacker = begin("attack", name, *attacked.address, seconds)
        clients = [begin("polite", *server.address, kind) for server in (attacked, idle) for kind in EVERY_S]
        memory, before = Memory(attacked), written_bytes(attacked)
        sent = json.loads(tell(attacker) or "0")
        outputs = [figures(tell(client)) for client in clients]
        memory.over.set()
        code = attacked.process.poll()
        written = written_bytes(attacked) - before if code is None else 0
        return row(name, sent, outputs, memory.most_kib, written, code)
    except RuntimeError as error:
        return f"| {name} | - | | | | | | | | | | {error} |", str(error)
    finally:
        for one in filter(None, started):
            if one.poll() is None:
                one.kill()
            one.wait()
        attacked.dispose()
        idle.dispose()


def row(name, sent, outputs, most_kib, written, code):
    reads, writes, idle_reads, idle_writes = outputs
    state = "serves" if code is None else f"ended with code {code}"
    cells = [cell for three in (reads, idle_reads) for cell in texts(three)]
    cells += [texts(writes)[2], texts(idle_writes)[2]]
    ratio = f"{written / sent:.1f}" if sent else "-"
    line = f"| {name} | {sent} | {' | '.join(cells)} | {most_kib / 1024:.0f} | {ratio} | {state} |"
    if code is not None:
        return line, f"the server {state}"
    if not all(outputs):
        return line, "a polite client was cut off"
    for kind, beside, idle in (("read", reads, idle_reads), ("write", writes, idle_writes)):
        pause = beside[2] - idle[2]
        if pause > PAUSE_MAX_MS:
            return line, f"the client that {kind}s pauses for {pause:.0f} ms more than beside an idle server"
    return line, None


def texts(three):
    return [f"{figure:.1f}" for figure in three] if three else ["-"] * 3


@pytest.fixture(scope="module")
def table(say):
    """A function that prints a row."""
    for line in HEADING.splitlines():
        say(line)
    return say


@pytest.mark.parametrize("name", ATTACKS, ids=[name.replace(" ", "_") for name in ATTACKS])
def test_a_polite_client_is_served(name, options, table):
    if options.part and options.part not in name:
        pytest.skip("another part is asked for")
    seconds = SECONDS if options.minutes is None else max(options.minutes * 60 / len(ATTACKS), SECONDS_MIN)
    # What the machine did to one run it does not do to another one.
    for _ in range(RUNS_MAX):
        line, failed = measure(name, seconds)
        table(line)
        if not failed:
            return
    raise AssertionError(failed)
