"""Loads on servers in turn: interleaved rounds, each with a fresh server, one record a server, cell and round.

The order rotates with the round. A cell that fails is noted and ends its server's round; the other servers go on.
"""

import os
import shutil
import time

from comparison import cells, host, peers, processes, say, targets

# Points of a throughput curve, unless they came too close together.
INTERVALS, INTERVAL_S_MIN = 20, 0.1
RUNNING_LIMIT_S = 5


class Started:
    """A single server, started freshly for every round."""

    places = (None,)

    def __init__(self, lab, peer):
        self.lab, self.peer, self.name = lab, peer, peer.name
        self.warm_s, self.cell_warm_s, self.cpus, self.process = peer.warm_s, 0, lab.server_cpus, None

    def start(self, number):
        name = f"{number}-{self.name.replace(' ', '-')}"
        self.process = self.lab.server(self.peer, name, port=processes.free_port(self.lab.port))
        self.process.start()
        self.command = self.process.command

    def target(self, place):
        """Flags of the load generator: where to send, whose CPU time counts."""
        # The znodes go with the data directory.
        return ["--server", f"127.0.0.1:{self.process.port}", "--pid", self.process.pid, "--keep"]

    def log_tail(self):
        return self.process.log_tail()

    def stop(self):
        if self.process:
            self.process.stop()
            shutil.rmtree(self.process.directory, ignore_errors=True)


class Running:
    """A server that runs already; it is neither started nor ended."""

    places, command, cpus, warm_s, cell_warm_s = (None,), None, [], 1.0, 0

    def __init__(self, running):
        self.name, self.address, self.pid = running.name, running.address, running.pid

    def start(self, number):
        host_name, _, port = self.address.rpartition(":")
        until = time.monotonic() + RUNNING_LIMIT_S
        while True:
            try:
                return processes.handshake(int(port), host_name)
            except OSError as error:
                if time.monotonic() > until:
                    raise RuntimeError(f"{self.address} granted no session in {RUNNING_LIMIT_S} s: {error}") from None
                time.sleep(0.05)

    def target(self, place):
        return ["--server", self.address, *(["--pid", self.pid] if self.pid else [])]

    def log_tail(self):
        return ""

    def stop(self):
        pass


def contestant(lab, peer):
    """What a peer is to a load: a single server to start, or one that runs."""
    return Running(peer) if isinstance(peer, peers.RunningPeer) else Started(lab, peer)


def run(lab, contestants, names, seconds, cell_warm):
    """Every round visits every contestant once with every cell, of an ensemble at every place."""
    wanted = [cells.cell(name) for name in names]
    for number in range(1, lab.rounds + 1):
        state = {"load_average": os.getloadavg()[0], "fdatasync": host.sync_probe(lab.work)}
        at = (number - 1) % len(contestants)
        for one in contestants[at:] + contestants[:at]:
            say(f"round {number} of {lab.rounds}: {one.name}")
            try:
                one.start(number)
                visit(lab, one, number, state, wanted, seconds, cell_warm)
            except (RuntimeError, OSError, ValueError) as error:
                lab.failed(f"{one.name}, round {number}", error)
            finally:
                one.stop()


def visit(lab, one, number, state, wanted, seconds, cell_warm):
    """One contestant's round."""
    try:
        if one.warm_s:
            put(lab, one, cells.cell("get"), one.places[-1], 0, one.warm_s)
        for cell in wanted:
            for place in one.places:
                report = put(lab, one, cell, place, max(cell_warm, one.cell_warm_s), seconds)
                record = {"server": one.name, "cell": cell.name, "round": number, **({"place": place} if place else {}),
                          "server_command": one.command and lab.shown(one.command), "server_cpus": one.cpus,
                          **state, "report": report}  # fmt: skip
                lab.keep(record)
                say(progress(record))
    except (RuntimeError, OSError) as error:
        tail = one.log_tail()
        raise RuntimeError(f"{error}{tail and f'; the log of the server ends with:{os.linesep}{tail}'}") from None


def put(lab, one, cell, place, warm, seconds):
    """One load: its report."""
    flags = ["load", *one.target(place), *cell.flags(), "--warmup", warm, "--duration", seconds]
    flags += ["--interval", max(seconds / INTERVALS, INTERVAL_S_MIN), "--label", lab.label]
    threads = min(len(lab.client_cpus), cell.connections)
    return lab.generate(*flags, "--cpu", ",".join(map(str, lab.client_cpus)), "--threads", threads)


def progress(record):
    """One line for standard error."""
    found, place = targets.figures_of(record), record.get("place", "")
    cpu = "-" if found["cpu"] is None else f"{found['cpu']:.3f}"
    return f"  {record['cell']:<18} {place:8} {cpu:>9} us/op {found['throughput']:>12,.0f} ops/s   p99 {found['p99']:,.0f} us"
