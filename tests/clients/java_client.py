#!/usr/bin/env python3
"""ZooKeeper's own Java client, 3.9 (from ZOOKEEPER_JARS or pyspark's jars) and 3.8 (Debian's package), see java/JavaClient.java."""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clients.programs import run_with_server  # noqa: E402
from support import packages, suite  # noqa: E402

JAVA = Path(__file__).resolve().parent / "java"


def compiled(directory, class_path, *sources):
    """Compiles the sources into a new folder below the directory; returns the command that runs the first's main class."""
    packages.need_command("java", "a Java runtime (Debian: default-jre-headless)")
    packages.need_command("javac", "a Java compiler (Debian: default-jdk-headless)")
    classes = Path(directory) / f"classes-{len(list(Path(directory).iterdir()))}"
    files = [str(JAVA / f"{name}.java") for name in (*sources, "Suite")]
    command = ["javac", "-nowarn", "-d", str(classes), "-cp", class_path, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    return ["java", "-Xmx256m", "-cp", f"{classes}:{class_path}", sources[0]]


def prepare(directory):
    paths = packages.client_class_paths()
    for version, path in paths.items():
        yield f"java-{version}", compiled(directory, path, "JavaClient"), {}
    if not paths:
        raise suite.Skip("no ZooKeeper jars: install Debian's package zookeeper, or set ZOOKEEPER_JARS, or install pyspark")


if __name__ == "__main__":
    run_with_server(suite.parser(__doc__).parse_args(), prepare)
