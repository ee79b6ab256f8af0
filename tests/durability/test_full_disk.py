"""A disk that is full: writes wait, reads go on, and SIGTERM ends the server all the same.

The data directory is a small tmpfs in a mount namespace of this module's own, see the fixture `own_mounts`.
Everything acknowledged must be there after a restart, whatever was not must not have been answered.
"""

import os
import signal
import subprocess
import time

import pytest

from ensemble.cluster import CALM, Ensemble
from support import jute, unshare
from support.client import Closed, Refused, four_letter_command, words_table
from support.expect import closes, equal
from support.server import Corral
from support.wait import wait_until

MIB = 1 << 20
DISK_BYTES, FILLER_BYTES, VALUE = 32 * MIB, 12 * MIB, b"x" * 200_000
# What the server waits for at a stop.
STOP_LIMIT_S = 5
POLL_S = 0.05
NO_SPACE_CODE = 7
# The log of one has room for that many writes at most.
TURNS, TURN_WRITES, SMALL_VALUE = 3, 400, b"x" * 50_000
# A snapshot of so many znodes is smaller than a segment of the log there.
SEGMENT_BYTES, SNAPSHOT_NODES, SNAPSHOT_DISK_BYTES = 16 * MIB, 20, 128 * MIB
# What clients have sent before they are sent away is written as soon as there is space: on disks of this size it has
# space.
WIDE_DISK_BYTES = 192 * MIB
HOLD_MS, AWAY_LINE = 1000, "not currently serving requests: its disk is full"
NO_SPACE_LINE = "the log has no space: transferring leadership"
SETTINGS = {
    "log.segment_bytes": 4 * MIB,
    "limits.frame_bytes_max": 1_000_000,
    # No snapshot but those the tests ask for.
    "snapshot.floor_bytes": 1 << 40,
    "snapshot.log_bytes_max": 0,
    "snapshot.interval_max_ms": 0,
    "snapshot.snapshots_retained": 1,
}


FULL = {"zk_disk_full": "1", "zk_serving": "0", "zk_not_serving_reason": "disk-full"}


def mount(place, size=DISK_BYTES):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "corral-test", place], check=True)


@pytest.fixture(scope="module", autouse=True)
def own_mounts():
    """This thread, and what it starts, has mounts of its own for as long as the module runs.

    That needs root, or its like in a user namespace, which only a process of one thread can enter.
    """
    if os.geteuid() != 0:
        pytest.skip("mounts need root: unshare --mount --map-root-user tests/.venv/bin/pytest tests/durability/test_full_disk.py")
    with unshare.own(unshare.MOUNTS):
        made = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no mounts of its own can be made: {made.stderr.strip()}")
        yield


class FullDisk:
    """A server whose data directory, or only its log, is on a small disk with a file that can be removed."""

    def __init__(self, shards, log_only=False):
        settings = {**SETTINGS, "server.log_dir": "small"} if log_only else SETTINGS
        self.server = Corral(shards=shards, settings=settings)
        self.place = self.server.directory / ("small" if log_only else "data")
        self.place.mkdir()
        mount(self.place)
        self.acknowledged = 0

    def __enter__(self):
        self.server.start()
        # The server takes an empty directory only.
        self.filler = self.place / "filler.tmp"
        self.filler.write_bytes(bytes(FILLER_BYTES))
        return self

    def __exit__(self, *_):
        self.server.dispose(keep=True)
        subprocess.run(["umount", self.place], check=True)
        self.server.dispose()

    def fill(self):
        """Writes until writes wait; gives the client whose last one does."""
        client = self.server.client(timeout_ms=60_000)
        client.socket.settimeout(POLL_S)
        while self.acknowledged < DISK_BYTES // len(VALUE):
            client.send(jute.CREATE, jute.create_body(self.path(self.acknowledged), VALUE))
            if (reply := wait_until(lambda: replied(client) or "writes wait" in self.server.log(), "an answer")) is True:
                client.socket.settimeout(60)
                return client
            equal(reply.error, 0, "create")
            self.acknowledged += 1
        raise AssertionError("the disk does not become full")

    def path(self, number):
        return f"/n{number}"

    def free(self):
        self.filler.unlink()

    def ends(self, code, what):
        """Waits for the server's end; gives how long it took."""
        begin = time.monotonic()
        equal(self.server.process.wait(60), code, f"exit code {what}\n{self.server.log_tail()}")
        return time.monotonic() - begin

    def all_is_there(self):
        """After a restart with space: every acknowledged write and nothing else."""
        self.free()
        self.server.start()
        with self.server.client() as client:
            found = set(client.children("/")) - {"zookeeper"}
            expected = {self.path(number)[1:] for number in range(self.acknowledged)}
            equal(found, expected, "znodes after the restart")
            equal(client.get(self.path(self.acknowledged - 1))[0], VALUE, "the last value")
            client.create("/after")


