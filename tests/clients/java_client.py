#!/usr/bin/env python3
"""ZooKeeper's own Java client, 3.9 (from ZOOKEEPER_JARS or pyspark's jars) and 3.8 (Debian's package), see java/JavaClient.java."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clients.java_programs import compiled  # noqa: E402
from clients.programs import run_with_server  # noqa: E402
from support import packages, suite  # noqa: E402


def prepare(directory):
    paths = packages.client_class_paths()
    for version, path in paths.items():
        yield f"java-{version}", compiled(directory, path, "JavaClient"), {}
    if not paths:
        raise suite.Skip("no ZooKeeper jars: install Debian's package zookeeper, or set ZOOKEEPER_JARS, or install pyspark")


if __name__ == "__main__":
    run_with_server(suite.parser(__doc__).parse_args(), prepare)
