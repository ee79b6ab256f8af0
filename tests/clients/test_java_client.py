"""ZooKeeper's own Java client, see java/JavaClient.java: the newest there is. The campaign `clients` runs the others, too."""

import pytest

from clients import programs
from clients.java_programs import compiled
from support import packages

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS


def test_java_client(tmp_path, run_program):
    paths = packages.client_class_paths()
    if not paths:
        pytest.skip("no ZooKeeper jars: install Debian's package zookeeper, or set ZOOKEEPER_JARS")
    version = max(paths)
    run_program(f"java-{version}", compiled(tmp_path, paths[version], "JavaClient"))
