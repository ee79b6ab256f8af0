"""One server process of ours: pinned, started, watched, asked for its CPU time and memory, ended by its id."""

import contextlib
import ctypes
import os
import shlex
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from comparison import say

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
START_LIMIT_S, STOP_LIMIT_S = 120, 60
CONNECT_FRAME = struct.pack(">iiqiqi16sB", 45, 0, 0, 10_000, 0, 16, b"", 0)
CLOSE_FRAME = struct.pack(">iii", 8, 1, -11)
GET_DATA = 4
PORTS_TRIED = 100


def prepare_child(cpus):
    """Runs in a new process before its program does: pins it, and ties its life to ours, however that ends."""
    os.sched_setaffinity(0, cpus)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A server from its start to its end."""

    def __init__(self, peer, port, directory, cpus, data_dir=None):
        self.name, self.port, self.cpus = peer.name, port, cpus
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir or self.directory / "data"
        self.command = peer.filled(port, shlex.quote(str(self.data_dir)), min(cpus))
        self.log_path, self.process = self.directory / "server.log", None

    @property
    def pid(self):
        return self.process.pid

    def spawn(self):
        """Starts the program and gives when, in seconds of the monotonic clock."""
        with open(self.log_path, "ab") as log:
            begun = time.monotonic()
            self.process = subprocess.Popen(
                shlex.split(self.command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
                start_new_session=True, preexec_fn=lambda: prepare_child(self.cpus),
            )  # fmt: skip
        return begun

    def start(self, limit_s=START_LIMIT_S):
        self.spawn()
        until = time.monotonic() + limit_s
        while True:
            try:
                handshake(self.port)
                return self
            except OSError:
                self.check_alive()
                if time.monotonic() > until:
                    raise RuntimeError(f"{self.name} granted no session in {limit_s} s:\n{self.log_tail()}") from None
                time.sleep(0.05)

    def check_alive(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with code {self.process.returncode}:\n{self.log_tail()}")

    def stop(self):
        """SIGTERM, and if that does not end it SIGKILL."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                say(f"note: {self.name} did not end on SIGTERM within {STOP_LIMIT_S} s, killed")
                self.kill()

    def kill(self):
        """kill -9, and waits until the process is gone."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def log_tail(self):
        return self.log_path.read_text(errors="replace")[-2000:]

    def cpu_s(self):
        """Seconds of CPU time of the whole process, ended threads included, from the scheduler's own counters."""
        # The kernel's name of another process's CPU clock, as clock_getcpuclockid makes it: not in Python's library.
        return time.clock_gettime(~self.pid << 3 | 2)

    def memory(self):
        """Resident bytes: all, of the process's own, of mapped files."""
        sizes = {}
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(("VmRSS", "Rss")):
                sizes[line.split(":")[0]] = int(line.split()[1]) * 1024
        return {"all": sizes["VmRSS"], "own": sizes["RssAnon"] + sizes["RssShmem"], "mapped": sizes["RssFile"]}


def receive(stream, count):
    """Exactly so many bytes."""
    got = b""
    while len(got) < count:
        more = stream.recv(count - len(got))
        if not more:
            raise ConnectionError("closed")
        got += more
    return got


def frame(stream):
    """One frame without its length word."""
    return receive(stream, struct.unpack(">i", receive(stream, 4))[0])


def session(port, timeout_s=1.0, host="127.0.0.1"):
    """A socket with an open session."""
    stream = socket.create_connection((host, port), timeout=timeout_s)
    try:
        stream.sendall(CONNECT_FRAME)
        if len(frame(stream)) < 20:
            raise ConnectionError("no session")
        return stream
    except BaseException:
        stream.close()
        raise


def free_port(first):
    """The first port of a hundred that is not listened on, connected from or just left; not every server takes over such a one."""
    for port in range(first, min(first + PORTS_TRIED, 1 << 16)):
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"no port of {PORTS_TRIED} from {first} on is free")


def handshake(port, host="127.0.0.1"):
    """Opens and closes a session: an open port alone may be one that is not served yet."""
    with session(port, host=host) as stream:
        stream.sendall(CLOSE_FRAME)
        frame(stream)


def read_once(port, path, timeout_s=5.0):
    """The value of a znode, through a session of its own."""
    encoded = path.encode()
    with session(port, timeout_s) as stream:
        body = struct.pack(f">iii{len(encoded)}sB", 1, GET_DATA, len(encoded), encoded, 0)
        stream.sendall(struct.pack(">i", len(body)) + body)
        reply = frame(stream)
        _, _, error = struct.unpack_from(">iqi", reply)
        if error:
            raise LookupError(f"{path}: error {error}")
        length = struct.unpack_from(">i", reply, 16)[0]
        return reply[20 : 20 + max(0, length)]
