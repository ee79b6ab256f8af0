#!/usr/bin/env python3
"""ZooKeeper's C client, from Debian's package libzookeeper-mt-dev, see c/client.c."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clients.programs import run_with_server  # noqa: E402
from support import packages, suite  # noqa: E402

SOURCE = Path(__file__).resolve().parent / "c" / "client.c"
HEADER = "/usr/include/zookeeper/zookeeper.h"
COMPILE_LIMIT_S = 60


def prepare(directory):
    compiler = packages.need_command("cc", "a C compiler (Debian: gcc)")
    if not os.path.exists(HEADER):
        raise suite.Skip("no C client: install Debian's package libzookeeper-mt-dev")
    program = str(Path(directory) / "client")
    command = [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-DTHREADED", "-o", program, str(SOURCE)]
    command += ["-lzookeeper_mt", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    print(done.stderr, end="")
    yield "c", [program], {}


if __name__ == "__main__":
    run_with_server(suite.parser(__doc__).parse_args(), prepare)
