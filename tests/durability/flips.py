"""Bytes flipped and pages zeroed in snapshots and in sealed log segments, of a server alone and of one of three.

After the next check (a scrub, every second here, or the merge of a snapshot) nothing damaged is served, and nothing damaged is in
a snapshot. One of three heals by itself. A server that is alone ends, or does not start, with exit code 6 and names the file; or
it starts from an older snapshot and the log. A reader compares every znode with what was acknowledged.
"""

import random
import shutil
from contextlib import suppress

from ensemble.cluster import CALM, Ensemble
from support import snapshot_files
from support.client import Closed, Refused, four_letter_command, words_table
from support.server import Corral
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
LIMIT_S = 120
LOST = (OSError, Closed, Refused)


class Oracle:
    """What was acknowledged, and a writer."""

    def __init__(self, seed):
        self.random, self.data, self.unknown = random.Random(seed), {}, {}

    def write(self, client):
        """Small znodes, and enough large ones for a log segment to be sealed."""
        paths = [(f"/n{self.random.randrange(ZNODES)}", self.random.randrange(100)) for _ in range(60)]
        for path, size in [*paths, *((f"/large{number}", 80_000) for number in range(LARGE))]:
            data = self.random.randbytes(size)
            self.unknown.setdefault(path, []).append(data)
            try:
                client.set(path, data)
            except Refused:
                client.create(path, data)
            self.data[path] = data
            self.unknown.pop(path)

    def compare(self, server):
        """All znodes must be as they were acknowledged."""
        with server.client() as client:
            client.sync()
            for path, data in self.data.items():
                found = client.get(path)[0]
                if found != data and found not in self.unknown.get(path, []):
                    raise AssertionError(f"{path} is damaged: {found[:40]!r}, acknowledged {data[:40]!r}")
        return True


class Damage:
    """Writes into files."""

    def __init__(self, seed):
        self.random, self.places = random.Random(seed), 0

    def do(self, path, places):
        """Flips a byte in or zeroes a page of the file, in so many places. Returns whether anything is different then."""
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
        self.places += places
        return changed


def sealed(server):
    """A log segment that is full, and not the one that is written."""
    segments = sorted((server.directory / "data").glob("log-*.seg"))
    return segments[-2] if len(segments) > 1 else None


FILES = {"snapshot": snapshot_files.newest, "segment": sealed}


def scrubbed(server, before):
    """Waits until files damaged at this length of the log were scrubbed. False when the server ended, with the code for damage."""

    def done():
        code = server.process.poll()
        if code is not None:
            assert code == DAMAGED, f"exit code {code}: {server.log_tail(6)}"
            return "ended"
        # The first one may have begun before the damage.
        return server.log()[before:].count("scrub complete") > 2

    return wait_until(done, "a scrub", LIMIT_S) != "ended"


class World:
    """Servers, and what was acknowledged."""

    def again(self, server):
        """A restart in good order leaves a snapshot."""
        code = server.stop()
        assert code == 0, f"exit code {code}: {server.log_tail(5)}"
        self.start(server)


class Alone(World):
    """A server by itself."""

    def __init__(self, shards, seed):
        self.server, self.oracle = Corral(shards=shards, settings=SETTINGS).start(), Oracle(seed)
        self.copy = self.server.directory / "copy"

    def target(self, kind):
        """The server whose file of this kind is damaged next."""
        self.write()
        if kind == "snapshot":
            # Two whole ones, of which the older one stands in.
            self.again(self.server)
            self.write()
            self.again(self.server)
        return self.server

    def write(self):
        with self.server.client() as client:
            self.oracle.write(client)

    def start(self, server):
        server.start()

    def ended(self, server, kind, said):
        """It ended because of the damage: nothing that it served was damaged, and it starts from what is whole."""
        assert kind == "snapshot", "the snapshot holds what the damaged segment held"
        assert "the state cannot be trusted" in said and "image-" in said, said[-2000:]
        server.start()

    def keep(self):
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.server.directory / "data", self.copy)

    def start_damaged(self, server):
        """It serves, or refuses to start and names the file. Then its backup serves."""
        server.launch()
        try:
            wait_until(server.is_serving, "serves")
        except RuntimeError:
            said = server.log_tail(6)
            assert server.process.wait(LIMIT_S) == DAMAGED and ("image-" in said or "log-" in said), said
            shutil.rmtree(server.directory / "data")
            shutil.copytree(self.copy, server.directory / "data")
            server.start()

    def check(self, server):
        self.oracle.compare(server)

    def dispose(self, keep):
        self.server.dispose(keep)


class OneOfThree(World):
    """Three servers, of which one's files are damaged."""

    def __init__(self, shards, seed):
        self.ensemble, self.oracle, self.turn = Ensemble("corral", shards=shards, settings={**CALM, **SETTINGS}).start(), Oracle(seed), 0

    def target(self, kind):
        """Leaders and followers in turn."""
        self.write()
        self.turn += 1
        server = self.ensemble.leader() if self.turn % 3 == 0 else self.ensemble.followers()[self.turn % 2]
        if kind == "snapshot":
            self.again(server)
        return server

    def write(self):
        def written():
            with suppress(*LOST), self.ensemble.leader().client() as client:
                self.oracle.write(client)
                return True

        wait_until(written, "writes", LIMIT_S)

    def start(self, server):
        server.launch()
        self.heals(server)

    start_damaged = start

    def ended(self, server, kind, said):
        self.start(server)

    def keep(self):
        """The others have everything."""

    def heals(self, server):
        """It serves, as a member that has everything. One that was emptied has no vote until it has caught up."""
        wanted = {("zk_quorum_size", "3"), ("zk_synced_followers", "2"), ("zk_reconfig_step", "none")}

        def serving():
            assert server.process.poll() is None, f"ended with {server.process.poll()}: {server.log_tail(8)}"
            modes = self.ensemble.modes()
            leader = next((member for member, mode in modes.items() if mode == "leader"), None)
            if modes.get(server) not in ("leader", "follower") or not leader:
                return False
            try:
                return wanted <= words_table(four_letter_command(leader.address, "mntr"), "\t").items()
            except OSError:
                return False

        wait_until(serving, "the server serves again", LIMIT_S)

    def check(self, server):
        self.heals(server)

        def compared():
            with suppress(*LOST):
                return self.oracle.compare(server)

        wait_until(compared, "a reader is served", LIMIT_S)

    def dispose(self, keep):
        self.ensemble.dispose(keep)


def damage_running(world, kind, damage, places, merges):
    """Damages a file under a running server. With `merges` a snapshot is written before the scrub, from the damaged one."""
    server = world.target(kind)
    before, path = len(server.log()), FILES[kind](server)
    changed = damage.do(path, places)
    if merges:
        with suppress(*LOST):
            world.write()
    if changed and not scrubbed(server, before):
        world.ended(server, kind, server.log()[before:])
    world.check(server)
    if kind == "segment":
        world.again(server)
        world.check(server)


def damage_stopped(world, kind, damage, places, merges):
    """Damages a file between a kill and the next start."""
    server = world.target(kind)
    path = FILES[kind](server)
    server.kill()
    world.keep()
    damage.do(path, places)
    world.start_damaged(server)
    world.check(server)


WORLDS, WHEN = (Alone, OneOfThree), (damage_running, damage_stopped)
