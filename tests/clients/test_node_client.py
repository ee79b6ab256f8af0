"""The npm client node-zookeeper-client, see node/client.js; npm installs it into tests/.cache/node."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clients import programs
from support import packages

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS
HERE = Path(__file__).resolve().parent / "node"
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "node"
LOCK = "package-lock.json"
INSTALL_LIMIT_S = 180


def install(npm):
    """Installs what the lock file says unless that is there already."""
    installed = CACHE / "node_modules" / "node-zookeeper-client"
    if installed.exists() and (CACHE / LOCK).read_bytes() == (HERE / LOCK).read_bytes():
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", LOCK):
        shutil.copy(HERE / name, CACHE / name)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm cannot install node-zookeeper-client: {done.stderr.strip().splitlines()[-1:]}")


@pytest.fixture(scope="module")
def node():
    """The program that runs JavaScript, with the client installed."""
    node = packages.need_command("node", "Node.js 18 or newer (Debian: nodejs)")
    install(packages.need_command("npm", "Node.js's npm (Debian: npm)"))
    return node


def test_node_client(node, run_program):
    environment = {**os.environ, "NODE_PATH": str(CACHE / "node_modules")}
    run_program("node", [node, str(HERE / "client.js")], env=environment)
