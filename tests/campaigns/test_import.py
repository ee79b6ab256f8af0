"""`corral import zookeeper` on files of real ZooKeepers that were killed under load, on damaged files, and killed itself.

    tests/.venv/bin/pytest tests/campaigns/test_import.py --seed N --minutes M

N is the first round, and the next ones follow it. Kills take most of the time, damage and kills of the import the rest. After a kill the
same ZooKeeper and corral start on the same files, and their trees are compared. A finding keeps its files.
"""

import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from imports import damage, load, sources
from imports.kills import Target
from imports.scenario import Resumed
from oracle.trees import OWN_OF_ZOOKEEPER
from support import packages
from support.server import SMALL_LOG, Corral
from support.wait import TooLate

# Of the time, which is so long unless --minutes is given.
KILLS_SHARE, DAMAGE_SHARE, IMPORTS_SHARE, MINUTES = 0.7, 0.2, 0.1, 1.0
DAMAGED, DIGEST_DIFFERS = 6, "digest of the tree differs"
ENSEMBLE_SHARE, FOUND_MAX, SHOWN, SAY_EVERY = 0.12, 5, 5, 200
SETTINGS = {
    **SMALL_LOG,
    "features.extended_types": "true",
    "sessions.timeout_max_ms": load.TIMEOUTS_MS[-1],
    "containers.check_interval_ms": 2_000_000_000,
}
LARGE_BALLAST, LARGE_SNAP_COUNT, LARGE_LOAD_S, DAMAGES = 20_000, 8_000, 4, 400


@pytest.fixture
def lasts(options):
    """Whether a search goes on, which has a share of the time."""
    begin, seconds = time.monotonic(), 60 * (options.minutes or MINUTES)
    return lambda share: time.monotonic() < begin + share * seconds


@pytest.fixture(autouse=True)
def zookeeper_is_there():
    if not packages.zookeeper():
        pytest.skip("no ZooKeeper: install Debian's package zookeeper, or set ZOOKEEPER_JARS to a folder of its jars")


def kept(directory):
    """A copy of the files, which stays."""
    return shutil.copytree(directory, Path(tempfile.mkdtemp(prefix="corral-import-")) / "source")


class Findings:
    """Collects findings, and fails at the end."""

    def __init__(self, say, seed):
        self.say, self.seed, self.count = say, seed, 0

    def add(self, number, text, directory):
        """The round, the fault, and the directory whose files show it."""
        self.count += 1
        self.say(f"finding in round {number}: {text}\nfiles: {kept(directory)}\nrepeat: tests/campaign import --seed {self.seed + number}")

    @property
    def is_enough(self):
        return self.count >= FOUND_MAX

    def end(self):
        assert not self.count, f"{self.count} findings, which the lines above tell"


class Round:
    """ZooKeeper is loaded and killed, then it and corral start on the same files."""

    def __init__(self, seed, shards, counts):
        self.chance, self.shards, self.counts = random.Random(seed), shards, counts
        self.drawn = sources.Drawn(self.chance)
        self.size = sources.SIZE if self.chance.random() < ENSEMBLE_SHARE else 1
        self.source = sources.Source(self.drawn, self.size)
        self.servers, self.found, self.told = [], [], ""

    def run(self):
        """Fills `found` with pairs of a fault and a directory."""
        try:
            self.play()
        except (RuntimeError, TooLate) as error:
            # A kill can leave files with which ZooKeeper itself does not start.
            self.counts["ZooKeeper does not start"] += 1
            self.told = f"{self.drawn}, {self.size} servers: {error}"

    def play(self):
        living, answers = sources.play(self.source, self.chance)
        imports = [self.imported(member) for member in self.source.members]
        best = max(range(self.size), key=lambda number: (self.epoch(number), imports[number][1], number))
        first, (server, zxid, copy) = self.source.members[best], imports[best]
        name = f"of {self.drawn.version} {self.drawn.codec}"
        self.counts.update({"rounds": 1, "ensembles": self.size > 1, name: 1, "answers": answers})
        self.source.start(first if self.size > 1 else None)
        if sources.mode_of(first) not in ("leader", "standalone"):
            self.counts["another leader"] += 1
            return
        expect = load.read_tree(first)
        self.source.kill()
        if server:
            self.compare(expect, server, living, copy)
        self.told = f"{self.drawn}, {self.size} servers: {answers} answers, {len(expect)} znodes, {len(living)} sessions, last zxid {zxid:#x}"

    def epoch(self, number):
        """In an election the epoch counts before the last zxid, and the number of the server decides among equals."""
        return sources.epoch(self.source.members[number]) if self.size > 1 else 0

    def imported(self, member):
        """A server with the import of a copy, the last zxid, and the copy."""
        server = Corral(self.shards, settings=SETTINGS)
        self.servers.append(server)
        copy = server.directory / "source"
        arguments = sources.copy(member, copy)
        settings = [f"--set={key}={value}" for key, value in SMALL_LOG.items()]
        arguments += ["--data-dir", server.directory / "data", *settings]
        done = damage.run(*arguments)
        is_excused = done.code == DAMAGED and DIGEST_DIFFERS in done.out and sources.NO_PATHS in self.drawn.options
        if is_excused:
            # ZooKeeper reports the same difference when it starts, and goes on.
            done = damage.run(*arguments, "--force")
        self.counts.update({"imports": 1, "digest differs": is_excused})
        for word in ("torn end", "damaged snapshot", "dropped ", "deleted "):
            self.counts[word] += word in done.out
        if done.code or not (is_excused or self.is_sure(done.out)):
            self.found.append((f"{self.drawn}: the import ended with {done.code}\n{done.out}{done.err}", copy))
            return None, 0, copy
        return server, damage.figures(done)[0], copy

    def is_sure(self, out):
        """All digests are equal, if there are any, and there is no doubt."""
        return "doubt" not in out and (sources.NO_DIGESTS in self.drawn.options or ", all equal" in out or "none in the files" in out)

    def compare(self, expect, server, living, copy):
        server.start()
        found = load.read_tree(server)
        but = (OWN_OF_ZOOKEEPER,) if self.size > 1 else ()
        differ = load.differences(expect, found, but)
        self.counts.update({"znodes": len(expect), "differences": len(differ), "sessions": len(living)})
        if differ:
            shown = "\n".join(differ[:SHOWN])
            self.found.append((f"{self.drawn}: {len(differ)} of {len(expect)} znodes differ\n{shown}", copy))
        for session_id, password, timeout_ms in living:
            with Resumed(server.address, session_id, password, timeout_ms) as client:
                own = sorted(path for path, (_, stat, _) in expect.items() if stat.ephemeral_owner == session_id)
                if client.session_id != session_id or client.timeout_ms != timeout_ms:
                    self.found.append((f"{self.drawn}: session {session_id:#x} is not resumed", copy))
                elif client.ephemerals() != own:
                    self.found.append((f"{self.drawn}: session {session_id:#x} has other ephemerals than {own}", copy))
                self.counts["ephemerals"] += len(own)

    def dispose(self):
        self.source.dispose()
        for server in self.servers:
            server.dispose()


