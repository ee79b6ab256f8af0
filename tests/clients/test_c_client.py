"""ZooKeeper's C client, from Debian's package libzookeeper-mt-dev, see c/client.c."""

import os
import subprocess
from pathlib import Path

import pytest

from clients import programs
from support import packages

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS
SOURCE = Path(__file__).resolve().parent / "c" / "client.c"
HEADER = "/usr/include/zookeeper/zookeeper.h"
COMPILE_LIMIT_S = 60


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = packages.need_command("cc", "a C compiler (Debian: gcc)")
    if not os.path.exists(HEADER):
        pytest.skip("no C client: install Debian's package libzookeeper-mt-dev")
    program = str(tmp_path_factory.mktemp("c") / "client")
    command = [compiler, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-DTHREADED", "-o", program, str(SOURCE)]
    command += ["-lzookeeper_mt", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    print(done.stderr, end="")
    return program


def test_c_client(program, run_program):
    run_program("c", [program])
