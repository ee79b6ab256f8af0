#!/usr/bin/env python3
"""The npm client node-zookeeper-client, see node/client.js; npm installs it into tests/.cache/node."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clients.programs import run_with_server  # noqa: E402
from support import packages, suite  # noqa: E402

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
        raise suite.Skip(f"npm cannot install node-zookeeper-client: {done.stderr.strip().splitlines()[-1:]}")


def prepare(_directory):
    node = packages.need_command("node", "Node.js 18 or newer (Debian: nodejs)")
    install(packages.need_command("npm", "Node.js's npm (Debian: npm)"))
    environment = {**os.environ, "NODE_PATH": str(CACHE / "node_modules")}
    yield "node", [node, str(HERE / "client.js")], {"env": environment}


if __name__ == "__main__":
    run_with_server(suite.parser(__doc__).parse_args(), prepare)
