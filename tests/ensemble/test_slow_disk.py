"""A leader whose log is not synced in time lets another lead, unless the others are as slow.

The disks are slowed by strace, which holds up each sync of the log's thread.
"""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ensemble.cluster import CALM, Ensemble
from ensemble.sessions import connect, root
from support.client import Closed, four_letter_command, words_table
from support.expect import equal
from support.wait import wait_until

SYNC_S = 2
# A leader lets another lead when it has led for ten election timeouts: so long these writes take.
ELECTION_MS, ALL_SYNC_S, SLOW_WRITES = 400, 0.5, 10
# While a majority is held up, a sync takes so long.
HELD_S, HELD_WRITES = 0.5, 3


@pytest.fixture(scope="module")
def new_ensemble(shards, only_corral):
    return Ensemble("corral", shards=shards, settings={**CALM, "ensemble.election_ms": ELECTION_MS, "ensemble.linearizable_reads": "true"})


class Slowed:
    """While it is entered, each sync of these members' logs takes longer."""

    def __init__(self, members, seconds):
        self.members, self.delay_us, self.tracers = members, int(seconds * 1_000_000), []

    def __enter__(self):
        calls = "msync,fdatasync"
        for member in self.members:
            inject = f"inject={calls}:delay_enter={self.delay_us}"
            command = ["strace", "-qq", "-o", "/dev/null", "-p", str(log_thread(member)), "-e", f"trace={calls}", "-e", inject]
            self.tracers.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        for member in self.members:
            wait_until(lambda: is_traced(member), "strace holds the log's thread")
        return self

    def __exit__(self, *_):
        for tracer in self.tracers:
            tracer.terminate()
            tracer.wait()


def log_thread(member):
    tasks = Path(f"/proc/{member.process.pid}/task").iterdir()
    return next(int(task.name) for task in tasks if (task / "comm").read_text().strip() == "log")


def is_traced(member):
    status = Path(f"/proc/{member.process.pid}/task/{log_thread(member)}/status").read_text()
    return int(words_table(status, ":")["TracerPid"]) != 0


def handovers(ensemble):
    """How often each member let another lead because of its disk."""
    tables = (words_table(four_letter_command(member.address, "mntr"), "\t") for member in ensemble.members)
    return [int(table.get("zk_slow_disk_handovers", 0)) for table in tables]


def prepared(ensemble):
    """The leader, and a client of a follower."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    return ensemble.leader(), connect(ensemble.followers()[0])


def test_a_write_is_answered_after_a_majority_has_synced_it(ensemble):
    """The syncs of both followers are held up, so that no majority is faster. A slow machine only adds to that time."""
    top = root(ensemble, "synced")
    leader, other = prepared(ensemble)
    with connect(leader) as client, Slowed(ensemble.followers(), HELD_S):
        for _ in range(HELD_WRITES):
            began = time.monotonic()
            client.set(top, b"x")
            took_s = time.monotonic() - began
            assert took_s >= HELD_S, f"answered after {took_s:.3f} s, while each sync of the followers takes {HELD_S} s"
    other.close()


def test_leadership_stays_where_it_is_when_all_disks_are_slow(ensemble):
    top = root(ensemble, "all-slow")
    leader, client = prepared(ensemble)
    with Slowed(ensemble.members, ALL_SYNC_S):
        for _ in range(SLOW_WRITES):
            client.set(top, b"x")
    equal(handovers(ensemble), [0, 0, 0])
    equal(ensemble.leader(), leader)
    client.close()


def test_a_leader_whose_disk_stalls_hands_over(ensemble, note):
    top = root(ensemble, "slow")
    leader, client = prepared(ensemble)
    follower = ensemble.followers()[0]

    def written():
        """Whether the write was answered by another leader. What is under way when one leads is not answered."""
        try:
            with connect(follower) as writer:
                writer.set(top, b"slow")
        except (Closed, OSError):
            pass
        return ensemble.leader() is not leader

    before = sum(handovers(ensemble))
    began = time.monotonic()
    with Slowed([leader], SYNC_S):
        wait_until(written, "another server leads")
        took = time.monotonic() - began
    equal(sum(handovers(ensemble)) - before, 1)
    assert "transferring leadership; look at the disk" in leader.log()
    wait_until(lambda: len(ensemble.followers()) == 2, "all are there")
    client.drop()
    note(f"another leads after {took:.1f} s of syncs of {SYNC_S} s")
