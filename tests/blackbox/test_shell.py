"""`corral cli`: one command, a pipe, a terminal, and servers that vanish or answer nonsense.

Its output is compared with that of zkCli by the campaign `cli`.
"""

import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from support.cli import CONFLICT, LIMIT_S, NO_ZNODE, NOT_PERMITTED, USAGE, at
from support.expect import equal
from support.server import binary
from support.wait import TooLate, wait_until

SESSION_LOST, UNKNOWN_VERB, INTERRUPTED = 15, 127, 130
WHERE_IS_THE_CURSOR, AT_THE_TOP = b"\x1b[6n", b"\x1b[1;1R"


def shell(where, *words, text=None):
    """Runs `corral cli`, and returns the ended process with its texts."""
    command = [str(binary()), "cli", "-server", where, *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=LIMIT_S)


def started(where, *words):
    """`corral cli` with open pipes."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([str(binary()), "cli", "-server", where, *words], text=True, bufsize=1, **pipes)


def test_one_command_prints_its_result_alone_and_ends_with_a_code_of_its_own(server):
    where = at(server)
    for words, code, out, err in [
        (("create", "/a", "some text"), 0, "", "Created /a"),
        (("get", "/a"), 0, "some text\n", ""),
        (("create", "/a"), CONFLICT, "", "Node already exists: /a"),
        (("set", "-v", "7", "/a", "x"), CONFLICT, "", "version No is not valid : /a"),
        (("get", "/b"), NO_ZNODE, "", "Node does not exist: /b"),
        (("get",), USAGE, "", "get [-s] [-w] [-b] [-x] path"),
        (("get", "-z", "/a"), USAGE, "", "Unrecognized option: -z\n`help get` shows its options and examples"),
        (("quit", "-h"), 0, "Close the session, and leave.\n\nquit \n\nExamples:\n  quit\n  exit\n  close\n", ""),
        (("set", "/a", "--", "-h"), 0, "", ""),
        (("set", "/a", "some text"), 0, "", ""),
        (("get", "a"), USAGE, "", "Path must start with / character"),
        (("gte", "/a"), UNKNOWN_VERB, "", "Command not found: Command not found gte\ndid you mean `get`?"),
        (("x" * 100_000,), UNKNOWN_VERB, "", "Command not found"),
        (("setAcl", "/a", "digest:u:x=:r"), 0, "", ""),
        (("set", "/a", "x"), NOT_PERMITTED, "", "Insufficient permission : /a"),
        (("--bogus", "ls", "/"), USAGE, "", "--bogus"),
        (("--servr", "x", "ls", "/"), USAGE, "", "--servr is no option of the shell, but --server is; `corral cli --help`"),
    ]:
        done = shell(where, *words)
        equal((done.returncode, done.stdout, err in done.stderr), (code, out, True), f"{words}: {done.stderr}")
    done = shell("127.0.0.1:1", "get", "/a")
    equal((done.returncode, "127.0.0.1:1: Connection refused" in done.stderr), (SESSION_LOST, True), done.stderr)


def test_results_as_json(server):
    text = "create /j one\ncreate -s /j/ two\nls -R /j\nget /j\nset -b /j AP8=\nget /j\nstat /none\n"
    lines = shell(at(server), "--output", "jsonl", text=text)
    equal(lines.returncode, NO_ZNODE, lines.stderr)
    created, child, *paths, data, other = map(json.loads, lines.stdout.splitlines())
    equal((created["created"], child["created"], paths), ("/j", "/j/0000000000", ["/j", "/j/0000000000"]))
    equal((data["data"], data["stat"]["num_children"], other["base64"], "data" in other), ("one", 1, "AP8=", False))
    document = json.loads(shell(at(server), "--output", "json", "ls", "-R", "/j").stdout)
    equal(document, paths)


def test_an_interrupted_shell_leaves_no_ephemeral(server):
    with started(at(server), "-timeout", "60000") as played:
        played.stdin.write("create -e /mine\n")
        equal(played.stderr.readline(), "Created /mine\n")
        played.send_signal(signal.SIGINT)
        equal(played.wait(LIMIT_S), INTERRUPTED)
    with server.client() as client:
        assert "mine" not in client.children("/")


def events(played, expected):
    """Reads until as many events are shown."""
    shown = ""
    while shown.count("WatchedEvent") < len(expected):
        line = played.stdout.readline()
        assert line, shown
        shown += line
    equal(re.findall(r"state:(\w+) type:(\w+) path:(\S+)", shown), expected)


def test_watches_and_ephemerals_outlive_the_server_process(own_server):
    with started(at(own_server), "-timeout", "60000") as played:
        played.stdin.write("create -e /mine\ncreate /seen\nget -w /seen\naddWatch /below\n")
        equal([played.stderr.readline() for _ in range(2)], ["Created /mine\n", "Created /seen\n"])
        equal(played.stdout.readline(), "null\n")
        played.stdin.write("sync /\n")
        equal(played.stdout.readline(), "Sync is OK\n")
        own_server.kill()
        own_server.start()
        events(played, [("Disconnected", "None", "null"), ("SyncConnected", "None", "null")])
        with own_server.client() as client:
            client.set("/seen", b"new")
            client.create("/below")
        events(played, [("SyncConnected", "NodeDataChanged", "/seen"), ("SyncConnected", "NodeCreated", "/below")])
        played.stdin.write("getEphemerals\nquit\n")
        equal(played.stdout.readline(), "[/mine]\n")


def test_an_expired_session_ends_the_commands(server):
    """The process sleeps for longer than its session lives."""
    with started(at(server), "-timeout", "1000") as played:
        played.stdin.write("create -e /sleeper\n")
        equal(played.stderr.readline(), "Created /sleeper\n")
        played.send_signal(signal.SIGSTOP)
        with server.client() as client:
            wait_until(lambda: "sleeper" not in client.children("/"), "the session is expired")
        played.send_signal(signal.SIGCONT)
        while "Expired" not in played.stdout.readline():
            pass
        out, err = played.communicate("ls /\n", timeout=LIMIT_S)
    equal((played.returncode, "Not connected" in out), (SESSION_LOST, True), out + err)


CONNECTED = struct.pack(">iiiqi", 0, 0, 10_000, 5, 16)[4:] + bytes(17)


@pytest.mark.parametrize(
    "answers",
    [
        [struct.pack(">i", -5)],
        [struct.pack(">i", 0x7FFFFFFF) + bytes(100)],
        [struct.pack(">i", 3) + b"abc"],
        [struct.pack(">i", len(CONNECTED)) + CONNECTED, struct.pack(">iiqi", 16, 1, 7, 0)],
        [struct.pack(">i", len(CONNECTED)) + CONNECTED, struct.pack(">iiqii", 20, 1, 7, 0, 0x7FFFFFF0)],
        [struct.pack(">i", len(CONNECTED)) + CONNECTED, struct.pack(">iiqi", 16, 99, 7, 0)],
    ],
    ids=["negative", "huge", "short", "no-record", "long-data", "other-request"],
)
def test_a_server_that_answers_nonsense(answers):
    """The first answer is for the connect request, the second for getData."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                for answer in answers:
                    connection.recv(65_536)
                    connection.sendall(answer)
                connection.recv(65_536)

    threading.Thread(target=serve, daemon=True).start()
    with listener:
        done = shell("127.0.0.1:{}".format(listener.getsockname()[1]), "-timeout", "1000", "get", "/x")
    assert done.returncode in (1, SESSION_LOST) and done.stderr.startswith("KeeperErrorCode = ") and "panic" not in done.stderr, done.stderr


