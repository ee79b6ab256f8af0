"""How servers of an ensemble begin: the first start, a disk that was emptied, data that are damaged or not theirs."""

import time

import pytest

from ensemble.cluster import mode_of
from ensemble.own import Own, empty, says
from ensemble.sessions import connect, connect_to_new_leader, reconnect, root, seen
from support import jute, log_files
from support.client import Closed, exists_or_none
from support.expect import equal
from support.wait import wait_until

HEAL_LIMIT_S = 60
FOREIGN = 5
# Enough that the first giver is lost before it has given everything.
GIVEN_WRITES, GIVEN_BYTES = 80, 900_000
pytestmark = pytest.mark.usefixtures("only_corral")


def test_servers_that_start_one_after_the_other_begin_with_the_last():
    with Own() as own:
        first, second, third = own.members
        first.launch()
        says(first, "until server 2, 3, without data too, is reached")
        second.launch()
        says(first, "until server 3, without data too, is reached")
        says(second, "until server 3, without data too, is reached")
        assert mode_of(first) is None and mode_of(second) is None, "a part of them begins without the rest"
        third.launch()
        own.leader()
        top = root(own, "first")
        for member in own.members:
            member.kill()
        own.start()
        equal(seen(third, top), b"")


def test_servers_that_disagree_about_the_list_do_not_begin():
    with Own() as own:
        odd = own.members[2]
        lines = (odd.directory / "zoo.cfg").read_text()
        (odd.directory / "zoo.cfg").write_text(lines + "server.4=127.0.0.1:1:2:participant;127.0.0.1:3\n")
        for member in own.members:
            member.launch()
        says(own.members[0], "configured with other servers than this one: server 3")
        odd.kill()
        (odd.directory / "zoo.cfg").write_text(lines)
        own.start()
        own.leader()


def test_a_server_with_an_emptied_data_directory_heals(ensemble):
    """A follower, then the leader, while clients write; sessions and acknowledged writes stay."""
    top = root(ensemble, "emptied")
    with connect(ensemble.leader()) as client:
        for number in range(300):
            client.create(f"{top}/{number}", b"x" * 500)
    for victim in (ensemble.followers()[0], ensemble.leader()):
        witness = next(member for member in ensemble.members if member is not victim)
        keeper = connect(witness)
        path = f"{top}/kept-{victim.address[1]}"
        keeper.create(path, b"", jute.EPHEMERAL)
        victim.kill()
        empty(victim)
        written = []
        ensemble.start()
        deadline = time.monotonic() + HEAL_LIMIT_S
        while not votes_again(ensemble, victim):
            assert time.monotonic() < deadline, "it does not vote again"
            try:
                written.append(keeper.create(f"{top}/w-{victim.address[1]}-{time.time_ns():x}", b"x"))
            except (Closed, OSError):
                # The leader may have changed: that write is in doubt.
                keeper = reconnect(keeper, witness)
        equal(exists_or_none(keeper, path)[7], keeper.session_id, "the session goes on")
        with connect(victim) as client:
            client.sync()
            names = set(client.children(top))
            equal([path for path in written if path.rpartition("/")[2] not in names], [], "acknowledged and lost")
            equal(len([name for name in names if name.isdigit()]), 300)
        keeper.close()
    # With all of them voters again any one may go.
    leader = ensemble.leader()
    leader.kill()
    others = [member for member in ensemble.members if member is not leader]
    with connect_to_new_leader(others) as client:
        client.create(f"{top}/after", b"")
    ensemble.start()


def votes_again(ensemble, victim):
    """Whether the leader's log says so of the member that was emptied last."""
    number = ensemble.members.index(victim) + 1
    return mode_of(victim) in ("follower", "leader") and any(
        f"server {number} has caught up" in member.log().rpartition(f"server {number} lost its data")[2]
        for member in ensemble.members
        if member is not victim and f"server {number} lost its data" in member.log()
    )


