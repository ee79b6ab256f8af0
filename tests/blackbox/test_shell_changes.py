"""The verbs `watch`, `edit` and `apply` of `corral cli`."""

import json
import signal
import subprocess

import pytest

from support.cli import CONFLICT, LIMIT_S, USAGE, at, done, plant, records, refused
from support.client import exists_or_none, four_letter_command
from support.expect import equal
from support.server import binary
from support.wait import wait_until


@pytest.fixture
def client(own_server):
    with own_server.client() as client:
        plant(client)
        yield client


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
    # The value is read after the event.
    first = process.stdout.readline()
    client.delete("/a/y")
    out, error = process.communicate(timeout=LIMIT_S)
    shown = [line.split() for line in [first, *out.splitlines()] if line.startswith("Node")]
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
    equal([(one.get("step"), one.get("path")) for one in steps], [("!", "/a/x/me"), ("-", "/a/x/deep"), (None, None)])
    done(own_server, "apply", "-y", "-delete", file)
    equal(client.children("/a/x"), ["me"])
    equal(client.get("/a")[0], b"root")
    for text in ("", "[]", '{"a": ""}', '{"/a": 1}', '{"/a": {"mode": "ephemeral"}}'):
        file.write_text(text)
        refused(own_server, USAGE, "apply", "-y", file)
