"""The servers that are compared: how each is found, installed by package name, and started.

Every peer becomes a command with {port}, {data_dir} and {cpu}. What is missing is left out with the reason.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from comparison import say

BENCH = Path(__file__).resolve().parent.parent
REPOSITORY = BENCH.parent
VENV = BENCH / ".venv"
PYSPARK = "pyspark==4.1.1"
DEBIAN_PACKAGES = {"java": "default-jre-headless", "etcd": "etcd-server"}
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"
ZOOKEEPER_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
JVM_FLAGS = "-Xmx2g"
# Of a ZooKeeper in an ensemble, keys of its zoo.cfg; a single one has them as properties.
ZOOKEEPER_LINES = {"globalOutstandingLimit": 100_000, "forceSync": "yes"}

CORRAL, CORRAL_TWO, NIO, NETTY_NAME = "corral", "corral 2 shards", "ZooKeeper NIO", "ZooKeeper Netty"
GLOMMIO, EPOLL, ETCD = "glommio echo", "epoll echo", "etcd"
# In an ensemble.
ZOOKEEPER = "ZooKeeper"

# Without one of these ZooKeeper logs every request at DEBUG, and every figure is worthless.
LOG_CONFIGS = {
    "logback.xml": """<configuration><appender name="E" class="ch.qos.logback.core.ConsoleAppender"><target>System.err</target>
<encoder><pattern>%d %-5p %c - %m%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="E"/></root></configuration>""",
    "log4j2.xml": """<Configuration status="WARN"><Appenders><Console name="E" target="SYSTEM_ERR"/></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="E"/></Root></Loggers></Configuration>""",
    "log4j.properties": """log4j.rootLogger=WARN, E
log4j.appender.E=org.apache.log4j.ConsoleAppender
log4j.appender.E.target=System.err
log4j.appender.E.layout=org.apache.log4j.PatternLayout
log4j.appender.E.layout.ConversionPattern=%d %-5p %c - %m%n
""",
    "simplelogger.properties": "org.slf4j.simpleLogger.defaultLogLevel=warn\n",
}

# Its default durability: every write is synced. The port after the client's is for peers it does not have.
ETCD_COMMAND = (
    "etcd --data-dir {data_dir} --log-level warn --listen-client-urls http://127.0.0.1:{port} "
    "--advertise-client-urls http://127.0.0.1:{port} --listen-peer-urls http://127.0.0.1:0"
)


@dataclass
class Peer:
    """A server and how to start it; `warm_s` is the load it needs before its figures mean anything."""

    name: str
    command: str
    warm_s: float = 1.0
    shards: int = 1

    def filled(self, port, data_dir, cpu):
        """The command as words of the shell, placeholders filled in."""
        return self.command.format(port=port, data_dir=data_dir, cpu=cpu)


@dataclass
class RunningPeer:
    """A server that runs already; without its process id its CPU time is not known."""

    name: str
    address: str
    pid: int = None


def running(text):
    """Reads NAME=HOST:PORT[,pid=N]; anything else is a ValueError."""
    found = re.fullmatch(r"([^=]+)=([^,=]+:\d+)(?:,pid=(\d+))?", text)
    if not found:
        raise ValueError(f"{text!r} is not NAME=HOST:PORT[,pid=N]")
    return RunningPeer(found[1], found[2], int(found[3]) if found[3] else None)


def corral(binary, shards=1, cpus=None, settings=()):
    """The command that serves with a binary."""
    pinned = f"taskset -c {','.join(map(str, cpus))} " if cpus else ""
    more = "".join(f" --set {setting}" for setting in ("limits.connections_per_ip_max=0", *settings))
    return (
        f"{pinned}{binary} serve --shards {shards} --data-dir {{data_dir}} --client-addr 127.0.0.1:{{port}}{more}"
    )


def available(tools, corral_binary, more_binaries, jvm_warm_s, all_cpus):
    """All peers that can be started here, and the reasons why others cannot."""
    peers = [
        Peer(CORRAL, corral(corral_binary)),
        Peer(CORRAL_TWO, corral(corral_binary, 2, all_cpus), shards=2),
        *(Peer(name, corral(path)) for name, path in more_binaries),
    ]
    missing = {}
    reason = why_no_zookeeper()
    for name, kind in ((NIO, "nio"), (NETTY_NAME, "netty")):
        if reason:
            missing[name] = reason
        else:
            serve = f"{sys.executable} {BENCH / 'compare'} serve-zookeeper {kind} {{port}} {{data_dir}}"
            peers.append(Peer(name, serve, jvm_warm_s))
    peers.append(Peer(GLOMMIO, f"{tools / 'glommio-echo'} --addr 127.0.0.1:{{port}} --cpu {{cpu}}"))
    peers.append(Peer(EPOLL, f"{tools / 'epoll-echo'} --addr 127.0.0.1:{{port}} --cpu {{cpu}}"))
    if reason := why_no_etcd():
        missing[ETCD] = reason
    else:
        peers.append(Peer(ETCD, ETCD_COMMAND))
    return peers, missing


def jars_folder():
    """The folder of ZooKeeper's jars: ZOOKEEPER_JARS, else what pyspark brings in a virtual environment of ours."""
    folders = [os.environ.get("ZOOKEEPER_JARS", "")]
    for venv in (VENV, REPOSITORY / "tests" / ".venv"):
        folders += glob.glob(f"{venv}/lib/python3*/site-packages/pyspark/jars")
    return next((folder for folder in folders if folder and glob.glob(f"{folder}/zookeeper-3*.jar")), None)


