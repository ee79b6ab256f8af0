"""Recipes of the command line: `corral lock`, `corral queue` and the others."""

import subprocess
from contextlib import contextmanager

from support.cli import LIMIT_S, at
from support.expect import equal
from support.server import binary

SESSION_LOST, TIMED_OUT, ABORTED, NOT_EXECUTABLE, NOT_FOUND, INTERRUPTED = 15, 19, 20, 126, 127, 130


def arguments(server, words):
    """The command line. Options of the recipe end at `--`."""
    words = [str(word) for word in words]
    end = words.index("--") if "--" in words else len(words)
    return [binary(), *words[:end], "--server", at(server), *words[end:]]


def run(server, *words, text=""):
    return subprocess.run(arguments(server, words), capture_output=True, text=True, timeout=LIMIT_S, input=text)


def done(server, *words, text=""):
    result = run(server, *words, text=text)
    equal(result.returncode, 0, result.stderr)
    return result.stdout


def refused(server, code, *words, text=""):
    result = run(server, *words, text=text)
    equal(result.returncode, code, result.stderr + result.stdout)
    return result.stderr


@contextmanager
def started(server, *words):
    """A running recipe, which gets SIGTERM at the end."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(arguments(server, words), text=True, **pipes)
    with process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
