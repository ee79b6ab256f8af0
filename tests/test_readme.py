"""Pastes README.md: every command of it, in order, in a fresh clone, as a newcomer would.

Indented blocks are pasted into one bash. A line that serves in the foreground is typed into a terminal of its own; where the text
says Ctrl-C, the last of these gets it. Three things differ from a newcomer's day: `cargo` is a stand-in that gives the binary that is
under test (CORRAL_BIN), `tests/run` shows its help, and as root everything runs in a network of its own, because the README's
ports are fixed. A block that needs what is not installed is skipped.
"""

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

from support import REPOSITORY, unshare
from support.client import four_letter_command
from support.expect import equal
from support.server import binary
from support.wait import is_free, wait_until

BLOCK_LIMIT_S = 180
FOREGROUND = re.compile(r"(cargo run --release -- |corral )serve\b[^&\\]*$")
PORTS = (2181, 2191, 2192, 2193, 2881, 2882, 2883, 8080, 8091, 8092, 8093)
CARGO = """#!/bin/sh
[ "$1 $2" = "run --release" ] || [ "$1 $2" = "build --release" ] || { echo "cargo $*: not foreseen" >&2; exit 64; }
mkdir -p target/release && ln -sf "$CORRAL_BIN" target/release/corral
[ "$1" = build ] && exit 0
shift 2; [ "$1" = -- ] && shift
exec target/release/corral "$@"
"""
# Reads names of files to source, and answers with the number of commands in them that failed.
SHELL = """
set -o pipefail
failed=0
trap 'failed=$((failed + 1)); echo "line failed: $BASH_COMMAND"' ERR
while IFS= read -r -u {read} file; do failed=0; source "$file"; echo "$failed" >&{write}; done
"""


def items(text):
    """The README as a list of (heading, kind, text), where kind is `prose` or `block`."""
    heading, found = "", []
    for part in re.split(r"\n(?=\S)|(?<=\n)\n(?=    )", text):
        if part.startswith("#"):
            heading = part.splitlines()[0].lstrip("# ")
            part = "\n".join(part.splitlines()[1:])
        lines = part.strip("\n").splitlines()
        block = [line[4:] for line in lines if line.startswith("    ") or not line]
        prose = [line for line in lines if line and not line.startswith("    ")]
        if prose:
            found.append((heading, "prose", " ".join(prose)))
        if any(block):
            found.append((heading, "block", "\n".join(block).strip("\n")))
    return found


