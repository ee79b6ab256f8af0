"""The command `restore` of the AdminServer."""

import socket
from contextlib import contextmanager

import pytest

from ensemble.cluster import Ensemble
from imports.record import RECORDINGS
from support.expect import equal
from support.http import PROOF, admin, ask
from support.server import Corral
from support.wait import wait_until


@pytest.fixture
def server(shards, tmp_path):
    server = Corral(shards)
    server.address_of_admin, server.token = admin(server, tmp_path)
    server.settings["admin.allow_changes"] = "true"
    yield server
    server.dispose()


def snapshot(server):
    taken = ask(f"http://{server.address_of_admin}/commands/snapshot", headers=PROOF)
    equal(taken.status, 200, taken.text)
    return taken


def restore(server, body, headers=PROOF, method="POST"):
    return ask(f"http://{server.address_of_admin}/commands/restore", method, headers, body=body)


@contextmanager
def sent(server, whole, part):
    """A request of which this part of the body was sent."""
    host, port = server.address_of_admin.split(":")
    fields = [f"Host: {host}:{port}", f"Authorization: {PROOF['Authorization']}", f"Content-Length: {len(whole)}"]
    with socket.create_connection((host, int(port))) as half:
        half.sendall("\r\n".join(["POST /commands/restore HTTP/1.1", *fields, "", ""]).encode() + part)
        yield


def test_a_snapshot_takes_the_place_of_all_data(server):
    """The same process serves it. Zxids go on above those before, and the former data stay on the disk."""
    server.start()
    with server.client() as client:
        client.create("/kept", b"x" * 1000)
    taken = snapshot(server)
    with server.client() as client:
        client.create("/later")
    done = restore(server, taken.body)
    equal(
        (done.status, done.json()),
        (200, {"last_zxid": int(taken.headers["last_zxid"], 16), "command": "restore", "error": None}),
        done.text,
    )
    wait_until(lambda: server.log().count(" serving ") == 2, "it serves again")
    equal(server.process.poll(), None, "it is the same process")
    with server.client() as client:
        equal(set(client.children("/")) - {"zookeeper"}, {"kept"})
        client.create("/new")
        assert client.zxid > done.json()["last_zxid"]
    data = server.directory / "data"
    (former,) = data.glob("before-restore-*")
    equal(sorted(path.name for path in data.iterdir() if "restore" in path.name.lower()), [former.name])
    server.stop()
    server.start()
    with server.client() as client:
        equal(set(client.children("/")) - {"zookeeper"}, {"kept", "new"})


def test_a_client_that_leaves_keeps_no_server_at_its_former_data(server):
    """Writes that it acknowledged then would be lost at the next start."""
    server.start()
    whole = snapshot(server).body
    with server.client() as client:
        client.create("/later")
    with sent(server, whole, whole):
        wait_until(lambda: "a snapshot was received" in server.log(), "the data were taken")
    wait_until(lambda: server.log().count(" serving ") == 2, "it serves again")
    with server.client() as client:
        equal(set(client.children("/")), {"zookeeper"})


def test_a_snapshot_of_zookeeper(server):
    """A real one, with the state that its server had."""
    (file,) = (RECORDINGS / "3.9.4" / "version-2").glob("snapshot.*")
    server.start()
    done = restore(server, file.read_bytes())
    equal((done.status, hex(done.json()["last_zxid"])), (200, "0x" + file.name.removeprefix("snapshot.")), done.text)


def test_what_is_no_state_changes_nothing(server):
    server.start()
    with server.client() as client:
        client.create("/kept")
    whole = snapshot(server).body
    cases = [
        (b"", "ends"),
        (b"x" * 100, "ZKSN"),
        (whole[:-30], "checksum"),
        # Last zxid and its seal.
        (whole[:-21], "last zxid"),
        (whole[: len(whole) // 2], "ends"),
        (whole + b"x", "checksum"),
    ]
    for body, word in cases:
        done = restore(server, body)
        equal((done.status, word in done.json()["error"]), (500, True), done.text)
    with sent(server, whole, whole[:100]):
        wait_until(lambda: (server.directory / "data" / "restore.tmp").exists(), "it is received")
        equal(restore(server, whole).status, 429)
    wait_until(lambda: not (server.directory / "data" / "restore.tmp").exists(), "it is removed")
    equal(list((server.directory / "data").glob("before-restore-*")), [])
    with server.client() as client:
        equal(client.exists("/kept").version, 0)


def test_who_may_restore(server, shards):
    server.settings["admin.allow_changes"] = "false"
    server.start()
    equal(
        (restore(server, b"", headers={}).status, restore(server, b"").status, restore(server, b"", method="GET").status), (403, 403, 405)
    )
    server.stop()
    server.settings["admin.allow_changes"] = "true"
    server.start()
    equal(restore(server, b"", headers={}).status, 401)


def test_an_ensemble_is_not_restored_one_by_one(tmp_path, shards):
    ensemble = Ensemble("corral", shards=shards)
    try:
        member = ensemble.members[0]
        member.address_of_admin, _ = admin(member, tmp_path)
        member.settings["admin.allow_changes"] = "true"
        ensemble.start()
        done = restore(member, b"")
        equal((done.status, "corral restore" in done.json()["error"]), (503, True), done.text)
    finally:
        ensemble.dispose()
