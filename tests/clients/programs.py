"""Runs programs in other languages that test a client of theirs, and counts what they report.

A program gets the server's address and a part of the names of its tests to run as arguments. It prints a line for each test:
`ok NAME`, `skip NAME: reason` or `FAIL NAME: reason`; the line `restart` asks for a kill -9 and a start of the server, which is
answered with `restarted` on its input. Its last line is `end`. What it writes to standard error is shown when a test fails.
"""

import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

from support import packages

HERE = Path(__file__).resolve().parent
LIMIT_S, COMPILE_LIMIT_S = 300, 120
ERRORS_SHOWN = 6000
# The server of such a program, for its module: it has TTL nodes, and looks often for what has run out.
TICK_MS = 500
CONTAINER_CHECK_MS = 500
SETTINGS = {"corral": {"containers.check_interval_ms": CONTAINER_CHECK_MS}, "zookeeper": {"extendedTypesEnabled": "true"}}
JAVA_OPTIONS = [f"-Dznode.container.checkIntervalMs={CONTAINER_CHECK_MS}"]


@pytest.fixture
def run_program(context, subtests, options):
    """A function that runs a program against the server; each of its tests is a part of this one, under the program's name."""

    def run(name, command, **more):
        with tempfile.TemporaryFile("w+", errors="replace") as errors:
            address = f"{context.address[0]}:{context.address[1]}"
            process = subprocess.Popen(
                [*command, address, options.part or ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, **more
            )
            watchdog = threading.Timer(LIMIT_S, process.kill)
            watchdog.start()
            ended, begin = False, time.monotonic()
            try:
                for line in process.stdout:
                    ended = follow(subtests, name, context.server, process, line.rstrip("\n"), begin) or ended
                    if not line.startswith("restart"):
                        begin = time.monotonic()
            finally:
                watchdog.cancel()
                process.kill()
                process.wait()
            errors.seek(0)
            print(f"--- errors of {name}:\n{errors.read()[-ERRORS_SHOWN:]}")
        assert ended, f"the program broke off, or took longer than {LIMIT_S} s"

    return run


def follow(subtests, name, server, process, line, begin):
    """Does what a line of the program says; returns whether it was the last."""
    word, _, rest = line.partition(" ")
    test, _, reason = rest.partition(": ")
    if word in ("ok", "skip", "FAIL"):
        with subtests.test(f"{name}.{test}", took=f"{time.monotonic() - begin:.2f} s"):
            if word == "skip":
                pytest.skip(reason)
            assert word == "ok", reason
    elif word == "restart":
        server.restart()
        process.stdin.write("restarted\n")
        process.stdin.flush()
    return word == "end"


def compile_with(command):
    """Runs a compiler; what it warns of is shown when a test fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    print(done.stderr, end="")


def java_program(directory, class_path, program):
    """Compiles a program of java/ and its runner; returns the command that runs it. Skips the test if there is no compiler."""
    packages.need_command("java", "a Java runtime (Debian: default-jre-headless)")
    packages.need_command("javac", "a Java compiler (Debian: default-jdk-headless)")
    sources = [str(HERE / "java" / f"{name}.java") for name in (program, "Suite")]
    compile_with(["javac", "-nowarn", "-d", str(directory), "-cp", class_path, *sources])
    return ["java", "-Xmx256m", "-cp", f"{directory}:{class_path}", program]