class Terminal:
    """`corral cli` on a terminal, which tells where its cursor is."""

    def __init__(self, where):
        self.own, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "CORRAL_HISTORY": "", "NO_COLOR": "1"}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        self.process = subprocess.Popen([str(binary()), "cli", "-server", where], env=environment, start_new_session=True, **pipes)
        os.close(theirs)
        self.shown = b""

    def press(self, text):
        os.write(self.own, text.encode())

    def sees(self, pattern):
        """Waits until what is shown since the last call fits."""
        deadline = time.monotonic() + LIMIT_S
        while not (found := re.search(pattern.encode(), self.shown, re.S)):
            if not select.select([self.own], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TooLate(f"{pattern} is not shown, but {self.shown}")
            self.shown += os.read(self.own, 65_536)
            if WHERE_IS_THE_CURSOR in self.shown:
                self.shown = self.shown.replace(WHERE_IS_THE_CURSOR, b"")
                os.write(self.own, AT_THE_TOP)
        self.shown = self.shown[found.end() :]


def test_a_terminal_completes_and_keeps_the_line_beside_events(server):
    with server.client() as client:
        client.create("/application", b"old")
        terminal = Terminal(at(server))
        terminal.sees(r"Tab completes.*\(\w+\) 0\] ")
        terminal.press("addW\t")
        terminal.sees(r"addWatch")
        terminal.press("/app\t\r")
        terminal.sees(r"/application.*\(CONNECTED\) 1\] ")
        terminal.press("get /appl")
        terminal.sees(r"get /appl")
        client.set("/application", b"new")
        terminal.sees(r"type:NodeDataChanged path:/application.*get /appl")
        terminal.press("ication\r")
        terminal.sees(r"\r\nnew\r\n.*\(CONNECTED\) 2\] ")
        terminal.press("\x04")
        equal(terminal.process.wait(LIMIT_S), 0)
        os.close(terminal.own)
