"""What clients of an ensemble may rely on while servers come and go. Each test begins and ends with all servers running."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from ensemble.cluster import CALM, FOLLOWING, LEADING, Ensemble, mode_of, pause, resume, says
from ensemble.sessions import connect, connect_to_new_leader, root, seen, write_behind
from support import jute
from support.client import Closed, exists_or_none
from support.expect import equal
from support.server import NO_SNAPSHOT
from support.wait import wait_until

# ZooKeeper's known bugs that an ensemble can have, besides those that tests below name: number, what went wrong, and the test that
# would show it here.
BUGS = (
    ("2845, 1642, 2678", "a proposal no follower got stays in the memory of a server that lost leadership",
     "replicas.rs: a_leader_cut_off_steps_down_and_its_tail_is_gone"),
    ("3911, 4646, 4685, 4643, 4394, 4785", "acknowledged before it is durable, gone with a crash of the majority",
     "test_failover.py; replicas.rs: an_acknowledgement_before_the_sync_is_caught"),
    ("3104, 3127, 3144", "a snapshot that is not a point in time", "test_failover.py, with snapshots between all kills; view_snapshot.rs"),
    ("2332, 4269, 4846", "an empty or half-made file keeps a server from starting", "log_crash.rs, snapshot.rs: a power cut at every step"),
    ("2247", "a leader that cannot write its log goes on leading", "log_crash.rs: after_a_failed_sync (its process ends)"),
    ("2355, 919, 1208, 1367, 1496, 4837", "an ephemeral outlives its session", "test_failover.py; the simulator"),
    ("1046, 2052", "a sequence number is given twice, a parent cannot be deleted", "test_failover.py; the simulator"),
    ("706", "too many watches to set again", "shard_hostile.rs: very_many_watches_are_set_and_dropped_in_pieces"),
    ("1412, 4475, 4466", "watches wrongly fired on reconnect, modes that interfere", "differential/recordings; the simulator"),
    ("2678", "a large tree takes longer than initLimit, so that a server never joins", "campaigns/test_joins.py"),
)  # fmt: skip
ROLE_CHANGES, FILES_MORE_MAX = 4, 12
# More than a leader keeps of the log for those who lag.
SNAPSHOT_WRITES, SNAPSHOT_BYTES, SNAPSHOT_KILLS = 40, 900_000, 4
LEADER_TICKS_S = 1
STOP_WRITERS, STOP_ZNODES, STOP_SNAPSHOTS_MAX = 8, 200, 3


def test_a_session_moves_and_its_old_connection_ends(ensemble):
    top = root(ensemble, "move")
    first, second, third = ensemble.members
    old = connect(first)
    old.create(f"{top}/mine", b"", jute.EPHEMERAL)
    moved = connect(second, resume=old)
    equal(moved.session_id, old.session_id)
    if ensemble.is_corral:
        # ZooKeeper notices with the next request of the old connection.
        assert old.is_closed(), "two servers keep the same session"
    equal(exists_or_none(moved, f"{top}/mine")[7], moved.session_id, "the ephemeral's owner")
    equal(seen(third, f"{top}/mine"), b"")
    moved.close()
    equal(seen(first, f"{top}/mine"), None, "the ephemeral goes with its session")


def test_a_client_ahead_of_a_server_never_goes_back(ensemble):
    top = root(ensemble, "ahead")
    writer = connect(ensemble.leader())
    for member in ensemble.followers() * 5:
        zxid = writer.set(top, b"x")[1]
        reader = connect(member, last_zxid=zxid)
        assert reader.get(top)[1][1] >= zxid, "an older state than the client knows"
        reader.close()
    writer.close()


def test_a_sync_under_way_is_answered_by_the_next_leader(ensemble):
    top = root(ensemble, "barrier")
    leader, followers = ensemble.leader(), ensemble.followers()
    client = connect(followers[0])
    client.sync()
    pause(leader)
    try:
        xid = client.send(jute.SYNC, jute.string("/"))
        with connect_to_new_leader(followers) as writer:
            writer.set(top, b"newer")
        try:
            equal(client.reply()[::2], (xid, 0))
            client.sync()
            equal(client.get(top)[0], b"newer", "a read behind a sync")
        except (Closed, OSError):
            assert not ensemble.is_corral, "the connection of a follower ends with its leader"
    finally:
        client.drop()
        resume(leader)
    ensemble.leader()
    ensemble.followers()


def test_a_server_that_lags_a_little_needs_no_snapshot_after_a_restart_of_all(ensemble, only_corral):
    """The others' newest snapshots are ahead of it; the log that they still have on disk is enough."""
    top = root(ensemble, "little")
    victim, other = ensemble.followers()
    leader = ensemble.leader()
    with connect(leader) as client:
        for number in range(20):
            client.create(f"{top}/{number}", b"x")
        victim.kill()
        for number in range(20):
            client.set(f"{top}/{number}", b"later")
    for member in (leader, other):
        equal(member.stop(), 0)
    ensemble.start()
    with connect(victim) as client:
        client.sync()
        for number in range(20):
            equal(client.get(f"{top}/{number}")[0], b"later")
    assert "lags too far behind" not in victim.log().rpartition("state recovered")[2], victim.log_tail()


