"""Single commands of `corral cli`, and a subtree for them."""

import json
import os
import subprocess

from support import jute
from support.expect import equal
from support.server import binary

LIMIT_S = 60
DIFFERS = 1
USAGE = 2
NO_ZNODE = 16
CONFLICT = 17
NOT_PERMITTED = 18


def at(server):
    host, port = server.address
    return f"{host}:{port}"


def run(server, *words, output="text", options=(), **environment):
    """Runs one command."""
    arguments = [binary(), "cli", *options, "--server", at(server), "--output", output, *map(str, words)]
    environment = {**os.environ, **environment}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=LIMIT_S, env=environment, stdin=subprocess.DEVNULL)


def done(server, *words, **more):
    result = run(server, *words, **more)
    equal(result.returncode, 0, result.stderr + result.stdout)
    return result.stdout


def refused(server, code, *words, **more):
    result = run(server, *words, **more)
    equal(result.returncode, code, result.stderr + result.stdout)
    return result.stderr + result.stdout


def records(server, *words):
    return [json.loads(line) for line in done(server, *words, output="jsonl").splitlines()]


def plant(client):
    client.create("/a", b"root")
    client.create("/a/y", b"")
    client.create("/a/x", b"12345")
    client.create("/a/x/deep", b"lock " + b"z" * 95)
    client.create("/a/x/me", b"", flags=jute.EPHEMERAL)
