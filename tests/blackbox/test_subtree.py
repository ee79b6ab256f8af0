"""`corral export` and `corral import` with json, jsonl and tar: a subtree out of a running server and into another."""

import json
import signal
import subprocess
import tarfile

import pytest

from imports.commands import SETTINGS, command
from support import jute
from support.cli import CONFLICT
from support.client import Refused, exists_or_none
from support.expect import equal
from support.server import Corral, binary
from support.wait import wait_until

FORMATS = ("json", "jsonl", "tar")
IDENTITY = "digest:user:secret"
# Of user:secret.
OWN_ACL = ((jute.ALL, "digest", "user:5w9W4eL3797Y4Wq8AcKUPPk8ha4="),)
JAVA_OPTIONS = ("-Dzookeeper.extendedTypesEnabled=true",)


@pytest.fixture
def new_server(shards):
    """A function that starts a server of the test's own."""
    made = []

    def start():
        made.append(Corral(shards, settings=SETTINGS))
        return made[-1].start()

    yield start
    for server in made:
        server.dispose()


def at(server, chroot=""):
    host, port = server.address
    return ("--server", f"{host}:{port}{chroot}", "--auth", IDENTITY)


def export(server, format, file, *arguments):
    done = command("export", format, *arguments, "--out", file, *at(server))
    equal(done.returncode, 0, done.stderr)
    return done


def run_import(server, format, file, *arguments):
    return command("import", format, file, *arguments, *at(server))


def succeeded(done):
    equal(done.returncode, 0, done.stderr + done.stdout)
    return done.stdout


def plant(server):
    """A tree with what is hard to carry. Its last znodes close themselves against their importer."""
    with server.client() as client:
        client.auth("digest", b"user:secret")
        client.create("/app", b"root")
        client.create("/app/gr\u00fc\u00dfe \u4f60\u597d", "\u00e4\u6f22".encode())
        client.create("/app/binary", bytes(range(256)))
        client.create("/app/empty", b"")
        client.create("/app/null", None)
        client.create("/app/lines", b"a\nb\x00")
        client.create("/app/large", b"x" * 500_000)
        client.create("/app/-quote\"'\\", b"[{}]")
        client.create("/app/ip", b"", acl=((jute.READ, "ip", "127.0.0.1"), (jute.ALL, "ip", "10.0.0.0/8"), *OWN_ACL))
        client.create("/app/" + "long" * 50, b"x")
        for number in range(3):
            client.create("/app/n-", b"%d" % number, jute.SEQUENTIAL)
        client.call(jute.CREATE_CONTAINER, jute.create_body("/app/container", b"c", jute.CONTAINER, jute.OPEN_ACL))
        client.create("/app/container/child", b"")
        client.call(jute.CREATE_TTL, jute.create_body("/app/ttl", b"t", jute.TTL, jute.OPEN_ACL) + jute.int64(10_000_000))
        client.create("/app/own", b"mine", acl=OWN_ACL)
        client.create("/app/own/below", b"mine", acl=OWN_ACL)
        client.create("/app/closed", b"")
        client.create("/app/closed/below", b"")
        client.set_acl("/app/closed", ((jute.READ, "world", "anyone"),))


def tree_of(server, root="/app"):
    """Path: data, ACL and owner. An empty node and one without data are one for clients."""
    found = {}
    with server.client() as client:
        client.auth("digest", b"user:secret")
        waiting = [root]
        while waiting:
            path = waiting.pop()
            data, stat = client.get(path)
            found[path.removeprefix(root)] = (data or b"", client.get_acl(path)[0], stat.ephemeral_owner)
            waiting += [f"{path}/{name}" for name in client.children(path)]
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_a_round_trip_loses_nothing(format, new_server, tmp_path):
    source, target, file = new_server(), new_server(), tmp_path / f"app.{format}"
    plant(source)
    told = export(source, format, file, "/app")
    assert told.stderr.startswith("20 znodes in ") and "newest change at zxid 0x" in told.stderr, told.stderr
    equal(file.stat().st_mode & 0o777, 0o600)
    told = succeeded(run_import(target, format, file, "--yes"))
    assert "+ /app/own/below\n" in told and "created 20, changed 2, deleted 0 in " in told, told
    equal(tree_of(target), tree_of(source))
    assert succeeded(run_import(target, format, file, "--yes")).endswith("nothing to write\n"), "it is equal"
    succeeded(run_import(target, format, file, "/copy", "--yes"))
    equal(tree_of(target, "/copy"), tree_of(source))


@pytest.mark.parametrize("format", FORMATS)
def test_with_a_real_zookeeper(format, zookeeper, new_server, tmp_path):
    server, file, back = new_server(), tmp_path / "out", tmp_path / "back"
    plant(server)
    export(server, format, file, "/app")
    succeeded(run_import(zookeeper, format, file, "--yes"))
    equal(tree_of(zookeeper), tree_of(server))
    export(zookeeper, format, back, "/app")
    told = succeeded(run_import(server, format, back, "--dry-run"))
    assert "equal 20, only on the server 0" in told, told


