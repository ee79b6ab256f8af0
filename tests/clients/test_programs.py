"""The clients that a ZooKeeper release has: the C client (c/client.c), and the Java client (java/JavaClient.java), the newest there is.

The campaign `clients` runs the others, too.
"""

import os

import pytest

from clients import programs
from support import packages
from support.server import class_paths

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS


def test_c_client(tmp_path, run_program):
    compiler = packages.need_command("cc", "a C compiler (Debian: gcc)")
    if not os.path.exists("/usr/include/zookeeper/zookeeper.h"):
        pytest.skip("no C client: install Debian's package libzookeeper-mt-dev")
    program, source = str(tmp_path / "client"), str(programs.HERE / "c" / "client.c")
    options = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-DTHREADED"]
    programs.compile_with([compiler, *options, "-o", program, source, "-lzookeeper_mt", "-lpthread"])
    run_program("c", [program])


def test_java_client(tmp_path, run_program):
    paths = class_paths()
    if not paths:
        pytest.skip("no ZooKeeper jars: install Debian's package zookeeper, or set ZOOKEEPER_JARS")
    version = max(paths)
    run_program(f"java-{version}", programs.java_program(tmp_path, paths[version], "JavaClient"))
