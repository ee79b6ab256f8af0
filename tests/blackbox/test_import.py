"""`corral import zookeeper`, on directories that real ZooKeepers have written (tests/imports/record.py)."""

import os
import re
import shutil

import pytest

from ensemble.cluster import Ensemble, says, voters
from imports import scenario
from imports.commands import SETTINGS, WITH_SNAPSHOTS, command, expected, imported, run_import
from imports.record import RECORDINGS
from support import jute
from support.expect import equal
from support.server import Corral
from support.wait import wait_until

NAMES = sorted(directory.name for directory in RECORDINGS.iterdir())


@pytest.fixture
def server(shards):
    server = Corral(shards, settings=SETTINGS)
    yield server
    server.dispose()


@pytest.fixture
def copy(tmp_path):
    """Makes a copy of a recording, which a test may change."""
    return lambda name: shutil.copytree(RECORDINGS / name, tmp_path / "source") / "version-2"


def check(server, expect, but=()):
    """The server has the tree `but` for these znodes, and the client that held the session goes on with it."""
    with server.client() as reader:
        found, wanted = scenario.tree(reader), expect["tree"]
        equal({path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path)}, set(but))
    with scenario.Resumed(server.address, expect["session"], bytes.fromhex(expect["password"])) as client:
        equal(client.session_id, expect["session"])
        equal(client.ephemerals(), [path for path in expect["tree"] if "held" in path])
        path, stat = client.create2("/app/item-", b"", jute.SEQUENTIAL)
        stat_before = jute.Stat(*expect["tree"]["/app"][2])
        created = (stat_before.cversion + stat_before.num_children) // 2
        equal(path, f"/app/item-{created:010}")
        assert stat.czxid >> 32 > expect["zxid"] >> 32, "a new epoch"
        client.delete(path)
        client.close()
    with server.client() as reader:
        equal([path for path in scenario.tree(reader) if "held" in path], [], "they end with their session")


@pytest.mark.parametrize("name", NAMES)
def test_state_and_sessions_go_on(name, server):
    expect = expected(name)
    told = imported(RECORDINGS / name, server)
    assert f"last zxid     0x{expect['zxid']:x}\n" in told, told
    assert "1 containers" not in told and "2 containers, 2 with a TTL, 1 quotas" in told, told
    server.start()
    check(server, expect)
    equal(server.stop(), 0)


def test_the_data_are_those_of_any_server(server):
    """Restarted without a snapshot of its own, and with one."""
    imported(RECORDINGS / WITH_SNAPSHOTS, server)
    server.start()
    with server.client() as client:
        client.create("/later")
    server.restart()
    with server.client() as client:
        equal(client.get("/later")[0], b"")
    equal(server.stop(), 0)
    server.start()
    with server.client() as client:
        equal(client.get("/app/two")[0], b"created by create2")


def test_what_is_there_is_reported_and_nothing_written(tmp_path):
    done = run_import(RECORDINGS / "3.9.4", "--dry-run")
    equal(done.returncode, 0, done.stderr)
    assert done.stdout.endswith("nothing was written: this was a dry run\n"), done.stdout
    for part in ("snapshot.0\n", "log           32 transactions of 1 file, ", "31 compared, all equal", "sessions      1", "3 ephemerals"):
        assert part in done.stdout, (part, done.stdout)
    equal(list(tmp_path.iterdir()), [])


def test_a_damaged_snapshot_is_passed_over(copy, server):
    source = copy(WITH_SNAPSHOTS)
    newest = max(source.glob("snapshot.*"), key=lambda path: int(path.suffix[1:], 16))
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    told = imported(source.parent, server)
    assert told.startswith(f"damaged snapshot passed over: {newest}: "), told
    server.start()
    check(server, expected(WITH_SNAPSHOTS))


def newest_log(source):
    return max(source.glob("log.*"), key=lambda path: int(path.suffix[1:], 16))


def test_a_torn_transaction_is_cut_off(copy, server):
    log = newest_log(copy("3.9.4"))
    whole = log.read_bytes().rstrip(b"\0")
    log.write_bytes(whole[:-3])
    told = imported(log.parent.parent, server)
    assert f"torn end      {log}: a transaction that was not written whole at offset " in told, told


def test_a_damaged_transaction_is_refused_with_its_place(copy, tmp_path):
    log = newest_log(copy("3.9.4"))
    damaged = bytearray(log.read_bytes())
    damaged[40] ^= 1
    log.write_bytes(damaged)
    done = run_import(log.parent.parent, "--data-dir", tmp_path / "new")
    equal((done.returncode, done.stdout), (6, ""))
    equal(done.stderr, f"corral: nothing was written: {log}: a record that does not match its checksum at offset 16\n")
    assert not (tmp_path / "new").exists()