def test_other_programs_read_the_files(new_server, tmp_path):
    server = new_server()
    plant(server)
    file = tmp_path / "app.tar"
    export(server, "tar", file, "/app")
    listed = subprocess.run(["tar", "tf", file], capture_output=True, text=True, env={"LC_ALL": "C.UTF-8", "PATH": "/bin:/usr/bin"})
    equal((listed.returncode, listed.stderr), (0, ""))
    names = listed.stdout.splitlines()
    assert "subtree/own/below/.data" in names and "subtree/empty/" in names and names[-1] == "end.json", names
    subprocess.run(["tar", "xf", file], cwd=tmp_path, check=True)
    equal((tmp_path / "subtree/binary/.data").read_bytes(), bytes(range(256)))
    with tarfile.open(file) as read:
        assert "SCHILY.xattr.user.corral.znode" in read.getmember("subtree/own").pax_headers
    done = command("export", "json", "/app", *at(server))
    found = {znode["path"]: znode for znode in json.loads(done.stdout)["znodes"]}
    equal((found["/"]["text"], found["/container"]["mode"]), ("root", "persistent"))
    equal(found["/own"]["acl"], [{"perms": "cdrwa", "scheme": "digest", "id": OWN_ACL[0][2]}])
    done = command("export", "jsonl", *at(server, "/app/own"))
    equal([json.loads(line).get("path") for line in done.stdout.splitlines()], [None, "/", "/below", None])


def test_a_plan_writes_nothing(new_server, tmp_path):
    server, file = new_server(), tmp_path / "file"
    with server.client() as client:
        for path, data in (("/a", b""), ("/a/same", b"1"), ("/a/data", b"1"), ("/a/acl", b"1"), ("/a/new", b"1")):
            client.create(path, data)
        export(server, "jsonl", file, "/a")
        client.delete("/a/new")
        client.create("/a/more", b"")
        client.set("/a/data", b"2")
        client.set_acl("/a/acl", ((jute.ALL, "ip", "127.0.0.1"),))
        before = tree_of(server, "/a")
        plan = "+ /a/new\n~ /a/acl (ACL)\n~ /a/data (data)\n"
        counts = "plan: create 1, change data 1, change ACL 1, delete {}; equal 2, only on the server {}, ephemerals in the file 0\n"
        done = run_import(server, "jsonl", file)
        equal((done.returncode, done.stdout), (1, plan + counts.format(0, 1)))
        assert "nothing was written; give --yes" in done.stderr, done.stderr
        told = succeeded(run_import(server, "jsonl", file, "--dry-run", "--delete"))
        equal(told, plan + "- /a/more\n" + counts.format(1, 0) + "nothing was written: this was a dry run\n")
        equal(tree_of(server, "/a"), before)
        told = succeeded(run_import(server, "jsonl", file, "--yes"))
        assert "created 1, changed 2, deleted 0 in " in told, told
        assert exists_or_none(client, "/a/more"), "left alone"
        told = succeeded(run_import(server, "jsonl", file, "--yes", "--delete"))
        assert "created 0, changed 0, deleted 1 in " in told, told
        equal(exists_or_none(client, "/a/more"), None)