def begin_loopback():
    """Of a network of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        set_flags, up_and_running = 0x8914, 0x41
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up_and_running))


class Newcomer:
    """A fresh clone, a bash in it, and the terminals in which servers run."""

    def __init__(self):
        self.top = Path(tempfile.mkdtemp(prefix="corral-readme-"))
        self.clone = self.top / "corral"
        # Where the source is no clone itself, there are its files alone.
        if subprocess.run(["git", "clone", "-q", "--shared", REPOSITORY, self.clone], capture_output=True, check=False).returncode:
            subprocess.run(["git", "init", "-q", self.clone], check=True)
        for name in ("README.md", ".gitignore", "configs", "tests", "docs"):
            # So that what is not committed yet counts.
            if (source := REPOSITORY / name).is_dir():
                ignored = shutil.ignore_patterns(".venv", "target", "__pycache__", ".cache")
                shutil.copytree(source, self.clone / name, dirs_exist_ok=True, ignore=ignored)
            else:
                shutil.copy(source, self.clone / name)
        self.before = self.not_ignored()
        if (REPOSITORY / "tests/.venv").exists():
            (self.clone / "tests/.venv").symlink_to(REPOSITORY / "tests/.venv")
        shims = self.top / "bin"
        shims.mkdir()
        (shims / "cargo").write_text(CARGO)
        (shims / "cargo").chmod(0o755)
        self.environment = {**os.environ, "CORRAL_BIN": str(binary().resolve()), "PATH": f"{shims}:{os.environ['PATH']}"}
        self.terminals, self.number = [], 0
        self.begin_shell()

    def begin_shell(self):
        # Far from the descriptors that the README's lines use.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 40) for pair in (os.pipe(), os.pipe()) for end in pair]
        names_out, names_in, answers_out, answers_in = ends
        self.names, self.answers = os.fdopen(names_in, "w"), os.fdopen(answers_out, "r")
        self.output = open(self.top / "output", "w+", encoding="utf-8", errors="replace")
        script = SHELL.replace("{read}", str(names_out)).replace("{write}", str(answers_in))
        self.shell = subprocess.Popen(
            ["bash", "--norc", "-c", script], cwd=self.clone, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=self.output, stderr=self.output, pass_fds=(names_out, answers_in), start_new_session=True,
        )  # fmt: skip
        os.close(names_out)
        os.close(answers_in)

    def paste(self, text):
        """Gives the lines to the shell; returns what they print. Fails if one of them does."""
        self.number += 1
        file = self.top / f"block-{self.number}"
        file.write_text(text + "\n")
        at = self.output.seek(0, os.SEEK_END)
        print(file, file=self.names, flush=True)
        ready = select.select([self.answers], [], [], BLOCK_LIMIT_S)[0]
        answer = self.answers.readline() if ready else "no end"
        self.output.seek(at)
        printed = self.output.read()
        assert answer == "0\n", f"{text}\n--- printed:\n{printed}"
        return printed

    def serve(self, line):
        """Types a line into a new terminal and waits until its server answers."""
        log = open(self.top / f"terminal-{len(self.terminals)}", "wb")
        process = subprocess.Popen(
            ["bash", "-c", f'export PATH="$PWD/target/release:$PATH"; exec {line}'], cwd=self.clone, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        self.terminals.append(process)

        def answers():
            assert process.poll() is None, f"{line} ended: {Path(log.name).read_text()}"
            try:
                return "Mode: standalone" in four_letter_command(("127.0.0.1", 2181), "srvr", 1)
            except OSError:
                return False

        wait_until(answers, f"{line} serves", 60)

    def interrupt(self):
        """Ctrl-C in the last terminal; the server ends in good order."""
        process = self.terminals[-1]
        os.killpg(process.pid, signal.SIGINT)
        equal(process.wait(60), 0, "exit code after Ctrl-C")

    def not_ignored(self):
        """The lines of git about what differs from its index."""
        done = subprocess.run(["git", "status", "--porcelain"], cwd=self.clone, capture_output=True, text=True, check=True)
        return set(done.stdout.splitlines())

    def leave(self):
        self.names.close()
        self.shell.kill()
        self.shell.wait()
        for process in self.terminals:
            if process.poll() is None:
                process.kill()
                process.wait()
        for file in self.clone.glob("ens/*.pid"):
            pid = int(file.read_text())
            try:
                if "corral" in Path(f"/proc/{pid}/cmdline").read_text() and str(self.clone) == os.readlink(f"/proc/{pid}/cwd"):
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        shutil.rmtree(self.top, ignore_errors=True)


# What a block must print, by what is in it.
PRINTS = {
    "printf srvr >&3; cat <&3": ["Zookeeper version: 3.9", "Mode: standalone"],
    "KazooClient": ["b'world'"],
    "zkCli.sh": ["[", "zookeeper"],
    "bench --op get": ["50 connections"],
    "until mode 219$n": ["Mode: leader", "Mode: follower"],
    "until for m in": ["Mode: leader"],
    "log dump data": ["session 0x", "records:"],
    "snapshot inspect data": ["section"],
    "check-config --template": ["client_addr"],
}


def needs(block, newcomer):
    if "zkCli.sh" in block and not Path("/usr/share/zookeeper/bin/zkCli.sh").exists():
        pytest.skip("zkCli is not installed (Debian: zookeeper)")
    if "pip install" in block and not (newcomer.clone / "tests/.venv/bin/pip").exists():
        pytest.skip("kazoo is not installed in tests/.venv, and there is no network here")


def paste_block(newcomer, block):
    needs(block, newcomer)
    pieces, printed = [[]], ""
    for line in block.splitlines():
        if FOREGROUND.match(line):
            pieces += [line, []]
        else:
            pieces[-1].append(line)
    for piece in pieces:
        if isinstance(piece, str):
            newcomer.serve(piece)
        elif piece:
            text = "\n".join(piece)
            printed += newcomer.paste("tests/run --help" if text == "tests/run" else text)
    for sign, expected in PRINTS.items():
        for part in expected if sign in block else ():
            assert part in printed, f"{block}\n--- printed, without {part!r}:\n{printed}"


def steps():
    """What is done with each part of the README that asks for something."""
    for number, (heading, kind, text) in enumerate(items((REPOSITORY / "README.md").read_text())):
        name = f"{number:02}-{re.sub(r'[^a-z0-9]+', '-', heading.lower())}"
        if kind == "block":
            yield pytest.param(paste_block, text, id=name)
        elif "Ctrl-C" in text:
            yield pytest.param(lambda newcomer, _: newcomer.interrupt(), "Ctrl-C", id=f"{name}-ctrl-c")


@pytest.fixture(scope="module")
def newcomer():
    """In a network of its own, or, where none can be made, in that of the host if its ports are free."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(unshare.own(unshare.NETWORK))
        except pytest.skip.Exception as reason:
            if busy := [port for port in PORTS if not is_free(port)]:
                pytest.skip(f"ports {busy} are in use, and {reason}")
        else:
            begin_loopback()
        newcomer = Newcomer()
        stack.callback(newcomer.leave)
        yield newcomer


@pytest.mark.parametrize(("step", "text"), list(steps()))
def test_every_command(step, text, newcomer, note):
    note(text.splitlines()[0])
    try:
        step(newcomer, text)
    except Exception:
        for file in sorted(newcomer.top.glob("terminal-*")):
            print(f"--- {file.name}:\n{file.read_text(errors='replace')}")
        raise


def test_what_the_lines_leave_behind_is_ignored(newcomer):
    equal(newcomer.not_ignored() - newcomer.before, set(), "left behind, and not ignored")
    for name in ("data", "ens", "plots", "corral.toml"):
        assert (newcomer.clone / name).exists(), f"the README's lines make no {name} any more"


def test_the_test_command_names_its_failures(tmp_path):
    """The test command must name what failed on its last lines, and how to repeat it."""
    file = "tests/blackbox/test_switched.py"
    run = subprocess.run(
        ["tests/run", file], cwd=REPOSITORY,
        env={**os.environ, "CORRAL_BIN": "/bin/false", "CORRAL_TEST_LOGS": str(tmp_path)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=BLOCK_LIMIT_S,
    )  # fmt: skip
    if "cannot be installed from PyPI" in run.stdout:
        pytest.skip("the packages of the suites are not installed, and there is no network here")
    lines = run.stdout.splitlines()
    assert run.returncode == 1 and re.fullmatch(r"0 passed, [1-9]\d* failed, 0 skipped", lines[-1]), lines[-4:]
    at = next(number for number, line in enumerate(lines) if line.startswith("FAILED "))
    name = lines[at].removeprefix("FAILED ")
    assert name.startswith("blackbox/test_switched.py::test_"), name
    assert f" tests/.venv/bin/pytest tests/{name}" in lines[at + 1], lines[at + 1]
