"""What clients of an ensemble may rely on while servers come and go. Each test begins and ends with all servers running."""

import pytest

from ensemble.cluster import FOLLOWING, LEADING, mode_of, pause, resume
from ensemble.sessions import connect, leader_of, connect_to_new_leader, reconnect, root, seen, write_behind
from support import jute
from support.client import Closed, exists_or_none
from support.expect import equal
from support.wait import wait_until

# More than a leader keeps of the log for those who lag.
AWAY_WRITES, AWAY_BYTES = 40, 900_000


def test_one_leads_and_the_others_follow(ensemble):
    modes = sorted(str(mode) for mode in ensemble.modes().values())
    equal(modes, ["follower"] * (len(ensemble.members) - 1) + ["leader"])


def test_a_write_is_seen_everywhere_after_a_sync(ensemble):
    top = root(ensemble, "everywhere")
    for number, member in enumerate(ensemble.members):
        with connect(member) as client:
            client.create(f"{top}/{number}", b"x" * 100)
            equal(client.get(f"{top}/{number}")[0], b"x" * 100, "its own write, on the same server")
        for other in ensemble.members:
            equal(seen(other, f"{top}/{number}"), b"x" * 100)


def test_requests_of_a_connection_are_answered_in_order_on_a_follower(ensemble):
    top = root(ensemble, "order")
    with connect(ensemble.followers()[0]) as client:
        sent = []
        for number in range(300):
            path = f"{top}/{number}"
            sent.append(client.send(jute.CREATE, jute.create_body(path, b"", jute.PERSISTENT, jute.OPEN_ACL)))
            sent.append(client.send(jute.EXISTS, jute.read_body(path, False)))
        last = 0
        for xid in sent:
            reply = client.reply()
            equal((reply.xid, reply.error), (xid, 0), "each read sees the write before it")
            assert reply.zxid >= last, "zxids fall"
            last = reply.zxid


def test_versions_are_checked_across_servers(ensemble):
    top = root(ensemble, "versions")
    clients = [connect(member) for member in ensemble.members]
    won = 0
    for version in range(20):
        for client in clients:
            client.send(jute.SET_DATA, jute.set_body(top, b"v", version))
        won += sum(client.reply().error == 0 for client in clients)
    equal(won, 20, "exactly one conditional write of each version succeeds")
    for client in clients:
        client.close()


def test_sequence_numbers_are_given_once(ensemble):
    top = root(ensemble, "sequence")
    clients = [connect(member) for member in ensemble.members]
    for _ in range(50):
        for client in clients:
            client.send(jute.CREATE, jute.create_body(f"{top}/n-", b"", jute.SEQUENTIAL, jute.OPEN_ACL))
    names = [client.reply().body.string() for _ in range(50) for client in clients]
    equal(sorted(int(name[-10:]) for name in names), list(range(50 * len(clients))))
    for client in clients:
        client.close()


def test_a_watch_on_one_server_fires_for_a_write_on_another(ensemble):
    top = root(ensemble, "watch")
    watchers = [connect(member) for member in ensemble.members]
    for watcher in watchers:
        watcher.sync()
        watcher.get(top, watch=True)
    with connect(ensemble.followers()[-1]) as writer:
        writer.set(top, b"new")
    for watcher in watchers:
        watcher.sync()
        equal(watcher.take_events(), [(3, top)])
        watcher.close()


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


def test_a_silent_session_expires_on_every_server(ensemble):
    top = root(ensemble, "silent")
    for member in ensemble.members:
        client = connect(member, timeout_ms=2 * member.tick_ms)
        client.create(f"{top}/{member.address[1]}", b"", jute.EPHEMERAL)
        client.drop()
    for member in ensemble.members:
        with connect(member) as client:
            wait_until(lambda client=client: client.sync() and not client.children(top), "the ephemerals of silent sessions go")


def test_a_client_ahead_of_a_server_never_goes_back(ensemble):
    top = root(ensemble, "ahead")
    writer = connect(ensemble.leader())
    for member in ensemble.followers() * 5:
        zxid = writer.set(top, b"x")[1]
        reader = connect(member, last_zxid=zxid)
        assert reader.get(top)[1][1] >= zxid, "an older state than the client knows"
        reader.close()
    writer.close()


