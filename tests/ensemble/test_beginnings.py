"""How servers of an ensemble begin: the first start, a disk that was emptied, data that are damaged or not theirs, and a rescue."""

import re
import shutil
import subprocess
import time

import pytest

from ensemble.cluster import CALM, Ensemble, empty, mode_of, says
from ensemble.sessions import connect, connect_to_new_leader, leader_of, reconnect, root, seen
from support import jute, log_files
from support.client import Closed, exists_or_none, four_letter_command, words_table
from support.expect import equal
from support.server import binary
from support.wait import wait_until

HEAL_LIMIT_S = 60
FOREIGN, DAMAGED = 5, 6
pytestmark = pytest.mark.usefixtures("only_corral")


@pytest.fixture
def own(shards):
    """An ensemble of the test's own, not started."""
    made = Ensemble("corral", shards=shards, settings=CALM)
    yield made
    made.dispose()


def test_servers_that_start_one_after_the_other_begin_with_the_last(own):
    first, second, third = own.members
    first.launch()
    says(first, "until server 2, 3, without data too, is reached")
    second.launch()
    says(first, "until server 3, without data too, is reached")
    says(second, "until server 3, without data too, is reached")
    assert mode_of(first) is None and mode_of(second) is None, "a part of them begins without the rest"
    third.launch()
    top = root(own, "first")
    for member in own.members:
        member.kill()
    own.start()
    equal(seen(third, top), b"")


def test_servers_that_disagree_about_the_list_do_not_begin(own):
    odd = own.members[2]
    lines = (odd.directory / "zoo.cfg").read_text()
    (odd.directory / "zoo.cfg").write_text(lines + "server.4=127.0.0.1:1:2:participant;127.0.0.1:3\n")
    for member in own.members:
        member.launch()
    says(own.members[0], "configured with other servers than this one: server 3")
    odd.kill()
    (odd.directory / "zoo.cfg").write_text(lines)
    own.start()


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
    number = ensemble.number(victim)
    lost, back = f"server {number} lost its data", f"server {number} has caught up"
    logs = [member.log() for member in ensemble.members if member is not victim]
    return mode_of(victim) in ("follower", "leader") and any(lost in log and back in log.rpartition(lost)[2] for log in logs)


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


def test_a_snapshot_that_cannot_be_read_is_not_put_aside(own):
    """Unreadable is not damaged: the server refuses to start, changes nothing, and serves when it can read its snapshot again."""
    own.start()
    member = own.members[0]
    data = member.directory / "data"
    equal(member.stop(), 0, "exit code")
    snapshot = sorted(data.glob("image-*.img"))[-1]
    whole = snapshot.rename(member.directory / snapshot.name)
    # It cannot be opened.
    snapshot.symlink_to(snapshot.name)
    member.launch()
    equal(member.process.wait(60), 7, f"exit code:\n{member.log_tail()}")
    assert "nothing says that the snapshot is damaged" in member.log_tail(3), member.log_tail()
    assert not (data / "damaged").exists() and not (data / "HEALING").exists(), "its data were put aside"
    snapshot.unlink()
    whole.rename(snapshot)
    member.start()


def last_term(member):
    return max(int(term) for term in re.findall(r"leadership changed .*term=(\d+)", member.log()))


def test_a_server_whose_leader_lacks_its_data_says_so(run_ensemble, shards):
    """Two of three are started with an old copy of their data, which operators must not do."""
    own = run_ensemble(Ensemble("corral", shards=shards, settings={**CALM, "ensemble.election_ms": 300}))
    top, victims, third = root(own, "before"), own.members[:2], own.members[2]
    for member in own.members:
        member.stop()
    for member in victims:
        shutil.copytree(member.directory / "data", member.directory / "copy")
    own.start()
    with connect(own.leader()) as client:
        for number in range(200):
            client.create(f"{top}/{number}")
    for member in own.members:
        member.stop()
    for member in victims:
        shutil.rmtree(member.directory / "data")
        shutil.move(member.directory / "copy", member.directory / "data")
    # The two elect until theirs is the later term: then the third must follow one of them.
    known = last_term(third)
    while True:
        for member in victims:
            member.launch()
        with connect(victims[0]) as client:
            client.set("/", b"")
        if last_term(victims[0]) > known + 1:
            break
        for member in victims:
            member.kill()
    third.launch()
    table = lambda: words_table(four_letter_command(third.address, "mntr"), "\t")  # noqa: E731
    says(third, "accepts no sessions and no writes: its log and")
    wait_until(lambda: table().get("zk_not_serving_reason") == "log-contradicts", "mntr tells why")
    equal(table()["zk_serving"], "0")
    text = four_letter_command(third.address, "srvr")
    assert "\nMode: follower\n" in text and "\nServing: no, its log and the leader's contradict each other" in text, text
    # What the line says: without its data it is given everything, and serves.
    third.kill()
    empty(third)
    third.start()
    wait_until(lambda: table().get("zk_serving") == "1", "mntr tells that it serves")


