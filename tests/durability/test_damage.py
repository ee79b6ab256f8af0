"""Damaged snapshots: the server starts from what is whole, says what it did, and nothing acknowledged is missing. A damaged
record that was acknowledged, be it the last before a kill -9: it does not start, and changes nothing.
"""

import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from support import jute, log_files
from support.client import Closed
from support.expect import equal, refuses
from support.server import SMALL_LOG, Corral, binary
from support.wait import wait_until

MIB = 1 << 20
THROTTLED_OP = -127
# Snapshots and segments come and go while they are looked at.
BUSY = {
    "log.segment_bytes": 4 * MIB,
    "log.spare_segments_max": 1,
    "limits.frame_bytes_max": 1_000_000,
    "snapshot.txns_max": 50,
    "snapshot.interval_min_ms": 50,
    "snapshot.snapshots_retained": 1,
}
LOOKS, LOOK_WRITES = 10, 60
# A scrub a second, as fast as it can.
SCRUBS = {**SMALL_LOG, "scrub.interval_s": 1, "scrub.bytes_per_s_max": 1 << 40}
FIXTURES = Path(__file__).resolve().parent / "fixtures"


@pytest.fixture
def new_server(shards):
    """A function that makes a server, which is not started."""
    made = []

    def new(settings=SMALL_LOG):
        made.append(Corral(shards, settings=settings))
        return made[-1]

    yield new
    for server in made:
        server.dispose()


def snapshots(server):
    return sorted((server.directory / "data").glob("image-*.img"))


def damage(path):
    """Changes a byte of the first section, which begins behind the header's page."""
    data = bytearray(path.read_bytes())
    data[4096 + 100] ^= 0xFF
    path.write_bytes(data)


