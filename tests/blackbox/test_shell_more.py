"""Verbs of `corral cli` for whole subtrees, which ZooKeeper's shell does not have."""

import json

import pytest

from support.cli import CONFLICT, DIFFERS, NO_ZNODE, NOT_PERMITTED, USAGE, at, done, plant, records, refused, run
from support.client import exists_or_none
from support.expect import equal
from support.server import Corral


@pytest.fixture
def other(shards):
    """A second server."""
    server = Corral(shards)
    yield server.start()
    server.dispose()


@pytest.fixture
def client(own_server):
    with own_server.client() as client:
        plant(client)
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
    result = run(own_server, "find", "/a")
    equal((result.returncode, result.stdout), (NOT_PERMITTED, "/a\n/a/y\n"))
    assert "/a/x" in result.stderr


def test_cp_copies_within_a_server_and_to_another(own_server, client, other):
    client.set_acl("/a/y", ((31, "ip", "127.0.0.1"),))
    result = run(own_server, "cp", "/a", "/b")
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
    assert "/a/x/me; it is ephemeral" in refused(own_server, CONFLICT, "cp", "-f", "/b", "/a")
    refused(own_server, NO_ZNODE, "cp", "/a", "/none/b")
    done(own_server, "cp", "/b", f"{at(other)}/b")
    done(other, "cp", f"{at(own_server)}/b", "/c")
    done(own_server, "diff", "/b", f"{at(other)}/c")


def test_cp_closes_parents_last(own_server, client):
    client.auth("digest", b"user:secret")
    own = ((31, "digest", "user:5w9W4eL3797Y4Wq8AcKUPPk8ha4="),)
    client.create("/b", b"", acl=own)
    client.create("/b/c", b"", acl=own)
    client.create("/b/c/d", b"", acl=((1, "world", "anyone"),))
    refused(own_server, NOT_PERMITTED, "cp", "/b", "/copy")
    identity = ("--auth", "digest:user:secret")
    done(own_server, "cp", "/b", "/copy", options=identity)
    done(own_server, "diff", "/b", "/copy", options=identity)
    equal(client.get_acl("/copy/c")[0], [own[0]])


def test_diff_names_each_difference(own_server, client):
    done(own_server, "cp", "/a", "/b")
    client.set("/b/x", b"other")
    client.set_acl("/b/y", ((1, "world", "anyone"),))
    client.delete("/b/x/me")
    client.create("/b/x-1", b"")
    expected = "~ /x (data)\n- /x/me\n+ /x-1\n~ /y (ACL)\ncreated 1, deleted 1, changed 2, equal 2\n"
    assert expected in refused(own_server, DIFFERS, "diff", "/a", "/b")
    lines = [json.loads(line) for line in run(own_server, "diff", "/a", "/b", output="jsonl").stdout.splitlines()]
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