def swap(one, other):
    """Moves the data of each server to the other one, as by mistake. The files myid stay."""
    data = [member.directory / "data" for member in (one, other)]
    ids = [(path / "myid").read_text() for path in data]
    aside = data[0].rename(one.directory / "aside")
    data[1].rename(data[0])
    aside.rename(data[1])
    for path, text in zip(data, ids, strict=True):
        (path / "myid").write_text(text)


def test_data_of_another_server_are_refused(own):
    """What a server has promised is kept under its id."""
    own.start()
    second, third = own.members[1:]
    top = root(own, "owner")
    for member in (second, third):
        equal(member.stop(), 0)
    swap(second, third)
    for member in (second, third):
        member.launch()
        equal(member.process.wait(60), FOREIGN, member.log_tail())
    says(second, "the data are of server 3, cluster corral, and this is server 2, cluster corral")
    swap(second, third)
    own.start()
    equal(seen(third, top), b"")


def rescue(member, *flags):
    """Runs the command on the member's data; returns its exit code and what it said."""
    command = [str(binary()), "rescue", "--config", str(member.directory / "zoo.cfg"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=member.directory)
    return done.returncode, done.stdout + done.stderr


def rescue_the_first(own):
    """Starts all, kills all, rescues the first and starts it again; the others stay down. Returns a znode that it has."""
    own.start()
    top = root(own, "rescued")
    survivor = own.members[0]
    equal(seen(survivor, top), b"")
    for member in own.members:
        member.kill()
    code, said = rescue(survivor, "--yes")
    assert code == 0 and "its configuration names this one" in said, said
    survivor.launch()
    equal(leader_of([survivor]), survivor)
    return top


def test_the_only_voter_whose_snapshots_are_damaged_refuses_to_start(own):
    """Three servers are configured, two of them were taken out by a rescue: none can replace its data, and they stay in place."""
    rescue_the_first(own)
    survivor = own.members[0]
    data = survivor.directory / "data"
    equal(survivor.stop(), 0, "exit code")
    snapshots = sorted(data.glob("image-*.img"))
    for snapshot in snapshots:
        content = bytearray(snapshot.read_bytes())
        content[4096 + 100] ^= 0xFF
        snapshot.write_bytes(content)
    before = log_files.contents(data)
    for _ in range(2):
        survivor.launch()
        equal(survivor.process.wait(60), 6, f"exit code:\n{survivor.log_tail()}")
        said = survivor.log_tail(8)
        for part in (snapshots[-1].name, "from offset", "restore the data directory from a backup", "the only voter"):
            assert part in said, f"{part!r} is missing in {said}"
        for part in ("were put aside", "learns everything from the others", "catches up from the leader"):
            assert part not in said, said
    assert log_files.contents(data) == before and not (data / "damaged").exists(), "something was changed"


def test_a_survivor_of_a_lost_majority_is_rescued(own):
    own.start()
    top = root(own, "rescue")
    with connect(own.leader()) as client:
        for number in range(100):
            client.create(f"{top}/{number}", b"x")
    survivor, *others = own.members
    equal(seen(survivor, f"{top}/99"), b"x")
    for member in own.members:
        member.kill()
    code, said = rescue(survivor)
    assert code == 0 and "servers 1, 2, 3 voted" in said and "nothing was changed" in said, said
    code, said = rescue(survivor, "--yes")
    assert code == 0 and "the only one of its ensemble that votes" in said, said
    for member in others:
        empty(member)
    survivor.launch()
    equal(leader_of([survivor]), survivor)
    with connect(survivor) as client:
        equal(len(client.children(top)), 100)
        client.create(f"{top}/after", b"")
    own.start()
    wait_until(lambda: survivor.log().count("has caught up") == 2, "the others vote again")
    for member in others:
        equal(seen(member, f"{top}/99"), b"x")
    survivor.kill()
    with connect_to_new_leader(others) as client:
        client.create(f"{top}/without", b"")


def test_a_rescue_of_what_is_not_whole_names_no_other_servers(own):
    """There are none to learn from: their advice would cost what is left."""
    own.start()
    top = root(own, "damaged")
    for member in own.members:
        # It serves before its log has begun anew behind the first snapshot.
        seen(member, top)
    for member in own.members:
        member.kill()
    for member, kind, words in zip(own.members, ("image-*", "log-*"), ("entries between are missing", "no log in")):
        files = list((member.directory / "data").glob(kind))
        assert files, f"no {kind}"
        for path in files:
            path.unlink()
        code, said = rescue(member, "--yes")
        equal(code, DAMAGED, said)
        assert words in said and "rescue another survivor" in said and "empty" not in said, said


def test_servers_left_behind_by_a_rescue_end_beside_it(own):
    """A majority of the old list with its old data: started beside the rescued server, or there before it."""
    top = rescue_the_first(own)
    survivor, *others = own.members
    for member in others:
        member.launch()
    for member in others:
        equal(member.process.wait(60), FOREIGN, member.log_tail())
        says(member, "the data of server 1 come from a rescue")
    says(survivor, "its data are older than the rescue")
    equal(seen(survivor, top), b"")
    survivor.kill()
    for member in others:
        member.launch()
    leader_of(others)
    survivor.launch()
    for member in others:
        equal(member.process.wait(60), FOREIGN, member.log_tail())


def test_servers_without_data_found_no_ensemble_beside_data(own):
    """Emptied behind a rescue, with files from before a reconfig that name other servers: a second, empty ensemble began."""
    rescue_the_first(own)
    others = own.members[1:]
    for member in others:
        empty(member)
        config = member.directory / "zoo.cfg"
        config.write_text("".join(line for line in config.read_text().splitlines(True) if not line.startswith("server.1=")))
    others[0].launch()
    says(others[0], "server 1 holds data of this cluster, this server has none and does not know it")
    others[1].launch()
    says(others[1], "it has no data and waits for a leader")
    assert not any(map(mode_of, others)), "an empty ensemble begins beside the rescued one"


def test_data_of_a_lone_server_are_not_taken_for_an_ensembles(own):
    """Refused with what to do, both ways; the command makes the one of the other."""
    member = own.members[0]
    lines = (member.directory / "zoo.cfg").read_text()
    alone = "".join(line for line in lines.splitlines(True) if not line.startswith("server."))
    host, port = member.address
    alone += f"clientPort={port}\nclientPortAddress={host}\n"
    (member.directory / "zoo.cfg").write_text(alone)
    member.start()
    with connect(member) as client:
        client.create("/alone", b"x")
    equal(member.stop(), 0)
    (member.directory / "zoo.cfg").write_text(lines)
    member.launch()
    equal(member.process.wait(60), FOREIGN, member.log_tail())
    says(member, "that of a server that ran alone")
    code, said = rescue(member, "--yes")
    assert code == 0 and "it ran alone" in said, said
    own.start()
    wait_until(lambda: member.log().count("has caught up") == 2, "the others vote")
    for other in own.members:
        equal(seen(other, "/alone"), b"x")
    for other in own.members:
        other.kill()
    (member.directory / "zoo.cfg").write_text(alone)
    member.launch()
    equal(member.process.wait(60), FOREIGN, member.log_tail())
    code, said = rescue(member, "--yes")
    assert code == 0 and "a server that runs alone" in said, said
    member.start()
    equal(seen(member, "/alone"), b"x")
