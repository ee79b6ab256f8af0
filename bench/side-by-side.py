#!/usr/bin/env python3
"""Runs the same load against corral, a bare glommio echo and ZooKeeper on one machine and compares.

Everything happens in one go, in interleaved rounds: every round starts each server once with a fresh data directory,
warms it, runs every cell of load against it and stops it; the order rotates from round to round. Prints medians and
spread, and the ratios to the echo and to ZooKeeper. Every single run goes as one JSON line into bench/raw/.

Servers run on the first of the allowed CPUs, the client on the last; see --server-cpus and --client-cpus.
ZooKeeper is taken from the folder of jars named by ZOOKEEPER_JARS (the lib folder of any ZooKeeper 3.9 distribution)
and run with both of its connection factories, forceSync=yes and WARN logging. Without that folder it is skipped.

  bench/side-by-side.py                                       build all, three rounds, about ten minutes
  ZOOKEEPER_JARS=~/apache-zookeeper-3.9.4-bin/lib bench/side-by-side.py
  bench/side-by-side.py --corral target/release/corral        measure this binary
  bench/side-by-side.py --only echo,corral --rounds 5 --cells get:64:16

Ends everything it started, and nothing else, also on Ctrl-C. Needs Python 3.9, cargo, and java for ZooKeeper.
"""

import argparse
import ctypes
import datetime
import json
import os
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CELLS = "get:64:1,get:64:16,set:64:16,create:64:16"
CONTENDERS = ["echo", "corral", "zk-nio", "zk-netty"]
NETTY = "org.apache.zookeeper.server.NettyServerCnxnFactory"
FIGURES = {
    "cpu": ("CPU us/op", lambda run: run["server_cpu_us_per_op"], 3),
    "throughput": ("ops/s", lambda run: run["throughput"], 0),
    "p50": ("p50 us", lambda run: run["latency_us"]["p50"], 0),
    "p99": ("p99 us", lambda run: run["latency_us"]["p99"], 0),
    "p99.9": ("p99.9 us", lambda run: run["latency_us"]["p99_9"], 0),
}

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


def say(text):
    print(text, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corral", default=os.environ.get("CORRAL"), help="the corral binary [env CORRAL; else built]")
    parser.add_argument("--corral-flags", default="--shards 1", help="more flags of corral serve [%(default)s]")
    parser.add_argument("--only", help=f"contenders, some of {','.join(CONTENDERS)}")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds [%(default)s]")
    parser.add_argument("--seconds", type=float, default=5, help="measured seconds of each cell [%(default)s]")
    parser.add_argument("--warm", type=float, default=10, help="seconds of load before a server's first cell [%(default)s]")
    parser.add_argument("--cell-warm", type=float, default=3, help="seconds of each cell's load before it is measured")
    parser.add_argument("--cells", default=CELLS, help="operation:connections:depth,... [%(default)s]")
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--server-cpus", help="CPUs of the server, as 0,1 [the first allowed]")
    parser.add_argument("--client-cpus", help="CPUs of the client, a thread on each [the last allowed]")
    parser.add_argument("--port", type=int, default=24010, help="first of four ports used [%(default)s]")
    parser.add_argument("--work-dir", help="where data directories go; its disk is the one measured [target/]")
    parser.add_argument("--raw", help="the file for the JSON lines [bench/raw/DATE-COMMIT.jsonl]")
    args = parser.parse_args()
    if args.rounds < 1 or args.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    for cell in args.cells.split(","):
        if not re.fullmatch(r"(get|exists|children|set|create|mix):\d+:\d+", cell):
            parser.error(f"--cells: {cell!r} is not operation:connections:depth")
    return args


def cpu_lists(args):
    allowed = sorted(os.sched_getaffinity(0))
    numbers = lambda text: [int(number) for number in text.split(",")]
    server = numbers(args.server_cpus) if args.server_cpus else allowed[:1]
    client = numbers(args.client_cpus) if args.client_cpus else allowed[-1:]
    if set(server) & set(client):
        say("note: server and client share CPUs; throughput and latency mean little, CPU per operation still does")
    return server, client


def build(target, *words):
    say(f"building {' '.join(words)} (release)")
    subprocess.run(["cargo", "build", "--release", *words], cwd=REPOSITORY, check=True)
    return target / "release"


def target_dir():
    found = subprocess.run(["cargo", "metadata", "--format-version", "1", "--no-deps"], cwd=REPOSITORY, check=True,
                           capture_output=True, text=True)
    return Path(json.loads(found.stdout)["target_directory"])


def git_short():
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)


