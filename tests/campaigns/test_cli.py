"""zkCli of a real ZooKeeper 3.9 and `corral cli` are given the same commands, each with a ZooKeeper and with a corral.

    tests/.venv/bin/pytest tests/campaigns/test_cli.py -s

The output of zkCli with ZooKeeper is expected: for each command the lines of standard output, those of standard error, and the watch
events. The other three pairs must print the same. shell_commands.py holds the commands and, in one table, the wanted differences. A wanted
difference that does not appear fails too.
"""

import functools
import glob
import json
import os
import re
import select
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from campaigns import shell_commands
from differential.servers import CORRAL_SETTINGS, CORRAL_STRICT, JAVA_OPTIONS, TICK_MS, ZOOKEEPER_SETTINGS, ZOOKEEPER_STRICT, why_not
from ensemble.cluster import CALM, Ensemble
from support.expect import equal
from support.server import Corral, ZooKeeper, binary, java_class_path
from support.shell import Names, replaced
from support.wait import TooLate

ANSWER_LIMIT_S = 60
# An event of a closed session comes from another thread of zkCli than the answers.
EVENT_LIMIT_S = 5
PIPE_BYTES = 1 << 16
SHOWN_MAX = 30
MAIN = "org.apache.zookeeper.ZooKeeperMain"
ENVIRONMENT = {**os.environ, "TZ": "UTC", "LC_ALL": "C.UTF-8"}
SYNCED = re.compile(r"(Sync is OK|Not connected|Sync has failed\. rc=-\d+)\n\Z")
EVENT = re.compile(r"^\nWatchedEvent (.*)\n", re.M)
CLOSING = re.compile(r"state:(Closed|AuthFailed|Expired) ")
BOUNDARY = re.compile(r"(usage\n\tverb \n)?Command not found: Command not found boundary-\d+\n\Z")
# The list of all verbs at an unknown one, in the place of which corral names one verb; a prefix of errors; and the line that names `help`.
OF_JAVA = re.compile(
    r"^ZooKeeper -server host:port .*\n(?:\t.*\n)+|^org\.apache\.commons\.cli\.\w+: |^did you mean `\w+`\?\n|^`help \w+` shows its .*\n",
    re.M,
)
# Log lines, stack traces, and the lines with which a shell begins.
NOISE = re.compile(
    r"^(SLF4J|log4j|Connecting to |Welcome to ZooKeeper|JLine support|\d\d:\d\d:\d\d[.,]\d+ |\d{4}-\d\d-\d\d|\tat |\t\.\.\. |Caused by: ).*\n"
    r"|^\nWATCHER::\n",
    re.M,
)
# ZooKeeper lists ephemerals, the servers of `config -c` and identities in the order of a hash table.
LISTED = re.compile(r"(?<=out\|\[)/.*(?=\])|(?<=> )\S*,\S*$")
IDENTITIES = "Auth scheme: User"


class Shell:
    """A shell that gets one line at a time. After each, `sync /` waits for its events, and an unknown verb marks the end of its errors."""

    def __init__(self, command, names):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, env=ENVIRONMENT, bufsize=0, **pipes)
        self.texts = {self.process.stdout: b"", self.process.stderr: b""}
        self.open = list(self.texts)
        self.names, self.count, self.is_live = names, 0, False

    def __enter__(self):
        self.play("printwatches")
        return self

    def __exit__(self, *_):
        """Ends the session too, so that the next one does not see its ephemerals."""
        try:
            self.process.communicate(b"quit\n", timeout=ANSWER_LIMIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, *self.texts):
                pipe.close()

    def play(self, line):
        """The lines that a command prints. After the end of the shell its exit code is the last line."""
        self.count += 1
        mark, was_live = f"boundary-{self.count}", self.is_live
        self.texts = dict.fromkeys(self.texts, b"")
        try:
            self.process.stdin.write(f"{line}\nsync /\n{mark}\n".encode())
        except BrokenPipeError:
            pass
        self.read_until(lambda: f"Command not found {mark}\n".encode() in self.texts[self.process.stderr], ANSWER_LIMIT_S, line)
        while self.read(0):
            pass
        if not self.open:
            return described(*self.printed(), self.names) + [f"code|{self.process.wait(ANSWER_LIMIT_S)}"]
        synced = SYNCED.search(self.printed()[0])
        self.is_live = bool(synced) and synced[1] == "Sync is OK"
        if was_live and (not self.is_live or line.startswith("connect")):
            self.read_until(lambda: any(CLOSING.search(event) for event in self.printed()[1]), EVENT_LIMIT_S)
        out, events, err = self.printed()
        return described(SYNCED.sub("", out), events, BOUNDARY.sub("", err), self.names)

    def printed(self):
        return parted(*self.texts.values())

    def read_until(self, condition, limit_s, line=None):
        """Reads until the condition is true or the shell has ended. At the limit it fails if the line is given."""
        deadline = time.monotonic() + limit_s
        while self.open and not condition():
            if not self.read(max(0, deadline - time.monotonic())):
                if line is None:
                    return
                raise TooLate(f"{line!r}: no answer within {limit_s} s; printed: {self.texts}")

    def read(self, wait_s):
        """Reads the pipes, and waits at most so long for something. Returns false if nothing came."""
        ready = select.select(self.open, [], [], wait_s)[0]
        for pipe in ready:
            read = os.read(pipe.fileno(), PIPE_BYTES)
            self.texts[pipe] += read
            if not read:
                self.open.remove(pipe)
        return bool(ready)


