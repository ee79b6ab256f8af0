"""Disks that are full: writes wait, reads go on, and clients of a server that others replace go elsewhere.

Everything acknowledged must be there with space again; what was not must not have been answered. The disks are tmpfs in a mount
namespace of the module's own.
"""

import os
import signal
import subprocess
import time

import pytest

from ensemble.cluster import CALM, Ensemble
from support import jute, unshare
from support.client import Closed, Refused, four_letter_command, words_table
from support.expect import closes, equal, refuses
from support.server import NO_SNAPSHOT, Corral
from support.wait import wait_until

MIB = 1 << 20
DISK_BYTES, FILLER_BYTES, VALUE = 32 * MIB, 12 * MIB, b"x" * 200_000
WRITES_MAX = DISK_BYTES // len(VALUE)
NO_SPACE_CODE = 7
# Writes are refused while less than two log segments are free.
RESERVE, TOO_LITTLE_BYTES = "limits.reserve_disk_space", 7 * MIB
SETTINGS = {
    "log.segment_bytes": 4 * MIB,
    "limits.frame_bytes_max": 1_000_000,
    **NO_SNAPSHOT,
    "snapshot.snapshots_retained": 1,
    # Otherwise writes are refused before the disk is full.
    RESERVE: "false",
}
# What the server waits for at a stop.
STOP_LIMIT_S = 5
POLL_S = 0.05
FULL = {"zk_disk_full": "1", "zk_serving": "0", "zk_not_serving_reason": "disk-full"}
# Longer than a leader takes to hand over.
HOLD_MS, AWAY_LINE = 3000, "not currently serving requests: its disk is full"
SCARCE_LINE = "disk space or memory is scarce: transferring leadership"
NO_SPACE_LINE = "the log has no space: transferring leadership"


def mount(place):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "corral-test", place], check=True)


@pytest.fixture(scope="module", autouse=True)
def own_mounts():
    """This thread, and what it starts, has mounts of its own for as long as the module runs.

    That needs root, or its like in a user namespace, which only a process of one thread can enter: run it under `unshare` then.
    """
    if os.geteuid() != 0:
        pytest.skip("mounts need root: run it under unshare --mount --map-root-user")
    with unshare.own(unshare.MOUNTS):
        made = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no mounts of its own can be made: {made.stderr.strip()}")
        yield


class FullDisk:
    """A server whose data directory, or only its log, is on a small disk with a file that can be removed."""

    def __init__(self, shards, log_only=False, more=None):
        settings = {**SETTINGS, "server.log_dir": "small"} if log_only else SETTINGS
        self.server = Corral(shards=shards, settings={**settings, **(more or {})})
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
        while self.acknowledged < WRITES_MAX:
            client.send(jute.CREATE, jute.create_body(f"/n{self.acknowledged}", VALUE))
            if (reply := wait_until(lambda: replied(client) or "writes wait" in self.server.log(), "an answer")) is True:
                client.socket.settimeout(60)
                return client
            equal(reply.error, 0, "create")
            self.acknowledged += 1
        raise AssertionError("the disk does not become full")

    def all_is_there(self):
        """After a restart with space: every acknowledged write and nothing else."""
        self.filler.unlink(missing_ok=True)
        self.server.start()
        with self.server.client() as client:
            found = set(client.children("/")) - {"zookeeper"}
            expected = {f"n{number}" for number in range(self.acknowledged)}
            equal(found, expected, "znodes after the restart")
            equal(client.get(f"/n{self.acknowledged - 1}")[0], VALUE, "the last value")
            client.create("/after")


def replied(client):
    """The next reply, if it comes soon."""
    try:
        return client.reply()
    except TimeoutError:
        return None


def leave(place, filler, free_bytes):
    """Makes a file so large that this much space is left."""
    found = os.statvfs(place)
    size = filler.stat().st_size if filler.exists() else 0
    with filler.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, size + found.f_bavail * found.f_frsize - free_bytes)


def metric(server, name):
    return words_table(four_letter_command(server.address, "mntr"), "\t")[name]


def is_refusing(server):
    return metric(server, "zk_growth_refusing") == "1"


def told_why(server):
    told = words_table(four_letter_command(server.address, "mntr"), "\t")
    return {key: told.get(key) for key in FULL}


def test_sigterm_waits_a_little_and_ends(shards, note):
    with FullDisk(shards) as disk:
        # A new session is a write.
        reader = disk.server.client(timeout_ms=60_000)
        waiting = disk.fill()
        equal(reader.get("/n0")[0], VALUE, "a read while writes wait")
        wait_until(lambda: told_why(disk.server) == FULL, "mntr tells why")
        assert four_letter_command(disk.server.address, "srvr").endswith("Serving: no, its disk is full\n")
        begin = time.monotonic()
        equal(disk.server.stop(), NO_SPACE_CODE, disk.server.log_tail())
        took = time.monotonic() - begin
        assert took > STOP_LIMIT_S - 1, f"it waited for {took:.1f} s only"
        log = disk.server.log()
        for part in ("no space for a new log segment", "log entries", "None of them was acknowledged"):
            assert part in log.splitlines()[-1], f"{part!r} is missing in {log.splitlines()[-1]!r}"
        assert waiting.is_closed(), "the write without space was answered"
        disk.all_is_there()
        note(f"after {took:.1f} s")


def test_space_that_comes_in_time_is_used(shards):
    with FullDisk(shards) as disk:
        waiting = disk.fill()
        disk.server.terminate()
        wait_until(lambda: "stopping: " in disk.server.log(), "it is heard")
        disk.filler.unlink()
        equal(waiting.reply().error, 0, "the write that waited")
        equal(disk.server.process.wait(60), 0, disk.server.log_tail())
        disk.acknowledged += 1
        disk.all_is_there()


