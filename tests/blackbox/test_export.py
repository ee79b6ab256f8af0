"""`corral export zookeeper`: the way back. With Java and ZooKeeper, real ones start from it."""

import contextlib
import shutil
import threading

import pytest

from imports import scenario
from imports.commands import SETTINGS, WITH_SNAPSHOTS, command, expected, imported, run_import
from imports.record import RECORDINGS, Recorded
from support import http, jute
from support import server as servers
from support.expect import equal
from support.server import Corral
from support.wait import wait_until

VERSIONS = ("3.9.4", "3.8.0")


def export(target, *arguments):
    return command("export", "zookeeper", target, *arguments)


@pytest.fixture
def server(shards):
    """Holds what a ZooKeeper had, and more, above a snapshot of its own and in its log."""
    server = Corral(shards, settings=SETTINGS)
    imported(RECORDINGS / WITH_SNAPSHOTS, server)
    server.start()
    with server.client() as client:
        client.create("/since", b"new")
        client.set("/app", b"changed")
    server.kill()
    yield server
    server.dispose()


def tree_of(server):
    with server.client() as client:
        return scenario.tree(client)


def exported(server, target):
    done = export(target, "--data-dir", server.directory / "data")
    equal(done.returncode, 0, done.stderr)
    assert "znodes with a TTL" in done.stdout, done.stdout
    return done.stdout


def test_out_and_in_again(server, tmp_path, shards):
    exported(server, tmp_path / "out")
    again = Corral(shards, settings=SETTINGS)
    told = imported(tmp_path / "out", again)
    assert "digests       1 compared, all equal" in told, told
    try:
        equal(tree_of(again.start()), tree_of(server.start()))
    finally:
        again.dispose()


@pytest.mark.parametrize("version", VERSIONS)
def test_zookeeper_starts_from_it_and_the_session_goes_on(version, server, tmp_path):
    if version not in servers.class_paths():
        pytest.skip(f"ZooKeeper {version} is not installed")
    zookeeper = Recorded(version, None, 100_000, ("-Dzookeeper.extendedTypesEnabled=true",))
    exported(server, zookeeper.directory / "data")
    try:
        zookeeper.start()
        equal(tree_of(zookeeper), tree_of(server.start()))
        expect = expected(WITH_SNAPSHOTS)
        client = scenario.Resumed(zookeeper.address, expect["session"], bytes.fromhex(expect["password"]))
        equal(client.session_id, expect["session"])
        equal(client.get("/since")[0], b"new")
        path, stat = client.create2("/later", b"", jute.EPHEMERAL)
        equal((path, stat.ephemeral_owner), ("/later", expect["session"]))
        assert "Digests are not matching" not in zookeeper.log() and "digest mismatch" not in zookeeper.log(), zookeeper.log_tail(50)
        client.close()
    finally:
        zookeeper.dispose()


def test_mistakes_are_explained(server, tmp_path):
    data = server.directory / "data"
    (tmp_path / "out/version-2").mkdir(parents=True)
    (tmp_path / "out/version-2/snapshot.0").write_bytes(b"x")
    done = export(tmp_path / "out", "--data-dir", data)
    equal((done.returncode, "holds snapshot.0: choose another directory" in done.stderr), (5, True))
    done = export(tmp_path / "new", "--data-dir", tmp_path / "nothing")
    equal((done.returncode, "it holds no data" in done.stderr), (7, True), done.stderr)
    server.start()
    done = export(tmp_path / "new", "--data-dir", data)
    equal(done.returncode, 4, "a server runs on it")
    equal(sorted(path.name for path in tmp_path.iterdir()), ["out"])
    done = run_import(tmp_path / "out", "--data-dir", tmp_path / "new")
    equal(done.returncode, 6, "a file of one byte is no snapshot")


def test_a_server_that_runs_sends_its_state(server, tmp_path):
    """While a client writes. What was acknowledged before is there, and the snapshot is that of one zxid."""
    address, token = http.admin(server, tmp_path)
    server.start()
    url, proof = f"http://{address}/commands/snapshot", http.PROOF
    wait_until(lambda: http.reaches(url), "it listens")
    equal(http.ask(url).status, 401)
    stop, written = threading.Event(), []

    def write():
        with server.client() as client:
            while not stop.is_set():
                written.append(client.create("/since/n-", b"x", jute.SEQUENTIAL))

    with contextlib.ExitStack() as stack:
        thread = threading.Thread(target=write)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        wait_until(lambda: len(written) > 20, "it is written")
        for number in range(3):
            before = list(written)
            answer = http.ask(url, headers=proof)
            equal((answer.status, answer.headers["Content-Type"]), (200, "application/octet-stream"), answer.text[:200])
            equal(int(answer.headers["snapshot_size"]), len(answer.body))
            zxid = int(answer.headers["last_zxid"], 16)
            out = tmp_path / f"out{number}/version-2"
            out.mkdir(parents=True)
            (out / f"snapshot.{zxid:x}").write_bytes(answer.body)
            done = run_import(out.parent, "--data-dir", tmp_path / f"data{number}")
            equal(done.returncode, 0, done.stderr)
            assert "digests       1 compared, all equal" in done.stdout and f"last zxid     {zxid:#x}\n" in done.stdout, done.stdout
            equal(set(before) - created(tmp_path / f"data{number}"), set(), "what was acknowledged")
    got = command("snapshot", "get", address, "--token-file", token, "--out", tmp_path / "got")
    equal(got.returncode, 0, got.stderr)
    (file,) = (tmp_path / "got/version-2").iterdir()
    assert got.stdout.startswith(f"{file}: ") and f"zxid 0x{file.suffix[1:]}, in " in got.stdout, got.stdout
    done = run_import(tmp_path / "got", "--data-dir", tmp_path / "data-got")
    equal((done.returncode, set(written) - created(tmp_path / "data-got")), (0, set()), done.stderr)
    wrong = tmp_path / "wrong"
    wrong.write_text("another token\n")
    got = command("snapshot", "get", address, "--token-file", wrong, "--out", tmp_path / "no")
    equal((got.returncode, "status 401" in got.stderr and "Not authenticated" in got.stderr), (1, True), got.stderr)
    short = http.ask(url + "?streaming=false", headers=proof)
    equal((short.status, short.json()), (200, {"command": "snapshot", "error": None}))
    assert int(short.headers["last_zxid"], 16) >= zxid


def created(data_dir):
    """The znodes below /since of a data directory."""
    server = Corral()
    shutil.copytree(data_dir, server.directory / "data")
    try:
        with server.start().client() as client:
            return {f"/since/{name}" for name in client.children("/since")}
    finally:
        server.dispose()
