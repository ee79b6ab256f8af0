#!/usr/bin/env python3
"""Curator's recipes, from the jars that pyspark brings, see java/CuratorRecipes.java."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clients.java_programs import compiled  # noqa: E402
from clients.programs import run_with_server  # noqa: E402
from support import packages, suite  # noqa: E402


def prepare(directory):
    folder = packages.curator_jars()
    if not folder:
        raise suite.Skip("no Curator: install pyspark (tests/run clients does), or put its jars into ZOOKEEPER_JARS")
    yield "curator", compiled(directory, f"{folder}/*", "CuratorRecipes"), {}


if __name__ == "__main__":
    run_with_server(suite.parser(__doc__).parse_args(), prepare)
