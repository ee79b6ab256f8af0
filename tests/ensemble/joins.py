#!/usr/bin/env python3
"""A server comes back to an ensemble that has made a million znodes without it, or with an emptied directory, under load.

While it takes over what it lacks the others go on with half reads, half writes at a fixed rate. Printed are how long it takes
until a client of it sees everything, and what the load's clients notice: p99 and largest latency before and meanwhile, by the
intended time of each request. Then another server is killed: the one that came back has to make up the majority.
"""

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ensemble.cases import connect  # noqa: E402
from ensemble.cluster import FOLLOWING, Ensemble, mode_of  # noqa: E402
from scale import million  # noqa: E402
from support import jute, suite  # noqa: E402
from support.client import Client, Closed, Refused  # noqa: E402
from support.server import binary  # noqa: E402
from support.suite import equal  # noqa: E402
from support.wait import wait_until  # noqa: E402

ZNODES, ZNODES_QUICK = 1_000_000, 30_000
DIRECTORY_NODES = 10_000
RATE = 4_000
# Of one load; p99 and largest latency are those of the worst of them.
LOAD_S = 4
CATCH_UP_LIMIT_S = 600


class Load(threading.Thread):
    """Half gets, half sets at the servers that stay, in an open loop, by the load generator: again and again until it is over."""

    def __init__(self, members, rate):
        super().__init__(daemon=True)
        addresses = ",".join("{}:{}".format(*member.address) for member in members)
        self.command = [str(binary()), "bench", "load", "-s", addresses, "--mix", "get=50,set=50", "-c", "16", "-d", "16"]
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
    requests = ((jute.CREATE, jute.create_body(path, b"x" * million.DATA_BYTES)) for path in paths)
    return million.pipelined(member, requests, lambda: None)[1]


def has_all(member, top, count):
    """Whether a client of the member, after a sync, sees every znode."""
    try:
        with Client(member.address) as client:
            client.sync()
            return sum(client.exists(f"{top}/{name}").num_children for name in client.children(top)) == count
    except (OSError, Closed, Refused):
        return False


def come_back(ensemble, victim, others, top, options):
    """Starts the victim under load and waits until it has everything and makes up a majority. Returns what that took."""
    calm, load = Load(others, options.rate).once(), Load(others, options.rate)
    load.start()
    begin = time.monotonic()
    victim.launch()
    wait_until(lambda: has_all(victim, top, options.znodes), "the server has everything", CATCH_UP_LIMIT_S)
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


def learns_first():
    """Whether a server that has forgotten everything comes back as a learner: the same versions know `corral rescue`."""
    return subprocess.run([str(binary()), "rescue", "--help"], capture_output=True, check=False).returncode == 0


def run(ensemble, options, emptied):
    if emptied and not learns_first():
        raise suite.Skip("missing: it has to come back as a learner first, see docs/decisions/0013-ensembles.md")
    top = f"/joins-{time.time_ns():x}"
    victim, leader = ensemble.followers()[0], ensemble.leader()
    victim.kill()
    filled_s = fill(leader, top, options.znodes)
    if emptied:
        for path in (victim.directory / "data").rglob("*"):
            if path.is_file() and path.name != "myid":
                path.unlink()
    others = [member for member in ensemble.members if member is not victim]
    took, calm, meanwhile = come_back(ensemble, victim, others, top, options)
    majority_s = makes_up_a_majority(ensemble, victim, top)
    for member in ensemble.members:
        equal(has_all(member, top, options.znodes) or has_all(member, top, options.znodes + 1), True, "every server has everything")
    with connect(ensemble.leader()) as client:
        client.delete(f"{top}/majority")
    return (
        f"{options.znodes} znodes created in {filled_s:.0f} s without it; {took:.1f} s until it had them all, under a load of "
        f"{meanwhile}; before: {calm}; the first write that needed it {majority_s * 1000:.0f} ms; it holds {victim.memory()}"
    )


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--znodes", type=int, default=ZNODES, help="how many are created without it")
    options.add_argument("--rate", type=int, default=RATE, help="requests a second meanwhile, half of them writes")
    options.add_argument("--shards", type=int, default=1, help="shards of each server")
    options.add_argument("--quick", action="store_true", help=f"{ZNODES_QUICK} znodes")
    options.add_argument("--only", default="", help="run only tests whose name contains this")
    options = options.parse_args()
    if options.quick:
        options.znodes = ZNODES_QUICK
    tally = suite.Tally()
    for emptied in (False, True):
        name = f"joins.{'a_server_with_an_emptied_directory' if emptied else 'a_server_that_was_away'}"
        if options.only not in name:
            continue
        ensemble, clean = Ensemble("corral", shards=options.shards), False
        try:
            ensemble.start()
            clean = tally.run(name, run, ensemble, options, emptied)
            for member in ensemble.members:
                clean &= tally.run(f"server at {member.address[1]} did not panic", suite.check_server, member)
        finally:
            if not clean:
                print(ensemble.log_tails())
            ensemble.dispose()
    suite.leave(tally)


if __name__ == "__main__":
    main()
