"""`corral archive`, and `restore` to a moment of it."""

import shutil
import signal
import subprocess
from datetime import UTC, datetime

import pytest

from ensemble.cluster import CALM, Ensemble
from imports.commands import command
from support import jute
from support.age import PUBLIC, SECRET
from support.expect import equal
from support.http import admin
from support.object_store import object_store
from support.server import Corral, binary
from support.wait import wait_until

ROOT = {"/zookeeper"}


class History:
    """What was acknowledged: each path with the zxids at which it began and ended to be there."""

    def __init__(self):
        self.nodes = {}
        self.zxids = []

    def write(self, client, count):
        """Creates, and deletes each third."""
        for _ in range(count):
            path, stat = client.create2("/n-", b"x" * 10, jute.SEQUENTIAL)
            self.nodes[path] = [stat.czxid, None, stat.ctime]
            self.zxids.append(stat.czxid)
            if len(self.nodes) % 3 == 0:
                client.delete(path)
                self.nodes[path][1] = client.zxid
                self.zxids.append(client.zxid)

    def at(self, zxid):
        return {path for path, (begin, end, _) in self.nodes.items() if begin <= zxid and (end is None or zxid < end)}


@pytest.fixture
def server(shards):
    server = Corral(shards)
    yield server
    server.dispose()


def archive(address, token, to, *arguments):
    done = command("archive", address, "--token-file", token, "--to", to, "--once", *arguments)
    equal(done.returncode, 0, done.stderr)
    return done.stdout


def chains(to):
    return sorted(to.iterdir())


def utc(ms):
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}"


def restored(to, shards, *arguments):
    """The paths on a server that runs on what was restored."""
    server = Corral(shards)
    try:
        done = command("restore", to, "--data-dir", server.directory / "data", *arguments)
        equal(done.returncode, 0, done.stderr)
        with server.start().client() as client:
            return {f"/{name}" for name in client.children("/")} - ROOT
    finally:
        server.dispose()


