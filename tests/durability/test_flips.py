"""Bytes flipped and pages zeroed in snapshots and in sealed log segments, under a running server and between a kill and the next
start, alone and in one of three servers.

After the next check (a scrub, every second here, or the merge of a snapshot) nothing damaged is served, and nothing damaged is in
a snapshot. One of three heals without a hand. One that is alone ends, or does not start, with exit code 6 and names the file; or
it starts from an older snapshot and the log. A reader compares every znode with what was acknowledged. `--places N --each N` set the size.
"""

import os
import random
import shutil
import subprocess
import time

import pytest

from ensemble.cluster import Ensemble, mode_of

from support.client import Closed, Refused, four_letter_command, words_table
from support.server import Corral, binary
from support.wait import wait_until

PAGE, MIB = 4096, 1 << 20
SETTINGS = {
    "scrub.interval_s": 1,
    "scrub.bytes_per_s_max": 1 << 30,
    "log.segment_bytes": 4 * MIB,
    "log.spare_segments_max": 1,
    "limits.frame_bytes_max": 1_000_000,
    "snapshot.interval_min_ms": 50,
}
ZNODES, LARGE = 400, 64
DAMAGED = 6
HEAL_LIMIT_S = 120
# Places damaged of each kind, and of them in one round.
PLACES, PLACES_QUICK, EACH, EACH_QUICK, SEED = 1000, 6, 20, 2, 1
LOST = (OSError, Closed, Refused)


class Oracle:
    """What was acknowledged, and a writer."""

    def __init__(self, seed):
        self.random, self.data = random.Random(seed), {}
        self.unknown = {}

    def write(self, client, count, size=100):
        for _ in range(count):
            path = f"/n{self.random.randrange(ZNODES)}"
            data = self.random.randbytes(self.random.randrange(size))
            self.unknown.setdefault(path, []).append(data)
            try:
                client.set(path, data)
            except Refused:
                client.create(path, data)
            self.data[path] = data
            self.unknown.pop(path)

    def fill(self, client):
        """Enough for a log segment to be sealed."""
        for number in range(LARGE):
            path, data = f"/large{number}", self.random.randbytes(80_000)
            if path in self.data:
                client.set(path, data)
            else:
                client.create(path, data)
            self.data[path] = data

    def compare(self, server):
        """The number of znodes that are as they were acknowledged; all must be."""
        with server.client(timeout_ms=30_000) as client:
            client.sync()
            names = set(client.children("/")) - {"zookeeper"}
            assert {path[1:] for path in self.data} <= names, "znodes are missing"
            for path, data in self.data.items():
                found = client.get(path)[0]
                if found != data and found not in self.unknown.get(path, []):
                    raise AssertionError(f"{path} is damaged: {found[:40]!r}, acknowledged {data[:40]!r}")
        return len(self.data)


