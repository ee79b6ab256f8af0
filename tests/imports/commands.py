"""`corral import zookeeper` and `corral export zookeeper`, as tests run them."""

import json
import subprocess

from imports.record import RECORDINGS
from support.expect import equal
from support.server import binary

LIMIT_S = 60
SETTINGS = {"features.extended_types": "true", "sessions.timeout_max_ms": 60_000, "containers.check_interval_ms": 2_000_000_000}
# Of snapshots that lie between the newest and the beginning.
WITH_SNAPSHOTS = "3.9.4-snapshots"


def command(*arguments):
    """Runs corral, and returns the ended process with its texts."""
    return subprocess.run([binary(), *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S)


def run_import(*arguments):
    return command("import", "zookeeper", *arguments)


def imported(source, server, *arguments):
    """Imports into the data directory of a server that has not started."""
    done = run_import(source, "--data-dir", server.directory / "data", *arguments)
    equal(done.returncode, 0, done.stderr)
    return done.stdout


def expected(name):
    return json.loads((RECORDINGS / name / "expected.json").read_text())