def test_a_killed_follower_comes_back_and_catches_up(ensemble):
    top = root(ensemble, "follower")
    for victim in ensemble.followers():
        victim.kill()
        with connect(ensemble.leader()) as client:
            for number in range(100):
                client.create(f"{top}/{victim.address[1]}-{number}", b"x" * 1000)
        ensemble.start()
        with connect(victim) as client:
            client.sync()
            equal(len(client.children(top)) % 100, 0)
            equal(client.get(f"{top}/{victim.address[1]}-99")[0], b"x" * 1000)


def test_sessions_and_ephemerals_outlive_the_leader(ensemble):
    top = root(ensemble, "outlive")
    leader, followers = ensemble.leader(), ensemble.followers()
    clients = [connect(member) for member in ensemble.members]
    for number, client in enumerate(clients):
        client.create(f"{top}/{number}", b"", jute.EPHEMERAL)
    leader.kill()
    moved = [reconnect(client, followers[0]) for client in clients]
    moved[0].sync()
    equal(moved[0].children(top), ["0", "1", "2"])
    for number, client in enumerate(moved):
        client.close()
        equal(seen(followers[1], f"{top}/{number}"), None)
    ensemble.start()


def test_connections_of_followers_stay_open_through_an_election(ensemble):
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper closes them")
    top = root(ensemble, "stay")
    leader, followers = ensemble.leader(), ensemble.followers()
    clients = [connect(member) for member in followers]
    leader.kill()
    # What a follower sends before it hears of that is in doubt, and ends its connection.
    leader_of(followers)
    for client in clients:
        client.set(top, b"after")
        client.close()
    ensemble.start()


def test_no_acknowledged_write_is_lost_when_all_are_killed(ensemble):
    top = root(ensemble, "all")
    acknowledged = []
    with connect(ensemble.followers()[0]) as client:
        for number in range(200):
            acknowledged.append(client.create(f"{top}/{number}", str(number).encode()))
    for member in ensemble.members:
        member.kill()
    ensemble.start()
    for member in ensemble.members:
        with connect(member) as client:
            client.sync()
            lost = [path for path in acknowledged if exists_or_none(client, path) is None]
            equal(lost, [])


def test_a_minority_answers_no_write(ensemble):
    top = root(ensemble, "minority")
    """What it was sent is answered when there is a majority again, or its connection is closed."""
    survivor, *others = ensemble.members
    client = connect(survivor)
    client.sync()
    for other in others:
        other.kill()
    client.send(jute.SET_DATA, jute.set_body(top, b"alone"))
    wait_until(lambda: mode_of(survivor) not in (LEADING, FOLLOWING), "the survivor has no leader")
    client.socket.settimeout(0.001)
    try:
        reply = client.reply()
        raise AssertionError(f"one server of three answered a write: {reply}")
    except (Closed, OSError, TimeoutError):
        pass
    client.drop()
    ensemble.start()


def test_a_paused_leader_serves_no_stale_sync(ensemble):
    top = root(ensemble, "paused")
    leader = ensemble.leader()
    followers = ensemble.followers()
    stale = connect(leader)
    stale.get(top)
    write_behind(leader, followers, top, b"newer")
    try:
        stale.sync()
        equal(stale.get(top)[0], b"newer", "a read behind a sync")
    except (Closed, OSError):
        pass
    stale.drop()
    ensemble.leader()
    ensemble.followers()


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


def test_a_server_that_was_stopped_for_long_catches_up(ensemble):
    top = root(ensemble, "away")
    victim = ensemble.followers()[0]
    victim.kill()
    with connect(ensemble.leader()) as client:
        for number in range(AWAY_WRITES):
            client.create(f"{top}/{number}", b"x" * AWAY_BYTES)
    ensemble.start()
    with connect(victim) as client:
        client.sync()
        equal(len(client.children(top)), AWAY_WRITES)
        equal(len(client.get(f"{top}/{AWAY_WRITES - 1}")[0]), AWAY_BYTES)
        client.create(f"{top}/back", b"")
    if ensemble.is_corral:
        assert "snapshot installed" in victim.log(), "more than a leader keeps of the log came entry by entry"
    for member in ensemble.members:
        equal(seen(member, f"{top}/back"), b"")


def test_a_server_that_lags_a_little_needs_no_snapshot_after_a_restart_of_all(ensemble):
    """The others' newest snapshots are ahead of it; the log that they still have on disk is enough."""
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper decides otherwise")
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
            client.delete(f"{top}/{number}")
        client.delete(top)
    assert "lags too far behind" not in victim.log().rpartition("state recovered")[2], victim.log_tail()