class Damage:
    """Writes into files."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.places = 0

    def do(self, path, places):
        """Flips a byte in or zeroes a page of the file, in so many places. Whether anything is different then."""
        size, changed = path.stat().st_size, False
        with open(path, "r+b") as file:
            for _ in range(places):
                page = self.random.random() < 0.5
                at = self.random.randrange(size)
                at -= at % PAGE if page else 0
                file.seek(at)
                before = file.read(PAGE if page else 1)
                after = bytes(len(before)) if page else bytes([before[0] ^ self.random.randrange(1, 256)])
                file.seek(at)
                file.write(after)
                changed |= before != after
                self.places += 1
        return changed


def data(server):
    return server.directory / "data"


def newest_snapshot(server):
    snapshots = sorted(data(server).glob("image-*.img"))
    return snapshots[-1] if snapshots else None


def sealed(server):
    """A segment that is full, and not the one that is written."""
    segments = sorted(data(server).glob("log-*.seg"))
    return segments[-2] if len(segments) > 1 else None


def inspect(server):
    run = subprocess.run(
        [binary(), "snapshot", "inspect", "data"], cwd=server.directory, capture_output=True, text=True, check=False
    )
    return run.stdout + run.stderr


class Alone:
    """A server by itself."""

    def __init__(self, shards, seed):
        self.server = Corral(shards=shards, settings=SETTINGS).start()
        self.oracle, self.seed = Oracle(seed), seed
        with self.server.client() as client:
            self.oracle.write(client, 3 * ZNODES)
            self.oracle.fill(client)
        self.again()

    def target(self):
        return self.server

    def again(self):
        """A restart in good order leaves a snapshot."""
        code = self.server.stop()
        assert code == 0, f"exit code {code}: {self.server.log_tail(5)}"
        self.server.start()

    def work(self, large):
        with self.server.client() as client:
            self.oracle.write(client, 60)
            if large:
                self.oracle.fill(client)

    def dispose(self, keep):
        self.server.dispose(keep)

    def keep(self):
        """A copy of the data directory, as a backup."""
        copy = self.server.directory / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(data(self.server), copy)

    def restore(self):
        shutil.rmtree(data(self.server))
        shutil.copytree(self.server.directory / "copy", data(self.server))

    def snapshot(self):
        """The newest one. A start from the log alone has none, and a scrub puts the damaged one aside."""
        if newest_snapshot(self.server) is None:
            self.again()
        return newest_snapshot(self.server)

    def running_snapshot(self, damage, places, merges):
        path, before = self.snapshot(), len(self.server.log())
        damage_ = damage.do(path, places)
        if merges:
            try:
                self.work(large=False)
            except LOST:
                pass
        if damage_ and not wait_until_scrubbed(self.server, before):
            said = self.server.log()[before:]
            assert "the state cannot be trusted" in said and "image-" in said, said[-2000:]
            self.server.start()
        self.oracle.compare(self.server)

    def stopped_snapshot(self, damage, places, merges):
        path = self.snapshot()
        self.keep_and_kill()
        damage.do(path, places)
        self.start_or_restore()

    def running_segment(self, damage, places, merges):
        path, before = sealed(self.server), len(self.server.log())
        damage.do(path, places)
        wait_until_scrubbed(self.server, before, twice=True)
        assert self.server.process.poll() is None, self.server.log_tail(5)
        self.oracle.compare(self.server)
        self.again()
        self.oracle.compare(self.server)

    def stopped_segment(self, damage, places, merges):
        path = sealed(self.server)
        self.keep_and_kill()
        damage.do(path, places)
        self.start_or_restore()

    def keep_and_kill(self):
        self.server.kill()
        self.keep()

    def start_or_restore(self):
        self.server.launch()
        try:
            wait_until(self.server.is_serving, "serves", 60)
        except RuntimeError:
            said = self.server.log_tail(6)
            assert self.server.process.wait(10) == DAMAGED, said
            assert "image-" in said or "log-" in said, said
            self.restore()
            self.server.start()
        self.oracle.compare(self.server)


def wait_until_scrubbed(server, before, twice=False):
    """False when the server ended by itself with the code for damage, which it may only do before it is done."""
    def done():
        code = server.process.poll()
        if code is not None:
            assert code == DAMAGED, f"exit code {code}: {server.log_tail(6)}"
            return "ended"
        # The first one may have begun before the damage.
        return server.log()[before:].count("scrub complete") > 1 + twice
    return wait_until(done, "a scrub", HEAL_LIMIT_S) != "ended"


class OneOfThree:
    """Three servers, of which one's files are damaged."""

    def __init__(self, shards, seed):
        self.ensemble = Ensemble("corral", shards=shards, settings=SETTINGS).start()
        self.oracle, self.turn = Oracle(seed), 0
        with self.ensemble.leader().client() as client:
            self.oracle.write(client, 3 * ZNODES)
            self.oracle.fill(client)
        for member in self.ensemble.followers():
            self.again(member)

    def target(self):
        """Leaders and followers in turn."""
        self.turn += 1
        return self.ensemble.leader() if self.turn % 3 == 0 else self.ensemble.followers()[self.turn % 2]

    def again(self, member):
        code = member.stop()
        assert code == 0, f"exit code {code}: {member.log_tail(5)}"
        self.serve(member)

    def serve(self, member):
        member.launch()
        self.heals(member)

    def heals(self, member):
        """It serves, as a member that has everything."""
        def serving():
            if member.process.poll() is not None:
                raise RuntimeError(f"ended with {member.process.poll()}: {member.log_tail(8)}")
            return mode_of(member) in ("leader", "follower") and self.all_vote()
        wait_until(serving, "the server serves again", HEAL_LIMIT_S)

    def all_vote(self):
        """Whether the leader counts all servers as voters that are in step. One that was emptied is none until it has caught up: were
        another emptied before, no majority would hold the data."""
        try:
            modes = self.ensemble.modes()
            leader = next(member for member, mode in modes.items() if mode == "leader")
            told = words_table(four_letter_command(leader.address, "mntr"), "\t")
        except (OSError, StopIteration):
            return False
        wanted = {"zk_quorum_size": "3", "zk_synced_followers": "2", "zk_reconfig_step": "none"}
        return all(told.get(key) == value for key, value in wanted.items())

    def work(self, large):
        def written():
            try:
                with self.ensemble.leader().client() as client:
                    self.oracle.write(client, 60)
                    if large:
                        self.oracle.fill(client)
                return True
            except LOST:
                return False
        wait_until(written, "writes", HEAL_LIMIT_S)

    def check(self, member):
        def compared():
            try:
                return self.oracle.compare(member)
            except LOST:
                return False
        wait_until(compared, "a reader is served", HEAL_LIMIT_S)

    def dispose(self, keep):
        self.ensemble.dispose(keep)

    def running_snapshot(self, damage, places, merges):
        member = self.target()
        before = len(member.log())
        changed = damage.do(newest_snapshot(member), places)
        if merges:
            self.work(large=False)
        if changed:
            healed = lambda: member.process.poll() is not None or (  # noqa: E731
                "this server serves again" in member.log()[before:]
                or member.log()[before:].count("scrub complete") > 2
                and "cannot be trusted" not in member.log()[before:]
            )
            wait_until(healed, "healed", HEAL_LIMIT_S)
            if member.process.poll() is not None:
                assert member.process.poll() in (DAMAGED,), f"{member.process.poll()}: {member.log_tail(8)}"
                self.serve(member)
        self.heals(member)
        self.check(member)

    def stopped_snapshot(self, damage, places, merges):
        member = self.target()
        member.kill()
        damage.do(newest_snapshot(member), places)
        self.serve(member)
        self.check(member)

    def running_segment(self, damage, places, merges):
        member = self.target()
        path, before = sealed(member), len(member.log())
        if path is None:
            return
        damage.do(path, places)
        wait_until_scrubbed(member, before, twice=True)
        self.check(member)
        member.kill()
        self.serve(member)
        self.check(member)

    def stopped_segment(self, damage, places, merges):
        member = self.target()
        path = sealed(member)
        member.kill()
        if path is not None and path.exists():
            damage.do(path, places)
        self.serve(member)
        self.check(member)


@pytest.mark.parametrize("world", (Alone, OneOfThree))
@pytest.mark.parametrize("what", ("running_snapshot", "stopped_snapshot", "running_segment", "stopped_segment"))
def test_nothing_damaged_is_served(world, what, options, shards, note):
    places, each = options.sized("places", PLACES_QUICK, PLACES), options.sized("each", EACH_QUICK, EACH)
    seed = SEED if options.seed is None else options.seed
    begun, damage = time.monotonic(), Damage(f"{what}{seed}")
    servers, rounds = world(shards, seed), 0
    kept = "CORRAL_TEST_KEEP" in os.environ
    try:
        while damage.places < places:
            servers.work(large="segment" in what)
            before = damage.places
            getattr(servers, what)(damage, each, merges=rounds % 2 == 1)
            rounds += 1
            if damage.places == before:
                damage.places += 1
        kept = False
    finally:
        servers.dispose(kept)
    note(f"{damage.places} places in {rounds} rounds, {time.monotonic() - begun:.0f} s")
