"""A majority that is lost for good: `corral rescue`, and servers that were left behind by it."""

import subprocess

import pytest

from ensemble.cluster import mode_of
from ensemble.own import Own, empty, says
from ensemble.sessions import connect, connect_to_new_leader, leader_of, root, seen
from support import log_files
from support.expect import equal
from support.server import binary
from support.wait import wait_until

FOREIGN, DAMAGED = 5, 6
pytestmark = pytest.mark.usefixtures("only_corral")


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


def test_the_only_voter_whose_snapshots_are_damaged_refuses_to_start():
    """Three servers are configured, two of them were taken out by a rescue: none can replace its data, and they stay in place."""
    with Own() as own:
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
            for part in (snapshots[-1].name, "from offset", "restore the data directory from a backup", "the only one that votes"):
                assert part in said, f"{part!r} is missing in {said}"
            for part in ("were put aside", "learns everything from the others", "catches up from the leader"):
                assert part not in said, said
        assert log_files.contents(data) == before and not (data / "damaged").exists(), "something was changed"


def test_a_survivor_of_a_lost_majority_is_rescued():
    with Own() as own:
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


def test_a_rescue_of_what_is_not_whole_names_no_other_servers():
    """There are none to learn from: their advice would cost what is left."""
    with Own() as own:
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


def test_servers_left_behind_by_a_rescue_end_beside_it():
    """A majority of the old list with its old data: started beside the rescued server, or there before it."""
    with Own() as own:
        top = rescue_the_first(own)
        survivor, *others = own.members
        for member in others:
            member.launch()
        for member in others:
            equal(member.process.wait(60), FOREIGN, member.log_tail())
            says(member, "the data of server 1 come from a rescue")
        says(survivor, "its data are older than the rescue")
        with connect(survivor) as client:
            client.create(f"{top}/beside", b"")
        survivor.kill()
        for member in others:
            member.launch()
        leader_of(others)
        survivor.launch()
        for member in others:
            equal(member.process.wait(60), FOREIGN, member.log_tail())
            empty(member)
        own.start()
        wait_until(lambda: survivor.log().count("has caught up") == 2, "the others vote again")
        # From now on they are of the same generation, and remember that.
        for member in own.members:
            member.kill()
        own.start()
        own.leader()
        for member in own.members:
            equal(seen(member, f"{top}/beside"), b"")


def test_servers_without_data_found_no_ensemble_beside_data():
    """Emptied behind a rescue, with files from before a reconfig that name other servers: a second, empty ensemble began."""
    with Own() as own:
        top = rescue_the_first(own)
        survivor, *others = own.members
        lists = [(member.directory / "zoo.cfg").read_text() for member in others]
        for member, lines in zip(others, lists):
            empty(member)
            without = "".join(line for line in lines.splitlines(True) if not line.startswith("server.1="))
            (member.directory / "zoo.cfg").write_text(without)
        others[0].launch()
        says(others[0], "server 1 holds data of this cluster, this server has none and does not know it")
        others[1].launch()
        says(others[1], "it has no data and waits for a leader")
        assert not any(map(mode_of, others)), "an empty ensemble begins beside the rescued one"
        for member, lines in zip(others, lists):
            member.kill()
            empty(member)
            (member.directory / "zoo.cfg").write_text(lines)
            member.launch()
        wait_until(lambda: survivor.log().count("has caught up") == 2, "the others vote again")
        for member in others:
            equal(seen(member, top), b"")


def test_data_of_a_lone_server_are_not_taken_for_an_ensembles():
    """Refused with what to do, both ways; the command makes the one of the other."""
    with Own() as own:
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
