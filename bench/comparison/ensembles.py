"""Ensembles of three servers that replicate, corral's or ZooKeeper's, as contestants of loads.py.

All servers of an ensemble share the servers' CPUs; CPU time is that of all three together. They are started as the tests start
theirs (tests/ensemble/cluster.py).
"""

import contextlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from comparison import peers

sys.path.insert(0, str(peers.REPOSITORY / "tests"))

from ensemble.cluster import Ensemble  # noqa: E402
from support.wait import TooLate  # noqa: E402

TICK_MS = 2000
PLACES = ("leader", "follower", "all")
# Of every cell, before it is measured: a JVM compiles meanwhile.
JVM_CELL_WARM_S = 4.0


@dataclass
class Kind:
    """An ensemble's name, and its binary if it is corral's."""

    name: str
    binary: Path = None


def available(corral_binary, more_binaries):
    """All kinds that can be started here, and the reasons why others cannot."""
    kinds = [Kind(peers.CORRAL, corral_binary), *(Kind(name, path) for name, path in more_binaries)]
    if reason := peers.why_no_zookeeper():
        return kinds, {peers.ZOOKEEPER: reason}
    return [*kinds, Kind(peers.ZOOKEEPER)], {}


@contextlib.contextmanager
def in_time():
    """What takes too long is a failure as any other."""
    try:
        yield
    except TooLate as error:
        raise RuntimeError(str(error)) from None


class Three:
    """Three servers of a kind, started freshly for every round."""

    places = PLACES

    def __init__(self, lab, kind):
        self.lab, self.kind, self.name, self.cpus = lab, kind, kind.name, lab.server_cpus
        self.warm_s, self.cell_warm_s, self.ensemble = 0, 0 if kind.binary else JVM_CELL_WARM_S, None

    def start(self, number):
        # Directories of the members are made below the folder whose disk is measured.
        tempfile.tempdir = str(self.lab.work)
        if self.kind.binary:
            os.environ["CORRAL_BIN"] = str(self.kind.binary)
            self.ensemble = Ensemble("corral", shards=1, tick_ms=TICK_MS)
        else:
            os.environ["ZOOKEEPER_JARS"] = peers.jars_folder()
            self.ensemble = Ensemble("zookeeper", tick_ms=TICK_MS, lines=peers.ZOOKEEPER_LINES)
            for member in self.ensemble.members:
                member.java_options = (*member.java_options, *peers.jvm_flags(), *peers.quiet_logs(member.directory))
        allowed = os.sched_getaffinity(0)
        # A child inherits the affinity of the thread that starts it.
        os.sched_setaffinity(0, self.cpus)
        try:
            with in_time():
                self.ensemble.start()
        finally:
            os.sched_setaffinity(0, allowed)
        self.command = " ".join(map(str, self.ensemble.members[0].command()))

    def target(self, place):
        """Flags of the load generator. Which server leads is looked up each time."""
        with in_time():
            if place == "leader":
                members = [self.ensemble.leader()]
            else:
                members = self.ensemble.members if place == "all" else self.ensemble.followers()[:1]
        addresses = ",".join("{}:{}".format(*member.address) for member in members)
        return ["--server", addresses, "--pid", ",".join(str(member.process.pid) for member in self.ensemble.members)]

    def log_tail(self):
        return self.ensemble.log_tails()[-2000:]

    def stop(self):
        if self.ensemble:
            self.ensemble.dispose()
