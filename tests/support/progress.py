"""The pytest plugin that shows a run: a line for each test as it ends, and a line every ten seconds while one runs.

The last line of a run is "N passed, N failed, N skipped". Before it each failed test has a line `failed: NAME`, and under it a
line `repeat: COMMAND`. A test counts once, whether its setup, its call or its teardown fails. tests/run reads these lines.
"""

import os
import shlex
import sys
import threading
import time

import pytest

from support import REPOSITORY

HEARTBEAT_S = 10
# What a repetition needs besides the command line.
ENVIRONMENT = ("CORRAL_BIN", "CORRAL_SETTINGS", "CORRAL_ENSEMBLE", "SHARDS", "ZOOKEEPER_JARS")
REASON_CHARACTERS_MAX = 300
# Files whose tests build on each other, so that they are only repeated together.
IN_ORDER = ("test_readme.py",)
# The names under which the fixtures `note` and `seed` leave a text and a number in a report.
NOTE, SEED = "note", "seed"


class Outcome:
    def __init__(self):
        self.began, self.word, self.reason = time.monotonic(), "ok", ""
        self.notes, self.seed = [], None

    def take(self, report):
        properties = getattr(report, "user_properties", ())
        self.notes = [text for name, text in properties if name == NOTE]
        self.seed = dict(properties).get(SEED)
        if report.failed and self.word != "FAIL":
            self.word, self.reason = "FAIL", reason_of(report)
        elif report.skipped and self.word == "ok":
            self.word, self.reason = "skip", reason_of(report)


def reason_of(report):
    """Why the test failed or was skipped, in a line."""
    if report.skipped and isinstance(report.longrepr, tuple):
        text = report.longrepr[2].removeprefix("Skipped: ")
    else:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash else str(report.longrepr)
    text = " ".join(text.split())
    return text if len(text) <= REASON_CHARACTERS_MAX else f"{text[:REASON_CHARACTERS_MAX]}..."


class Progress:
    def __init__(self, config, options):
        """`options` are those of the suites, with their defaults."""
        self.config, self.options, self.lock = config, options, threading.Lock()
        # pytest redirects the descriptor 1 while a test runs.
        self.out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
        self.running, self.counts, self.failures = {}, {"ok": 0, "FAIL": 0, "skip": 0}, []
        # Tests that are to run, those that came to their end, and whether a signal kept some from it.
        self.wanted, self.done, self.is_interrupted = set(), set(), False
        self.last_line, self.over = time.monotonic(), threading.Event()
        threading.Thread(target=self.heartbeat, daemon=True).start()

    def line(self, text):
        with self.lock:
            print(text, file=self.out, flush=True)
            self.last_line = time.monotonic()

    def heartbeat(self):
        """Prints what runs when nothing else was printed for a while."""
        while not self.over.wait(1):
            if time.monotonic() - self.last_line >= HEARTBEAT_S:
                now = time.monotonic()
                running = [f"{name} runs for {now - outcome.began:.0f} s" for name, outcome in list(self.running.items())]
                self.line(f"...  {', '.join(running) or 'between two tests'}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        """Keeps pytest from printing a letter for each test."""
        return ("error" if report.failed and report.when != "call" else report.outcome, "", "")

    def pytest_collection_finish(self, session):
        self.wanted |= {item.nodeid for item in session.items}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids):
        self.wanted |= set(ids)

    def pytest_runtest_logstart(self, nodeid):
        self.running[nodeid] = Outcome()

    def pytest_runtest_logreport(self, report):
        if (parts := getattr(report, "context", None)) is not None:
            self.part_ended(report, parts)
        elif report.nodeid in self.running:
            self.running[report.nodeid].take(report)

    def part_ended(self, report, parts):
        """A part of a test, with a name of its own (the fixture `subtests`)."""
        outcome = Outcome()
        outcome.take(report)
        self.ended(report.nodeid, f"{report.nodeid} [{parts.msg}]", outcome, parts.kwargs.get("took", "").strip("'"), [])

    def pytest_runtest_logfinish(self, nodeid):
        outcome = self.running.pop(nodeid)
        self.done.add(nodeid)
        self.ended(nodeid, nodeid, outcome, f"{(time.monotonic() - outcome.began) * 1000:.0f} ms", outcome.notes)

    def ended(self, nodeid, name, outcome, took, notes):
        self.counts[outcome.word] += 1
        detail = "; ".join([outcome.reason] * bool(outcome.reason) + notes)
        self.line(f"{outcome.word:4} {name}{f' ({took})' if took else ''}{': ' + detail if detail else ''}")
        if outcome.word == "FAIL":
            self.failures.append((name, self.repeat(nodeid, outcome.seed)))

    def pytest_collectreport(self, report):
        """A file that cannot be read, or that is skipped as a whole."""
        if report.failed or report.skipped:
            outcome = Outcome()
            outcome.take(report)
            self.ended(report.nodeid, report.nodeid, outcome, "", [])

    def pytest_keyboard_interrupt(self):
        self.is_interrupted = True
        for name, outcome in list(self.running.items()):
            outcome.word, outcome.reason = "FAIL", "interrupted"
            self.ended(name, name, outcome, f"{time.monotonic() - outcome.began:.0f} s", [])

    def repeat(self, nodeid, seed):
        values = {name: self.config.getoption(name.replace("-", "_")) for name in self.options}
        values["seed"] = values["seed"] if seed is None else seed
        given = [f"--{name}" if value is True else f"--{name}={value}" for name, value in values.items() if value != self.options[name]]
        variables = [f"{name}={shlex.quote(os.environ[name])}" for name in ENVIRONMENT if os.environ.get(name)]
        path, file = os.path.relpath(self.config.rootpath, REPOSITORY), nodeid.partition("::")[0]
        nodeid = file if file in IN_ORDER else nodeid
        return " ".join([*variables, "tests/.venv/bin/pytest", *map(shlex.quote, [f"{path}/{nodeid}", *given])])

    def pytest_unconfigure(self):
        self.over.set()
        sys.stdout.flush()
        if not self.is_interrupted and not self.config.option.collectonly:
            # The process of a test that ends it tells no more.
            for name in sorted(self.wanted - self.done):
                outcome = Outcome()
                outcome.word, outcome.reason = "FAIL", "it did not come to its end"
                self.ended(name, name, outcome, "", [])
        for name, command in self.failures:
            self.line(f"failed: {name}\nrepeat: {command}")
        self.line(f"{self.counts['ok']} passed, {self.counts['FAIL']} failed, {self.counts['skip']} skipped")
