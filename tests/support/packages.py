"""Where the foreign packages are that the client suites need, or the reason why a suite is skipped.

Nothing is installed here: the Python packages are in tests/.venv, Debian's packages are the machine's.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest

from support.server import jar_folders, java_class_path


def zookeeper():
    """The class path of a ZooKeeper: ZOOKEEPER_JARS, else what pyspark brings, else Debian's package; None if there is none."""
    return java_class_path()


def curator_jars():
    """The folder of jars that holds Curator, or None."""
    return next((folder for folder in jar_folders() if list(Path(folder).glob("curator-recipes-*.jar"))), None)


def need_command(name, what):
    """The path of a program; skips the test with `what` is missing."""
    path = shutil.which(name)
    if not path:
        pytest.skip(f"there is no {name}: needs {what}")
    return path


def need_modules(*names):
    missing = [name for name in names if not importlib.util.find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} in tests/.venv")
