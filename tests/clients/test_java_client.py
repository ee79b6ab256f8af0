"""ZooKeeper's own Java client, 3.9 (from ZOOKEEPER_JARS or pyspark's jars) and 3.8 (Debian's package), see java/JavaClient.java."""

import pytest

from clients import programs
from clients.java_programs import compiled
from support import packages

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS


@pytest.mark.parametrize("version", packages.client_class_paths() or ["any"])
def test_java_client(version, tmp_path, run_program):
    path = packages.client_class_paths().get(version)
    if not path:
        pytest.skip("no ZooKeeper jars: install Debian's package zookeeper, or set ZOOKEEPER_JARS, or install pyspark")
    run_program(f"java-{version}", compiled(tmp_path, path, "JavaClient"))