def replied(client):
    """The next reply, if it comes soon."""
    try:
        return client.reply()
    except TimeoutError:
        return None


def told_why(server):
    told = words_table(four_letter_command(server.address, "mntr"), "\t")
    return {key: told[key] for key in FULL}


def test_sigterm_waits_a_little_and_ends(shards, note):
    with FullDisk(shards) as disk:
        # A new session is a write.
        reader = disk.server.client(timeout_ms=60_000)
        waiting = disk.fill()
        equal(reader.get(disk.path(0))[0], VALUE, "a read while writes wait")
        wait_until(lambda: told_why(disk.server) == FULL, "mntr tells why")
        assert four_letter_command(disk.server.address, "srvr").endswith("Serving: no, its disk is full\n")
        disk.server.terminate()
        took = disk.ends(NO_SPACE_CODE, "of a stop without space")
        assert took > STOP_LIMIT_S - 1, f"it waited for {took:.1f} s only"
        log = disk.server.log()
        for part in ("no space for a new log segment", "log entries", "None of them was acknowledged"):
            assert part in log.splitlines()[-1], f"{part!r} is missing in {log.splitlines()[-1]!r}"
        assert waiting.is_closed(), "the write without space was answered"
        disk.all_is_there()
        note(f"after {took:.1f} s")
        return


def test_a_second_sigterm_ends_the_waiting(shards, note):
    with FullDisk(shards) as disk:
        disk.fill()
        disk.server.terminate()
        wait_until(lambda: "stopping: " in disk.server.log(), "the first is heard")
        disk.server.terminate()
        took = disk.ends(NO_SPACE_CODE, "of a stop that was asked for twice")
        disk.all_is_there()
        note(f"after {took:.1f} s")
        return


def test_space_that_comes_in_time_is_used(shards):
    with FullDisk(shards) as disk:
        waiting = disk.fill()
        disk.server.terminate()
        wait_until(lambda: "stopping: " in disk.server.log(), "it is heard")
        disk.free()
        equal(waiting.reply().error, 0, "the write that waited")
        disk.ends(0, "of a stop that found space")
        disk.acknowledged += 1
        disk.filler.write_bytes(b"")
        disk.all_is_there()


def test_nobody_connected_and_no_space(shards):
    """Nothing is left to answer, but what a client that left has asked for is not written either."""
    with FullDisk(shards) as disk:
        disk.fill().drop()
        disk.server.terminate()
        disk.ends(NO_SPACE_CODE, "of a stop without clients")
        disk.all_is_there()


def test_the_log_makes_room_for_itself(shards):
    """A snapshot elsewhere makes most of the log superfluous: writes go on, and nothing needs to be freed by hand."""
    with FullDisk(shards, log_only=True) as disk:
        waiting = disk.fill()
        disk.server.process.send_signal(signal.SIGUSR1)
        equal(waiting.reply().error, 0, "the write that waited")
        equal(disk.server.stop(), 0, "exit code")
        disk.acknowledged += 1
        disk.all_is_there()


def test_a_snapshot_without_space_does_not_fill_the_disk_again(shards):
    """It is begun once, and again when there is space for it."""
    server = Corral(shards=shards, settings={**SETTINGS, "server.log_dir": "elsewhere"})
    data = server.directory / "data"
    data.mkdir()
    mount(data)
    refused = "the snapshot was not written"
    try:
        server.start()
        filler = data / "filler.tmp"
        filler.write_bytes(bytes(FILLER_BYTES))
        with server.client(timeout_ms=60_000) as client:
            for number in range(30):
                client.create(f"/n{number}", bytes([number]) * 900_000)
        server.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: refused in server.log(), "it finds no space")
        least = min(free_until(data, lambda: server.log().count(refused) > 1))
        assert least > MIB, f"{least} bytes were left while it was tried again"
        filler.unlink()
        wait_until(lambda: "snapshot written" in server.log(), "it is written")
        equal(server.stop(), 0, "exit code")
    finally:
        server.dispose(keep=True)
        subprocess.run(["umount", data], check=True)
        server.dispose()


def free_until(place, over):
    """How much space is left there, again and again."""
    limit = time.monotonic() + 60
    while not over():
        assert time.monotonic() < limit, "it is not tried again"
        stat = os.statvfs(place)
        yield stat.f_bavail * stat.f_frsize
        time.sleep(0.01)


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
        return


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
        return


def test_clients_of_a_leader_without_space_and_successor_go(shards):
    """Of three servers one is gone and the others have no space: whoever leads sends its clients away, too, until it has some."""
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
    return all(map(takes_nobody, members))


def takes_nobody(member):
    """Whether the server gives no sessions and says why: its disk is full, or nobody may lead whose disk is not."""
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
