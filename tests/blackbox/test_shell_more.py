"""Verbs of `corral cli` that ZooKeeper's shell does not have."""

import json
import os
import signal
import subprocess

import pytest

from support.client import exists_or_none, four_letter_command
from support.expect import equal
from support.server import Corral, binary
from support.wait import wait_until

LIMIT_S = 60
DIFFERS = 1
USAGE = 2
LOST = 15
NO_ZNODE = 16
CONFLICT = 17
NOT_PERMITTED = 18


def at(server):
    host, port = server.address
    return f"{host}:{port}"


def shell(server, *words, output="text", **environment):
    """Runs one command."""
    arguments = [binary(), "cli", "--server", at(server), "--output", output, *map(str, words)]
    environment = {**os.environ, **environment}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S, env=environment, stdin=subprocess.DEVNULL)


def done(server, *words, **more):
    result = shell(server, *words, **more)
    equal(result.returncode, 0, result.stderr + result.stdout)
    return result.stdout


def refused(server, code, *words, **more):
    result = shell(server, *words, **more)
    equal(result.returncode, code, result.stderr + result.stdout)
    return result.stderr + result.stdout


def records(server, *words):
    return [json.loads(line) for line in done(server, *words, output="jsonl").splitlines()]


@pytest.fixture
def other(shards):
    """A second server."""
    server = Corral(shards)
    yield server.start()
    server.dispose()


@pytest.fixture
def client(own_server):
    with own_server.client() as client:
        client.create("/a", b"root")
        client.create("/a/y", b"")
        client.create("/a/x", b"12345")
        client.create("/a/x/deep", b"lock " + b"z" * 95)
        client.create("/a/x/me", b"", flags=1)
        yield client


def test_tree_draws_a_subtree(own_server, client):
    expected = "/a\n├── x\n│   ├── deep\n│   └── me\n└── y\n\n5 znodes, 109 bytes of data\n"
    equal(done(own_server, "tree", "/a"), expected)
    equal(done(own_server, "tree", "-L", "1", "-d", "/a"), "/a  root\n├── x  12345\n└── y\n\n3 znodes, 9 bytes of data\n")
    assert f"deep  lock {'z' * 55}...\n" in done(own_server, "tree", "-d", "/a")
    equal([one["path"] for one in records(own_server, "tree", "/a")], ["/a", "/a/x", "/a/x/deep", "/a/x/me", "/a/y"])
    equal(len(json.loads(done(own_server, "tree", "/a", output="json"))), 5)
    assert "/none" in refused(own_server, NO_ZNODE, "tree", "/none")
    for words in (("tree",), ("tree", "/a", "/b"), ("tree", "-L", "x", "/a"), ("tree", "-L", "-1", "/a"), ("du", "a")):
        refused(own_server, USAGE, *words)


def test_du_shows_the_largest_first(own_server, client):
    equal(
        [line.split() for line in done(own_server, "du", "/a").splitlines()[1:]],
        [["109", "5", "/a"], ["105", "3", "/a/x"], ["0", "1", "/a/y"]],
    )
    deeper = {"path": "/a/x/deep", "znodes": 1, "bytes": 100}
    assert deeper in records(own_server, "du", "-L", "2", "/a")
    assert deeper not in records(own_server, "du", "/a")


def test_wide_and_deep_subtrees_are_read_whole(own_server, client):
    for name in range(300):
        client.create(f"/a/y/{name}", b"")
    path = "/a/x/deep"
    for _ in range(100):
        path += "/d"
        client.create(path, b"")
    equal(records(own_server, "du", "/a")[0]["znodes"], 405)
    found = done(own_server, "find", "/a").split()
    equal(found, sorted(found, key=lambda one: one.split("/")))


def test_find_takes_conditions(own_server, client):
    owner = f"{client.exists('/a/x/me').ephemeral_owner:#x}"
    for conditions, paths in (
        (("-name", "?"), ["/a", "/a/x", "/a/y"]),
        (("-name", "d*p"), ["/a/x/deep"]),
        (("-value", "lock"), ["/a/x/deep"]),
        (("-size", "+5"), ["/a/x/deep"]),
        (("-size", "-5"), ["/a", "/a/x/me", "/a/y"]),
        (("-size", "5"), ["/a/x"]),
        (("-type", "e"), ["/a/x/me"]),
        (("-owner", owner), ["/a/x/me"]),
        (("-age", "+3600"), []),
        (("-age", "-3600", "-depth", "0"), ["/a"]),
        (("-type", "p", "-name", "?", "-size", "0"), ["/a/y"]),
    ):
        equal(done(own_server, "find", "/a", *conditions).split(), paths, str(conditions))
    for conditions in (("-size", "many"), ("-type", "x"), ("-owner", "me"), ("-age", "+")):
        refused(own_server, USAGE, "find", "/a", *conditions)


