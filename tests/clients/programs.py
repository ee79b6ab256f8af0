"""Runs programs in other languages that test a client of theirs, and counts what they report.

A program gets the server's address and a part of the names of its tests to run as arguments. It prints a line for each test:
`ok NAME`, `skip NAME: reason` or `FAIL NAME: reason`; the line `restart` asks for a kill -9 and a start of the server, which is
answered with `restarted` on its input. Its last line is `end`. What it writes to standard error is shown when a test fails.
"""

import subprocess
import tempfile
import threading
import time

from ensemble import follower
from support import suite
from support.server import ZooKeeper

LIMIT_S = 300
ERRORS_SHOWN = 6000
TICK_MS = 500
CONTAINER_CHECK_MS = 500


def server_for(options):
    """A server with TTL nodes and a quick look for what has run out."""
    if options.server == "zookeeper":
        java = [f"-Dznode.container.checkIntervalMs={CONTAINER_CHECK_MS}"]
        return ZooKeeper(tick_ms=TICK_MS, settings={"extendedTypesEnabled": "true"}, java_options=java)
    settings = {"containers.check_interval_ms": CONTAINER_CHECK_MS}
    return follower.corral(options.shards, TICK_MS, settings)


def run_program(tally, name, server, command, only="", **options):
    """Runs a program against a started server; its tests are counted in the tally under the name."""
    address = f"{server.address[0]}:{server.address[1]}"
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(
            [*command, address, only], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, **options
        )
        watchdog = threading.Timer(LIMIT_S, process.kill)
        watchdog.start()
        before, ended, begin = tally.failed, False, time.monotonic()
        try:
            for line in process.stdout:
                ended = follow(tally, name, server, process, line.rstrip("\n"), begin) or ended
                if not line.startswith("restart"):
                    begin = time.monotonic()
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
        if not ended:
            tally.run(f"{name}.ends", lambda: fail(f"the program broke off, or took longer than {LIMIT_S} s"))
        if tally.failed > before:
            errors.seek(0)
            print(f"--- errors of {name}:\n{errors.read()[-ERRORS_SHOWN:]}\n---", flush=True)


def follow(tally, name, server, process, line, begin):
    """Does what a line of the program says; returns whether it was the last."""
    word, _, rest = line.partition(" ")
    test, _, reason = rest.partition(": ")
    if word == "ok":
        tally.run(f"{name}.{test}", lambda: f"{time.monotonic() - begin:.2f} s in the program")
    elif word == "skip":
        tally.run(f"{name}.{test}", lambda: skip(reason))
    elif word == "FAIL":
        tally.run(f"{name}.{test}", lambda: fail(reason))
    elif word == "restart":
        server.restart()
        process.stdin.write("restarted\n")
        process.stdin.flush()
    return word == "end"


def fail(reason):
    raise AssertionError(reason)


def skip(reason):
    raise suite.Skip(reason)


def run_with_server(options, prepare):
    """Prepares programs, runs them on one server, prints the sum and leaves.

    `prepare(directory)` builds the programs and returns (name, command, further options of Popen) for each; it may raise Skip.
    """
    tally = suite.Tally()
    programs = []
    with tempfile.TemporaryDirectory(prefix="corral-client-") as directory:
        tally.run("prepared", lambda: programs.extend(prepare(directory)))
        if programs:
            server = server_for(options)
            try:
                server.start()
                for name, command, further in programs:
                    run_program(tally, name, server, command, options.only, **further)
                if not tally.run("server is alive and did not panic", suite.check_server, server) or tally.failed:
                    print(f"--- log of {server.kind}:\n{server.log_tail()}\n---")
            finally:
                server.dispose()
    suite.leave(tally)
