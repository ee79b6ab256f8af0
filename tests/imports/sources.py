"""Real ZooKeepers of random versions and settings, one or three of them, which are killed and started again."""

import shutil
import socket
import time
from pathlib import Path

from ensemble.cluster import configure, mode_of, spec_of
from imports.load import TIMEOUTS_MS, Load, ballast
from imports.record import Recorded
from support import server as servers
from support.wait import wait_until

CODECS = (None, "gz", "snappy")
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
# With this option the end of a session does not name its ephemerals, and a replay may leave their parents with an older pzxid.
NO_PATHS = "-Dzookeeper.closeSessionTxn.enabled=false"
NO_DIGESTS = "-Dzookeeper.digest.enabled=false"
# Options of ZooKeeper that change its files, and how often.
RARE = (
    ("-Dzookeeper.serializeLastProcessedZxid.enabled=true", 0.2),
    (NO_PATHS, 0.1),
    (NO_DIGESTS, 0.1),
    ("-Dzookeeper.txnLogSizeLimitInKb=64", 0.15),
)
SNAP_COUNTS, PREALLOCATED_KB, BALLAST = (10, 20, 50, 100, 200), (1, 16, 64, 1024), (0, 300, 1500, 4000)
MORE = {"minSessionTimeout": TIMEOUTS_MS[0], "maxSessionTimeout": TIMEOUTS_MS[-1]}
KEPT = ("extendedTypesEnabled", "preAllocSize", "snapCount", "tickTime", "dataLogDir")
# Containers and TTLs are looked at often under load, and never after it.
REAP = "-Dznode.container.checkIntervalMs=40"
LOAD_S, SIZE, START_LIMIT_S = (0.1, 2.0), 3, 90


class Drawn:
    """Version and settings."""

    def __init__(self, chance):
        self.version = chance.choice(sorted(servers.class_paths()))
        self.codec, self.snap_count = chance.choice(CODECS), chance.choice(SNAP_COUNTS)
        self.preallocated_kb = chance.choice(PREALLOCATED_KB)
        self.options = [option for option, share in RARE if chance.random() < share]
        self.has_log_directory, self.reaps = chance.random() < 0.2, chance.random() < 0.3
        self.options.append(f"-Dzookeeper.forceSync={chance.choice(('yes', 'no'))}")

    def __str__(self):
        options = " ".join(self.options)
        options += " dataLogDir" * self.has_log_directory + " reaps" * self.reaps
        return f"ZooKeeper {self.version}, {self.codec}, snapCount {self.snap_count}, preAllocSize {self.preallocated_kb}, {options}"

    def server(self):
        made = Recorded(self.version, self.codec, self.snap_count, (*QUICK, *self.options))
        made.settings |= {**MORE, "preAllocSize": self.preallocated_kb}
        if self.has_log_directory:
            made.settings["dataLogDir"] = made.directory / "logs"
        return made


class Source:
    """One server, or three that are an ensemble."""

    def __init__(self, drawn, size=1):
        self.drawn, self.members = drawn, [drawn.server() for _ in range(size)]
        if size > 1:
            lines = {f"server.{number}": spec_of(member, "participant") for number, member in enumerate(self.members, 1)}
            for number, member in enumerate(self.members, 1):
                kept = {key: member.settings[key] for key in (*MORE, *KEPT) if key in member.settings}
                configure(member, number, lines | kept)

    def start(self, first=None):
        """Starts those that do not run. `first` takes part in the election before the others do."""
        down = [member for member in self.members if not (member.process and member.process.poll() is None)]
        for member in down:
            drop_empty_logs(member)
        if first:
            first.launch()
            wait_until(lambda: listens(first), "the first server listens for votes", START_LIMIT_S)
        for member in down:
            if member is not first:
                member.launch()
        for member in self.members:
            wait_until(member.is_serving, "ZooKeeper serves", START_LIMIT_S)
        return self

    def leader(self):
        return next(member for member in self.members if mode_of(member) in ("leader", "standalone"))

    def kill(self):
        for member in self.members:
            member.process.kill()
        for member in self.members:
            member.process.wait()

    def dispose(self, keep=False):
        for member in self.members:
            member.dispose(keep)


def drop_empty_logs(member):
    """Before 3.9 a ZooKeeper does not start with a log that it had just created when it was killed."""
    for key in ("dataDir", "dataLogDir"):
        for log in Path(member.settings.get(key, member.directory)).glob("version-2/log.*"):
            if log.stat().st_size == 0:
                log.unlink()


def listens(member):
    """Whether the port of the election is open."""
    spec = next(value for key, value in member.settings.items() if key.startswith("server.") and member_port(value) == member.address[1])
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(spec.split(":")[2]))) == 0


def member_port(spec):
    return int(spec.rsplit(":", 1)[1])


def epoch(member):
    return int((member.directory / "data/version-2/currentEpoch").read_text())


def play(source, chance):
    """Loads the source and kills it at a random instant. Sometimes servers die before. Returns living sessions and answers."""
    usual = [member.java_options for member in source.members]
    if source.drawn.reaps:
        for member in source.members:
            member.java_options = (*member.java_options, REAP)
    source.start()
    if count := chance.choice(BALLAST):
        ballast(source.leader(), count)
    living, answers = [], 0
    for again in (chance.random() < 0.25, False):
        load = Load(source.members, chance.random(), chance.randint(2, 5))
        time.sleep(chance.uniform(*LOAD_S))
        if again and len(source.members) > 1:
            lose_one(source, chance)
            time.sleep(chance.uniform(*LOAD_S))
        source.kill()
        sessions, count = load.end()
        living, answers = living + sessions, answers + count
        if not again or len(source.members) > 1:
            break
        source.start()
    for member, options in zip(source.members, usual, strict=True):
        member.java_options = options
    return living, answers


def lose_one(source, chance):
    """One of three dies under load. Mostly it starts again, and catches up with the others."""
    lost = chance.choice(source.members)
    lost.kill()
    time.sleep(chance.uniform(*LOAD_S))
    if chance.random() < 0.8:
        lost.launch()
        wait_until(lost.is_serving, "the lost server serves again", START_LIMIT_S)


def copy(member, target):
    """Copies the files of a server. Returns the arguments of an import of them."""
    logs = member.settings.get("dataLogDir")
    shutil.copytree(member.settings["dataDir"], target / "data")
    if not logs:
        return [target / "data"]
    shutil.copytree(logs, target / "logs")
    return [target / "data", "--log-dir", target / "logs"]