def test_every_acknowledged_moment_comes_back(server, tmp_path, shards):
    """Also the last one before SIGTERM, with bases between."""
    (address, token), to, history = admin(server, tmp_path), tmp_path / "archive", History()
    server.start()
    running = subprocess.Popen(
        [binary(), "archive", address, "--token-file", token, "--to", to, "--every", "1", "--base-every", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: list(to.glob("*/base-*.zst")), "the first base is there")
    with server.client() as client:
        for _ in range(3):
            history.write(client, 40)
            known = len(list(to.glob("*/*.zst")))
            wait_until(lambda known=known: len(list(to.glob("*/*.zst"))) > known, "more is shipped")
        history.write(client, 40)
    running.send_signal(signal.SIGTERM)
    told = running.communicate()[0]
    equal(running.returncode, 0, told)
    assert int(told.splitlines()[-1].split("the archive ends at zxid ")[1].split(",")[0], 16) >= history.zxids[-1], told
    assert len(chains(to)) > 1 and told.count(": base, zxid ") == len(chains(to)), told
    for zxid in [*history.zxids[::40], history.zxids[-1]]:
        equal(restored(to, shards, "--to-zxid", hex(zxid)), history.at(zxid), hex(zxid))
    equal(restored(to, shards), history.at(history.zxids[-1]))
    done = command("verify", to)
    equal((done.returncode, done.stdout.count("and lead to the next base")), (0, len(chains(to)) - 1), done.stdout + done.stderr)


def test_it_goes_on_and_begins_again_with_another_history(server, tmp_path, shards):
    (address, token), to, history = admin(server, tmp_path), tmp_path / "archive", History()
    server.start()
    for _ in range(3):
        with server.client() as client:
            history.write(client, 20)
        archive(address, token, to)
        server.stop()
        server.start()
    equal(len(chains(to)), 1)
    middle, last = history.zxids[30], history.zxids[-1]
    equal(restored(to, shards), history.at(last))
    # The same server with an earlier state, in which the same log indices come again.
    server.stop()
    shutil.rmtree(server.directory / "data")
    equal(command("restore", to, "--to-zxid", hex(middle), "--data-dir", server.directory / "data").returncode, 0)
    server.start()
    for _ in range(2):
        assert "the server's log is not known to go on" in archive(address, token, to) or len(chains(to)) == 2
    with server.client() as client:
        client.create("/later")
        later = client.zxid
    archive(address, token, to)
    equal(len(chains(to)), 2)
    equal(restored(to, shards, "--to-zxid", hex(last)), history.at(last))
    equal(restored(to, shards, "--to-zxid", hex(later)), history.at(middle) | {"/later"})
    equal(restored(to / chains(to)[0].name, shards), history.at(last))
    begun = datetime.strptime(chains(to)[1].name[:19], "%Y%m%dT%H%M%S.%f").replace(tzinfo=UTC)
    done = command("restore", to, "--dry-run", "--to-time", utc(round(begun.timestamp() * 1000) - 1))
    equal((done.returncode, "has nothing between" in done.stderr), (3, True), done.stdout + done.stderr)
    equal(command("verify", to).returncode, 0)


def test_histories_are_not_mixed(server, tmp_path, shards):
    """Two restores of one backup give logs with the same indices and zxids. The newest history counts."""
    (address, token), to, data = admin(server, tmp_path), tmp_path / "archive", server.directory / "data"
    server.start()
    with server.client() as client:
        client.create("/before")
    archive(address, token, to)
    server.stop()
    backup, zxids = tmp_path / "backup", []
    equal(command("backup", "--data-dir", data, "--out", backup).returncode, 0)
    for name in ("/one", "/two"):
        shutil.rmtree(data)
        equal(command("restore", backup, "--data-dir", data).returncode, 0)
        server.start()
        archive(address, token, to)
        with server.client() as client:
            client.create(name)
            zxids.append(client.zxid)
        archive(address, token, to)
        server.stop()
    _, one, two = chains(to)
    equal(zxids[0], zxids[1])
    equal(restored(to, shards, "--to-zxid", hex(zxids[0])), {"/before", "/two"})
    equal(restored(one, shards, "--to-zxid", hex(zxids[0])), {"/before", "/one"})
    (log,) = one.glob("log-*")
    log.unlink()
    (other,) = two.glob("log-*")
    shutil.copy(other, one)
    done = command("verify", to)
    equal((done.returncode, "another log" in done.stderr), (6, True), done.stdout + done.stderr)


def test_a_deleted_chain_is_followed_by_a_base(server, tmp_path):
    (address, token), to = admin(server, tmp_path), tmp_path / "archive"
    server.start()
    running = subprocess.Popen([binary(), "archive", address, "--token-file", token, "--to", to, "--every", "1"])
    for name in ("/a", "/b"):
        wait_until(lambda: list(to.glob("*/base-*.zst")), "there is a base")
        shutil.rmtree(chains(to)[0])
        with server.client() as client:
            client.create(name)
    wait_until(lambda: list(to.glob("*/base-*.zst")), "there is a base again")
    server.stop()
    running.send_signal(signal.SIGTERM)
    equal(running.wait(), 0)
    equal(command("verify", to).returncode, 0)
    done = command("archive", address, "--token-file", token, "--to", server.directory / "data", "--once")
    equal((done.returncode, "of its own" in done.stderr), (3, True), done.stderr)


def test_a_time(server, tmp_path, shards):
    (address, token), to, history = admin(server, tmp_path), tmp_path / "archive", History()
    server.start()
    archive(address, token, to)
    with server.client() as client:
        history.write(client, 60)
    archive(address, token, to)
    times = sorted({time for _, _, time in history.nodes.values()})
    middle = times[len(times) // 2]
    # Deletes have no time of their own: what was created up to then, and nothing created later.
    found = restored(to, shards, "--to-time", utc(middle))
    equal({path for path in history.nodes if history.nodes[path][2] > middle} & found, set())
    equal({path for path, (_, end, time) in history.nodes.items() if end is None and time <= middle} - found, set())
    for max_age, code in [(0, 1), (86_400, 0)]:
        equal(command("verify", to, "--max-age", max_age).returncode, code)
    for moment, code in [("2000-01-01", 3), ("2100-01-01", 0)]:
        done = command("restore", to, "--to-time", moment, "--dry-run")
        equal(done.returncode, code, done.stdout + done.stderr)


def test_damage_and_gaps_are_found(server, tmp_path):
    (address, token), to, history = admin(server, tmp_path), tmp_path / "archive", History()
    server.start()
    with server.client() as client:
        for _ in range(4):
            history.write(client, 9)
            archive(address, token, to)
    base, *logs = sorted(chains(to)[0].iterdir())
    equal(len(logs), 3)
    for file in (base, *logs):
        content = file.read_bytes()
        for damaged in (content[:-1], content[: len(content) // 2], bytes([content[0] ^ 1]) + content[1:], b"", logs[0].read_bytes() * 2):
            file.write_bytes(damaged)
            done = command("verify", to)
            assert done.returncode in (5, 6) and file.name in done.stderr, (done.returncode, done.stderr)
            equal(command("restore", to, "--data-dir", tmp_path / "new").returncode, done.returncode)
        file.write_bytes(content)
    logs[1].rename(tmp_path / "away")
    done = command("restore", to, "--to-zxid", hex(history.zxids[-1]), "--dry-run")
    equal((done.returncode, "lacks the entries" in done.stderr), (6, True), done.stderr)
    equal((command("verify", to).returncode, command("restore", to, "--dry-run").returncode), (6, 6))
    equal(command("restore", to, "--to-zxid", hex(history.zxids[12]), "--dry-run").returncode, 0)
    # A copy of another file in its place.
    shutil.copy(logs[0], logs[1])
    equal(command("verify", to).returncode, 6)
    shutil.copy(tmp_path / "away", logs[1])
    done = command("restore", to, "--to-zxid", hex(history.zxids[-1] + 1), "--dry-run")
    equal((done.returncode, "ends before, with zxid" in done.stderr), (3, True), done.stderr)
    equal(command("restore", to, "--data-dir", tmp_path / "new").returncode, 0)
    chains(to)[0].rename(to / (chains(to)[0].name[:-1] + "f"))
    equal((command("verify", to).returncode, command("restore", to, "--dry-run").returncode), (6, 6))


def test_encrypted_in_an_object_store(server, tmp_path, shards, monkeypatch):
    (address, token), key, history = admin(server, tmp_path), tmp_path / "key", History()
    key.write_text(f"{SECRET}\n")
    server.start()
    with object_store(monkeypatch):
        for _ in range(2):
            with server.client() as client:
                history.write(client, 9)
            archive(address, token, "s3://backups/a", "--encrypt", PUBLIC)
        equal(restored("s3://backups/a", shards, "--identity", key), history.at(history.zxids[-1]))
        equal(command("restore", "s3://backups/a", "--dry-run").returncode, 3)
        done = command("verify", "s3://backups/a", "--identity", key)
        equal((done.returncode, "whole         yes" in done.stdout), (0, True), done.stderr)
        done = command("log", "dump", "s3://backups/a", "--identity", key)
        equal([zxid for zxid in map(hex, history.zxids[-12:]) if f"    {zxid} " not in done.stdout], [], done.stdout + done.stderr)


def test_entries_that_were_never_committed_are_not_in_it(tmp_path, shards):
    """A leader writes alone, and follows later with these entries in its log before the ones that replaced them."""
    # A leader without followers leads and serves until its log has been archived, however slow the host is.
    settings = {**CALM, "ensemble.election_ms": 3000, "ensemble.hold_ms": 600_000}
    ensemble, history = Ensemble("corral", shards=shards, settings=settings), History()
    try:
        admins = {member: admin(member, member.directory) for member in ensemble.members}
        ensemble.start()
        leader, followers = ensemble.leader(), ensemble.followers()
        to = tmp_path / "archive"
        archive(*admins[leader], to)
        with followers[0].client() as client:
            history.write(client, 9)
        with leader.client() as client:
            client.sync("/")
            archive(*admins[leader], to)
            for member in followers:
                member.kill()
            for number in range(9):
                client.send(jute.CREATE, jute.create_body(f"/lost-{number}", b"", jute.PERSISTENT, jute.OPEN_ACL))
            wait_until(lambda: "/lost-8" in command("log", "dump", leader.directory / "data").stdout, "its log has them")
            archive(*admins[leader], to)
            leader.kill()
        for member in followers:
            member.launch()
        wait_until(lambda: all(member.is_serving() for member in followers), "another leads")
        with followers[0].client() as client:
            history.write(client, 9)
        leader.start()
        with leader.client() as client:
            client.sync("/")
        archive(*admins[leader], to)
        equal(len(chains(to)), 1)
        assert "/lost-8" in command("log", "dump", leader.directory / "data").stdout
        for zxid in history.zxids[::5]:
            equal(restored(to, shards, "--to-zxid", hex(zxid)), history.at(zxid), hex(zxid))
        equal(restored(to, shards), history.at(history.zxids[-1]))
    finally:
        ensemble.dispose()
