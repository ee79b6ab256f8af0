"""A disk that is full: writes wait, reads go on, and SIGTERM ends the server all the same.

Everything acknowledged must be there after a restart, whatever was not must not have been answered.
"""

import os
import signal
import subprocess
import time

from durability.disks import DISK_BYTES, FILLER_BYTES, MIB, NO_SPACE_CODE, SETTINGS, VALUE, mount, own_mounts  # noqa: F401 - a fixture
from support import jute
from support.client import four_letter_command, words_table
from support.expect import equal
from support.server import Corral
from support.wait import wait_until

# What the server waits for at a stop.
STOP_LIMIT_S = 5
POLL_S = 0.05
FULL = {"zk_disk_full": "1", "zk_serving": "0", "zk_not_serving_reason": "disk-full"}


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


def test_a_second_sigterm_ends_the_waiting(shards, note):
    with FullDisk(shards) as disk:
        disk.fill()
        disk.server.terminate()
        wait_until(lambda: "stopping: " in disk.server.log(), "the first is heard")
        disk.server.terminate()
        took = disk.ends(NO_SPACE_CODE, "of a stop that was asked for twice")
        disk.all_is_there()
        note(f"after {took:.1f} s")


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


def test_no_client_and_no_space(shards):
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
