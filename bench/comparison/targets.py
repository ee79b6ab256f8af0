"""From raw runs to figures, and from figures to the table target / reached / met. Pure arithmetic on what is read.

A record is one line of a results.jsonl: server, cell, round, of an ensemble the place where the load was put, and either the load
generator's report or the figures of a scenario. The rows of the table are data: targets.toml.
"""

import fnmatch
import json
import statistics
import tomllib
from dataclasses import dataclass
from pathlib import Path

ZOOKEEPERS = ["ZooKeeper NIO", "ZooKeeper Netty"]
# Of these more is better; of everything else less.
MORE_IS_BETTER = {"throughput", "rate", "rate_per_cpu"}
PLAN = Path(__file__).parent / "targets.toml"


def plan(ensembles=False):
    """The groups by name, and the targets, as in targets.toml: those of single servers or those of ensembles."""
    with open(PLAN, "rb") as file:
        read = tomllib.load(file)
    groups = {group["name"]: group for group in read["group"] if group.get("ensembles", False) == ensembles}
    return groups, [target for target in read["target"] if target["group"] in groups]


def load(directory):
    """All records below a directory, each with its group's name."""
    records = []
    for path in sorted(Path(directory).glob("*/results.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            records.append({**json.loads(line), "group": path.parent.name})
    return records


def cell_of(record):
    """The cell as a target names it: `set:64x16`, of an ensemble `set:64x16 leader`."""
    return f"{record['cell']} {record['place']}" if "place" in record else record["cell"]


def figures_of(record):
    """The figures of one record by name."""
    if "figures" in record:
        return record["figures"]
    report = record["report"]
    latency = report["latency_us"]
    return {
        "cpu": report["server_cpu_us_per_op"],
        "throughput": report["throughput"],
        **{name: latency[name] for name in ("p50", "p99", "p99_9", "max")},
    }


@dataclass
class Row:
    """One row of the table. `value` is None where nothing was measured."""

    group: str
    work: str
    says: str
    reached: str
    met: str
    value: float = None


class Table:
    """The targets against the records."""

    def __init__(self, records, targets, cpus, host=None):
        """`host`: by group, what the machine took away by itself, see host.py."""
        self.records, self.targets, self.cpus, self.host = records, targets, cpus, host or {}
        self.servers = list(dict.fromkeys(record["server"] for record in records))

    def rows(self):
        return [self.row(target) for target in self.targets]

    def values(self, group, server, cell, figure):
        """The values of the rounds, by round."""
        found = {}
        for record in self.records:
            if record["group"] == group and record["server"] == server and fnmatch.fnmatchcase(cell_of(record), cell):
                value = figures_of(record).get(figure)
                if value is not None:
                    found[record["round"]] = value
        return found

    def best(self, group, cell, figure):
        """The server among ZooKeeper's two whose median is better, or None."""
        medians = {}
        for server in ZOOKEEPERS:
            if values := self.values(group, server, cell, figure):
                medians[server] = statistics.median(values.values())
        choose = max if figure in MORE_IS_BETTER else min
        return choose(medians, key=medians.get) if medians else None

    def measured(self, target, cell):
        """(value, smallest, largest, in words) of a target in one cell, or None."""
        group, figure = target["group"], target["figure"]
        own = self.values(group, target.get("of", "corral"), cell, figure)
        if not own:
            return None
        median = statistics.median(own.values())
        if "against" not in target:
            unit = target.get("unit", "")
            return median, min(own.values()), max(own.values()), f"{number(median)} {unit}".strip()
        other_cell, other_figure = target.get("against_cell", cell), target.get("against_figure", figure)
        other = target["against"]
        if other == "zookeeper":
            other = self.best(group, other_cell, other_figure)
        theirs = self.values(group, other, other_cell, other_figure) if other else {}
        if not theirs or not statistics.median(theirs.values()):
            return None
        divisor = statistics.median(theirs.values())
        pairs = [own[at] / theirs[at] for at in own if theirs.get(at)] or [median / divisor]
        words = f"{number(median)} against {number(divisor)} of {other}"
        return median / divisor, min(pairs), max(pairs), words

    def row(self, target):
        limit, less = limit_of(target["limit"])
        found = [(cell, result) for cell in target["cells"] if (result := self.measured(target, cell))]
        if not found:
            return Row(target["group"], target["work"], target["says"], "not measured", "-")
        worst = max if less else min
        cell, (value, low, high, words) = worst(found, key=lambda entry: entry[1][0])
        ratio = "against" in target
        around = f" [{times(low)}..{times(high)}]" if high > low else ""
        shown = f"{times(value)}{around}: {words}" if ratio else spread(value, low, high, target)
        if len(target["cells"]) > 1:
            shown += f" (worst: {cell}, {len(found)} of {len(target['cells'])} measured)"
        met = "yes" if (value <= limit if less else value >= limit) else "no"
        if self.cpus < target.get("note_if_cpus_below", 0):
            shown, met = f"{shown}; {target['note']}", "-"
        taken = self.host.get(target["group"], {}).get(target.get("host"))
        if taken is not None:
            shown += f"; {number(taken)} us of it are the idle machine's own"
            # In the target's unit: a target below what the machine takes by itself cannot be judged.
            met = "-" if met == "no" and taken / target["host_us"] >= limit else met
        return Row(target["group"], target["work"], target["says"], shown, met, value)


def limit_of(text):
    """The number of `<= 1/10`, and whether less is better."""
    sign, _, amount = text.partition(" ")
    over, _, under = amount.partition("/")
    assert sign in ("<=", ">="), f"limit {text!r}"
    return float(over) / float(under or 1), sign == "<="


def times(ratio):
    """A ratio as people say it: 2.1 x, or 1/8.3."""
    return f"1/{number(1 / ratio)}" if 0 < ratio < 0.75 else f"{number(ratio)} x"


def spread(value, low, high, target):
    unit = target.get("unit", "")
    around = f" [{number(low)}..{number(high)}]" if high > low else ""
    return f"{number(value)}{around} {unit}".strip()


def number(value):
    """Three digits, thousands apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def markdown(rows):
    """The table."""
    lines = ["| work | target | reached | met |", "|---|---|---|---|"]
    lines += [f"| {row.work} | {row.says} | {row.reached} | {row.met} |" for row in rows]
    return "\n".join(lines)


def summary(rows):
    """How many were met."""
    count = {word: sum(row.met == word for row in rows) for word in ("yes", "no", "-")}
    return f"{count['yes']} met, {count['no']} missed, {count['-']} not to be judged here"