def parted(out, err):
    """Standard output without its events, the events, and standard error. All without noise."""
    out, err = (NOISE.sub("", text.decode(errors="replace")) for text in (out, err))
    return EVENT.sub("", out), EVENT.findall(out), OF_JAVA.sub("", err)


def described(out, events, err, names):
    """Lines of a command, each behind the name of its stream, and with names for numbers that differ between servers."""
    out = out.splitlines()
    if out[:1] == [IDENTITIES]:
        out.sort()
    # The end of one session and the begin of the next come from two threads, and removed watches from a hash table.
    events.sort(key=lambda event: event if "zxid: -1" in event else "~")
    parts = {"out": out, "err": err.splitlines(), "event": events}
    lines = (f"{part}|{names.line(line)}" for part, printed in parts.items() for line in printed)
    return [LISTED.sub(lambda found: ",".join(sorted(re.split(", ?", found[0]))), line) for line in lines]


def run(command, text, names):
    """The lines of a whole run and whether it failed, without the events of its own session, which depend on timing."""
    done = subprocess.run(command, input=(text or "").encode(), env=ENVIRONMENT, capture_output=True, timeout=ANSWER_LIMIT_S)
    lines = described(*parted(done.stdout, done.stderr), names)
    code = f"code|{bool(done.returncode)}"
    return [line for line in lines if not (line.startswith("event|") and "type:None" in line)] + [code]


def words(server):
    """Words of the commands, and the text that each stands for with this server."""
    if not isinstance(server, Ensemble):
        return {"ADDRESS": "{}:{}".format(*server.address)}
    path = server.members[0].directory / "list"
    path.write_text("".join(f"server.{number}={spec}\n" for number, spec in server.specs.items()))
    clients = {f"ADDRESS{number}": spec.split(";")[1] for number, spec in server.specs.items()}
    return {f"SPEC{number}": spec for number, spec in server.specs.items()} | clients | {"FILE": str(path), "ADDRESS": clients["ADDRESS1"]}


def transcript(shell, servers):
    """Lines by command: {(session, number, command): lines}. `shell` makes the command line for an address."""
    names, lines, meanings = Names(), {}, {kind: words(server) for kind, server in servers.items()}

    def add(session, number, command, play, means):
        names.move(f"{session} {number}.", {text: word for word, text in means.items()})
        lines[session, number, command] = play()

    for session, text in shell_commands.SESSIONS.items():
        means = meanings.get(session, meanings["usual"])
        with Shell([*shell(means["ADDRESS"]), "-waitforconnection"], names) as played:
            for number, command in enumerate(text.splitlines()[1:]):
                add(session, number, command, functools.partial(played.play, replaced(command, means)), means)
    means = meanings["usual"]
    for number, (arguments, text) in enumerate(shell_commands.PROGRAMS):
        command = " ".join(arguments) if text is None else repr(text)
        program = [*shell(means["ADDRESS"]), *(replaced(argument, means) for argument in arguments)]
        add("program", number, command, functools.partial(run, program, text, names), means)
    return lines


def differences(expected, actual, sides, table=shell_commands.WANTED):
    """Texts: each command with another output, and each wanted difference that did not appear."""
    found, seen = [], set()
    for key, lines in expected.items():
        if actual[key] == lines:
            continue
        fits = [row for row in table if row.side in sides and key[2] in row.commands and re.fullmatch(row.lines, "\n".join(actual[key]))]
        seen.update(fits)
        if not fits:
            told = "".join(f"\n    {sign} {line}" for sign, part in (("-", lines), ("+", actual[key])) for line in part)
            found.append(f"{key[0]} {key[1]}: {key[2]}{told}")
    left = [row for row in table if row.side in sides and row not in seen]
    return found + [f"a wanted difference did not appear: {row.reason}" for row in left]


def zkcli(address):
    """Without JLine, which shows a prompt and the commands, and breaks long ones."""
    jars = [jar for part in java_class_path().split(":") for jar in (glob.glob(f"{part}.jar") if part.endswith("*") else [part])]
    path = ":".join(jar for jar in jars if "jline" not in jar)
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path, MAIN, "-server", address]