def test_unreadable_znodes_are_named(own_server, client):
    client.set_acl("/a/x", ((4, "world", "anyone"),))
    result = shell(own_server, "find", "/a")
    equal((result.returncode, result.stdout), (NOT_PERMITTED, "/a\n/a/y\n"))
    assert "/a/x" in result.stderr


def test_cp_copies_within_a_server_and_to_another(own_server, client, other):
    client.set_acl("/a/y", ((31, "ip", "127.0.0.1"),))
    result = shell(own_server, "cp", "/a", "/b")
    equal((result.returncode, result.stdout), (0, "copied 5 znodes, 109 bytes of data\n"), result.stderr)
    assert "1 ephemeral" in result.stderr
    equal(client.exists("/b/x/me").ephemeral_owner, 0)
    done(own_server, "diff", "/a", "/b")
    refused(own_server, CONFLICT, "cp", "/a", "/b")
    client.set("/b/x", b"other")
    client.create("/b/more", b"")
    done(own_server, "cp", "-f", "/a", "/b")
    equal(done(own_server, "find", "/b", "-name", "more"), "/b/more\n")
    for target in ("/a", "/a/x/copy"):
        refused(own_server, USAGE, "cp", "-f", "/a", target)
    refused(own_server, NO_ZNODE, "cp", "/a", "/none/b")
    done(own_server, "cp", "/b", f"{at(other)}/b")
    done(other, "cp", f"{at(own_server)}/b", "/c")
    done(own_server, "diff", "/b", f"{at(other)}/c")


def test_diff_names_each_difference(own_server, client):
    done(own_server, "cp", "/a", "/b")
    client.set("/b/x", b"other")
    client.set_acl("/b/y", ((1, "world", "anyone"),))
    client.delete("/b/x/me")
    client.create("/b/x-1", b"")
    expected = "~ /x (data)\n- /x/me\n+ /x-1\n~ /y (ACL)\ncreated 1, deleted 1, changed 2, equal 2\n"
    assert expected in refused(own_server, DIFFERS, "diff", "/a", "/b")
    lines = [json.loads(line) for line in shell(own_server, "diff", "/a", "/b", output="jsonl").stdout.splitlines()]
    equal(lines[0], {"difference": "changed", "path": "/x", "what": ["data"]})
    refused(own_server, NO_ZNODE, "diff", "/a", "/none")


def test_mv_moves_in_one_transaction(own_server, client):
    assert "ephemeral" in refused(own_server, CONFLICT, "mv", "/a", "/b")
    client.delete("/a/x/me")
    client.create("/b", b"")
    refused(own_server, CONFLICT, "mv", "/a", "/b")
    refused(own_server, USAGE, "mv", "/a", "/a/b")
    equal(done(own_server, "mv", "/a", "/b/a"), "moved 4 znodes\n")
    equal(done(own_server, "find", "/b/a", "-value", "lock"), "/b/a/x/deep\n")
    equal(exists_or_none(client, "/a"), None)
    for name in range(1000):
        client.create(f"/b/{name}", b"")
    assert "cp /b /c" in refused(own_server, CONFLICT, "mv", "/b", "/c")


@pytest.fixture
def follow(own_server):
    """A function that starts `watch`."""
    started = []

    def start(*words):
        arguments = [binary(), "cli", "--server", at(own_server), "--output", "jsonl", "watch", *words]
        started.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        wait_until(lambda: watches(own_server) == 1, "a watch")
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def watches(server):
    return int(four_letter_command(server.address, "wchs").rsplit(":", 1)[1])


def test_watch_shows_changes(own_server, client, follow):
    process = follow("-c", "3", "/a")
    client.set("/a/y", b"123")
    client.create("/a/new", b"1")
    client.delete("/a/new")
    out, error = process.communicate(timeout=LIMIT_S)
    equal(process.returncode, 0, error)
    lines = [json.loads(line) for line in out.splitlines()]
    equal(
        [(one["event"], one["path"]) for one in lines], [("NodeDataChanged", "/a/y"), ("NodeCreated", "/a/new"), ("NodeDeleted", "/a/new")]
    )
    equal(lines[0]["data_length"], 3)


