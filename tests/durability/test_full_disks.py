"""Servers of three whose disks are full: the others go on, the clients go elsewhere, and with space again all is there."""

import os
import signal
import subprocess
import time

from durability.disks import DISK_BYTES, FILLER_BYTES, MIB, NO_SPACE_CODE, SETTINGS, VALUE, mount, own_mounts  # noqa: F401 - a fixture
from ensemble.cluster import CALM, Ensemble
from support import jute
from support.client import Closed, Refused, four_letter_command, words_table
from support.expect import closes, equal
from support.wait import wait_until

# The log of one has room for that many writes at most.
TURNS, TURN_WRITES, SMALL_VALUE = 3, 400, b"x" * 50_000
# A snapshot of so many znodes is smaller than a segment of the log there.
SEGMENT_BYTES, SNAPSHOT_NODES, SNAPSHOT_DISK_BYTES = 16 * MIB, 20, 128 * MIB
# What clients have sent before they are sent away is written as soon as there is space: on disks of this size it has
# space.
WIDE_DISK_BYTES = 192 * MIB
HOLD_MS, AWAY_LINE = 1000, "not currently serving requests: its disk is full"
NO_SPACE_LINE = "the log has no space: transferring leadership"


class SmallDisks(Ensemble):
    """Three servers, each on a small disk with a file that can be removed."""

    def __init__(self, shards, size=DISK_BYTES, settings=None):
        super().__init__("corral", shards=shards, settings={**CALM, **SETTINGS, **(settings or {})})
        for member in self.members:
            myid = (member.directory / "data" / "myid").read_text()
            mount(member.directory / "data", size)
            (member.directory / "data" / "myid").write_text(myid)

    def __enter__(self):
        self.start()
        for member in self.members:
            self.filler(member).write_bytes(bytes(FILLER_BYTES))
        return self

    def __exit__(self, *_):
        self.dispose(keep=True)
        for member in self.members:
            subprocess.run(["umount", member.directory / "data"], check=True)
        self.dispose()

    def filler(self, member):
        return member.directory / "data" / "filler.tmp"


def create(member, client, path, value=b""):
    """Creates a znode, if need be with a new session: a write that is under way when another begins to lead has no answer."""
    deadline = time.monotonic() + 60
    while True:
        try:
            client.create(path, value)
            return client
        except Refused as refused:
            equal(refused.code, jute.NODE_EXISTS, path)
            return client
        except (Closed, OSError):
            assert time.monotonic() < deadline, f"{path} cannot be created"
            client = wait_until(lambda: connected(member), "a new session")


def connected(member):
    try:
        return member.client(timeout_ms=60_000)
    except (Closed, OSError):
        return None


def full_member(shards, leads):
    """One server of three has no space: the others go on, it ends when it is told to, and comes back with everything."""
    with SmallDisks(shards) as ensemble:
        full = ensemble.leader() if leads else ensemble.followers()[0]
        others = [member for member in ensemble.members if member is not full]
        for member in others:
            ensemble.filler(member).unlink()
        written = 0
        client = others[0].client(timeout_ms=60_000)
        while "writes wait" not in full.log():
            assert written < DISK_BYTES // len(VALUE), "the disk does not become full"
            client = create(others[0], client, f"/n{written}", VALUE)
            written += 1
        client = create(others[0], client, "/beyond")
        full.terminate()
        equal(full.process.wait(60), NO_SPACE_CODE, f"exit code\n{full.log_tail()}")
        client = create(others[0], client, "/without")
        ensemble.filler(full).unlink()
        full.start()
        with full.client() as back:
            back.sync()
            names = {f"n{number}" for number in range(written)} | {"beyond", "without", "zookeeper"}
            equal(set(back.children("/")), names, "znodes after the restart")
        client.close()
        return f"{written} writes"


def test_a_follower_without_space(shards, note):
    note(full_member(shards, leads=False))


def test_a_leader_without_space(shards, note):
    note(full_member(shards, leads=True))


def test_leaders_without_space_in_turn(shards, note):
    """Whose disk is full hands over at once, however often, and goes on by itself when there is space again."""
    with SmallDisks(shards, TURNS * DISK_BYTES) as ensemble:
        for member in ensemble.members:
            ensemble.filler(member).unlink()
        written = 0
        for number in range(TURNS):
            full = ensemble.leader()
            told = full.log().count(NO_SPACE_LINE)
            fill_up(ensemble.filler(full))
            other = next(member for member in ensemble.members if member is not full)
            client = connected(other)
            while full.log().count(NO_SPACE_LINE) == told:
                assert written < (number + 1) * TURN_WRITES, f"it does not hand over\n{full.log_tail()}"
                client = create(other, client, f"/n{written}", SMALL_VALUE)
                written += 1
            client = create(other, client, f"/beyond{number}")
            client.close()
            ensemble.filler(full).unlink()
            wait_until(lambda: len(ensemble.followers()) == 2, "all are there")
        names = {f"n{number}" for number in range(written)} | {f"beyond{number}" for number in range(TURNS)} | {"zookeeper"}
        for member in ensemble.members:
            with member.client() as back:
                back.sync()
                equal(set(back.children("/")), names, "znodes everywhere, without a restart")
        note(f"{written} writes, {TURNS} leaders")


def refuses_clients(member):
    """Whether the server gives no sessions and says why."""
    told = four_letter_command(member.address, "mntr")
    return AWAY_LINE in told and "zk_disk_full\t1\n" in told and connected(member) is None