def zookeeper_version():
    """The version by the name of the jar."""
    jars = glob.glob(f"{jars_folder()}/zookeeper-3*.jar")
    found = [re.search(r"zookeeper-(\d[\d.]*\d)\.jar", jar) for jar in jars]
    return next((match[1] for match in found if match), "unknown")


def why_no_zookeeper():
    """Why ZooKeeper cannot be run, or None."""
    if not shutil.which("java"):
        return f"there is no java (Debian: {DEBIAN_PACKAGES['java']}; --install installs it)"
    if not jars_folder():
        return f"no ZooKeeper 3.9: set ZOOKEEPER_JARS to a folder of its jars, or --install takes them from {PYSPARK}"
    return None


def why_no_etcd():
    """Why etcd cannot be measured, or None."""
    if not shutil.which("etcd"):
        return f"there is no etcd (Debian: {DEBIAN_PACKAGES['etcd']}; --install installs it)"
    if not venv_has("grpc"):
        return "there is no grpcio in bench/.venv (--install installs it from PyPI)"
    return None


def exec_zookeeper(kind, port, data_dir):
    """Becomes a standalone ZooKeeper, with the same durability as corral. Does not return."""
    home = Path(data_dir)
    (home / "data").mkdir(parents=True, exist_ok=True)
    for file, text in LOG_CONFIGS.items():
        (home / file).write_text(text)
    config = home / "zoo.cfg"
    config.write_text(
        f"tickTime=2000\ndataDir={home}/data\nclientPortAddress=127.0.0.1\nclientPort={port}\n"
        "maxClientCnxns=0\nadmin.enableServer=false\n"
    )
    command = ["java", *jvm_flags()]
    command += ["-Dzookeeper.forceSync=yes", "-Dzookeeper.globalOutstandingLimit=100000"]
    command += [f"-Dzookeeper.serverCnxnFactory={NETTY}"] if kind == "netty" else []
    command += ["-cp", f"{home}:{jars_folder()}/*", ZOOKEEPER_MAIN, str(config)]
    os.execvp(command[0], command)


def jvm_flags():
    """The flags of ZooKeeper's java."""
    return os.environ.get("ZOOKEEPER_JVM_FLAGS", JVM_FLAGS).split()


def quiet_logs(folder):
    """Writes the logging configurations into a folder, and gives the flags of java that name them."""
    for file, text in LOG_CONFIGS.items():
        (folder / file).write_text(text)
    return [f"-Dlogback.configurationFile={folder}/logback.xml", f"-Dlog4j2.configurationFile={folder}/log4j2.xml",
            f"-Dlog4j.configuration=file:{folder}/log4j.properties", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]  # fmt: skip


def zookeeper_settings():
    """How ZooKeeper is run, for the report."""
    return f"java {' '.join(jvm_flags())}, forceSync=yes, globalOutstandingLimit=100000, maxClientCnxns=0, log level WARN"


def install(wanted):
    """Installs what is missing by package name: Debian's packages as root, Python's into bench/.venv."""
    debian = [DEBIAN_PACKAGES["java"]] if NIO in wanted and not shutil.which("java") else []
    debian += [DEBIAN_PACKAGES["etcd"]] if ETCD in wanted and not shutil.which("etcd") else []
    if debian and os.geteuid() == 0 and shutil.which("apt-get"):
        # RUNLEVEL keeps Debian from starting a server of its own.
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for words in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *debian]):
            attempt(words, env=environment)
    elif debian:
        say(f"not root, or no apt-get: install {' '.join(debian)} yourself")
    python = [PYSPARK] if NIO in wanted and not jars_folder() else []
    python += ["grpcio"] if ETCD in wanted and not venv_has("grpc") else []
    if python:
        if not (VENV / "bin" / "pip").exists():
            attempt([sys.executable, "-m", "venv", str(VENV)])
        attempt([str(VENV / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *python])


def venv_has(module):
    """Whether a module is installed in bench/.venv."""
    return bool(glob.glob(f"{VENV}/lib/python3*/site-packages/{module}"))


def attempt(words, **options):
    """Runs an installer; a failure leaves the peer missing, which is told with its reason."""
    say(f"installing: {' '.join(words)}")
    ended = subprocess.run(words, capture_output=True, text=True, **options)
    if ended.returncode:
        say(f"  that failed: {(ended.stderr or ended.stdout).strip()[-500:]}")