def test_writes_that_add_data_are_refused_before_the_disk_is_full(shards):
    with FullDisk(shards, more={RESERVE: "true"}) as disk:
        client = disk.server.client(timeout_ms=60_000)
        client.create("/n", b"before")
        leave(disk.place, disk.filler, TOO_LITTLE_BYTES)
        wait_until(lambda: is_refusing(disk.server), "writes are refused")
        refuses(jute.QUOTA_EXCEEDED, client.create, "/other")
        refuses(jute.QUOTA_EXCEEDED, client.set, "/n", b"after")
        refuses(jute.QUOTA_EXCEEDED, client.multi, (jute.CREATE, jute.create_body("/other")))
        equal(client.get("/n")[0], b"before", "a read")
        with disk.server.client() as another:
            another.delete("/n")
        wait_until(lambda: metric(disk.server, "zk_growth_refused") == "3", "they are counted")
        equal(metric(disk.server, "zk_serving"), "1")
        disk.filler.unlink()
        wait_until(lambda: not is_refusing(disk.server), "writes are taken again")
        client.create("/n0", VALUE)
        disk.acknowledged = 1
        equal(disk.server.stop(), 0, "exit code")
        disk.all_is_there()


def test_a_server_that_needs_much_memory_refuses_to_grow(shards):
    with FullDisk(shards, more={"limits.memory_bytes_max": MIB}) as disk:
        wait_until(lambda: is_refusing(disk.server), "writes are refused")
        with disk.server.client() as client:
            refuses(jute.QUOTA_EXCEEDED, client.create, "/n")
            equal(client.children("/"), ["zookeeper"])


def test_the_log_makes_room_for_itself(shards):
    """A snapshot elsewhere makes most of the log superfluous: writes go on, and nothing needs to be freed by hand."""
    with FullDisk(shards, log_only=True) as disk:
        waiting = disk.fill()
        disk.server.process.send_signal(signal.SIGUSR1)
        equal(waiting.reply().error, 0, "the write that waited")
        equal(disk.server.stop(), 0, "exit code")
        disk.acknowledged += 1
        disk.all_is_there()


class SmallDisks(Ensemble):
    """Three servers, each on a small disk with a file that can be removed."""

    def __init__(self, shards, more=None):
        super().__init__("corral", shards=shards, settings={**CALM, **SETTINGS, "ensemble.hold_ms": HOLD_MS, **(more or {})})
        for member in self.members:
            myid = member.directory / "data" / "myid"
            number = myid.read_text()
            mount(myid.parent)
            myid.write_text(number)

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


def refuses_clients(member):
    """Whether the server gives no sessions and says why."""
    told = four_letter_command(member.address, "mntr")
    return AWAY_LINE in told and "zk_disk_full\t1\n" in told and connected(member) is None


@pytest.mark.parametrize("leads", (False, True), ids=("follower", "leader"))
def test_clients_of_one_of_three_without_space_go_elsewhere(leads, shards, note):
    """A leader hands over. The others go on, and with space again the server has everything and serves, without a restart."""
    with SmallDisks(shards) as ensemble:
        full = ensemble.leader() if leads else ensemble.followers()[0]
        other, third = [member for member in ensemble.members if member is not full]
        for member in (other, third):
            ensemble.filler(member).unlink()
        there, client = full.client(timeout_ms=60_000), other.client(timeout_ms=60_000)
        equal(told_why(full)["zk_disk_full"], "0")
        written = 0
        while "writes wait" not in full.log():
            assert written < WRITES_MAX, "the disk does not become full"
            client = create(other, client, f"/n{written}", VALUE)
            written += 1
        closes(there.create, "/there")
        wait_until(lambda: refuses_clients(full), "clients are refused")
        equal(four_letter_command(full.address, "ruok"), "imok")
        wait_until(lambda: "the disk is full: client connections are closed" in full.log(), "the log states it")
        if leads:
            assert NO_SPACE_LINE in full.log(), full.log_tail()
            assert ensemble.leader() is not full, "a server without space leads"
        moved = other.client(timeout_ms=60_000, resume=there)
        equal(moved.session_id, there.session_id, "the session goes on elsewhere")
        moved.create("/elsewhere")
        ensemble.filler(full).unlink()
        back = wait_until(lambda: connected(full), "it serves again")
        back.sync()
        names = {f"n{number}" for number in range(written)} | {"elsewhere", "zookeeper"}
        equal(set(back.children("/")) - {"there"}, names, "znodes of the server that was full")
        back.create("/back")
        equal(told_why(full)["zk_disk_full"], "0")
        note(f"{written} writes")


def test_leadership_goes_to_servers_with_space_before_writes_are_refused(shards):
    with SmallDisks(shards, more={RESERVE: "true"}) as ensemble:
        for server in ensemble.members:
            ensemble.filler(server).unlink()
        client, full = ensemble.members[0].client(timeout_ms=60_000), []
        while len(full) < 2:
            full.append(ensemble.leader())
            leave(ensemble.filler(full[-1]).parent, ensemble.filler(full[-1]), TOO_LITTLE_BYTES)
            wait_until(lambda: SCARCE_LINE in full[-1].log() and ensemble.leader() not in full, "a server with space leads")
        client = create(ensemble.members[0], client, "/n", VALUE)
        last = ensemble.leader()
        leave(ensemble.filler(last).parent, ensemble.filler(last), TOO_LITTLE_BYTES)
        wait_until(lambda: any(map(is_refusing, ensemble.members)), "the leader refuses writes")
        refuses(jute.QUOTA_EXCEEDED, client.create, "/other")
        client.delete("/n")