def prepare_child(cpus):
    """Runs in a new server before its program does: pins it, and ties its life to this script's, however that ends."""
    os.sched_setaffinity(0, cpus)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """One server process of ours, from its start to its end."""

    def __init__(self, name, command, port, cpus, directory):
        self.name, self.port, self.log = name, port, directory / "server.log"
        with open(self.log, "wb") as log:
            # A session of its own: Ctrl-C at the terminal reaches only this script, which then ends the server.
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory,
                                            start_new_session=True, preexec_fn=lambda: prepare_child(cpus))

    def wait_until_open(self, seconds=60):
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with code {self.process.returncode}:\n{self.tail()}")
            try:
                return self.handshake()
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{self.name} granted no session in {seconds} s:\n{self.tail()}")

    def handshake(self):
        """Opens and closes a session: an open port alone may be one that is not served yet."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as stream:
            stream.sendall(struct.pack(">iiqiqi16sB", 45, 0, 0, 10_000, 0, 16, b"", 0))
            if len(stream.recv(4096)) < 4 + 20:
                raise ConnectionError("no session")
            stream.sendall(struct.pack(">iii", 8, 1, -11))
            stream.recv(4096)

    def tail(self):
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                say(f"note: {self.name} did not end on SIGTERM within 20 s, killed")
                self.process.kill()
        self.process.wait()


class Contenders:
    """How to start each server, and which are there."""

    def __init__(self, args, server_cpus, tools, target):
        self.args, self.cpus, self.tools = args, server_cpus, tools
        self.version = None
        wanted = args.only.split(",") if args.only else CONTENDERS
        unknown = set(wanted) - set(CONTENDERS)
        if unknown:
            sys.exit(f"--only: unknown {', '.join(sorted(unknown))}; known are {', '.join(CONTENDERS)}")
        self.jars = os.environ.get("ZOOKEEPER_JARS")
        reason = self.without_zookeeper() if any(name.startswith("zk") for name in wanted) else None
        if reason:
            say(f"ZooKeeper is skipped: {reason}")
            wanted = [name for name in wanted if not name.startswith("zk")]
        self.names = wanted
        self.corral = None
        if "corral" in wanted:
            self.corral = Path(args.corral).resolve() if args.corral else build(target, "-p", "corral") / "corral"
            if not os.access(self.corral, os.X_OK):
                sys.exit(f"{self.corral} is no program; give --corral")

    def without_zookeeper(self):
        if not self.jars:
            return "ZOOKEEPER_JARS is not set (the lib folder of any ZooKeeper 3.9)"
        if not shutil.which("java"):
            return "there is no java"
        self.version = next((path.stem for path in sorted(Path(self.jars).glob("zookeeper-[0-9]*.jar"))), None)
        return None if self.version else f"there is no zookeeper-*.jar in {self.jars}"

    def title(self, name):
        return {"zk-nio": f"{self.version} NIO", "zk-netty": f"{self.version} Netty",
                "echo": "glommio echo"}[name] if name != "corral" else "corral"

    def command(self, name, port, directory):
        if name == "echo":
            return [self.tools / "glommio-echo", "--addr", f"127.0.0.1:{port}", "--cpu", str(self.cpus[0]),
                    "--value-bytes", str(self.args.value_bytes)]
        if name == "corral":
            return [self.corral, "serve", "--data-dir", directory / "data", "--client-addr", f"127.0.0.1:{port}",
                    "--set", "limits.connections_per_ip_max=0", *self.args.corral_flags.split()]
        return self.zookeeper(name, port, directory)

    def zookeeper(self, name, port, directory):
        for file, text in LOG_CONFIGS.items():
            (directory / file).write_text(text)
        config = directory / "zoo.cfg"
        config.write_text(f"tickTime=2000\ndataDir={directory}/data\nclientPortAddress=127.0.0.1\nclientPort={port}\n"
                          "maxClientCnxns=0\nadmin.enableServer=false\n")
        factory = [f"-Dzookeeper.serverCnxnFactory={NETTY}"] if name == "zk-netty" else []
        flags = os.environ.get("ZOOKEEPER_JVM_FLAGS", "-Xmx2g").split()
        return ["java", *flags, "-Dzookeeper.forceSync=yes", "-Dzookeeper.globalOutstandingLimit=100000", *factory,
                "-cp", f"{directory}:{self.jars}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", config]

    def shown(self, command, directory):
        """The command without the directories of this machine."""
        places = [(str(directory), "WORK"), (str(self.jars), "ZOOKEEPER_JARS"), (str(self.tools) + "/", "")]
        if self.corral:
            places.append((str(self.corral), "corral"))
        text = " ".join(map(str, command))
        for place, name in places:
            text = text.replace(place, name)
        return text


def sync_probe(directory, count=400):
    """fdatasync of 512-byte appends, in microseconds: p50 and p99. What a durable write costs in this minute."""
    taken = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(count):
            os.write(file.fileno(), b"x" * 512)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - start) * 1e6)
    taken.sort()
    return {"p50_us": round(taken[count // 2], 1), "p99_us": round(taken[count * 99 // 100], 1)}


def filesystem(directory):
    found = subprocess.run(["df", "--output=fstype", directory], capture_output=True, text=True)
    return found.stdout.split()[-1] if found.stdout.split() else "unknown"


class Bench:
    """The rounds."""

    def __init__(self, args):
        self.args = args
        self.server_cpus, self.client_cpus = cpu_lists(args)
        target = target_dir()
        self.tools = build(target, "-p", "corral-bench", "--bins")
        self.contenders = Contenders(args, self.server_cpus, self.tools, target)
        self.work = Path(tempfile.mkdtemp(prefix="side-by-side-", dir=args.work_dir or target))
        self.filesystem = filesystem(self.work)
        if self.filesystem == "tmpfs":
            say("note: the data directories are on a tmpfs, where durable writes cost nothing; give --work-dir")
        self.commit = git_short()
        name = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}-{self.commit}.jsonl"
        self.raw = Path(args.raw) if args.raw else REPOSITORY / "bench" / "raw" / name
        self.runs, self.probes, self.loads, self.failures = [], [], [], []

    def run(self):
        self.raw.parent.mkdir(parents=True, exist_ok=True)
        if os.getloadavg()[0] > 0.5:
            say("note: this machine was busy in the last minute; only ratios of a busy machine are worth reading")
        names = self.contenders.names
        try:
            for number in range(self.args.rounds):
                self.probes.append(sync_probe(self.work))
                self.loads.append(os.getloadavg()[0])
                at = number % len(names)
                for name in names[at:] + names[:at]:
                    say(f"round {number + 1} of {self.args.rounds}: {self.contenders.title(name)}")
                    self.one_server(number, name)
        finally:
            shutil.rmtree(self.work, ignore_errors=True)
        self.print()

    def one_server(self, number, name):
        directory = self.work / f"{number}-{name}"
        (directory / "data").mkdir(parents=True)
        if name == "corral":
            (directory / "data").rmdir()
        port = self.args.port + CONTENDERS.index(name)
        command = self.contenders.command(name, port, directory)
        server = Server(name, list(map(str, command)), port, self.server_cpus, directory)
        try:
            server.wait_until_open()
            if self.args.warm > 0:
                self.load(server, "get", 64, 16, 0, self.args.warm)
            for cell in self.args.cells.split(","):
                op, connections, depth = cell.split(":")
                run = self.load(server, op, connections, depth, self.args.cell_warm, self.args.seconds)
                run.update(contender=name, title=self.contenders.title(name), round=number + 1, cell=cell,
                           server_command=self.contenders.shown(command, directory), commit=self.commit,
                           load_average=self.loads[-1], server_cpus=self.server_cpus, fdatasync=self.probes[-1], filesystem=self.filesystem)
                self.runs.append(run)
                with open(self.raw, "a", encoding="utf-8") as raw:
                    raw.write(json.dumps(run) + "\n")
                say(f"  {cell:<14}{run['server_cpu_us_per_op']:9.3f} us/op {run['throughput']:10.0f} ops/s   "
                    f"p99 {run['latency_us']['p99']:.0f} us  {' '.join(run['remarks'])}")
        except RuntimeError as error:
            self.failures.append(f"{name}, round {number + 1}: {error}")
            say(f"  failed: {error}")
        finally:
            server.stop()
            shutil.rmtree(directory, ignore_errors=True)

    def load(self, server, op, connections, depth, warm, seconds):
        # The znodes stay: the whole data directory goes with the server.
        command = [self.tools / "corral-bench", "-s", f"127.0.0.1:{server.port}", "-o", op, "-c", connections, "-d", depth,
                   "--warmup", warm, "--duration", seconds, "--value-bytes", self.args.value_bytes,
                   "--pid", server.process.pid, "--cpu", ",".join(map(str, self.client_cpus)),
                   "-t", len(self.client_cpus), "--keep", "--json", "--quiet"]
        client = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, errors = client.communicate()
        finally:
            if client.poll() is None:
                client.terminate()
                client.wait()
        if client.returncode != 0:
            raise RuntimeError(f"{op} {connections}x{depth}: {errors.strip()}\n{server.tail()}")
        return json.loads(out)

    def figure(self, name, cell, figure):
        pick = FIGURES[figure][1]
        return [pick(run) for run in self.runs if run["contender"] == name and run["cell"] == cell]

    def print(self):
        if self.runs:
            machine = self.runs[0]["machine"]
            print(f"\n{machine['cpu']}, {machine['cpus']} CPUs, kernel {machine['kernel']}, TCP {machine['congestion']}, commit {self.commit}; "
                  f"server on CPU {self.server_cpus}, client on {self.client_cpus}; {self.args.rounds} rounds")
        p50, p99 = ([probe[key] for probe in self.probes] for key in ("p50_us", "p99_us"))
        print(f"fdatasync of 512 B on {self.filesystem}, by round: p50 {p50} us, p99 {p99} us")
        print(f"load average before each round (our own included): {[round(load, 1) for load in self.loads]}")
        for cell in self.args.cells.split(","):
            self.print_cell(cell)
        print(f"\nMedians of the rounds, smallest..largest in brackets. Single runs: {os.path.relpath(self.raw)}")
        for failure in self.failures:
            print(f"FAILED: {failure}")

    def print_cell(self, cell):
        op, connections, depth = cell.split(":")
        print(f"\n### {op}, {connections} connections x {depth}, {self.args.value_bytes} B\n")
        medians = {name: {figure: statistics.median(values) for figure in FIGURES
                          if (values := self.figure(name, cell, figure))} for name in self.contenders.names}
        medians = {name: values for name, values in medians.items() if values}
        others = [name for name in ("echo", "zk-nio", "zk-netty") if name in medians]
        head = ["server", *(FIGURES[figure][0] for figure in FIGURES)]
        head += [f"CPU x {self.contenders.title(other)}" for other in others]
        print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
        for name, own in medians.items():
            row = [self.contenders.title(name)]
            for figure, (_, _, digits) in FIGURES.items():
                values = self.figure(name, cell, figure)
                row.append(f"{own[figure]:,.{digits}f} [{min(values):,.{digits}f}..{max(values):,.{digits}f}]")
            row += [f"{own['cpu'] / medians[other]['cpu']:.2f}" for other in others]
            print("| " + " | ".join(row) + " |")


def main():
    args = arguments()
    # SIGTERM ends the run as Ctrl-C does: through the finally clauses, which end what was started.
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        bench = Bench(args)
        bench.run()
    except KeyboardInterrupt:
        sys.exit("interrupted; everything started was ended")
    sys.exit(1 if bench.failures else 0)


if __name__ == "__main__":
    main()