def test_watch_runs_a_command_for_each_change(own_server, client, follow):
    process = follow("-c", "2", "-exec", 'echo "$CORRAL_EVENT $CORRAL_PATH $CORRAL_ZXID" $(cat)', "/a")
    client.set("/a/y", b"text")
    client.delete("/a/y")
    out, error = process.communicate(timeout=LIMIT_S)
    shown = [line.split() for line in out.splitlines() if line.startswith("Node")]
    equal([(line[:2], line[3:]) for line in shown], [(["NodeDataChanged", "/a/y"], ["text"]), (["NodeDeleted", "/a/y"], [])], error)


def test_watch_ends_by_a_signal(own_server, client, follow):
    process = follow("/a")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    equal(process.returncode, 130)


def test_the_watch_is_removed_before_the_next_command(own_server, client):
    with subprocess.Popen(
        [binary(), "cli", "--server", at(own_server)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write("watch -c 1 /a\n")
        process.stdin.flush()
        wait_until(lambda: watches(own_server) == 1, "a watch")
        client.set("/a", b"1")
        wait_until(lambda: watches(own_server) == 0, "no watch")
        output, _ = process.communicate("get /a\n", timeout=LIMIT_S)
        assert output.endswith("\n1\n"), output


def test_watch_tells_of_lost_connections(own_server, client, follow):
    process = follow("/a")
    own_server.restart()
    assert "not connected" in process.stderr.readline()
    assert "changes meanwhile are not known" in process.stderr.readline()
    own_server.stop()


def editor(tmp_path, script):
    file = tmp_path / "editor"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"VISUAL": "", "EDITOR": str(file), "TMPDIR": str(tmp_path)}


def test_edit_sets_what_the_editor_wrote(own_server, client, tmp_path):
    done(own_server, "edit", "/a", **editor(tmp_path, 'stat -c %a "$1" > "$TMPDIR/mode"; echo new > "$1"'))
    equal(client.get("/a")[0], b"new")
    equal((tmp_path / "mode").read_text(), "600\n")
    assert "unchanged" in done(own_server, "edit", "/a", **editor(tmp_path, 'echo new > "$1"'))
    refused(own_server, 1, "edit", "/a", **editor(tmp_path, "exit 3"))
    equal(list(tmp_path.glob("corral-*")), [])


def test_edit_keeps_the_text_at_a_conflict(own_server, client, tmp_path):
    script = f"echo mine > $1; {binary()} cli --server {at(own_server)} set /a theirs"
    output = refused(own_server, CONFLICT, "edit", "/a", **editor(tmp_path, script))
    [kept] = tmp_path.glob("corral-*")
    assert str(kept) in output
    equal((kept.read_text(), client.get("/a")[0]), ("mine\n", b"theirs"))
    client.set("/a", b"\xff")
    assert "UTF-8" in refused(own_server, USAGE, "edit", "/a", **editor(tmp_path, ""))


def test_apply_writes_a_document(own_server, client, tmp_path):
    file = tmp_path / "app.json"
    document = {
        "/a/y": "text",
        "/a/x": {"acl": ["world:anyone:cdrw"]},
        "/n/o/p": {"base64": "AAE="},
        "/a/box": {"text": "in", "mode": "container", "acl": ["ip:127.0.0.1:cdrwa"]},
    }
    file.write_text(json.dumps(document))
    plan = "+ /a/box\n+ /n\n+ /n/o\n+ /n/o/p\n~ /a/x (ACL)\n~ /a/y (data)\nplan: create 4, change data 1, change ACL 1, delete 0;"
    assert done(own_server, "apply", "-n", file).startswith(plan)
    assert "give -y" in refused(own_server, 1, "apply", file)
    equal(exists_or_none(client, "/n"), None)
    assert "created 4, changed 2, deleted 0" in done(own_server, "apply", "-y", file)
    equal((client.get("/a/y")[0], client.get("/n/o/p")[0], client.get("/a/x")[0]), (b"text", b"\x00\x01", b"12345"))
    assert "nothing to write" in done(own_server, "apply", "-y", file)
    steps = records(own_server, "apply", "-n", "-delete", file)
    equal([(one["step"], one["path"]) for one in steps], [("-", "/a/x/deep"), ("-", "/a/x/me")])
    done(own_server, "apply", "-y", "-delete", file)
    equal(client.children("/a/x"), [])
    equal(client.get("/a")[0], b"root")
    for text in ("", "[]", '{"a": ""}', '{"/a": 1}', '{"/a": {"mode": "ephemeral"}}'):
        file.write_text(text)
        refused(own_server, USAGE, "apply", "-y", file)
