"""The runner of the suites: collects tests, gives each a context, prints a line a test and the sum alone on the last line."""

import argparse
import inspect
import os
import sys
import time
import traceback
from pathlib import Path

from ensemble import follower
from support import jute
from support.client import Client, Closed, Refused
from support.server import Running, ZooKeeper


FINISH_LIMIT_S = 2


class Skip(Exception):
    """The test cannot run here; the message says why."""


def parser(description):
    """The options that all suites share."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--server", choices=("corral", "zookeeper"), default="corral", help="which server to start")
    options.add_argument("--against", metavar="HOST:PORT", help="use this running server, of the kind --server says")
    options.add_argument("--shards", type=int, default=2, help="shards of corral")
    options.add_argument("--quick", action="store_true", help="the small size that tests/run uses")
    options.add_argument("--only", default="", help="run only tests whose name contains this")
    return options


def make_server(options, **more):
    """The server the options ask for, not started; `settings` holds the keys of each kind under its name."""
    more["settings"] = more.get("settings", {}).get(options.server)
    if options.against:
        return Running(options.against, options.server)
    if options.server == "corral":
        more.pop("java_options", None)
        return follower.corral(shards=options.shards, **more)
    return ZooKeeper(**more)


class Context:
    """What a test gets: the server's address, clients that are dropped afterwards, and a path of its own."""

    def __init__(self, server, name):
        self.server, self.address = server, server.address
        self.is_corral = server.kind == "corral"
        # Whether the server is one of several.
        self.is_alone = not hasattr(server, "ensemble")
        self.clients = []
        self.path = f"/{name}-{time.time_ns():x}"

    def client(self, **options):
        client = Client(self.address, **options)
        self.clients.append(client)
        return client

    def root(self, client):
        """Creates this test's own node and returns its path."""
        return client.create(self.path)

    def finish(self):
        """Ends all sessions, so that the next test finds none of this one's ephemerals."""
        for client in self.clients:
            try:
                client.socket.settimeout(FINISH_LIMIT_S)
                client.close()
            except (AttributeError, OSError, AssertionError, Closed, Refused):
                client.drop()


def equal(actual, expected, what=""):
    """Fails with both values unless they are equal."""
    assert actual == expected, f"{what}{': ' if what else ''}got {actual!r}, expected {expected!r}"


def refuses(code, call, *arguments, **options):
    """Fails unless the call is answered with the error code."""
    shown = f"{call.__name__}{arguments}"
    try:
        value = call(*arguments, **options)
    except Refused as refused:
        equal(refused.code, code, shown)
    else:
        raise AssertionError(f"{shown}: succeeded with {value!r}, expected error {code}")


def closes(call, *arguments, **options):
    """Fails unless the server closes the connection instead of answering."""
    try:
        value = call(*arguments, **options)
    except (Closed, ConnectionError):
        return
    raise AssertionError(f"{call.__name__}{arguments}: answered {value!r} instead of closing")


def tests_of(modules, only=""):
    """All functions named test_... of the modules, in the order they are written."""
    for module in modules:
        for name, function in list(vars(module).items()):
            if name.startswith("test_") and inspect.isfunction(function) and only in f"{module.__name__}.{name}":
                yield f"{Path(module.__file__).stem}.{name[5:]}", function


class Tally:
    """Counts and prints outcomes."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def run(self, name, function, *arguments):
        """Runs one test; returns whether it did not fail."""
        begin = time.monotonic()
        try:
            detail = function(*arguments)
        except Skip as skip:
            self.skipped += 1
            print(f"skip {name}: {skip}", flush=True)
        except Exception:  # noqa: BLE001 - whatever goes wrong fails this test and not the run
            self.failed += 1
            print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
            return False
        else:
            self.passed += 1
            took = f"{(time.monotonic() - begin) * 1000:.0f} ms"
            print(f"ok   {name} ({took}){': ' + detail if detail else ''}", flush=True)
        return True

    def finish(self):
        """Prints the sum and returns the exit code."""
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed else 0


def run_with_server(server, tests, tally=None):
    """Runs tests one after the other on one server, which is started if it is not yet; shows the end of its log when one fails."""
    tally = tally or Tally()
    clean = True
    try:
        if server.process is None:
            server.start()
        for name, function in tests:
            context = Context(server, name.rpartition(".")[2])
            clean &= tally.run(name, function, context)
            context.finish()
        clean &= tally.run("server is alive and did not panic", check_server, server)
    finally:
        if not clean:
            print(f"--- log of {server.kind} in {server.directory}:\n{server.log_tail()}\n---")
        server.dispose(keep=not clean and "CORRAL_TEST_KEEP" in os.environ)
    return tally


def check_server(server):
    if server.process is None:
        raise Skip("not started by this suite")
    assert server.process.poll() is None, f"it ended with code {server.process.poll()}"
    assert "panicked" not in server.log(), "its log shows a panic"
    return str(server.memory())


def leave(tally):
    sys.exit(tally.finish())


__all__ = [
    "Context", "Skip", "Tally", "check_server", "closes", "equal", "jute", "leave", "make_server", "parser", "refuses",
    "run_with_server", "tests_of",
]  # fmt: skip
