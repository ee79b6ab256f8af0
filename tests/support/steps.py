"""Runs commands as steps, several at a time, and shows how far they are: what tests/run and tests/campaign have in common.

A step is a function that gets a `Report`. It runs commands, whose output goes to target/tests/NAME.log, and counts tests. A line is
printed when a step begins and ends. Every ten seconds without one, a line tells what each running step does. The output of a failed
step is printed at its end.
"""

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from support import REPOSITORY

VENV = REPOSITORY / "tests/.venv"
LOGS = Path(os.environ.get("CORRAL_TEST_LOGS", REPOSITORY / "target/tests"))
PROFILE = "ci"
HEARTBEAT_S = 10
# A command that takes longer hangs.
COMMAND_LIMIT_S = 1200
INTERRUPT_LIMIT_S = 60
# A signal ends the run within this time.
STOP_LIMIT_S = 15
# What a command has started may hold its output open for so long after its end.
OUTPUT_LIMIT_S = 5
# Of the environment: what would choose other tests, or another form of the lines that are read here.
FOREIGN = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "RUST_TEST_NOCAPTURE")
LINES = {"CARGO_TERM_COLOR": "never", "CARGO_TERM_QUIET": "false"}

_running = set()
_lock = threading.Lock()
_last_line = time.monotonic()
_begin = time.monotonic()


def line(text):
    global _last_line
    with _lock:
        print(text, flush=True)
        _last_line = time.monotonic()


@dataclass
class Failure:
    """A test that failed, and the command that repeats it."""

    name: str
    repeat: str
    # Otherwise it is a whole run, which is not repeated.
    is_test: bool = True


@dataclass
class Report:
    name: str
    passed: int = 0
    skipped: list = field(default_factory=list)
    failures: list = field(default_factory=list)
    flaky: list = field(default_factory=list)
    seconds: float = 0
    began: float = 0
    status: str = ""
    has_ended: bool = False

    def skip(self, what, reason):
        self.skipped.append(f"{what}: {reason}")

    def count(self, is_good, repeat, name=""):
        if is_good:
            self.passed += 1
        else:
            self.failures.append(Failure(name or self.name, repeat))

    def check(self, command, repeat=None, name="", environment=None):
        """Runs a command that is one test, prints its output if it fails, and returns whether it passed."""
        code, output = self.run(command, environment=environment)
        if code:
            print("\n".join(output), flush=True)
        self.count(code == 0, repeat or shown(command, **(environment or {})), name)
        return code == 0

    def run(self, command, take=None, environment=None, limit_s=COMMAND_LIMIT_S, log=""):
        """Runs a command and returns its exit code and its output. `take` gets each line when it is printed."""
        LOGS.mkdir(parents=True, exist_ok=True)
        output, failed = [], []
        variables = {name: value for name, value in os.environ.items() if name not in FOREIGN} | LINES | (environment or {})
        process = subprocess.Popen(
            [str(part) for part in command], cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", env=variables, start_new_session=True,
        )  # fmt: skip
        _running.add(process)

        def read():
            try:
                with open(LOGS / f"{log or self.name}.log", "w", encoding="utf-8") as kept:
                    for text in process.stdout:
                        text = text.rstrip("\n")
                        output.append(text)
                        print(text, file=kept, flush=True)
                        if take:
                            take(text)
            except Exception as error:  # noqa: BLE001 - raised by the thread that waits
                failed.append(error)
                end(process, signal.SIGKILL)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            self.wait(process, output, limit_s)
            reader.join(OUTPUT_LIMIT_S)
        finally:
            # Whatever it has started ends with it.
            end(process, signal.SIGKILL)
            _running.discard(process)
        reader.join(OUTPUT_LIMIT_S)
        if reader.is_alive():
            raise RuntimeError(f"something that {command[0]} has started left its group, and holds its output open")
        if failed:
            raise failed[0]
        return process.returncode, output

    @staticmethod
    def wait(process, output, limit_s):
        """Waits for a command. One that hangs is interrupted, so that it tells what it was doing."""
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            output.append(f"the command did not end within {limit_s} s")
            end(process, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPT_LIMIT_S)