def test_killed_while_taking_over_a_snapshot(ensemble, only_corral):
    """3642 and 2099: killed again and again while a snapshot comes; in the end nothing is missing."""
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


def test_a_received_snapshot_replaces_older_ones(run_ensemble, options, only_corral):
    """A server that was given a snapshot after each outage kept all of them, until its disk was full."""
    settings = {**CALM, **NO_SNAPSHOT, "snapshot.snapshots_retained": 1, "ensemble.log_cache_bytes": 1 << 20}
    ensemble = run_ensemble(Ensemble(options.server, shards=options.shards, settings=settings))
    top, victim, leader = root(ensemble, "outages"), ensemble.followers()[0], ensemble.leader()
    others = [member for member in ensemble.members if member is not victim]
    for outage in (1, 2):
        victim.kill()
        with connect(leader) as client:
            for number in range(SNAPSHOT_WRITES):
                client.create(f"{top}/{outage}-{number}", b"x" * SNAPSHOT_BYTES)
        for member in others:
            member.process.send_signal(signal.SIGUSR1)
            # The first one began the ensemble.
            says(member, "snapshot written", 1 + outage)
        victim.launch()
        says(victim, "snapshot installed", outage)
        equal(len(seen(victim, f"{top}/{outage}-0")), SNAPSHOT_BYTES)
        # Some ticks: until the leader has seen in one that the victim needs no entries behind the snapshot, it keeps them all.
        time.sleep(LEADER_TICKS_S)
    wait_until(lambda: len(list((victim.directory / "data").glob("image-*.img"))) == 1, "one snapshot is left")
    equal(len(seen(victim, f"{top}/2-0")), SNAPSHOT_BYTES)


def test_a_lost_snapshot_is_never_an_empty_tree(ensemble, only_corral):
    """2325: without its snapshots a server takes everything over again; it never serves less."""
    top, victim = root(ensemble, "lost"), ensemble.followers()[0]
    snapshots = (victim.directory / "data").glob
    with connect(victim) as client:
        client.create(f"{top}/there", b"x")
    victim.process.send_signal(signal.SIGUSR1)
    wait_until(lambda: list(snapshots("image-*.img")), "a snapshot")
    victim.kill()
    for path in snapshots("image-*.img"):
        path.unlink()
    victim.start()
    equal(seen(victim, f"{top}/there"), b"x")
    # It left to come back as an observer, and counts for a majority only now.
    wait_until(lambda: mode_of(victim) in (FOLLOWING, LEADING), "it votes again")


def test_roles_come_and_go(ensemble, only_corral):
    """4541 and 4712: servers that lead and follow by turns keep their number of threads and of open files."""

    def held():
        folders = [Path(f"/proc/{member.process.pid}") for member in ensemble.members]
        return [(len(os.listdir(folder / "task")), len(os.listdir(folder / "fd"))) for folder in folders]

    top, before = root(ensemble, "roles"), held()
    for _ in range(ROLE_CHANGES):
        write_behind(ensemble.leader(), ensemble.followers(), top, b"")
    ensemble.followers()
    after = held()
    for (threads, files), (threads_after, files_after) in zip(before, after, strict=True):
        assert threads_after <= threads + 2, f"threads and open files: {before} and then {after}"
        assert files_after <= files + FILES_MORE_MAX, f"threads and open files: {before} and then {after}"


def test_a_stop_ends_while_others_write(ensemble, only_corral):
    """A server that stopped wrote a last snapshot, and by then there was more to be written, and so on as long as others wrote."""
    top, ready, over = root(ensemble, "stops"), [], Event()
    victim, members = ensemble.leader(), ensemble.followers()

    def write(number):
        with connect(members[number % len(members)]) as client:
            for count in range(STOP_ZNODES):
                client.create(f"{top}/{number}-{count}", b"x" * 1000)
            ready.append(number)
            while not over.is_set():
                client.set(f"{top}/{number}-0", b"x" * 100)

    with ThreadPoolExecutor(STOP_WRITERS) as pool:
        try:
            pool.map(write, range(STOP_WRITERS))
            wait_until(lambda: len(ready) == STOP_WRITERS, "all write")
            begin = len(victim.log())
            equal(victim.stop(), 0, "exit code")
        finally:
            over.set()
    snapshots = victim.log()[begin:].count("snapshot written")
    assert snapshots <= STOP_SNAPSHOTS_MAX, f"{snapshots} snapshots"
