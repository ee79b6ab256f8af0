"""The servers that are compared: how each is found, installed by package name, started and ended, as the tests start theirs.

A contestant is one or three servers, started freshly for every round. What is missing is left out with the reason.
"""

import contextlib
import functools
import glob
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from comparison import BENCH, REPOSITORY, say
from ensemble.cluster import Ensemble
from support.client import Client, Closed
from support.server import Corral, Server, ZooKeeper, java_class_path, zookeeper_version
from support.wait import wait_until

VENV = BENCH / ".venv"
PYSPARK = "pyspark==4.1.1"
DEBIAN_PACKAGES = {"java": "default-jre-headless", "etcd": "etcd-server"}
CORRAL, CORRAL_TWO, NIO, NETTY = "corral", "corral 2 shards", "ZooKeeper NIO", "ZooKeeper Netty"
GLOMMIO, EPOLL, ETCD = "glommio echo", "epoll echo", "etcd"
# In an ensemble.
ZOOKEEPER = "ZooKeeper"
NETTY_FACTORY = "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"
TICK_MS, START_LIMIT_S, RUNNING_LIMIT_S = 2000, 120, 5
# Of every cell of an ensemble, before it is measured: a JVM compiles meanwhile.
JVM_CELL_WARM_S = 4.0
# Without one of these ZooKeeper may log every request at DEBUG, and every figure is worthless.
QUIET_LOGS = {
    "logback.xml": "<configuration><root level='WARN'/></configuration>",
    "log4j2.xml": "<Configuration status='WARN'><Loggers><Root level='WARN'/></Loggers></Configuration>",
}


def zookeeper_options(*more):
    """The flags of java: the same durability as corral's, no limit on requests, quiet logs."""
    folder = Path(tempfile.mkdtemp(prefix="quiet-logs-"))
    for name, text in QUIET_LOGS.items():
        (folder / name).write_text(text)
    logs = [f"-Dlogback.configurationFile={folder}/logback.xml", f"-Dlog4j2.configurationFile={folder}/log4j2.xml"]
    limits = ["-Dzookeeper.forceSync=yes", "-Dzookeeper.globalOutstandingLimit=100000"]
    return (*os.environ.get("ZOOKEEPER_JVM_FLAGS", "-Xmx2g").split(), *limits, *logs, *more)


def zookeeper_settings():
    flags = os.environ.get("ZOOKEEPER_JVM_FLAGS", "-Xmx2g")
    return f"{zookeeper_version()} (java {flags}, forceSync=yes, globalOutstandingLimit=100000, maxClientCnxns=0, log level WARN)"


class Echo(Server):
    """A server of which a client's session shows that it serves. `words` are its command line."""

    def __init__(self, kind, *words):
        super().__init__()
        self.kind, self.words = kind, words

    def command(self):
        return [str(word).format(port=self.address[1], data=self.directory / "data") for word in self.words]

    def answers(self):
        Client(self.address).drop()
        return True


class Etcd(Echo):
    def answers(self):
        socket.create_connection(self.address, timeout=1).close()
        return True


def cpu_s(server):
    """Seconds of CPU time of the whole process, ended threads included, from the scheduler's own counters."""
    # The kernel's name of another process's CPU clock, as clock_getcpuclockid makes it: not in Python's library.
    return time.clock_gettime(~server.process.pid << 3 | 2)


def resident(server):
    """Resident bytes: all, and those of the process's own."""
    memory = server.memory()
    return {"resident": (memory.own_kib + memory.mapped_kib) * 1024, "own": memory.own_kib * 1024}


def pinned(cpus, start):
    """Starts something whose processes run on these CPUs: a child inherits the affinity of the thread that starts it."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        return start()
    finally:
        os.sched_setaffinity(0, allowed)


@dataclass
class Single:
    """A single server; `make` gives it, not started."""

    name: str
    make: object
    cpus: list
    warm_s: float = 1.0
    places, cell_warm_s, is_ours = (None,), 0, True

    def start(self):
        self.server = self.make()
        pinned(self.cpus, lambda: self.server.start(START_LIMIT_S))
        self.command = " ".join(map(str, self.server.command()))
        return self.server

    def target(self, place=None):
        """Flags of the load generator: where to send, whose CPU time counts. The znodes go with the data directory."""
        return ["--server", f"127.0.0.1:{self.server.address[1]}", "--pid", self.server.process.pid, "--keep"]

    def log_tail(self):
        return self.server.log_tail()

    def stop(self):
        if server := self.__dict__.pop("server", None):
            if server.process and server.process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.stop()
            server.dispose()


@dataclass
class Running:
    """A server that runs already; it is neither started nor ended. Without its process id its CPU time is not known."""

    name: str
    address: str
    pid: int = None
    places, command, cpus, warm_s, cell_warm_s, is_ours = (None,), None, (), 1.0, 0, False

    def start(self):
        wait_until(self.grants_a_session, f"{self.address} granted no session", RUNNING_LIMIT_S)

    def grants_a_session(self):
        host, _, port = self.address.rpartition(":")
        with contextlib.suppress(OSError, Closed):
            Client((host, int(port))).drop()
            return True

    def target(self, place=None):
        return ["--server", self.address, *(["--pid", self.pid] if self.pid else [])]

    def log_tail(self):
        return ""

    def stop(self):
        pass


def running(text):
    """Reads NAME=HOST:PORT[,pid=N]; anything else is a ValueError."""
    found = re.fullmatch(r"([^=]+)=([^,=]+:\d+)(?:,pid=(\d+))?", text)
    if not found:
        raise ValueError(f"{text!r} is not NAME=HOST:PORT[,pid=N]")
    return Running(found[1], found[2], int(found[3]) if found[3] else None)


@dataclass
class Three:
    """An ensemble of three servers; of corral's by its binary. CPU time is that of all three together."""

    name: str
    binary: Path
    cpus: list
    places, warm_s, is_ours = ("leader", "follower", "all"), 0, True

    @property
    def cell_warm_s(self):
        return 0 if self.binary else JVM_CELL_WARM_S

    def start(self):
        if self.binary:
            os.environ["CORRAL_BIN"] = str(self.binary)
            self.ensemble = Ensemble("corral", shards=1, tick_ms=TICK_MS)
        else:
            lines = {"globalOutstandingLimit": 100_000, "forceSync": "yes"}
            self.ensemble = Ensemble("zookeeper", tick_ms=TICK_MS, lines=lines)
            for member in self.ensemble.members:
                member.java_options = (*member.java_options, *zookeeper_options())
        pinned(self.cpus, self.ensemble.start)
        self.command = " ".join(map(str, self.ensemble.members[0].command()))

    def target(self, place):
        """Which server leads is looked up each time."""
        members = self.ensemble.members
        if place != "all":
            members = pinned(self.cpus, lambda: [self.ensemble.leader()] if place == "leader" else self.ensemble.followers()[:1])
        addresses = ",".join("{}:{}".format(*member.address) for member in members)
        return ["--server", addresses, "--pid", ",".join(str(member.process.pid) for member in self.ensemble.members)]

    def log_tail(self):
        return self.ensemble.log_tails()[-2000:]

    def stop(self):
        if ensemble := self.__dict__.pop("ensemble", None):
            ensemble.dispose()


