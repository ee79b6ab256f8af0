"""A server comes back to an ensemble that has made a million znodes without it, or with an emptied directory, under load.

While it takes over what it lacks the others go on with half reads, half writes at a fixed rate. Printed are how long it takes
until a client of it sees everything, and what the load's clients notice: p99 and largest latency before and meanwhile, by the
intended time of each request. Then another server is killed: the one that came back has to make up the majority. In less than a
minute (`--minutes`) it is 30,000 znodes.
"""

import json
import statistics
import subprocess
import threading
import time

import pytest

from campaigns.load import DATA_BYTES, DIRECTORY_NODES, pipelined
from ensemble.cluster import FOLLOWING, Ensemble, empty, mode_of
from ensemble.sessions import connect
from support import jute
from support.client import Client, Closed, Refused
from support.expect import equal
from support.server import binary
from support.wait import wait_until

ZNODES, ZNODES_FEW = 1_000_000, 30_000
RATE = 4_000
# Of one load; p99 and largest latency are those of the worst of them.
LOAD_S = 4
CATCH_UP_LIMIT_S = 600


class Load(threading.Thread):
    """Half gets, half sets at the servers that stay, in an open loop, by the load generator: again and again until it is over."""

    def __init__(self, members, rate):
        super().__init__(daemon=True)
        addresses = ",".join("{}:{}".format(*member.address) for member in members)
        self.command = [str(binary()), "bench", "load", "-s", addresses, "--mix", "get=50,set=50", "-n", "16", "--depth", "16"]
        self.command += ["--rate", str(rate), "--duration", str(LOAD_S), "--warmup", "0.2", "--reply-timeout", "60"]
        self.command += ["--quiet", "--json"]
        self.reports, self.errors, self.over = [], "", False

    def run(self):
        while not self.over and not self.errors:
            self.once()

    def once(self):
        done = subprocess.run(self.command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.errors = done.stderr
        else:
            self.reports.append(json.loads(done.stdout))
        return self

    def stop(self):
        self.over = True
        self.join()
        return self

    def __str__(self):
        assert not self.errors, f"the load ended: {self.errors}"
        parts = [f"{statistics.mean(report['throughput'] for report in self.reports):.0f}/s"]
        for op in ("get", "set"):
            found = [report["by_op"][op]["latency_us"] for report in self.reports]
            p99, largest = (max(latency[name] for latency in found) / 1000 for name in ("p99", "max"))
            parts.append(f"{op} p99 {p99:.1f} ms, largest {largest:.0f} ms")
        return ", ".join(parts)


def fill(member, top, count):
    """Creates the znodes through one server, as fast as it takes them."""
    with connect(member) as client:
        client.create(top)
        for number in range(0, count, DIRECTORY_NODES):
            client.create(f"{top}/{number // DIRECTORY_NODES}")
    paths = (f"{top}/{number // DIRECTORY_NODES}/{number}" for number in range(count))
    requests = ((jute.CREATE, jute.create_body(path, b"x" * DATA_BYTES)) for path in paths)
    return pipelined(member, requests, lambda: None)


def has_all(member, top, count):
    """Whether a client of the member, after a sync, sees every znode."""
    try:
        with Client(member.address) as client:
            client.sync()
            return sum(client.exists(f"{top}/{name}").num_children for name in client.children(top)) == count
    except (OSError, Closed, Refused):
        return False


def come_back(victim, others, top, znodes):
    """Starts the victim under load and waits until it has everything and makes up a majority. Returns what that took."""
    calm, load = Load(others, RATE).once(), Load(others, RATE)
    load.start()
    begin = time.monotonic()
    victim.launch()
    wait_until(lambda: has_all(victim, top, znodes), "the server has everything", CATCH_UP_LIMIT_S)
    took = time.monotonic() - begin
    load.stop()
    wait_until(lambda: mode_of(victim) == FOLLOWING, "it follows", CATCH_UP_LIMIT_S)
    return took, calm, load


def makes_up_a_majority(ensemble, victim, top):
    """With another follower killed, writes need the one that came back."""
    leader = ensemble.leader()
    other = next(member for member in ensemble.members if member not in (victim, leader))
    other.kill()
    with connect(leader) as client:
        client.socket.settimeout(CATCH_UP_LIMIT_S)
        begin = time.monotonic()
        client.create(f"{top}/majority")
        took = time.monotonic() - begin
    ensemble.start()
    return took


@pytest.mark.parametrize("emptied", (False, True), ids=("that_was_stopped", "with_an_emptied_directory"))
def test_a_server_catches_up(emptied, only_corral, run_ensemble, options, shards, note):
    znodes = ZNODES_FEW if options.minutes is not None and options.minutes < 1 else ZNODES
    ensemble = run_ensemble(Ensemble("corral", shards=shards))
    top = f"/joins-{time.time_ns():x}"
    victim, leader = ensemble.followers()[0], ensemble.leader()
    victim.kill()
    filled_s = fill(leader, top, znodes)
    if emptied:
        empty(victim)
    others = [member for member in ensemble.members if member is not victim]
    took, calm, meanwhile = come_back(victim, others, top, znodes)
    majority_s = makes_up_a_majority(ensemble, victim, top)
    for member in ensemble.members:
        equal(has_all(member, top, znodes) or has_all(member, top, znodes + 1), True, "every server has everything")
    with connect(ensemble.leader()) as client:
        client.delete(f"{top}/majority")
    note(
        f"{znodes} znodes created in {filled_s:.0f} s without it; {took:.1f} s until it had them all, under a load of "
        f"{meanwhile}; before: {calm}; the first write that needed it {majority_s * 1000:.0f} ms; it holds {victim.memory()}"
    )