def end(process, number):
    """Sends a signal to a command and to all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def stop(number, _frame):
    """Ends the run by a signal: interrupts what runs, so that servers and their files go, then ends it."""
    line(f"ended by {signal.Signals(number).name}")
    until = time.monotonic() + STOP_LIMIT_S
    processes = list(_running)
    for process in processes:
        end(process, signal.SIGINT)
    while time.monotonic() < until and any(process.poll() is None for process in processes):
        time.sleep(0.1)
    for process in processes:
        end(process, signal.SIGKILL)
    os._exit(128 + number)


class Plan:
    def __init__(self):
        self.reports = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        threading.Thread(target=self.heartbeat, daemon=True).start()

    def heartbeat(self):
        while True:
            time.sleep(1)
            if time.monotonic() - _last_line >= HEARTBEAT_S:
                now = time.monotonic()
                running = [
                    f"{report.name} runs for {now - report.began:.0f} s{f' ({report.status})' if report.status else ''}"
                    for report in self.reports if report.began and not report.has_ended
                ]  # fmt: skip
                line(f"... {now - _begin:4.0f} s  {'; '.join(running) or 'between two steps'}")

    def step(self, name, function):
        """Runs a step and returns whether nothing failed."""
        return self.beside([(name, function)])

    def run(self, report, function):
        """Runs a step. One that does not come to its last line counts as failed, see `beside`."""
        name, report.began = report.name, time.monotonic()
        line(f"=== {report.began - _begin:4.0f} s  {name}")
        try:
            function(report)
        except Exception as error:  # noqa: BLE001 - reported as a failure of the step
            report.failures.append(Failure(f"{name}: {type(error).__name__}: {error}", sys.argv[0]))
        report.seconds = time.monotonic() - report.began
        outcome = f"{report.passed} passed, {len(report.failures)} failed, {len(report.skipped)} skipped"
        line(f"=== {time.monotonic() - _begin:4.0f} s  {name} took {report.seconds:.0f} s: {outcome}")
        report.has_ended = True

    def beside(self, *chains):
        """Runs lists of (name, function) beside each other, each list in its order. Returns whether nothing failed."""
        planned = [[(Report(name), function) for name, function in chain] for chain in chains]
        reports = [report for chain in planned for report, _ in chain]
        self.reports += reports
        threads = [threading.Thread(target=lambda chain=chain: [self.run(*step) for step in chain], daemon=True) for chain in planned]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for report in reports:
            if not report.has_ended:
                report.failures.append(Failure(f"{report.name} did not come to its end", sys.argv[0]))
        return not any(report.failures for report in reports)

    def end(self):
        """Prints the table of steps, what failed with the commands that repeat it, and the sum. Returns the exit code."""
        rows = [(r.name, r.seconds, r.passed, len(r.failures), len(r.skipped)) for r in self.reports]
        passed, failed, skipped = (sum(row[column] for row in rows) for column in (2, 3, 4))
        print(f"\n{'step':14} {'seconds':>7} {'passed':>7} {'failed':>7} {'skipped':>7}")
        for name, seconds, *counts in [*rows, ("total", time.monotonic() - _begin, passed, failed, skipped)]:
            print(f"{name:14} {seconds:7.0f} {counts[0]:7} {counts[1]:7} {counts[2]:7}")
        print()
        for word in ("skipped", "flaky"):
            for text in (text for report in self.reports for text in getattr(report, word)):
                print(f"{word} {text}")
        for failure in (failure for report in self.reports for failure in report.failures):
            print(f"FAILED {failure.name}\n    {failure.repeat}")
        print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
        return 1 if failed else 0


def shown(command, **variables):
    """A command as it is typed into a shell."""
    return " ".join([*(f"{name}={shlex.quote(str(value))}" for name, value in variables.items()), shlex.join(map(str, command))])


# --- what both programs prepare


def build(report, *options):
    """Builds with the profile of the tests. Returns whether that was possible."""
    return report.check(["cargo", "build", "--quiet", "--profile", PROFILE, *options])


def program(name):
    """A binary that `build` has built. It is not run by `cargo run`, which would build the crates of one package with other features."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    told = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return Path(json.loads(told.stdout)["target_directory"]) / PROFILE / name


def binary():
    """The server that is tested: CORRAL_BIN, or the one that `build` has built."""
    return Path(os.environ.get("CORRAL_BIN") or program("corral")).resolve()


def complaint():
    """What is wrong about CORRAL_BIN, or None."""
    named = os.environ.get("CORRAL_BIN")
    if named and not (Path(named).is_file() and os.access(named, os.X_OK)):
        return f"CORRAL_BIN is {named}, which is no program; correct it, or unset it to test what is built"
    return None


def install(report, *files):
    """Installs the Python packages that the files list in tests/.venv. Returns why that is not possible, or None."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with open(LOGS / "install.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return install_alone(report, files)


def install_alone(report, files):
    there = installed()
    if there is None:
        shutil.rmtree(VENV, ignore_errors=True)
        if report.run([sys.executable, "-m", "venv", VENV])[0]:
            shutil.rmtree(VENV, ignore_errors=True)
            return "python3 -m venv fails (Debian: apt install python3-venv)"
        there = installed() or []
    wanted = {text.strip() for file in files for text in (REPOSITORY / file).read_text().splitlines() if text and text[0] != "#"}
    if missing := sorted(wanted - set(there)):
        code, output = report.run([VENV / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *missing])
        if code:
            return f"{', '.join(missing)} cannot be installed from PyPI: {output[-1] if output else code}"
    return None


def installed():
    """The packages in tests/.venv, or None without a pip that runs."""
    try:
        told = subprocess.run([VENV / "bin/pip", "freeze", "--all"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if told.returncode else told.stdout.splitlines()


def pytest(report, arguments, environment=None, limit_s=COMMAND_LIMIT_S, show=False):
    """Runs tests of pytest, counts them, and returns the failures. The plugin support.progress prints the lines that are read here."""
    environment = {"CORRAL_BIN": str(binary()), **(environment or {})}
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    failed, shown_as_failed = [], []

    def take(text):
        word, _, rest = text.partition(" ")
        if show:
            line(text)
        if word in counts:
            counts[word] += 1
            report.passed += word == "ok"
            shown_as_failed.extend([rest.partition(" (")[0]] * (word == "FAIL"))
            if word == "skip":
                report.skipped.append(rest.strip())
        elif word == "...":
            report.status = rest.strip()
        elif word == "failed:":
            failed.append(Failure(rest, ""))
        elif word == "repeat:" and failed:
            failed[-1].repeat = rest
        if word in counts:
            report.status = f"{counts['ok']} passed, {counts['FAIL']} failed"

    code, output = report.run([VENV / "bin/pytest", *arguments], take, environment, limit_s)
    if code not in (0, 1) or (code and not failed):
        behind = f" behind a failure of {', '.join(shown_as_failed)}" if shown_as_failed and not failed else ""
        whole = shown(["tests/.venv/bin/pytest", *arguments], **environment)
        failed.append(Failure(f"{report.name} ended with code {code}{behind}", whole, is_test=False))
    if failed and not show:
        print("\n".join(text for text in output if not text.startswith(("ok ", "skip ", "... ", "failed: ", "repeat: "))), flush=True)
    return failed