def available(options, tools, corral, cpus):
    """All contestants that can be started here, in a table by name, and the reasons why others cannot. `cpus`: servers' and all."""
    own, both = cpus
    use_pyspark()
    no_zookeeper = None if java_class_path() else (
        f"there is no java or no ZooKeeper (Debian: {DEBIAN_PACKAGES['java']}, zookeeper; ZOOKEEPER_JARS; --install)")  # fmt: skip
    no_etcd = None if shutil.which("etcd") and venv_has("grpc") else f"no {DEBIAN_PACKAGES['etcd']} or no grpcio in bench/.venv (--install)"
    table = {}
    if options.ensembles:
        table |= {name: (Three(name, path, own), None) for name, path in [(CORRAL, corral), *options.binary]}
        table[ZOOKEEPER] = (Three(ZOOKEEPER, None, own), no_zookeeper)
    else:
        echo = lambda name: functools.partial(Echo, name, tools / name, "--addr", "127.0.0.1:{port}", "--cpu", min(own))  # noqa: E731
        url = "http://127.0.0.1:{port}"
        etcd = ("etcd", "--data-dir", "{data}", "--log-level", "warn", "--listen-peer-urls", "http://127.0.0.1:0")
        etcd += ("--listen-client-urls", url, "--advertise-client-urls", url)
        factory = lambda *more: lambda: ZooKeeper(TICK_MS, java_options=zookeeper_options(*more))  # noqa: E731
        table = {
            CORRAL: (Single(CORRAL, functools.partial(Corral, 1, TICK_MS, program=corral), own), None),
            CORRAL_TWO: (Single(CORRAL_TWO, functools.partial(Corral, 2, TICK_MS, program=corral), both), None),
            **{name: (Single(name, functools.partial(Corral, 1, TICK_MS, program=path), own), None) for name, path in options.binary},
            NIO: (Single(NIO, factory(), own, options.warm), no_zookeeper),
            NETTY: (Single(NETTY, factory(NETTY_FACTORY), own, options.warm), no_zookeeper),
            GLOMMIO: (Single(GLOMMIO, echo("glommio-echo"), own), None),
            EPOLL: (Single(EPOLL, echo("epoll-echo"), own), None),
            ETCD: (Single(ETCD, functools.partial(Etcd, ETCD, *etcd), own), no_etcd),
            **{one.name: (one, None) for one in options.server},
        }
    found = {name: one for name, (one, reason) in table.items() if not reason}
    return found, {name: reason for name, (_, reason) in table.items() if reason}


def use_pyspark():
    """Names the jars of ZooKeeper that pyspark brings in a virtual environment of ours, unless ZOOKEEPER_JARS names others."""
    for venv in (VENV, REPOSITORY / "tests" / ".venv"):
        for folder in glob.glob(f"{venv}/lib/python3*/site-packages/pyspark/jars"):
            os.environ.setdefault("ZOOKEEPER_JARS", folder)


def venv_has(module):
    return bool(glob.glob(f"{VENV}/lib/python3*/site-packages/{module}"))


def install(ensembles):
    """Installs what is missing by package name: Debian's packages as root, Python's into bench/.venv."""
    debian = [package for program, package in DEBIAN_PACKAGES.items() if not shutil.which(program)]
    python = [PYSPARK] * (not venv_has("pyspark")) + ["grpcio"] * (not ensembles and not venv_has("grpc"))
    pip = [str(VENV / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    steps = [["apt-get", "-qq", "update"], ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *debian]] if debian else []
    steps += [[sys.executable, "-m", "venv", str(VENV)], [*pip, *python]] if python else []
    for words in steps:
        say(f"installing: {' '.join(words)}")
        # RUNLEVEL keeps Debian from starting a server of its own.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        ended = subprocess.run(words, capture_output=True, text=True, env=environment)
        if ended.returncode:
            # The peer stays missing, and the report says so.
            say(f"  that failed: {(ended.stderr or ended.stdout).strip()[-500:]}")
