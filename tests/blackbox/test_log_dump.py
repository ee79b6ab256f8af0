"""`corral log dump`: every kind of operation has a line and an object of JSON, and no line shows data or a hash."""

import json

import pytest

from imports.commands import command
from support import jute
from support.expect import equal
from support.server import Corral

SETTINGS = {"features.keeper_extensions": "true"}
ANY_STAT = jute.STAT.pack(*[-1] * len(jute.Stat._fields))
SECRET = b"a secret"


def write_everything(client):
    call = client.call
    client.create("/app", SECRET)
    client.create2("/app/e", flags=jute.EPHEMERAL)
    call(jute.CREATE_CONTAINER, jute.create_body("/app/c", flags=jute.CONTAINER))
    call(jute.CREATE_TTL, jute.create_body("/app/t", flags=jute.TTL) + jute.int64(90_000))
    client.set("/app", SECRET, 0)
    client.set_acl("/app", ((jute.ALL, "world", "anyone"), (1, "digest", "me:hash")))
    client.multi(
        (jute.CHECK, jute.check_body("/app")),
        (jute.CREATE, jute.create_body("/app/m")),
        (jute.DELETE, jute.delete_body("/app/m", 0)),
    )
    call(jute.CREATE_IF_NOT_EXISTS, jute.create_body("/other"))
    call(jute.CHECK_NOT_EXISTS, jute.check_body("/none"))
    call(jute.CHECK_STAT, jute.string("/other") + jute.int32(-1) + ANY_STAT)
    call(jute.TRY_REMOVE, jute.delete_body("/other"))
    call(jute.REMOVE_RECURSIVE, jute.string("/app/t") + jute.int32(5))


# Operation, path and details, as they were written.
EXPECTED = [
    ("createSession", None, {"timeout_ms": 10_000}),
    ("create", "/app", {"bytes": 8, "mode": "persistent"}),
    ("create2", "/app/e", {"bytes": 0, "mode": "ephemeral"}),
    ("createContainer", "/app/c", {"bytes": 0, "mode": "container"}),
    ("createTTL", "/app/t", {"bytes": 0, "mode": "persistent_with_ttl", "ttl_ms": 90_000}),
    ("setData", "/app", {"bytes": 8, "version": 0}),
    ("setACL", "/app", {"acl": "world:anyone:rwcda,digest:me:x:r"}),
    ("multi", None, {"operations": 3}),
    ("check", "/app", {"part": 1, "parts": 3}),
    ("create", "/app/m", {"bytes": 0, "mode": "persistent", "part": 2, "parts": 3}),
    ("delete", "/app/m", {"version": 0, "part": 3, "parts": 3}),
    ("createIfNotExists", "/other", {"bytes": 0, "mode": "persistent"}),
    ("checkNotExists", "/none", {}),
    ("checkStat", "/other", {"stat": [-1] * 11}),
    ("tryRemove", "/other", {}),
    ("removeRecursive", "/app/t", {"limit": 5}),
    ("closeSession", None, {}),
]
ALWAYS = ("kind", "index", "zxid", "time", "session", "operation", "path")


@pytest.fixture(scope="module")
def written():
    """The data directory of a stopped server, and the session that wrote."""
    server = Corral(1, settings=SETTINGS)
    server.start()
    client = server.client()
    write_everything(client)
    client.close()
    server.kill()
    yield server.directory / "data", client.session_id
    server.dispose()


def dump(directory, *arguments):
    done = command("log", "dump", directory, *arguments)
    equal((done.returncode, done.stderr), (0, ""))
    assert SECRET.decode() not in done.stdout and "hash" not in done.stdout, done.stdout
    return done.stdout.splitlines()


def objects(directory, *arguments):
    found = [json.loads(line) for line in dump(directory, "--json", *arguments)]
    equal(found[-1]["kind"], "end")
    return found[:-1]


def clients_own(found):
    """Without the operations of the server itself."""
    return [one for one in found if one["session"] != "0x0" or one["operation"] == "createSession"]


def test_each_operation_as_json(written):
    directory, session = written
    everything = objects(directory)
    assert {"durable", "segment", "record", "operation"} <= {one["kind"] for one in everything}
    found = clients_own([one for one in everything if one["kind"] == "operation"])
    details = [{key: one[key] for key in one if key not in ALWAYS} for one in found]
    equal([(one["operation"], one.get("path"), more) for one, more in zip(found, details)], EXPECTED)
    equal({one["session"] for one in found[1:]}, {hex(session)})
    zxids = [int(one["zxid"], 16) for one in found]
    equal(zxids, sorted(zxids))
    assert all(one["time"].endswith("Z") for one in found)


def test_the_lines_say_the_same(written):
    directory, session = written
    lines = [line for line in dump(directory) if f" session {hex(session)} " in line]
    equal(len(lines), len(EXPECTED) - 1)
    for line, (operation, path, details) in zip(lines, EXPECTED[1:]):
        assert f" {operation}{' ' + path if path else ''}" in line, line
        for key, value in details.items():
            shown = str(value).replace(" ", "")
            assert key in ("part", "parts") or f" {key}={shown}" in line, line
    assert "3/3: delete /app/m version=0" in "\n".join(lines)


def test_filters(written):
    directory, session = written
    everything = clients_own([one for one in objects(directory) if one["kind"] == "operation"])
    below = [one for one in everything if one.get("path", "").startswith("/app/")]
    equal(objects(directory, "--path", "/app/"), below)
    equal(objects(directory, "--session", hex(session)), everything[1:])
    equal(objects(directory, "--session", "0x1"), [])
    first, last = below[0]["zxid"], below[-1]["zxid"]
    equal(objects(directory, "--path", "/app/", "--zxid", f"{first}..{last}"), below)
    equal(objects(directory, "--path", "/app/", "--zxid", first), below[:1])
    since = below[3]["time"]
    equal(objects(directory, "--path", "/app/", "--since", since), [one for one in below if one["time"] >= since])
    equal(objects(directory, "--since", "2999-01-01"), [])
    equal(len(dump(directory, "--path", "/app/")), len(below) + 1)
    for wrong in (("--zxid", "x"), ("--since", "yesterday"), ("--session", "-"), ("--records", "--path", "/")):
        equal(command("log", "dump", directory, *wrong).returncode, 2)