def corral_cli(address):
    return [str(binary()), "cli", "-server", address]


def made(kind, shards):
    """Servers, not started: one with every feature, one without quotas, extended types and reconfig, and an ensemble."""
    if kind == "zookeeper":
        settings = {"usual": ZOOKEEPER_STRICT, "plain": {"extendedTypesEnabled": "false"}}
        servers = {name: ZooKeeper(TICK_MS, ZOOKEEPER_SETTINGS | more, JAVA_OPTIONS) for name, more in settings.items()}
    else:
        settings = {"usual": CORRAL_STRICT, "plain": {"features.extended_types": "false"}}
        servers = {name: Corral(shards, TICK_MS, CORRAL_SETTINGS | more) for name, more in settings.items()}
    return servers | {"ensemble": Ensemble(kind, shards=shards, settings=CALM)}


def play(shell, kind, shards):
    """The transcript of a shell with new servers of the kind."""
    with ExitStack() as stack:
        servers = made(kind, shards)
        for server in servers.values():
            stack.callback(server.dispose)
            server.start()
        return transcript(shell, servers)


@pytest.fixture(scope="module")
def expected(shards):
    if reason := why_not():
        pytest.skip(reason)
    return play(zkcli, "zookeeper", shards)


@pytest.mark.parametrize(
    "shell, kind, sides",
    [(zkcli, "corral", {"server"}), (corral_cli, "zookeeper", {"shell"}), (corral_cli, "corral", {"server", "shell"})],
    ids=["zkcli-corral", "cli-zookeeper", "cli-corral"],
)
def test_the_same_is_printed(shell, kind, sides, expected, shards, say, note):
    if shell is corral_cli and subprocess.run([binary(), "help", "cli"], capture_output=True).returncode:
        pytest.skip("this corral has no sub-command cli")
    found = differences(expected, play(shell, kind, shards), sides)
    note(f"{len(expected)} commands, {sum(map(len, expected.values()))} lines, {len(found)} differences")
    for text in found[:SHOWN_MAX]:
        say(text)
    if found:
        pytest.fail(f"{len(found)} commands print something else", pytrace=False)


# Prints what a file says for each command.
FAKE = r"""
import json, sys
said = json.load(open(sys.argv[1]))
for line in sys.stdin:
    command = line.rstrip("\n")
    unknown = f"usage\n\tverb \nCommand not found: Command not found {command}\n"
    out, err = {"sync /": ("Sync is OK\n", "")}.get(command) or said.get(command) or ("", unknown)
    print(out, end="", flush=True)
    print(err, end="", file=sys.stderr, flush=True)
    if command == "quit":
        sys.exit(7)
"""
FAKE_SAYS = {
    "printwatches": ("Connecting to x\nprintwatches is on\n", ""),
    "ls /": ("[a, b]\n", ""),
    "get /": ("\n", ""),
    "set / x": ("\n\nWATCHER::\n\nWatchedEvent state:SyncConnected type:NodeDataChanged path:/ zxid: 7\n", "warned\n"),
    "stat /": ("cZxid = 0x7\nctime = Fri Nov 27 19:18:23 UTC 2026\nmZxid = 0x8\n", ""),
    "quit": ("\n", ""),
}


def test_a_changed_line_is_found(tmp_path):
    """The comparison itself, with shells that print what a file says."""

    def lines(said):
        path, names = tmp_path / "said", Names()
        path.write_text(json.dumps(said))
        with Shell([sys.executable, "-c", FAKE, path], names) as played:
            return {("fake", number, command): played.play(command) for number, command in enumerate(list(FAKE_SAYS)[1:])}

    expected = lines(FAKE_SAYS)
    printed = [["out|[a, b]"], ["out|"], ["out|", "err|warned", "event|state:SyncConnected type:NodeDataChanged path:/ zxid: <zxid 0>"]]
    printed += [["out|cZxid = 0x<zxid 0>", "out|ctime = <time>", "out|mZxid = 0x<zxid 1>"], ["out|", "code|7"]]
    equal(list(expected.values()), printed)
    changes = {
        "ls /": ("", "[a, b]\n"),
        "get /": ("", ""),
        "set / x": ("\n", "warned\n"),
        "stat /": ("cZxid = 0x9\n", ""),
        "quit": ("", ""),
    }
    row = shell_commands.Wanted("shell", ("ls /",), r"err\|\[a, b\]", "to standard error")
    for number, (command, change) in enumerate(changes.items()):
        actual = lines({**FAKE_SAYS, command: change})
        found = differences(expected, actual, {"server"}, [row])
        equal([text.split("\n")[0] for text in found], [f"fake {number}: {command}"])
        equal(len(differences(expected, actual, {"shell"}, [row])), 0 if command == "ls /" else 2)
    equal(differences(expected, expected, {"server"}, [row]), [])
