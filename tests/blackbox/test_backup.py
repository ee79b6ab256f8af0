"""`corral backup`, `restore` and `verify`."""

import json
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from ensemble.cluster import Ensemble, empty, voters
from imports import scenario
from imports.commands import command
from imports.record import RECORDINGS
from support import jute
from support.age import PUBLIC, SECRET
from support.expect import equal
from support.http import admin
from support.object_store import object_store
from support.server import Corral, binary
from support.wait import free_port, wait_until


def backup(*arguments):
    done = command("backup", *arguments)
    equal(done.returncode, 0, done.stderr)
    return done.stdout


@pytest.fixture
def server(shards):
    server = Corral(shards)
    yield server
    server.dispose()


@pytest.fixture
def stopped(server):
    """A data directory with some of everything."""
    server.start()
    with server.client() as client:
        client.create("/a", b"x" * 100)
        client.create("/a/b", b"")
        client.create("/s-", b"y", jute.SEQUENTIAL)
    server.stop()
    return server.directory / "data"


def restored(source, shards, *arguments):
    """A server that runs on what was restored."""
    server = Corral(shards)
    done = command("restore", source, "--data-dir", server.directory / "data", *arguments)
    equal(done.returncode, 0, done.stderr)
    return server.start()


def test_a_backup_under_load_is_the_state_of_one_zxid(server, tmp_path, shards):
    """Everything acknowledged before is there, and nothing of a later zxid. The writer goes on meanwhile."""
    address, token = admin(server, tmp_path)
    server.start()
    stop, written = threading.Event(), {}

    def write():
        with server.client() as client:
            while not stop.is_set():
                path, stat = client.create2("/n-", b"x", jute.SEQUENTIAL)
                written[path] = stat.czxid

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: len(written) > 20, "it is written")
        taken = []
        for _ in range(3):
            before = len(written)
            told = backup(address, "--token-file", token, "--out", tmp_path)
            taken.append((before, told.split(": ")[0], int(told.split("zxid 0x")[1].split(",")[0], 16)))
    finally:
        stop.set()
        writer.join()
    for before, file, zxid in taken:
        again = restored(file, shards)
        try:
            with again.client() as client:
                found = {f"/{name}" for name in client.children("/")} - {"/zookeeper"}
        finally:
            again.dispose()
        equal(found, {path for path, czxid in written.items() if czxid <= zxid})
        assert len(found) >= before, (len(found), before)


def test_a_session_goes_on(server, tmp_path, shards):
    address, token = admin(server, tmp_path)
    server.start()
    client = server.client()
    client.create("/mine", b"", jute.EPHEMERAL)
    backup(address, "--token-file", token, "--out", tmp_path / "b.zst")
    session, password = client.session_id, client.password
    server.kill()
    again = restored(tmp_path / "b.zst", shards)
    try:
        resumed = scenario.Resumed(again.address, session, password)
        equal((resumed.session_id, resumed.get("/mine")[1].ephemeral_owner), (session, session))
        resumed.close()
    finally:
        again.dispose()


def test_other_programs_undo_it(stopped, tmp_path):
    """`zstd`, and the hash of what it gives."""
    backup("--data-dir", stopped, "--out", tmp_path / "b.zst")
    if not shutil.which("zstd"):
        pytest.skip("zstd is not installed")
    plain = tmp_path / "plain"
    with open(plain, "wb") as out:
        subprocess.run(["zstd", "-dc", tmp_path / "b.zst"], stdout=out, check=True)
    content = plain.read_bytes()
    equal(content[:8], b"CORRALBK")
    digest = subprocess.run(["sha256sum"], input=content[:-32], capture_output=True, check=True).stdout
    equal(digest.split()[0].decode(), content[-32:].hex())
    equal(command("verify", plain).returncode, 0)


def test_encrypted_for_a_key(stopped, tmp_path, shards):
    key, file = tmp_path / "key", tmp_path / "b"
    key.write_text(f"# public key: {PUBLIC}\n{SECRET}\n")
    backup("--data-dir", stopped, "--out", file, "--encrypt", PUBLIC)
    equal(file.read_bytes()[:22], b"age-encryption.org/v1\n")
    done = command("verify", file)
    equal((done.returncode, "is encrypted: give the key" in done.stderr), (3, True), done.stderr)
    done = command("verify", file, "--identity", key)
    equal((done.returncode, "whole         yes" in done.stdout), (0, True), done.stderr)
    again = restored(file, shards, "--identity", key)
    try:
        with again.client() as client:
            equal(client.get("/a")[0], b"x" * 100)
    finally:
        again.dispose()


