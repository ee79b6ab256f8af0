"""Cells of load, and loads on servers in turn: interleaved rounds, each with fresh servers, one record a server, cell and round.

A cell is a short name such as `get1k:64x16@50000`. The order of the servers rotates with the round. A cell that fails is noted and
ends its server's round; the other servers go on.
"""

import json
import os
import re
import subprocess
from collections import namedtuple
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from comparison import REPOSITORY, host, report, say
from support.wait import TooLate

GRAMMAR = "OP[N][:CONNECTIONSxDEPTH][@RATE]"
OPERATIONS = ("get", "exists", "children", "set", "create", "delete", "multi", "mix")
# What N is, by operation, and what it is without one: bytes of a value for all others.
AMOUNTS = {"children": ("--children", 100), "mix": ("--read-percent", 90)}
VALUE = ("--value-bytes", 100)
SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20}
PATTERN = re.compile(r"([a-z]+)(?:(\d+)([km]?))?(?::(\d+)x(\d+))?(?:@(\d+(?:\.\d+)?))?")
# Points of a throughput curve, unless they came too close together.
INTERVALS, INTERVAL_S_MIN = 20, 0.1


# One kind of load: its full name, which is a cell too, and the load generator's flags.
Cell = namedtuple("Cell", "name connections flags")


def cell(text):
    """Reads one cell. A text that is none is a ValueError."""
    found = PATTERN.fullmatch(text.lower())
    if not found or found[1] not in OPERATIONS:
        raise ValueError(f"{text!r} is not {GRAMMAR} with one of the operations {', '.join(OPERATIONS)}")
    op, amount, suffix, connections, depth, rate = (part or "" for part in found.groups())
    connections, depth = int(connections or 64), int(depth or 16)
    if connections < 1 or depth < 1 or rate and not float(rate):
        raise ValueError(f"{text!r}: connections, depth and rate are positive")
    flag, usual = AMOUNTS.get(op, VALUE)
    flags = ["--op", op, "--connections", connections, "--depth", depth, flag, int(amount) * SUFFIXES[suffix] if amount else usual]
    name = f"{op}{amount}{suffix}:{connections}x{depth}" + (f"@{rate}" if rate else "")
    return Cell(name, connections, [*flags, *(["--rate", rate] if rate else [])])


@dataclass
class Lab:
    """What one group runs with, where its records go, and what failed in it."""

    bench: Path
    client_cpus: list
    work: Path
    results: Path
    rounds: int
    label: str
    failures: list = field(default_factory=list)

    def turns(self, contestants):
        """Each round: its number, and the contestants in its order, which rotates."""
        for number in range(1, self.rounds + 1):
            at = (number - 1) % len(contestants)
            yield number, contestants[at:] + contestants[:at]

    def generate(self, *words):
        """Runs the load generator with these words; its report. Interrupted, it is given the time to remove its znodes."""
        cpus = ",".join(map(str, self.client_cpus))
        command = [str(word) for word in (self.bench, *words, "--cpu", cpus, "--json", "--quiet")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            told, errors = process.communicate()
        except KeyboardInterrupt:
            process.terminate()
            process.communicate()
            raise
        if process.returncode:
            raise RuntimeError(errors.strip()[-1000:].removeprefix("corral-bench: "))
        return json.loads(told)

    def figures(self, one, cell, number, figures, reports=()):
        """Keeps one record of a scenario: the figures, and the load generator's reports they come from."""
        self.keep(one, cell, number, figures=figures, reports=list(reports))
        say(f"  {one.name}, {cell}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))

    def keep(self, one, cell, number, **more):
        """Appends a record to the group's results.jsonl, without the directories of this machine."""
        record = {"server": one.name, "cell": cell, "round": number, "server_command": one.command and self.shown(one.command),
                  "server_cpus": list(one.cpus), "label": self.label, **more}  # fmt: skip
        with open(self.results, "a", encoding="utf-8") as file:
            file.write(report.without_directories(json.dumps(record)) + "\n")
        return record

    def shown(self, text):
        """A text without the directories of this machine."""
        return text.replace(str(self.work), "WORK").replace(f"{REPOSITORY}/", "")

    def failed(self, what, error):
        say(f"  FAILED {what}: {error}")
        self.failures.append(self.shown(f"{what}: {error}"))

    def visit(self, number, one, body, what=None):
        """Starts a contestant, runs `body` on it and ends it. What fails is noted with the end of its log."""
        try:
            one.start()
            body()
        except (RuntimeError, OSError, ValueError, LookupError, TypeError, TooLate) as error:
            tail = one.log_tail() if getattr(one, "server", None) or getattr(one, "ensemble", None) else ""
            self.failed(f"{what or one.name}, round {number}", f"{error}{tail and f'; the log of the server ends with:{os.linesep}{tail}'}")
        finally:
            one.stop()


def run(lab, contestants, names, seconds, cell_warm):
    """Every round visits every contestant once with every cell, of an ensemble at every place."""
    wanted = [cell(name) for name in names]
    for number, order in lab.turns(contestants):
        state = {"load_average": os.getloadavg()[0], "fdatasync": host.sync_probe(lab.work)}
        for one in order:
            say(f"round {number} of {lab.rounds}: {one.name}")
            lab.visit(number, one, partial(cells_of, lab, one, number, state, wanted, seconds, cell_warm))


def cells_of(lab, one, number, state, wanted, seconds, cell_warm):
    if one.warm_s:
        put(lab, one, cell("get"), one.places[-1], 0, one.warm_s)
    for of in wanted:
        for place in one.places:
            found = put(lab, one, of, place, max(cell_warm, one.cell_warm_s), seconds)
            record = lab.keep(one, of.name, number, **({"place": place} if place else {}), **state, report=found)
            shown = report.figures_of(record)
            cpu = "-" if shown["cpu"] is None else f"{shown['cpu']:.3f}"
            say(f"  {of.name:<18} {place or '':8} {cpu:>9} us/op {shown['throughput']:>12,.0f} ops/s   p99 {shown['p99']:,.0f} us")


def put(lab, one, of, place, warm, seconds):
    flags = ["load", *one.target(place), *of.flags, "--warmup", warm, "--duration", seconds]
    flags += ["--interval", max(seconds / INTERVALS, INTERVAL_S_MIN), "--label", lab.label]
    return lab.generate(*flags, "--threads", min(len(lab.client_cpus), of.connections))