def test_missing_transactions_are_refused_unless_forced(copy, tmp_path):
    source = copy(WITH_SNAPSHOTS)
    for snapshot in source.glob("snapshot.*"):
        if snapshot.name != "snapshot.0":
            snapshot.unlink()
    sorted(source.glob("log.*"), key=lambda path: int(path.suffix[1:], 16))[1].unlink()
    arguments = (source.parent, "--data-dir", tmp_path / "new")
    done = run_import(*arguments)
    equal(done.returncode, 6)
    assert re.search("zxid 0x[0-9a-f]+ follows 0x[0-9a-f]+: transactions are missing\n", done.stderr), done.stderr
    assert done.stderr.endswith("--force imports this state all the same\n"), done.stderr
    assert not (tmp_path / "new").exists()
    done = run_import(*arguments, "--force")
    equal(done.returncode, 0, done.stderr)


def test_a_directory_with_data_is_not_touched(server):
    server.start()
    with server.client() as client:
        client.create("/mine")
    target = server.directory / "data"
    done = run_import(RECORDINGS / "3.9.4", "--data-dir", target)
    equal(done.returncode, 5, "it is in use")
    server.stop()
    done = run_import(RECORDINGS / "3.9.4", "--data-dir", target)
    equal(done.returncode, 5)
    assert "holds data" in done.stderr and "choose another" in done.stderr, done.stderr
    server.start()
    with server.client() as client:
        equal(client.get("/mine")[0], b"")


def test_half_an_import_serves_nobody_and_is_done_again(server):
    """As a crash would leave it."""
    imported(RECORDINGS / "3.9.4", server)
    target = server.directory / "data"
    (target / "OWNER").write_text("import\n")
    (target / "notes").write_text("mine")
    ended = command("serve", "--data-dir", target)
    equal(ended.returncode, 5)
    assert "an import or restore into it did not finish: run the same command again" in ended.stdout + ended.stderr, ended
    imported(RECORDINGS / WITH_SNAPSHOTS, server)
    equal((target / "notes").read_text(), "mine")
    server.start()
    check(server, expected(WITH_SNAPSHOTS))


def test_half_an_import_with_a_log_directory_is_done_again(server, tmp_path):
    """As a kill between its last two steps would leave it."""
    arguments = (RECORDINGS / "3.9.4", "--data-dir", tmp_path / "data", "--set", f'server.log_dir="{tmp_path}/log"')
    equal(run_import(*arguments).returncode, 0)
    equal(run_import(*arguments).returncode, 5, "it is complete")
    (tmp_path / "data/OWNER").write_text(f"import\n{tmp_path}/log\n")
    done = run_import(*arguments)
    equal(done.returncode, 0, done.stderr)
    (tmp_path / "data/OWNER").write_text(f"import\n{tmp_path}/other\n")
    done = run_import(*arguments)
    equal((done.returncode, f"{tmp_path}/log: holds data" in done.stderr), (5, True), done.stderr)


def test_a_running_zookeeper_and_its_directories_are_left_alone(copy):
    source = copy("3.9.4")
    done = run_import(source.parent, "--data-dir", source / "new")
    equal((done.returncode, "is read and not written: choose another" in done.stderr), (5, True), done.stderr)
    with open(newest_log(source), "ab"):
        done = run_import(source.parent, "--dry-run")
    equal(done.returncode, 6)
    assert f"process {os.getpid()} has the log open: stop the ZooKeeper server first" in done.stderr, done.stderr
    os.mkfifo(source / "snapshot.99")
    done = run_import(source.parent, "--dry-run")
    equal((done.returncode, "snapshot.99: it is no regular file" in done.stderr), (6, True), done.stderr)


@pytest.mark.parametrize(
    "arguments, code, sentence",
    [
        (("/nowhere",), 7, "/nowhere: No such file or directory"),
        (("{tmp}",), 6, "{tmp}: no files `snapshot.*` or `log.*`, also not in version-2; name the `dataDir` of the zoo.cfg"),
        ((RECORDINGS / "3.9.4", "--log-dir", "{tmp}"), 6, "name the `dataLogDir` of the zoo.cfg by --log-dir"),
        ((RECORDINGS / "3.9.4",), 2, "--data-dir <DIR>"),
    ],
)
def test_mistakes_are_explained(arguments, code, sentence, tmp_path):
    arguments = [str(argument).format(tmp=tmp_path) for argument in arguments]
    done = run_import(*arguments, *(() if code == 2 else ("--dry-run",)))
    equal(done.returncode, code, done.stderr)
    assert sentence.format(tmp=tmp_path) in done.stderr, done.stderr


def test_an_ensemble_begins_with_it(shards):
    """The first server has the data, and the others receive them. Afterwards any two go on."""
    ensemble = Ensemble("corral", shards=shards, settings=SETTINGS)
    try:
        first, *others = ensemble.members
        done = run_import(RECORDINGS / "3.9.4", "--config", first.directory / "zoo.cfg", "--data-dir", first.directory / "data")
        equal(done.returncode, 0, done.stderr)
        assert "it is the only voter: start the others with empty data directories" in done.stdout, done.stdout
        ensemble.start()
        wait_until(lambda: voters(first) == "3", "all vote")
        for member in others:
            says(member, "snapshot received")
        first.kill()
        check(ensemble.leader(), expected("3.9.4"), but={"/zookeeper/config"})
    finally:
        ensemble.dispose()