def test_containers_and_ttls_of_an_edited_file(new_server, tmp_path):
    """An export does not know them, because servers show them as persistent."""
    server, file = new_server(), tmp_path / "file"
    acl = [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]
    modes = {"/": "persistent", "/c": "container", "/t": {"ttl_ms": 1}}
    lines = [
        {"corral_subtree": 1, "root": "/a"},
        *({"path": path, "acl": acl, "mode": mode} for path, mode in modes.items()),
        {"znodes": 3},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    succeeded(run_import(server, "jsonl", file, "--yes"))
    with server.client() as client:
        client.create("/a/c/child", b"")
        client.delete("/a/c/child")
        equal(client.children("/a")[0], "c")
    server.stop()
    server.settings["containers.check_interval_ms"] = 100
    with server.start().client() as client:
        wait_until(lambda: client.children("/a") == [], "the server deletes both")


def test_ephemerals_are_left_out_unless_wanted(new_server, tmp_path):
    source, target, file = new_server(), new_server(), tmp_path / "file"
    with source.client() as client, target.client() as other:
        client.create("/a", b"")
        client.create("/a/e", b"1", jute.EPHEMERAL)
        export(source, "json", file, "/a")
        told = succeeded(run_import(target, "json", file, "--yes"))
        assert "ephemerals in the file 1" in told, told
        equal(other.children("/a"), [])
        succeeded(run_import(target, "json", file, "--yes", "--ephemerals", "persistent"))
        equal(other.get("/a/e")[1].ephemeral_owner, 0)
        told = succeeded(run_import(source, "json", file, "--yes", "--ephemerals", "persistent"))
        assert "! /a/e (left alone: an ephemeral)" in told, told
        told = succeeded(run_import(source, "json", file, "--yes", "--delete"))
        assert told.endswith("nothing to write\n"), "the file holds it, so it is not deleted"


def test_what_may_not_be_read_ends_the_export(new_server, tmp_path):
    server, file = new_server(), tmp_path / "file"
    with server.client() as client:
        client.create("/a", b"")
        client.create("/a/b", b"", acl=OWN_ACL)
    without = ("--server", f"127.0.0.1:{server.address[1]}", "--out", file)
    done = command("export", "jsonl", "/a", *without)
    equal((done.returncode, "/a/b: no permission; give an identity" in done.stderr), (18, True), done.stderr)
    equal(list(tmp_path.iterdir()), [])
    done = command("export", "jsonl", "/a", *without, "--skip-unreadable")
    equal((done.returncode, "1 left out as unreadable" in done.stderr), (0, True), done.stderr)
    (tmp_path / "identity").write_text(f"{IDENTITY}\n")
    done = command("export", "jsonl", "/a", *without, "--auth-file", tmp_path / "identity")
    equal((done.returncode, done.stderr.startswith("2 znodes")), (0, True), done.stderr)


def test_a_closed_znode_with_children_needs_an_identity(new_server, tmp_path):
    """Otherwise everyone could change it until the import ends."""
    source, target, file = new_server(), new_server(), tmp_path / "file"
    with source.client() as client:
        client.create("/a", b"")
        client.create("/a/b", b"")
        client.set_acl("/a", OWN_ACL)
    export(source, "jsonl", file, "/a")
    done = command("import", "jsonl", file, "--yes", "--server", f"127.0.0.1:{target.address[1]}")
    equal((done.returncode, "/a has children, and its ACL lets only others" in done.stderr), (3, True), done.stderr)
    succeeded(run_import(target, "jsonl", file, "--yes"))
    with target.client() as client:
        client.auth("digest", b"user:secret")
        equal(client.get_acl("/a")[0], list(OWN_ACL))


def test_mistakes_are_explained(new_server, tmp_path):
    server, file = new_server(), tmp_path / "file"
    address = f"127.0.0.1:{server.address[1]}"
    for where, path, reason in (
        ("127.0.0.1:1", "/", "no session: "),
        (f"{address}/nothing", "/", "check the path, and the chroot"),
        (address, "/nothing", "check the path, and the chroot"),
        (f"{address}/..//", "/", "give --server as HOST:PORT"),
    ):
        done = command("export", "json", path, "--server", where, "--out", file, "--session-timeout", "2000")
        equal((done.returncode in (2, 15, 16), reason in done.stderr), (True, True), (where, done.stderr))
    equal(list(tmp_path.iterdir()), [])
    with server.client() as client:
        client.create("/a", b"")
    export(server, "jsonl", file, "/a")
    file.write_bytes(file.read_bytes()[:-30])
    done = run_import(server, "jsonl", file, "/new", "--yes")
    equal((done.returncode, "nothing was written" in done.stderr and "line 3" in done.stderr), (6, True), done.stderr)
    with server.client() as client:
        equal(exists_or_none(client, "/new"), None)


def wide(server, count):
    """A tree that takes an import many requests."""
    with server.client() as client:
        client.create("/wide", b"")
        for number in range(count):
            client.create(f"/wide/{number:06}", b"x" * 100)


def test_a_concurrent_writer_is_not_overwritten(new_server, tmp_path):
    """A terminal shows the plan. Before the answer, another client changes what the plan saw."""
    import pty

    server, file = new_server(), tmp_path / "file"
    with server.client() as client:
        client.create("/a", b"")
        client.create("/a/b", b"1")
        client.create("/a/c", b"1")
        export(server, "jsonl", file, "/a")
        client.set("/a/b", b"2")
        client.set("/a/c", b"2")
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [binary(), "import", "jsonl", file, *at(server)], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert any("plan: " in line for line in iter(process.stdout.readline, "")), "it shows the plan"
        client.set("/a/b", b"theirs")
        with open(master, "wb", buffering=0) as terminal:
            terminal.write(b"y\n")
            _, errors = process.communicate(timeout=60)
        equal(process.returncode, CONFLICT, errors)
        assert "created 0, changed 1, deleted 0; changed by others since the plan and not overwritten: 1 (/a/b)" in errors, errors
        equal((client.get("/a/b")[0], client.get("/a/c")[0]), (b"theirs", b"1"))


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGKILL))
def test_an_import_that_stopped_goes_on(number, new_server, tmp_path):
    source, target, file = new_server(), new_server(), tmp_path / "file"
    wide(source, 20_000)
    export(source, "jsonl", file, "/wide")
    process = subprocess.Popen(
        [binary(), "import", "jsonl", file, "--yes", *at(target)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with target.client() as client:
        wait_until(lambda: count_of(client) > 200, "it writes")
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        if number == signal.SIGINT and process.returncode != 0:
            assert "interrupted" in errors and "run the same command again, and it goes on" in errors, errors
    told = succeeded(run_import(target, "jsonl", file, "--yes"))
    assert "deleted 0" in told or "nothing to write" in told, told
    equal(tree_of(target, "/wide"), tree_of(source, "/wide"))


def count_of(client):
    try:
        return client.count_descendants("/wide")
    except Refused:
        return 0
