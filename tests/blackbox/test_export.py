"""`corral export zookeeper`: the way back. With Java and ZooKeeper, real ones start from it."""

import pytest

from imports import scenario
from imports.commands import SETTINGS, WITH_SNAPSHOTS, command, expected, imported, run_import
from imports.record import RECORDINGS, Recorded
from support import jute
from support import server as servers
from support.expect import equal
from support.server import Corral

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
