"""ZooKeeper's known bugs that an ensemble can have, each with the test that would show it here.

Those that other tests show are only named, in BUGS; the tests below are for the rest. Each begins and ends with all servers
running.
"""

import os
import signal
import threading
import time

import pytest

from ensemble.cluster import FOLLOWING, LEADING, mode_of, pause, resume
from ensemble.sessions import connect, connect_to_new_leader, root
from support import jute
from support.client import four_letter_command, words_table
from support.expect import equal
from support.wait import wait_until

# Number, what went wrong, and where it would show.
BUGS = (
    ("2845, 1642, 2678", "a proposal no follower got stays in the memory of a server that lost leadership", "a_tail_that_comes_late"),
    ("3911, 4646, 4685, 4643, 4394, 4785", "acknowledged before it is durable, gone with a crash of the majority",
     "test_failover.py; replicas.rs: an_acknowledgement_before_the_sync_is_caught"),
    ("3642, 2099", "a hole in the history after a snapshot that was taken over in part",
     "killed_while_taking_over_a_snapshot; snapshot_receiver.rs"),
    ("3104, 3127, 3144", "a snapshot that is not a point in time", "test_failover.py, with snapshots between all kills; view_snapshot.rs"),
    ("2325", "an empty tree after snapshots went missing",
     "a_lost_snapshot_is_never_an_empty_tree; log_corruption.rs: each_file_missing_or_replaced"),
    ("2332, 4269, 4846", "an empty or half-made file keeps a server from starting", "log_crash.rs, snapshot.rs: a power cut at every step"),
    ("2247", "a leader that cannot write its log goes on leading", "log_crash.rs: after_a_failed_sync (its process ends)"),
    ("2355, 919, 1208, 1367, 1496, 4837", "an ephemeral outlives its session", "cases.a_silent_session_expires_on_every_server; the simulator"),
    ("1046, 2052", "a sequence number is given twice, a parent cannot be deleted", "test_failover.py; the simulator"),
    ("706", "too many watches to set again", "shard_hostile.rs: very_many_watches_are_set_and_dropped_in_pieces"),
    ("1412, 4475, 4466", "watches wrongly fired on reconnect, modes that interfere", "differential/recordings; the simulator"),
    ("4541, 4712", "a server that changes its role leaks", "roles_come_and_go"),
    ("2678", "a large tree takes longer than initLimit, so that a server never joins", "campaigns/test_joins.py"),
)  # fmt: skip
ROLE_CHANGES = 4
FILES_MORE_MAX = 12
SNAPSHOT_WRITES, SNAPSHOT_BYTES = 40, 900_000
SNAPSHOT_KILLS = 4
STOP_WRITERS, STOP_ZNODES, STOP_SNAPSHOTS_MAX = 8, 200, 3


def received(member):
    """How many requests the server has received."""
    return int(words_table(four_letter_command(member.address, "mntr"), "\t")["zk_packets_received"])


def test_a_tail_that_comes_late(ensemble, note):
    """2845: the followers are stopped, the leader appends, then another leads; the first comes back without a restart."""
    top = root(ensemble, "tail")
    leader, followers = ensemble.leader(), ensemble.followers()
    client, before = connect(leader), received(leader)
    for follower in followers:
        pause(follower)
    try:
        for number in range(20):
            client.send(jute.CREATE, jute.create_body(f"{top}/alone-{number}", b"x"))
        wait_until(lambda: received(leader) >= before + 20, "the leader has the writes")
        pause(leader)
    finally:
        for follower in followers:
            resume(follower)
    try:
        with connect_to_new_leader(followers) as other:
            other.create(f"{top}/later")
    finally:
        resume(leader)
    client.drop()
    names = []
    for member in ensemble.members:
        with connect(member) as other:
            other.sync()
            names.append(other.children(top))
    equal(names, names[:1] * len(names), "znodes of all servers")
    assert "later" in names[0], "an acknowledged write is lost"
    found = sorted(int(name.rpartition("-")[2]) for name in names[0] if name.startswith("alone-"))
    equal(found, list(range(len(found))), "of the unacknowledged writes a prefix")
    note(f"{len(found)} of 20 unacknowledged writes happened, on all servers alike")