def test_state_after_a_kill_is_that_of_zookeeper(only_corral, shards, seed, lasts, say, note):
    counts, findings, number = Counter(), Findings(say, seed), 0
    while lasts(KILLS_SHARE) and not findings.is_enough:
        played = Round(seed + number, shards, counts)
        try:
            played.run()
            for text, directory in played.found:
                findings.add(number, text, directory)
        finally:
            played.dispose()
        say(f"round {number}: {played.told}")
        number += 1
    note(f"seed {seed}: {dict(sorted(counts.items()))}")
    findings.end()


@pytest.fixture(scope="module")
def whole():
    """A function that makes a large directory, with a codec of snapshots. Each is made once."""
    made = {}

    def make(codec):
        if codec not in made:
            drawn = sources.Drawn(random.Random(0))
            drawn.codec, drawn.snap_count, drawn.preallocated_kb = codec, LARGE_SNAP_COUNT, 64
            drawn.options, drawn.has_log_directory, drawn.reaps = [], False, False
            source = made[codec] = sources.Source(drawn).start()
            load.ballast(source.leader(), LARGE_BALLAST, data_bytes=60)
            writers = load.Load(source.members, "large", 4)
            time.sleep(LARGE_LOAD_S)
            source.kill()
            writers.end()
        return made[codec].members[0].directory / "data/version-2"

    yield make
    for source in made.values():
        source.dispose()


def test_damage_is_reported_or_has_no_effect(only_corral, seed, lasts, say, note, whole, tmp_path):
    counts, findings, number, slowest_s, most_kib = Counter(), Findings(say, seed), 0, 0, 0
    while lasts(DAMAGE_SHARE) and not findings.is_enough:
        if number % DAMAGES == 0:
            directory = whole(sources.CODECS[number // DAMAGES % len(sources.CODECS)])
            figures = damage.figures(damage.run(directory, "--dry-run"))
        damaged = damage.Damage(random.Random(seed + number), directory).link(tmp_path / "damaged")
        done = damage.run(damaged.target, "--dry-run")
        if reason := damage.complaint(done, figures, damaged.kinds):
            findings.add(number, f"{', '.join(damaged.told)}: {reason}\n{done.out}{done.err}", damaged.target)
        shutil.rmtree(damaged.target)
        slowest_s, most_kib, number = max(slowest_s, done.seconds), max(most_kib, done.memory_kib), number + 1
        counts[f"ended with {done.code}"] += 1
        if number % SAY_EVERY == 0:
            say(f"{number} damages: {dict(counts)}, at most {slowest_s:.1f} s and {most_kib >> 10} MiB; whole: {figures}")
    note(f"seed {seed}: {number} damages, {dict(counts)}, at most {slowest_s:.1f} s and {most_kib >> 10} MiB")
    findings.end()


def test_a_killed_import_is_whole_or_not_there(only_corral, shards, seed, lasts, say, note, whole):
    counts, findings, number, directory = Counter(), Findings(say, seed), 0, whole(None)
    unharmed = Target(directory, None, shards, SETTINGS, random.Random(seed))
    expect = unharmed.whole()
    unharmed.dispose()
    while lasts(IMPORTS_SHARE) and not findings.is_enough:
        target = Target(directory, expect, shards, SETTINGS, random.Random(seed + number))
        try:
            outcome, fault = target.round()
            counts[outcome] += 1
            if fault:
                findings.add(number, fault, target.server.directory)
        finally:
            target.dispose()
        number += 1
    note(f"seed {seed}: {number} kills, {dict(counts)}")
    findings.end()
