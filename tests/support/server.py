"""Starts, watches and kills servers under test: corral, and a real ZooKeeper as the oracle.

Every server is a process of ours, addressed by its pid alone. Its files and its log are in a directory of its own.
"""

import glob
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections import namedtuple
from pathlib import Path

from support import REPOSITORY
from support.client import Client, Closed, four_letter_command
from support.wait import free_port, wait_until

START_LIMIT_S = 60
PROBE_LIMIT_S = 5
# A log that is quickly made: with the usual one an ensemble writes half a GiB when it starts.
SMALL_LOG = {"log.segment_bytes": 8 << 20, "log.spare_segments_max": 1}
# No snapshot but those that a test asks for.
NO_SNAPSHOT = {"snapshot.floor_bytes": 1 << 40, "snapshot.log_bytes_max": 0, "snapshot.interval_max_ms": 0}
DEBIAN_FOLDER = "/usr/share/java"
DEBIAN_JARS = "zookeeper zookeeper-jute commons-cli commons-io slf4j-api netty-all snappy-java metrics-core jackson-* netty-*"
# Of Debian's libjetty9-java: without them ZooKeeper has no AdminServer.
JETTY_JARS = "jetty9-server jetty9-servlet jetty9-security jetty9-http jetty9-io jetty9-util jetty9-util-ajax"


class Memory(namedtuple("Memory", "own_kib mapped_kib")):
    """Resident memory: the process's own, and file pages it has mapped, which the kernel can take back at any time."""

    def __str__(self):
        return f"{self.own_kib / 1024:.0f} MiB resident and {self.mapped_kib / 1024:.0f} MiB of mapped files"


class Server:
    """A server process; a subclass knows the command line."""

    kind = "server"
    # Those whose processes were started and not disposed of, in order.
    started = []

    def __init__(self, tick_ms=500):
        self.directory = Path(tempfile.mkdtemp(prefix="corral-test-"))
        self.address = ("127.0.0.1", free_port())
        self.tick_ms = tick_ms
        self.log_path = self.directory / "log"
        self.process = None
        # Of HTTP for administration. None: it is off.
        self.admin_port = None
        # None = as many file descriptors as this process may have.
        self.open_files_max = None

    def start(self, limit_s=START_LIMIT_S):
        """Starts the process and waits until it serves."""
        self.launch()
        wait_until(self.is_serving, f"{self.kind} serves", limit_s)
        return self

    def launch(self):
        if self not in Server.started:
            Server.started.append(self)
        command = self.command()
        if self.open_files_max:
            command = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(self.open_files_max), *command]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_serving(self):
        code = self.process.poll()
        if code is not None:
            raise RuntimeError(f"{self.kind} ended with code {code}:\n{self.log_tail()}")
        try:
            return self.answers()
        except (OSError, Closed):
            return False

    def answers(self):
        return "Mode: " in four_letter_command(self.address, "srvr", PROBE_LIMIT_S)

    def kill(self):
        """kill -9, and waits until the process is gone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def terminate(self):
        """SIGTERM, and does not wait."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self, limit_s=60):
        """SIGTERM; returns the exit code."""
        self.terminate()
        return self.process.wait(limit_s)

    def restart(self):
        self.kill()
        return self.start()

    def client(self, **options):
        return Client(self.address, **options)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def log_tail(self, lines=20):
        return "\n".join(self.log().splitlines()[-lines:])

    def memory(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            sizes = {line.split(":")[0]: int(line.split()[1]) for line in status if line.startswith("Rss")}
        return Memory(sizes["RssAnon"] + sizes["RssShmem"], sizes["RssFile"])

    def dispose(self, keep=False):
        """Ends the process and removes its files unless they are to be kept for a look."""
        if self.process and self.process.poll() is None:
            self.kill()
        if self in Server.started:
            Server.started.remove(self)
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)


class Corral(Server):
    kind = "corral"

    def __init__(self, shards=2, tick_ms=500, settings=None, program=None):
        """`program` is another binary than the one under test."""
        super().__init__(tick_ms)
        self.shards, self.program = shards, program
        self.settings = {
            "server.tick_time_ms": tick_ms,
            "limits.connections_per_ip_max": 0,
            "commands.four_letter_whitelist": '["*"]',
            "admin.enabled": "false",
            **more_settings(),
            **(settings or {}),
        }

    def command(self):
        host, port = self.address
        command = [str(self.program or binary()), "serve", "--data-dir", "data", "--client-addr", f"{host}:{port}"]
        command += ["--shards", str(self.shards)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command


class ZooKeeper(Server):
    """A real ZooKeeper, standalone, from the jars of ZOOKEEPER_JARS or Debian's package."""

    kind = "zookeeper"

    def __init__(self, tick_ms=500, settings=None, java_options=()):
        super().__init__(tick_ms)
        self.java_options = java_options
        self.settings = {
            "tickTime": tick_ms,
            "dataDir": self.directory / "data",
            "clientPort": self.address[1],
            "clientPortAddress": self.address[0],
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **(settings or {}),
        }

    def command(self):
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return ["java", "-Xmx256m", *self.java_options, "-cp", java_class_path(), main, str(config)]


def more_settings():
    """Settings that CORRAL_SETTINGS gives every corral, such as runtime.transport=stream; commas between them."""
    pairs = [pair for pair in os.environ.get("CORRAL_SETTINGS", "").split(",") if pair]
    return dict(pair.split("=", 1) for pair in pairs)


def binary():
    """The corral binary: CORRAL_BIN, or the newest one built in the target directory."""
    if chosen := os.environ.get("CORRAL_BIN"):
        return Path(chosen).resolve()
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    found = [path for profile in ("ci", "release", "debug") if (path := target / profile / "corral").exists()]
    if not found:
        raise FileNotFoundError(f"no corral binary in {target}; run `cargo build --profile ci` or set CORRAL_BIN")
    return max(found, key=lambda path: path.stat().st_mtime)


def jar_folders():
    """The folders of jars that hold ZooKeeper: ZOOKEEPER_JARS, and that of the Python package pyspark."""
    spark = importlib.util.find_spec("pyspark")
    folders = (os.environ.get("ZOOKEEPER_JARS"), spark and f"{spark.submodule_search_locations[0]}/jars")
    return [folder for folder in folders if folder]


def class_paths():
    """The class paths of the ZooKeepers that are installed by version, for example {"3.9.4": ...}. The first one is used."""
    debian, jetty = (
        ":".join(jar for name in names.split() for jar in glob.glob(f"{DEBIAN_FOLDER}/{name}.jar")) for names in (DEBIAN_JARS, JETTY_JARS)
    )
    found = {}
    for folder, path in (*((folder, f"{folder}/*") for folder in jar_folders()), (DEBIAN_FOLDER, debian)):
        for jar in glob.glob(f"{folder}/zookeeper-3*.jar"):
            found.setdefault(Path(jar).stem.removeprefix("zookeeper-"), f"{path}:{jetty}")
    return found


def java_class_path():
    """The class path of ZooKeeper, client and server, or None if there is none or no Java."""
    return next(iter(class_paths().values()), None) if shutil.which("java") else None


def zookeeper_version():
    return next(iter(class_paths()), "unknown")
