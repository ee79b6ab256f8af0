"""One million znodes of 100 bytes: pipelined creation with snapshots written meanwhile, SIGTERM, restart, kill -9, restart.

Prints resident memory per znode, snapshot size over payload, restart time to the first read, and the largest reply latency that
a client saw while a snapshot was written. In less than a minute (`--minutes`) it is 50,000 znodes.
"""

import random
import time

import pytest

from campaigns.load import DATA_BYTES, DIRECTORY_NODES, pipelined
from campaigns.probe import Probe
from support import jute
from support.expect import equal
from support.server import Corral
from support.wait import wait_until

ZNODES, ZNODES_FEW = 1_000_000, 50_000
# Few znodes have so few changes that the policy needs smaller steps.
SETTINGS = {"snapshot.interval_min_ms": 2000}
SETTINGS_FEW = {"snapshot.floor_bytes": 1 << 20, "snapshot.interval_min_ms": 500}
SAMPLES = 500
LOOK_EVERY_S = 0.02
# A request that waits longer than this while a snapshot is written was held up by it.
STALL_S = 1.0


def path_of(number):
    return f"/m/d{number // DIRECTORY_NODES}/n{number}"


def data_of(number, generation=0):
    return f"{number}-{generation}-".encode().ljust(DATA_BYTES, b".")


class Snapshots:
    """Watches the snapshots of a server, and laps the probe where the writing of one begins and ends."""

    def __init__(self, server, probe):
        self.data, self.probe = server.directory / "data", probe
        self.writing, self.newest, self.next_look = False, self.newest_snapshot(), 0
        self.during, self.between = [], []

    def newest_snapshot(self):
        return max((path.name for path in self.data.glob("image-*.img")), default="")

    def look(self):
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + LOOK_EVERY_S
        writing, newest = any(self.data.glob("image-*.tmp")), self.newest_snapshot()
        if newest != self.newest or (self.writing and not writing):
            self.during.append(self.probe.lap())
        elif writing and not self.writing:
            self.between.append(self.probe.lap())
        self.writing, self.newest = writing, newest


def largest_ms(laps):
    return max((lap.largest for lap in laps), default=0) * 1000


def first_read(server, count):
    """Starts the server; seconds from the start of the process to the first answer from the tree."""
    begin = time.monotonic()
    server.start()
    with server.client() as client:
        equal(client.get(path_of(count - 1))[1].data_length, DATA_BYTES)
        return time.monotonic() - begin


def check_samples(server, count, generation_of):
    """Looks at the counts of all directories and at some nodes."""
    generator = random.Random(count)
    with server.client() as client:
        total = sum(client.exists(f"/m/{name}").num_children for name in client.children("/m"))
        equal(total, count)
        for number in generator.sample(range(count), min(count, SAMPLES)):
            generation = generation_of(number)
            data, stat = client.get(path_of(number))
            equal((data, stat.version), (data_of(number, generation), generation), path_of(number))


def load(server, count, say):
    """Creates all nodes on an empty server while a probe looks on."""
    server.start()
    empty, probe = server.memory(), Probe(server.address)
    snapshots = Snapshots(server, probe)
    with server.client() as client:
        client.create("/m")
        for directory in range((count + DIRECTORY_NODES - 1) // DIRECTORY_NODES):
            client.create(f"/m/d{directory}")
    requests = ((jute.CREATE, jute.create_body(path_of(number), data_of(number))) for number in range(count))
    seconds = pipelined(server, requests, snapshots.look)
    snapshots.between.append(probe.lap())
    probe.stop()
    full = server.memory()
    say(f"{count} znodes of {DATA_BYTES} bytes created in {seconds:.1f} s, {count / seconds:.0f}/s")
    say(f"{full}, {(full.own_kib - empty.own_kib) * 1024 / count:.0f} bytes resident per znode")
    check_stall(f"under full load, {largest_ms(snapshots.between):.0f} ms otherwise", snapshots.during, say)


def check_stall(when, laps, say):
    largest = largest_ms(laps)
    say(f"largest reply latency {largest:.0f} ms while {len(laps)} snapshots were written {when}")
    assert largest < STALL_S * 1000, f"a reply took {largest:.0f} ms while a snapshot was written"


def stop(server, count, say):
    """SIGTERM, and a look at the snapshot it leaves."""
    begin = time.monotonic()
    equal(server.stop(), 0, "exit code after SIGTERM")
    seconds = time.monotonic() - begin
    newest = max((server.directory / "data").glob("image-*.img"), key=lambda path: path.name)
    data = count * DATA_BYTES
    payload, size = data + sum(len(path_of(number)) for number in range(count)), newest.stat().st_size
    say(f"SIGTERM took {seconds:.1f} s; snapshot {size >> 20} MiB: {size / payload:.2f} x paths and data, {size / data:.2f} x data")


def restart(server, count, say):
    """Restarts from the snapshot alone, then after kill -9 with a tenth of the nodes changed since."""
    from_snapshot = first_read(server, count)
    check_samples(server, count, lambda number: 0)
    memory = server.memory()
    per_znode = memory.own_kib * 1024 / count
    say(f"first read {from_snapshot:.2f} s after a start from the snapshot; {memory}, {per_znode:.0f} bytes resident per znode")
    changed = count // 10
    requests = ((jute.SET_DATA, jute.set_body(path_of(number), data_of(number, 1))) for number in range(changed))
    pipelined(server, requests, lambda: None)
    server.kill()
    from_log = first_read(server, count)
    check_samples(server, count, lambda number: int(number < changed))
    say(f"first read {from_log:.2f} s after kill -9 with {changed} writes since the snapshot")


def rewrite(server, count, say):
    """Changes nodes in small portions, so that the next snapshot is written while the server is not busy."""
    probe = Probe(server.address, "/probe-quiet")
    snapshots, rounds = Snapshots(server, probe), 0

    def a_snapshot_was_written():
        nonlocal rounds
        rounds += 1
        numbers = range(rounds % 50, count, 50)
        requests = ((jute.SET_DATA, jute.set_body(path_of(number), data_of(number, rounds))) for number in numbers)
        pipelined(server, requests, snapshots.look)
        snapshots.look()
        return snapshots.during

    wait_until(a_snapshot_was_written, "another snapshot is written", 300)
    probe.stop()
    check_stall("under light load", snapshots.during, say)


@pytest.fixture
def few(options):
    return options.minutes is not None and options.minutes < 1


def test_it_survives_and_is_small(few, shards, say):
    count, server = ZNODES_FEW if few else ZNODES, Corral(shards, tick_ms=2000, settings=SETTINGS_FEW if few else SETTINGS)
    try:
        load(server, count, say)
        stop(server, count, say)
        restart(server, count, say)
        rewrite(server, count, say)
        assert server.process.poll() is None, f"the server ended with code {server.process.poll()}"
        assert "panicked" not in server.log(), "the server's log shows a panic"
    finally:
        server.dispose()