def test_to_an_object_store_and_back(stopped, tmp_path, monkeypatch):
    """Of a backup that fails no object appears."""
    with object_store(monkeypatch):
        backup("--data-dir", stopped, "--out", "s3://backups/a/b.zst")
        done = command("restore", "s3://backups/a/b.zst", "--data-dir", tmp_path / "new")
        equal(done.returncode, 0, done.stderr)
        done = command("backup", "--data-dir", stopped, "--out", "s3://backups/a/b.zst")
        equal((done.returncode, "it is there already" in done.stderr), (7, True), done.stderr)
        equal(command("backup", "--data-dir", tmp_path / "nothing", "--out", "s3://backups/no").returncode, 7)
        for source, code in [("s3://backups/no", "NoSuchKey"), ("s3://missing/b", "NoSuchBucket"), ("s3://backups/", "names no object")]:
            done = command("verify", source)
            equal((done.returncode, code in done.stderr), (7, True), done.stderr)


def test_what_is_not_whole_is_not_restored(stopped, tmp_path):
    backup("--data-dir", stopped, "--out", tmp_path / "b.zst")
    whole = (tmp_path / "b.zst").read_bytes()
    damaged = tmp_path / "damaged.zst"
    for content, code in [(whole[:-1], 6), (whole[: len(whole) // 2], 6), (whole + b"x", 6), (b"", 5), (b"x" * 200, 5)]:
        damaged.write_bytes(content)
        equal(command("verify", damaged).returncode, code, content[-40:])
        done = command("restore", damaged, "--data-dir", tmp_path / "new")
        equal((done.returncode, done.stderr.startswith(f"corral: {damaged}: ")), (code, True), done.stderr)
        done = command("serve", "--data-dir", tmp_path / "new")
        equal((done.returncode, "did not finish" in done.stdout + done.stderr), (5, True), done.stderr)
        equal(command("verify", tmp_path / "new").returncode, 5, "it is not whole")
    done = command("restore", tmp_path / "b.zst", "--data-dir", tmp_path / "new")
    equal(done.returncode, 0, done.stderr)


def test_a_killed_restore_is_done_again(stopped, tmp_path):
    """Half of the backup has come when it is killed."""
    whole = backup_bytes(stopped)
    target = tmp_path / "new"
    half = subprocess.Popen([binary(), "restore", "-", "--data-dir", target], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    half.stdin.write(whole[: len(whole) // 2])
    half.stdin.flush()
    wait_until(lambda: (target / "OWNER").exists(), "it has begun")
    half.kill()
    half.communicate()
    done = command("serve", "--data-dir", target)
    equal(done.returncode, 5, done.stderr)
    done = subprocess.run([binary(), "restore", "-", "--data-dir", target], input=whole, capture_output=True)
    equal((done.returncode, b"next: corral serve" in done.stdout), (0, True), done.stderr)


def backup_bytes(data_dir):
    done = subprocess.run([binary(), "backup", "--data-dir", data_dir, "--out", "-"], capture_output=True)
    equal(done.returncode, 0, done.stderr)
    return done.stdout


def test_mistakes_are_explained(stopped, tmp_path):
    out = tmp_path / "b.zst"
    backup("--data-dir", stopped, "--out", out)
    before = out.read_bytes()
    done = command("backup", "--data-dir", stopped, "--out", out)
    equal((done.returncode, "it is there already" in done.stderr), (3, True), done.stderr)
    equal(out.read_bytes(), before)
    done = command("restore", out, "--data-dir", stopped)
    equal((done.returncode, "holds data" in done.stderr), (5, True), done.stderr)
    token = tmp_path / "token"
    token.write_text("a token")
    done = command("backup", f"127.0.0.1:{free_port()}", "--token-file", token, "--out", tmp_path / "no")
    equal((done.returncode, "not reached" in done.stderr), (1, True), done.stderr)
    done = command("backup", "--out", tmp_path / "no")
    equal((done.returncode, "--token-file" in done.stderr), (2, True), done.stderr)
    done = command("backup", "--data-dir", stopped, "--out", tmp_path / "no", "--encrypt", "age1x")
    equal((done.returncode, "age-keygen" in done.stderr), (2, True), done.stderr)
    equal(sorted(path.name for path in tmp_path.iterdir()), ["b.zst", "token"])
    done = command("restore", out, "--dry-run")
    equal((done.returncode, "nothing was written" in done.stdout), (0, True), done.stderr)


def test_a_damaged_directory_is_not_whole(stopped):
    equal(command("verify", stopped).returncode, 0)
    (snapshot,) = stopped.glob("image-*")
    shown = json.loads(command("snapshot", "inspect", stopped, "--json").stdout)
    equal((shown["file"], shown["znodes"], {part["is_whole"] for part in shown["sections"]}), (snapshot.name, 7, {True}))
    with open(snapshot, "r+b") as file:
        file.seek(-10, 2)
        file.write(b"\xff")
    done = command("verify", stopped)
    equal((done.returncode, "DAMAGED" in done.stdout), (6, True), done.stdout)
    done = command("snapshot", "inspect", stopped, "--json")
    equal((done.returncode, list(json.loads(done.stdout))), (6, ["error", "file"]), done.stderr)


def test_the_difference_of_two_states(server, tmp_path):
    first, second = tmp_path / "a.zst", tmp_path / "b.zst"
    server.start()
    with server.client() as client:
        for path in ("/same", "/same size", "/set", "/gone", "/acl"):
            client.create(path, b"1")
    server.stop()
    backup("--data-dir", server.directory / "data", "--out", first)
    server.start()
    with server.client() as client:
        client.set("/set", b"22")
        client.set("/same size", b"2")
        client.delete("/gone")
        client.create("/new", b"")
        client.set_acl("/acl", ((jute.READ, "world", "anyone"), (jute.ALL, "ip", "127.0.0.1")))
    server.stop()
    backup("--data-dir", server.directory / "data", "--out", second)
    done = command("snapshot", "diff", first, second, "--data-only")
    equal(
        (done.returncode, set(done.stdout.splitlines())),
        (
            1,
            {
                "~ /set (bytes 1 -> 2)",
                "~ /same size (other bytes, 1 as before)",
                "- /gone",
                "+ /new",
                "~ /acl (acl_entries 1 -> 2)",
                f"A is {first}, zxid 0x100000006",
                f"B is {second}, zxid 0x200000006",
                "created 1, deleted 1, changed 3, equal 5",
            },
        ),
        done.stderr,
    )
    done = command("snapshot", "diff", first, second, "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    (changed,) = [line for line in found if line.get("path") == "/set"]
    equal((changed["kind"], changed["difference"], changed["changes"]["version"]), ("znode", "changed", [0, 1]))
    (session,) = [line for line in found if line["kind"] == "session"]
    equal((session["difference"], found[-1]["kind"]), ("created", "end"))
    equal(command("snapshot", "diff", first, first).returncode, 0)
    data = server.directory / "data"
    done = command("snapshot", "diff", second, data)
    equal((done.returncode, "without the log behind it" in done.stdout), (0, True), "the directory has a snapshot of all")
    copy = shutil.copy(max(data.glob("image-*")), tmp_path)
    equal(command("snapshot", "diff", second, copy).returncode, 0)
    Path(copy).write_bytes(b"x" + Path(copy).read_bytes()[1:])
    done = command("snapshot", "diff", second, copy)
    equal((done.returncode, done.stderr.startswith("corral: B: ")), (6, True), done.stderr)


def test_an_ensemble_is_restored(shards):
    """The backup of a follower becomes the first server. The others take it over, and later writes are gone."""
    ensemble = Ensemble("corral", shards=shards)
    try:
        first, *others = ensemble.members
        addresses = [admin(member, member.directory) for member in ensemble.members]
        ensemble.start()
        with first.client() as client:
            client.create("/kept", b"1")
        for member, (address, token) in zip(ensemble.members, addresses, strict=True):
            with member.client() as client:
                client.sync("/")
            backup(address, "--token-file", token, "--out", member.directory / "b.zst")
        with first.client() as client:
            client.create("/later", b"2")
        for member in ensemble.members:
            member.stop()
        forgotten = others[1]
        for member in (first, others[0]):
            empty(member)
        done = command(
            "restore", others[0].directory / "b.zst", "--config", first.directory / "zoo.cfg", "--data-dir", first.directory / "data"
        )
        equal(done.returncode, 0, done.stderr)
        for member in ensemble.members:
            member.launch()
        equal(forgotten.process.wait(60), 5, "its data are of before the restore")
        empty(forgotten)
        forgotten.launch()
        wait_until(lambda: voters(first) == "3", "all vote")
        for member in others:
            wait_until(member.is_serving, "it serves")
            with member.client() as client:
                client.sync("/")
                equal({"kept", "later"} & set(client.children("/")), {"kept"})
    finally:
        ensemble.dispose()


def test_recordings_of_zookeeper_survive_it(tmp_path, shards):
    """Import, backup, restore: no znode differs."""
    source = Corral(shards)
    try:
        done = command("import", "zookeeper", RECORDINGS / "3.9.4", "--data-dir", source.directory / "data")
        equal(done.returncode, 0, done.stderr)
        backup("--data-dir", source.directory / "data", "--out", tmp_path / "b.zst")
        again = restored(tmp_path / "b.zst", shards)
        try:
            source.start()
            with source.client() as one, again.client() as two:
                equal(scenario.tree(two), scenario.tree(one))
        finally:
            again.dispose()
    finally:
        source.dispose()