def test_killed_while_taking_over_a_snapshot(ensemble):
    """3642 and 2099: killed again and again while a snapshot comes; in the end nothing is missing."""
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper takes over a snapshot before it is asked anything")
    top = root(ensemble, "snapshot")
    victim = ensemble.followers()[0]
    victim.kill()
    with connect(ensemble.leader()) as client:
        for number in range(SNAPSHOT_WRITES):
            client.create(f"{top}/{number}", b"%d" % number + b"x" * SNAPSHOT_BYTES)
    for _ in range(SNAPSHOT_KILLS):
        begin = len(victim.log())
        victim.launch()
        # One that it has received whole is not sent again.
        wait_until(lambda begin=begin: "receiving a snapshot" in victim.log()[begin:] or victim.is_serving(), "a snapshot comes")
        victim.kill()
    ensemble.start()
    with connect(victim) as client:
        client.sync()
        equal(client.children(top), sorted(map(str, range(SNAPSHOT_WRITES))))
        for number in range(SNAPSHOT_WRITES):
            assert client.get(f"{top}/{number}")[0] == b"%d" % number + b"x" * SNAPSHOT_BYTES, f"znode {number}"
            client.delete(f"{top}/{number}")


def test_a_lost_snapshot_is_never_an_empty_tree(ensemble, note):
    """2325: without its snapshots a server takes everything over again, or refuses to start; it never serves less."""
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper does that")
    top = root(ensemble, "lost")
    victim = ensemble.followers()[0]
    snapshots = lambda: list((victim.directory / "data").glob("image-*.img"))  # noqa: E731
    with connect(victim) as client:
        client.create(f"{top}/there", b"x")
    victim.process.send_signal(signal.SIGUSR1)
    wait_until(snapshots, "a snapshot")
    victim.kill()
    kept = [(path, path.read_bytes()) for path in snapshots()]
    for path, _ in kept:
        path.unlink()
    victim.launch()
    try:
        wait_until(victim.is_serving, "it serves")
    except RuntimeError as refused:
        for path, data in kept:
            path.write_bytes(data)
        ensemble.start()
        note(f"it refuses to start: {str(refused).splitlines()[-1][:160]}")
        return
    with connect(victim) as client:
        client.sync()
        equal(client.get(f"{top}/there")[0], b"x")
    # It left to come back as an observer, and counts for a majority only now.
    wait_until(lambda: mode_of(victim) in (FOLLOWING, LEADING), "it votes again")
    note("it takes everything over")


def descriptors(member):
    return len(os.listdir(f"/proc/{member.process.pid}/fd"))


def threads(member):
    return len(os.listdir(f"/proc/{member.process.pid}/task"))


def test_roles_come_and_go(ensemble, note):
    """4541 and 4712: servers that lead and follow by turns keep their number of threads and of open files."""
    if not ensemble.is_corral:
        pytest.skip("a matter of its own")
    before = [(threads(member), descriptors(member)) for member in ensemble.members]
    top = root(ensemble, "roles")
    for number in range(ROLE_CHANGES):
        leader, followers = ensemble.leader(), ensemble.followers()
        pause(leader)
        try:
            with connect_to_new_leader(followers) as client:
                client.create(f"{top}/{number}")
        finally:
            resume(leader)
        ensemble.leader()
        ensemble.followers()
    after = [(threads(member), descriptors(member)) for member in ensemble.members]
    for (threads_before, files_before), (threads_after, files_after) in zip(before, after):
        assert threads_after <= threads_before + 2, f"threads: {before} and then {after}"
        assert files_after <= files_before + FILES_MORE_MAX, f"open files: {before} and then {after}"
    note(f"{ROLE_CHANGES} changes; threads and open files of each {before} and then {after}")


def test_a_stop_ends_while_others_write(ensemble, note):
    """A server that stopped wrote a last snapshot, and by then there was more to be written, and so on as long as others wrote."""
    if not ensemble.is_corral:
        pytest.skip("a matter of its own")
    top, ready, over = root(ensemble, "stops"), threading.Semaphore(0), threading.Event()
    victim, members = ensemble.leader(), ensemble.followers()

    def write(number):
        with connect(members[number % len(members)]) as client:
            client.create(f"{top}/{number}")
            for count in range(STOP_ZNODES):
                client.create(f"{top}/{number}/{count}", b"x" * 1000)
            ready.release()
            while not over.is_set():
                client.set(f"{top}/{number}", b"x" * 100)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(STOP_WRITERS)]
    for writer in writers:
        writer.start()
    try:
        for _ in writers:
            ready.acquire()
        said_before = len(victim.log())
        began = time.monotonic()
        victim.terminate()
        wait_until(lambda: victim.process.poll() is not None, "the server ends")
        took_ms = (time.monotonic() - began) * 1000
    finally:
        over.set()
        for writer in writers:
            writer.join()
    equal(victim.process.poll(), 0)
    snapshots = victim.log()[said_before:].count("snapshot written")
    ensemble.start()
    assert snapshots <= STOP_SNAPSHOTS_MAX, f"{snapshots} snapshots"
    note(f"after {took_ms:.0f} ms and {snapshots} snapshots")