def test_clients_of_a_follower_without_space_go_elsewhere(shards, note):
    with SmallDisks(shards, settings={"ensemble.hold_ms": HOLD_MS}) as ensemble:
        full, other = ensemble.followers()
        for member in ensemble.members:
            if member is not full:
                ensemble.filler(member).unlink()
        there, client = full.client(timeout_ms=60_000), other.client(timeout_ms=60_000)
        equal(words_table(four_letter_command(full.address, "mntr"), "\t")["zk_disk_full"], "0")
        written = 0
        while "writes wait" not in full.log():
            assert written < DISK_BYTES // len(VALUE), "the disk does not become full"
            client = create(other, client, f"/n{written}", VALUE)
            written += 1
        closes(there.create, "/there")
        wait_until(lambda: refuses_clients(full), "clients are refused")
        equal(four_letter_command(full.address, "ruok"), "imok")
        assert "the disk is full: client connections are closed" in full.log(), full.log_tail()
        moved = other.client(timeout_ms=60_000, resume=there)
        equal(moved.session_id, there.session_id, "the session goes on elsewhere")
        moved.create("/elsewhere")
        ensemble.filler(full).unlink()
        back = wait_until(lambda: connected(full), "it serves again")
        back.sync()
        names = {f"n{number}" for number in range(written)} | {"elsewhere", "zookeeper"}
        equal(set(back.children("/")) - {"there"}, names, "znodes of the server that was full")
        back.create("/back")
        equal(words_table(four_letter_command(full.address, "mntr"), "\t")["zk_disk_full"], "0")
        note(f"{written} writes")


def test_clients_of_a_leader_without_space_and_successor_go(shards):
    """Of three servers one is gone and the others have no space: the leader sends its clients away, too, until it has some."""
    with SmallDisks(shards, WIDE_DISK_BYTES, {"ensemble.hold_ms": HOLD_MS}) as ensemble:
        leader = ensemble.leader()
        ensemble.followers()[0].kill()
        for member in ensemble.running:
            fill_up(ensemble.filler(member))
        wait_until(lambda: refuse_clients(ensemble.running), "clients are refused")
        for member in ensemble.running:
            ensemble.filler(member).unlink()
        back = wait_until(lambda: connected(leader), "it serves again")
        create(leader, back, "/back").close()


def refuse_clients(members):
    """Writes wherever a session is given: one that leads now may have had a little space left. Whether none is given any more."""
    for client in filter(None, map(connected, members)):
        closes(write_on, client)
    return all(map(takes_no_client, members))


def takes_no_client(member):
    """Whether the server gives no sessions and says why: its disk is full, or no server with space may lead."""
    told = four_letter_command(member.address, "mntr")
    return "not currently serving requests: " in told and connected(member) is None


def write_on(client):
    """Sends more writes than there is space for, and waits for their answers."""
    for number in range(DISK_BYTES // len(VALUE)):
        client.send(jute.CREATE, jute.create_body(f"/n{number}", VALUE, jute.PERSISTENT, jute.OPEN_ACL))
    while True:
        client.reply()


def test_a_snapshot_without_space_is_waited_for(shards):
    """A server that lags finds no room for the snapshot, then none for the log behind it; then there is room."""
    settings = {"ensemble.hold_ms": HOLD_MS, "ensemble.log_cache_bytes": MIB, "log.segment_bytes": SEGMENT_BYTES}
    with SmallDisks(shards, SNAPSHOT_DISK_BYTES, settings) as ensemble:
        for member in ensemble.members:
            ensemble.filler(member).unlink()
        late, other = ensemble.followers()
        equal(late.stop(), 0, "exit code")
        with other.client(timeout_ms=60_000) as client:
            for number in range(3 * SEGMENT_BYTES // len(VALUE)):
                path = f"/n{number % SNAPSHOT_NODES}"
                client.set(path, VALUE) if number >= SNAPSHOT_NODES else client.create(path, VALUE)
        for member in ensemble.running:
            told = member.log().count("snapshot written")
            member.process.send_signal(signal.SIGUSR1)
            wait_until(lambda member=member, told=told: member.log().count("snapshot written") > told, "a snapshot is written")
        # Not the usual name, which a start would remove; and the segments that were made ahead of need go.
        data, filler = late.directory / "data", late.directory / "data" / "filler"
        for ahead in [*sorted(data.glob("log-*"))[1:], *data.glob("spare-*")]:
            ahead.unlink()
        fill_up(filler)
        # Not for a snapshot; then for that, and not for a segment of the log.
        leave_room(filler, MIB)
        late.launch()
        wait_until(lambda: "cannot be installed" in late.log(), "it finds no room for the snapshot")
        wait_until(lambda: refuses_clients(late), "clients are refused")
        leave_room(filler, SNAPSHOT_NODES * len(VALUE) + 2 * MIB)
        wait_until(lambda: "writes wait" in late.log(), "it finds no room for the log")
        wait_until(lambda: refuses_clients(late), "clients are refused")
        filler.unlink()
        back = wait_until(lambda: connected(late), "it serves")
        back.sync()
        equal(set(back.children("/")), {f"n{number}" for number in range(SNAPSHOT_NODES)} | {"zookeeper"}, "znodes")
        equal(back.get("/n0")[0], VALUE)
        back.close()
        equal(late.stop(), 0, "exit code")


def leave_room(path, count):
    """Lets go of so many bytes of the file."""
    os.truncate(path, path.stat().st_size - count)


def fill_up(path):
    with open(path, "wb") as filler:
        try:
            while True:
                filler.write(bytes(65536))
                filler.flush()
        except OSError:
            pass
