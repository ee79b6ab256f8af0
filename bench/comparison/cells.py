"""Cells of load: a short name such as `get1k:64x16@50000`, and the flags of the load generator it stands for. Pure."""

import re
from dataclasses import dataclass

GRAMMAR = "OP[N][:CONNECTIONSxDEPTH][@RATE]"
OPERATIONS = ("get", "exists", "children", "set", "create", "delete", "multi", "mix")
CONNECTIONS, DEPTH = 64, 16
# What N is, by operation, and what it is without one: bytes of a value for all others.
AMOUNTS = {"children": ("--children", 100), "mix": ("--read-percent", 90)}
VALUE = ("--value-bytes", 100)
SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20}
PATTERN = re.compile(r"([a-z]+)(?:(\d+)([km]?))?(?::(\d+)x(\d+))?(?:@(\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class Cell:
    """One kind of load. `rate` is None in a closed loop."""

    op: str
    amount: int
    connections: int
    depth: int
    rate: float = None

    @property
    def load(self):
        """The operation with its amount, unless that is the usual one."""
        if self.amount == AMOUNTS.get(self.op, VALUE)[1]:
            return self.op
        unit = next((unit for unit in ("m", "k") if self.amount and self.amount % SUFFIXES[unit] == 0), "")
        return f"{self.op}{self.amount // SUFFIXES[unit]}{unit}"

    @property
    def name(self):
        """The full name, which is a cell too."""
        return f"{self.load}:{self.connections}x{self.depth}" + (f"@{plain(self.rate)}" if self.rate else "")

    @property
    def title(self):
        """For people: `Get of 100 B, 64 connections x 16`."""
        what = {"children": f"children of a znode with {self.amount}", "mix": f"mix of {self.amount} % get, the rest set"}
        shape = f"{self.connections} connection{'s' * (self.connections != 1)} x {self.depth}"
        pace = f", open loop at {plain(self.rate)}/s" if self.rate else ""
        text = f"{what.get(self.op, f'{self.op} of {self.amount} B')}, {shape}{pace}"
        return text[0].upper() + text[1:]

    @property
    def sweep(self):
        """What all cells that differ in the number of connections alone have in common; None in an open loop."""
        return None if self.rate else f"{self.load}, depth {self.depth}"

    def flags(self):
        """The load generator's flags."""
        flags = ["--op", self.op, "--connections", self.connections, "--depth", self.depth]
        flags += [AMOUNTS.get(self.op, VALUE)[0], self.amount]
        return flags + (["--rate", plain(self.rate)] if self.rate else [])


def cell(text):
    """Reads one cell. A text that is none is a ValueError."""
    found = PATTERN.fullmatch(text.lower())
    if not found or found[1] not in OPERATIONS:
        raise ValueError(f"{text!r} is not {GRAMMAR} with one of the operations {', '.join(OPERATIONS)}")
    op, amount, suffix, connections, depth, rate = found.groups()
    amount = int(amount) * SUFFIXES[suffix] if amount else AMOUNTS.get(op, VALUE)[1]
    made = Cell(op, amount, int(connections or CONNECTIONS), int(depth or DEPTH), float(rate) if rate else None)
    if made.connections < 1 or made.depth < 1 or made.rate == 0:
        raise ValueError(f"{text!r}: connections, depth and rate are positive")
    return made


def plain(number):
    """A number without a point if it is whole."""
    return str(int(number)) if number == int(number) else str(number)
