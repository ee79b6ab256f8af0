"""Runs the same zkCli sessions against a real ZooKeeper and against corral and compares what it prints.

Both servers come from one place: the jars of ZOOKEEPER_JARS, or Debian's package. Zxids, session ids and times are replaced
by their order of appearance; watch events, which zkCli prints from another thread, are compared apart from the rest.
"""

import difflib
import re
import subprocess
from pathlib import Path

from support.server import java_class_path
from support.shell import Names

HERE = Path(__file__).resolve().parent
SCRIPTS = ("zkcli_first.txt", "zkcli_second.txt")
CLI_LIMIT_S = 120
# Lines that tell about the client, or about the address of the server. zkCli ends itself without waiting for the thread that
# prints of its own end.
NOISE = re.compile(r"SLF4J|Connecting to|Welcome to|JLine|^log4j|^WATCHER::|state:Closed|^$")
EVENT = re.compile(r"WatchedEvent")
# With JLine each command is shown behind a prompt.
PROMPT = re.compile(r"^\[zk: [^(]*\(\w+\) \d+\] ?")


def run_cli(address, script):
    """The lines zkCli prints for a script: answers, errors and events."""
    main = "org.apache.zookeeper.ZooKeeperMain"
    command = ["java", "-Duser.timezone=UTC", "-cp", java_class_path(), main, "-server", f"{address[0]}:{address[1]}", "-waitforconnection"]
    done = subprocess.run(command, input=(HERE / script).read_text(), capture_output=True, text=True, timeout=CLI_LIMIT_S, check=False)
    commands, lines = set((HERE / script).read_text().splitlines()), (PROMPT.sub("", line) for line in done.stdout.splitlines())
    answers = [line for line in lines if line not in commands and not NOISE.search(line)]
    errors = [line for line in done.stderr.splitlines() if not NOISE.search(line)]
    return {
        "answers": [line for line in answers if not EVENT.search(line)],
        "events": [line for line in answers if EVENT.search(line)],
        "errors": errors,
        "exit code": [str(done.returncode)],
    }


def transcript(server):
    """Everything the sessions print on one server, with names for what differs."""
    with_names, names = [], Names()
    for script in SCRIPTS:
        for part, lines in run_cli(server.address, script).items():
            with_names.append(f"== {script} {part}")
            with_names += [names.line(line) for line in lines]
    return with_names


def test_outputs_match_zookeeper(zookeeper, own_server, note):
    expected, actual = transcript(zookeeper), transcript(own_server)
    if expected != actual:
        raise AssertionError("\n".join(difflib.unified_diff(expected, actual, "zookeeper", own_server.kind, lineterm="")))
    commands = sum(len((HERE / script).read_text().splitlines()) for script in SCRIPTS)
    note(f"{commands} commands, {len(actual)} lines of output are the same")
