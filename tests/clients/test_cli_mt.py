"""Runs the same session of cli_mt, the shell of ZooKeeper's C client, on a real ZooKeeper and on corral and compares what it prints.

cli_mt is in Debian's package zookeeper-bin. Zxids and session ids are replaced by their order of appearance, times are left out.
"""

import difflib
import os
import re
import subprocess
import threading

import pytest

from clients import programs
from support import packages

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS
PROGRAM = "/usr/lib/zookeeper/bin/cli_mt"
LIMIT_S = 60
COMMANDS = """
create /cli
set /cli hello
get /cli
ls /
create +e /cli/e
create +s /cli/s-
create +c /cli/container
create +t 3600000 /cli/ttl
ls2 /cli
exists /cli/none
wexists /w
create /w
stat /cli/e
addauth digest u:p
delete /cli/s-0000000001
delete /cli
set /none x
sync /cli
"""
# Printed by the thread that reads the commands, any time between what the other prints for the answers.
COMMAND_LINE = re.compile(r"Creating \[|Error |logging level|Quitting")
NOISE = re.compile(r"^time = |ZOO_(INFO|DEBUG)@|^$|[cm]time ?=")
NUMBER = re.compile(r"((?:czxid|mzxid)=|session id: 0x|session Id = |ephemeralOwner = )([0-9a-f]+)", re.IGNORECASE)


def session(server):
    """What cli_mt prints for the commands, with names for the numbers that differ between servers."""
    command = ["stdbuf", "-oL", PROGRAM, f"{server.address[0]}:{server.address[1]}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    lines = []
    try:
        process.stdin.write(COMMANDS.lstrip())
        process.stdin.flush()
        for line in process.stdout:
            lines.append(line.rstrip())
            # The answer to sync is the last.
            if lines[-2:] == ["[/cli]: rc = 0", "\tname = /cli"] and sum("/cli]: rc" in seen for seen in lines) == 2:
                process.stdin.write("quit\n")
                process.stdin.flush()
        assert process.wait() == 0, f"cli_mt ended with code {process.returncode}, or not within {LIMIT_S} s:\n" + "\n".join(lines)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    names = {}
    named = [NUMBER.sub(lambda found: found[1] + name(names, found[2]), line) for line in lines if not NOISE.search(line)]
    answers = [line for line in named if not COMMAND_LINE.search(line)]
    return with_sorted_names(answers) + [line for line in named if COMMAND_LINE.search(line)]


def with_sorted_names(lines):
    """The lines with each list of children sorted; ZooKeeper's order is that of a hash table."""
    sorted_lines, names = [], []
    for line in [*lines, None]:
        if line is not None and re.fullmatch(r"\t[^ =]+", line):
            names.append(line)
            continue
        sorted_lines += sorted(names)
        names = []
        if line is not None:
            sorted_lines.append(line)
    return sorted_lines


def name(names, number):
    """The same name for the same number; zero stays zero."""
    return number if int(number, 16) == 0 else names.setdefault(number, f"<{len(names)}>")


def test_outputs_match_zookeeper(zookeeper, own_server, note):
    if not os.path.exists(PROGRAM):
        pytest.skip("no cli_mt: install Debian's package zookeeper-bin")
    packages.need_command("stdbuf", "coreutils")
    expected, actual = session(zookeeper), session(own_server)
    if expected != actual:
        raise AssertionError("\n".join(difflib.unified_diff(expected, actual, "zookeeper", own_server.kind, lineterm="")))
    note(f"{len(COMMANDS.strip().splitlines())} commands, {len(actual)} lines of output are the same")