def look(server, *words):
    run = subprocess.run([binary(), *words, "data"], cwd=server.directory, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def session_of_work(server, *names):
    """Starts, writes one znode and stops, which leaves a snapshot; once for each name."""
    for name in names:
        server.start()
        with server.client() as client:
            client.create(f"/{name}", name.encode())
        equal(server.stop(), 0, "exit code")


@pytest.mark.parametrize("damaged", (1, 2))
def test_an_older_snapshot_or_the_log_alone_stands_in(damaged, new_server):
    server = new_server()
    session_of_work(server, "one", "two")
    older = snapshots(server)[0]
    for snapshot in snapshots(server)[-damaged:]:
        damage(snapshot)
    code, shown = look(server, "snapshot", "inspect")
    equal((code, "DAMAGED" in shown), (6, True), shown)
    before = len(server.log())
    server.start()
    with server.client() as client:
        equal(set(client.children("/")) - {"zookeeper"}, {"one", "two"}, "znodes")
    said = server.log()[before:]
    source = {
        1: f"the whole state comes from {older.name}, which is whole, and the log behind it",
        2: "2 damaged snapshots were passed over: the whole state comes from the log",
    }[damaged]
    for part in ("snapshot passed over", source):
        assert part in said, f"{part!r} is missing in\n{said}"
    assert "use an older snapshot" not in said, said
    equal(server.stop(), 0, "exit code")


def test_a_file_that_is_cut_off_under_a_running_server(new_server):
    """Its pages are gone: the server ends with a sentence and a code of its own, serves nothing of them, and starts again from an
    older snapshot and the log. A log segment alike, at the next write.
    """
    server = new_server()
    content = {f"n{number}": bytes([number]) * 20_000 for number in range(20)}

    def ends(paths, offset):
        equal(server.process.wait(60), 14, f"exit code:\n{server.log_tail()}")
        said = server.log_tail(3)
        assert any(f"{path.name}: the page at offset " in said for path in paths), said
        assert int(said.split("the page at offset ")[1].split()[0]) >= offset, said

    session_of_work(server, "one")
    server.start()
    with server.client() as client:
        for name, data in content.items():
            client.create(f"/{name}", data)
    equal(server.stop(), 0, "exit code")
    server.start()
    newest = snapshots(server)[-1]
    with server.client() as client:
        equal(client.get("/n7")[0], content["n7"])
        os.truncate(newest, 4096)
        with pytest.raises((OSError, Closed)):
            served = [client.get(f"/{name}")[0] == data for name, data in content.items()]
            pytest.fail(f"served: {served}")
    ends([newest], 4096)
    server.start()
    with server.client() as client:
        equal([client.get(f"/{name}")[0] for name in content], list(content.values()))
        # The next one may be made ahead of need.
        segments = {path: path.read_bytes() for path in (server.directory / "data").glob("log-*")}
        for segment in segments:
            os.truncate(segment, 4096)
        with pytest.raises((OSError, Closed)):
            for _ in range(20):
                client.create("/unacknowledged", b"x" * 5_000)
                client.delete("/unacknowledged")
            pytest.fail("written to pages that are not there")
    ends(segments, 4096)
    for segment, whole in segments.items():
        segment.write_bytes(whole)
    server.start()
    with server.client() as client:
        equal([client.get(f"/{name}")[0] for name in content], list(content.values()))


def scrubbed(server, words):
    before = server.log().count(words)
    wait_until(lambda: server.log().count(words) > before, words)


def test_what_a_scrub_cannot_read_is_not_damaged(new_server):
    """A snapshot that is served, an older one or a log segment that cannot be opened for a time: a server that runs alone goes on, and no
    file is put aside."""
    server = new_server(SCRUBS)
    session_of_work(server, "one", "two")
    server.start()
    data = server.directory / "data"
    with server.client() as client:
        older, served = snapshots(server)
        for path in (served, older, sorted(data.glob("log-*"))[0]):
            scrubbed(server, "scrub complete")
            kept = path.rename(data / "kept")
            # As for want of a descriptor or of memory: opening it fails.
            path.symlink_to(path.name)
            scrubbed(server, "scrub incomplete")
            said = server.log_tail(3)
            assert path.name in said and "Too many levels" in said, said
            equal(client.exists("/two") is not None, True)
            path.unlink()
            kept.rename(path)
        scrubbed(server, "scrub complete")
    assert "damaged" not in [path.name for path in data.iterdir()], "a file was put aside"
    equal(server.stop(), 0, "exit code")


def test_a_damaged_snapshot_that_cannot_be_put_aside_does_not_end_a_scrub(new_server):
    """It is reported once, and damage to the log is found all the same."""
    server = new_server({**SCRUBS, "log.segment_bytes": 4 * MIB})
    session_of_work(server, "one", "two")
    server.start()
    data = server.directory / "data"
    with server.client() as client:
        for number in range(10):
            client.create(f"/n{number}", b"x" * 900_000)
        (data / "damaged").write_bytes(b"a file where the directory is to be")
        damage(snapshots(server)[0])
        wait_until(lambda: "cannot be moved into the directory" in server.log(), "it is found")
        with open(sorted(data.glob("log-*"))[-3], "r+b") as file:
            file.seek(2 * MIB)
            file.write(b"XXXX")
        wait_until(lambda: "takes the place of the log" in server.log(), "the log is looked at")
        scrubbed(server, "scrub complete")
    equal(server.log().count("cannot be moved into the directory"), 1, "lines")
    equal(server.stop(), 0, "exit code")


def test_log_damage_that_is_found_while_a_snapshot_is_written(new_server):
    """That snapshot holds nothing of the damaged segment: another one takes the place of the log. A kill then loses nothing."""
    # One scrub while the snapshot waits, and none before both snapshots are written.
    server = new_server({**SCRUBS, "scrub.interval_s": 8, "log.segment_bytes": 4 * MIB})
    data = server.directory / "data"
    server.start()
    with server.client() as client:
        client.create("/n", b"first")
        # Where the snapshot is to be, nothing can be written: it is tried again in 10 s.
        zxid = client.exists("/n").mzxid
        blocks = [data / f"image-{zxid:016x}-{index:016x}.img.tmp" for index in range(20)]
        for block in blocks:
            block.mkdir()
        server.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: "the snapshot was not written" in server.log(), "it is tried in vain")
        for number in range(12):
            client.set("/n", bytes([number]) * 900_000)
        segment = sorted(data.glob("log-*"))[1]
        with open(segment, "r+b") as file:
            file.seek(2 * MIB)
            file.write(b"XXXX")
        wait_until(lambda: "takes the place of the log" in server.log(), "a scrub finds it")
        for block in blocks:
            block.rmdir()
        wait_until(lambda: server.log().count("snapshot written") >= 2, "another snapshot is written")
        wait_until(lambda: not segment.exists(), "the segment is let go of")
        equal(server.log().count("takes the place of the log"), 1, "scrubs that found it")
        server.kill()
    server.start()
    with server.client() as client:
        equal(client.get("/n")[0], bytes([11]) * 900_000)
    equal(server.stop(), 0, "exit code")


