"""Curator's recipes, from the jars that pyspark brings, see java/CuratorRecipes.java."""

import pytest

from clients import programs
from clients.java_programs import compiled
from support import packages

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS


@pytest.fixture
def program(tmp_path):
    folder = packages.curator_jars()
    if not folder:
        pytest.skip("no Curator: install pyspark (tests/run clients does), or put its jars into ZOOKEEPER_JARS")
    return compiled(tmp_path, f"{folder}/*", "CuratorRecipes")


def test_curator(program, run_program):
    run_program("curator", program)