def test_a_damaged_last_record_is_never_cut(ensemble):
    """All killed behind an acknowledgement, a bit of one's last record flipped, or the page of it lost: its data are put aside, the
    others serve the write, and it takes everything from them by itself.
    """
    top = root(ensemble, "damaged")
    losses = (log_files.flip_a_bit_of_the_last_durable_record, log_files.lose_the_last_durable_page)
    for number, (damage, victim) in enumerate(zip(losses, (ensemble.leader(), ensemble.followers()[0]))):
        with connect(victim) as client:
            client.create(f"{top}/{number}", b"x" * 100)
            for member in ensemble.members:
                member.kill()
        data = victim.directory / "data"
        damage(data, pick=72)
        before, said = log_files.contents(data), len(victim.log())
        for member in ensemble.members:
            member.launch()
        others = [member for member in ensemble.members if member is not victim]
        with connect_to_new_leader(others) as client:
            equal(len(client.children(top)), number + 1)
        wait_until(lambda who=victim: votes_again(ensemble, who), "it votes again")
        equal(seen(victim, f"{top}/{number}"), b"x" * 100)
        told = victim.log()[said:]
        assert "damaged at offset" in told and "were put aside" in told, told
        assert "empty this server's data directory" not in told, "it asks for what it does itself"
        wait_until(lambda at=data: not (at / "HEALING").exists(), "it says that it heals no more")
        aside = log_files.contents(data / "damaged")
        assert aside and all(before[name] == content for name, content in aside.items()), "what was put aside was changed"


def test_snapshots_that_cannot_be_read_are_not_put_aside():
    """Unreadable is not damaged: each server refuses to start, changes nothing, and serves when its snapshot can be read again."""
    with Own() as own:
        own.start()
        top = root(own, "unread")
        for member in own.members:
            equal(member.stop(), 0, "exit code")
        moved = []
        for member in own.members:
            snapshot = sorted((member.directory / "data").glob("image-*.img"))[-1]
            moved.append((snapshot, snapshot.rename(member.directory / snapshot.name)))
            # It cannot be opened.
            snapshot.symlink_to(snapshot.name)
        for member in own.members:
            member.launch()
            equal(member.process.wait(60), 7, f"exit code:\n{member.log_tail()}")
            assert "nothing says that the snapshot is damaged" in member.log_tail(3), member.log_tail()
            data = member.directory / "data"
            assert not (data / "damaged").exists() and not (data / "HEALING").exists(), "its data were put aside"
        for snapshot, whole in moved:
            snapshot.unlink()
            whole.rename(snapshot)
        own.start()
        equal(seen(own.leader(), top), b"")


def test_data_of_another_server_are_refused():
    """Moved by mistake; what a server has promised is kept under its id."""
    with Own() as own:
        own.start()
        first, second, third = own.members
        top = root(own, "owner")
        for member in (second, third):
            equal(member.stop(), 0)
        for member, source in ((second, third), (third, second)):
            (source.directory / "data").rename(member.directory / "moved")
        for member in (second, third):
            (member.directory / "moved").rename(member.directory / "data")
            (member.directory / "data" / "myid").write_text(f"{own.members.index(member) + 1}\n")
            member.launch()
            equal(member.process.wait(60), FOREIGN, member.log_tail())
        says(second, "the data are of server 3, cluster corral, and this is server 2, cluster corral")
        (second.directory / "data").rename(first.directory / "aside")
        (third.directory / "data").rename(second.directory / "data")
        (first.directory / "aside").rename(third.directory / "data")
        for member in (second, third):
            (member.directory / "data" / "myid").write_text(f"{own.members.index(member) + 1}\n")
        own.start()
        with connect(third) as client:
            client.delete(top)


def test_a_snapshot_that_one_began_to_give_is_given_by_another():
    """Snapshots of one place hold the same in other bytes: what came of the first is of no use with the second."""
    with Own({"ensemble.log_cache_bytes": 1 << 20, "snapshot.interval_min_ms": 60_000}) as own:
        own.start()
        giver = own.leader()
        other, victim = own.followers()
        victim.kill()
        with connect(giver) as client:
            for number in range(GIVEN_WRITES):
                client.create(f"/given-{number}", bytes([number]) * GIVEN_BYTES)
        # One each when the writes have ended.
        for member in (giver, other):
            wait_until(lambda of=member: of.log().count("snapshot written") > 0, "a snapshot is there")
        victim.launch()
        wait_until(lambda: "receiving a snapshot" in victim.log(), "the snapshot is on its way")
        giver.kill()
        with connect_to_new_leader([other, victim]) as client:
            client.create("/by-two")
        equal(seen(victim, f"/given-{GIVEN_WRITES - 1}"), bytes([GIVEN_WRITES - 1]) * GIVEN_BYTES)
        assert "cannot be installed" not in victim.log(), victim.log_tail()