def test_a_directory_of_an_earlier_version_opens_and_a_lost_last_page_ends_the_start(new_server):
    """Written before there was a file DURABLE, with a snapshot and a log behind it, and killed. Then as any other: without that file
    the log would be cut where its last page is lost.
    """
    server = new_server()
    data = server.directory / "data"
    with tarfile.open(FIXTURES / "data-before-DURABLE.tar.xz") as fixture:
        fixture.extractall(server.directory, filter="data")
    data.chmod(0o750)
    for life in range(3):
        server.start()
        for words in ("Run `chmod 700", "their mode is now 600"):
            assert words in server.log(), "modes of files that others can read"
        equal((data / "DURABLE").stat().st_size, 2 * log_files.PAGE_BYTES)
        with server.client() as client:
            equal(client.get("/a/b")[0], b"second")
            equal([client.get(f"/a/n{number}")[0] for number in range(20)], [b"x" * (n * 37) for n in range(20)])
            client.create(f"/life-{life}", b"x" * 100)
            server.kill()
    equal(look(server, "log", "dump")[0], 0, "dumping the log")
    whole = {path: path.read_bytes() for path in data.glob("log-*")}
    last = log_files.lose_the_last_durable_page(data, pick=0)
    before = log_files.contents(data)
    code, shown = look(server, "log", "dump")
    equal((code, "the log is damaged" in shown), (6, True), shown[-500:])
    server.launch()
    equal(server.process.wait(60), 6, f"exit code:\n{server.log_tail()}")
    said = server.log_tail(3)
    assert "damaged at offset" in said and "a server that runs alone needs its backup" in said, said
    assert log_files.contents(data) == before, "something was changed"
    last.path.write_bytes(whole[last.path])
    server.start()
    with server.client() as client:
        client.exists("/life-2")


def test_a_directory_of_the_build_before_with_a_poisonous_acl_is_served(new_server):
    """An ACL of padded addresses in the snapshot, and one in the log with a multi of 28,000 checks behind it, at which that build
    ended again after each start."""
    server = new_server({**BUSY, "snapshot.txns_max": 1000})
    with tarfile.open(FIXTURES / "data-before-BOUNDED.tar.xz") as fixture:
        fixture.extractall(server.directory, filter="data")
    server.start()
    with server.client() as client:
        equal(set(client.children("/")) - {"zookeeper"}, {"poisonous", "also", "evaluated"}, "the multi was done as before")
        equal(len(client.get_acl("/also")[0]), 256)
        for user in ("bob", "eve"):
            client.auth("digest", f"{user}:pw".encode())
        checks = [(jute.CHECK, jute.check_body("/also"))] * 30_000
        refuses(THROTTLED_OP, client.multi, *checks)
        client.set("/poisonous", b"written", -1)
    equal(server.restart().client().get("/poisonous")[0], b"written")


def test_a_fresh_server_and_a_busy_one_are_looked_into(new_server):
    """While a server writes, trims and writes snapshots, the commands find a whole log and whole snapshots."""
    server = new_server(BUSY)
    server.start()
    with server.client(timeout_ms=60_000) as client:
        for number in range(LOOKS):
            for words in (("log", "dump"), ("snapshot", "inspect")):
                code, shown = look(server, *words)
                equal(code, 0, f"{' '.join(words)} of a busy server: {shown[-500:]}")
                assert "CANNOT BE READ" not in shown, shown[-500:]
            for at in range(LOOK_WRITES):
                client.send(jute.CREATE, jute.create_body(f"/n{number}-{at}", b"x" * 50_000))
        for _ in range(LOOKS * LOOK_WRITES):
            equal(client.reply().error, 0, "create")
    equal(server.stop(), 0, "exit code")
