"""From raw runs to the report: facts of the machine, the table target / reached / met, tables and plots of each group.

Made from the files of a results directory alone, so that it can be made again at any time. A record is one line of a
results.jsonl: server, cell, round, of an ensemble the place where the load was put, and either the load generator's report or the
figures of a scenario. The rows of the table are data: targets.toml. Plots are drawn by the load generator.
"""

import fnmatch
import json
import os
import platform
import re
import statistics
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

ZOOKEEPERS = ["ZooKeeper NIO", "ZooKeeper Netty"]
# Servers by whose CPU time that of the others is divided.
AGAINST = ("epoll echo", "glommio echo", *ZOOKEEPERS, "ZooKeeper")
# Of these more is better; of everything else less.
MORE_IS_BETTER = {"throughput"}
# Where a load on an ensemble is put, as a table says it.
PLACES = {"leader": "at the leader", "follower": "at a follower", "all": "over all"}
WHOLE = "{:,.0f}".format
# Figure, head of its column, how it is shown.
FIGURES = (
    ("cpu", "CPU us/op", "{:,.3f}".format), ("throughput", "ops/s", WHOLE), ("p50", "p50 us", WHOLE), ("p99", "p99 us", WHOLE),
    ("p99_9", "p99.9 us", WHOLE), ("max", "max us", WHOLE),
)  # fmt: skip
# A sweep over the number of connections needs at least this many to be drawn.
SWEEP_POINTS_MIN = 3
BEGIN, END = "<!-- targets: made by bench/compare report, do not edit -->", "<!-- end of targets -->"


def plan(ensembles=False):
    """The groups by name, and the targets, as in targets.toml: those of single servers or those of ensembles."""
    read = tomllib.loads((Path(__file__).parent / "targets.toml").read_text(encoding="utf-8"))
    groups = {group["name"]: group for group in read["group"] if group.get("ensembles", False) == ensembles}
    return groups, [target for target in read["target"] if target["group"] in groups]


def load(directory):
    """All records below a directory, each with its group's name."""
    paths = sorted(Path(directory).glob("*/results.jsonl"))
    return [{**json.loads(line), "group": path.parent.name} for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def figures_of(record):
    if "figures" in record:
        return record["figures"]
    report = record["report"]
    figures = {"cpu": report["server_cpu_us_per_op"], "throughput": report["throughput"]}
    return figures | {name: report["latency_us"][name] for name in ("p50", "p99", "p99_9", "max")}


@dataclass
class Row:
    """One row of the table of targets. `value` is None where nothing was measured."""

    group: str
    work: str
    says: str
    reached: str = "not measured"
    met: str = "-"
    value: float = None


class Table:
    """Targets against the records."""

    def __init__(self, records, cpus=0, host=None):
        """`host`: by group, what the machine took away by itself, see host.py."""
        self.records, self.cpus, self.host = records, cpus, host or {}

    def values(self, group, server, cell, figure):
        """The values of the rounds, by round. The cell of an ensemble has its place behind it."""
        own = (record for record in self.records if (record["group"], record["server"]) == (group, server))
        named = ((f"{record['cell']} {record.get('place', '')}".rstrip(), record) for record in own)
        found = {record["round"]: figures_of(record).get(figure) for name, record in named if fnmatch.fnmatchcase(name, cell)}
        return {number: value for number, value in found.items() if value is not None}

    def best(self, group, cell, figure):
        """The server among ZooKeeper's two whose median is better, or None."""
        found = {server: values for server in ZOOKEEPERS if (values := self.values(group, server, cell, figure))}
        choose = max if figure in MORE_IS_BETTER else min
        return choose(found, key=lambda server: statistics.median(found[server].values()), default=None)

    def measured(self, target, cell):
        """(value, smallest, largest, in words) of a target in one cell, or None."""
        group, figure = target["group"], target["figure"]
        own = self.values(group, target.get("of", "corral"), cell, figure)
        if not own:
            return None
        median = statistics.median(own.values())
        if "against" not in target:
            return median, min(own.values()), max(own.values()), ""
        other_cell, other_figure = target.get("against_cell", cell), target.get("against_figure", figure)
        other = self.best(group, other_cell, other_figure) if target["against"] == "zookeeper" else target["against"]
        theirs = self.values(group, other, other_cell, other_figure) if other else {}
        divisor = statistics.median(theirs.values()) if theirs else 0
        if not divisor:
            return None
        pairs = [own[at] / theirs[at] for at in own if theirs.get(at)] or [median / divisor]
        return median / divisor, min(pairs), max(pairs), f"{number(median)} against {number(divisor)} of {other}"

    def row(self, target):
        row = Row(target["group"], target["work"], target["says"])
        limit, less = limit_of(target["limit"])
        found = [(cell, result) for cell in target["cells"] if (result := self.measured(target, cell))]
        if not found:
            return row
        cell, (row.value, low, high, words) = (max if less else min)(found, key=lambda entry: entry[1][0])
        shown = times if "against" in target else number
        around = f" [{shown(low)}..{shown(high)}]" if high > low else ""
        row.reached = f"{shown(row.value)}{around}" + (f": {words}" if words else f" {target.get('unit', '')}".rstrip())
        if len(target["cells"]) > 1:
            row.reached += f" (worst: {cell}, {len(found)} of {len(target['cells'])} measured)"
        row.met = "yes" if (row.value <= limit if less else row.value >= limit) else "no"
        if self.cpus < target.get("note_if_cpus_below", 0):
            row.reached, row.met = f"{row.reached}. {target['note']}", "-"
        taken = self.host.get(target["group"], {}).get(target.get("host"))
        if taken is not None:
            row.reached += f". The idle machine's own gaps take {number(taken)} us"
            # In the target's unit: a target below what the machine takes by itself cannot be judged.
            row.met = "-" if row.met == "no" and taken / target["host_us"] >= limit else row.met
        return row


def limit_of(text):
    """The number of `<= 1/10`, and whether less is better."""
    sign, _, amount = text.partition(" ")
    over, _, under = amount.partition("/")
    assert sign in ("<=", ">="), f"limit {text!r}"
    return float(over) / float(under or 1), sign == "<="


def number(value):
    """Three digits, thousands apart."""
    return "0" if value == 0 else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def times(ratio):
    """A ratio as people say it: 2.1 x, or 1/8.3."""
    return f"1/{number(1 / ratio)}" if 0 < ratio < 0.75 else f"{number(ratio)} x"


def spread(values, shown=number):
    """The median, with the smallest and the largest."""
    around = f" [{shown(min(values))}..{shown(max(values))}]" if values and max(values) > min(values) else ""
    return f"{shown(statistics.median(values))}{around}" if values else "-"


def markdown(rows):
    return table(["work", "target", "reached", "met"], [[row.work, row.says, row.reached, row.met] for row in rows])


def table(head, rows):
    line = lambda cells: f"| {' | '.join(cells)} |"  # noqa: E731
    return "\n".join([line(head), "|---" * len(head) + "|", *map(line, rows)])


def summary(rows):
    count = {word: sum(row.met == word for row in rows) for word in ("yes", "no", "-")}
    return f"{count['yes']} met, {count['no']} missed, {count['-']} not to be judged here"


class Section:
    """The records of one group of loads by line and cell. A line is a server, or of an ensemble a server and a place."""

    def __init__(self, group, records):
        self.group, self.records = group, records
        found = dict.fromkeys((record["server"], record.get("place")) for record in records)
        self.lines = sorted(found, key=lambda line: order(group, line[0]))
        self.cells = list(dict.fromkeys(record["cell"] for record in records))

    def runs(self, line, cell):
        return [one for one in self.records if (one["server"], one.get("place"), one["cell"]) == (*line, cell)]

    def values(self, line, cell, figure):
        return [value for one in self.runs(line, cell) if (value := figures_of(one).get(figure)) is not None]

    def scenario(self):
        """The Markdown of a scenario: a table for each cell."""
        text = [f"## {self.group['title']}", "", *([self.group["note"], ""] if "note" in self.group else [])]
        for cell in self.cells:
            lines = [line for line in self.lines if self.runs(line, cell)]
            names = list(dict.fromkeys(name for line in lines for one in self.runs(line, cell) for name in one["figures"]))
            rows = [[label(line), *(spread(self.values(line, cell, name)) for name in names)] for line in lines]
            text += [f"### {cell}", "", table(["server", *(name.replace("_", " ") for name in names)], rows), ""]
        return "\n".join(text)

    def text(self, folder):
        """The Markdown of loads, with the plots that are below folder/plots."""
        text = [f"## {self.group['title']}", "", *self.state()]
        for name, plot in self.plots().items():
            text += [f"![{plot['title']}]({folder}/plots/{name}.svg)", ""]
        text += [line for cell in self.cells for line in self.table(cell)]
        text += ["Medians of the rounds, smallest..largest in brackets. Every run with its exact command: `results.jsonl`.", ""]
        commands = {one["server"]: one["server_command"] for one in reversed(self.records) if one.get("server_command")}
        return "\n".join([*text, *(f"- {line[0]}: `{commands[line[0]]}`" for line in self.lines if commands.get(line[0])), ""])

    def state(self):
        """What the disk and the machine were like before each round."""
        rounds = {record["round"]: record for record in reversed(self.records)}
        states = [rounds[at] for at in sorted(rounds) if "fdatasync" in rounds[at]]
        if not states:
            return []
        told = lambda shown: ", ".join(f"{shown(one):.1f}" for one in states)  # noqa: E731
        p50, p99 = told(lambda one: one["fdatasync"]["p50_us"]), told(lambda one: one["fdatasync"]["p99_us"])
        return [f"fdatasync after an append of 512 B, by round: p50 {p50} us, p99 {p99} us. "
                f"Load average before each round (our own included): {told(lambda one: one['load_average'])}.", ""]  # fmt: skip

    def table(self, cell):
        lines = [line for line in self.lines if self.runs(line, cell)]
        against = [name for name in AGAINST if any(line[0] == name and self.values(line, cell, "cpu") for line in lines)]
        rows = []
        for line in lines:
            row = [spread(self.values(line, cell, figure), shown) for figure, _, shown in FIGURES]
            own = self.values(line, cell, "cpu")
            for name in against:
                other = self.values((name, line[1]), cell, "cpu")
                ratio = statistics.median(own) / statistics.median(other) if own and other and any(other) else None
                row.append(f"{ratio:.2f}" if ratio is not None else "-")
            rows.append([label(line), *row])
        head = ["server", *(title for _, title, _ in FIGURES), *(f"CPU x {name}" for name in against)]
        remarks = (f"- {label(line)}: {remark}" for line in lines for one in self.runs(line, cell) for remark in one["report"]["remarks"])
        return [f"### `{cell}`", "", table(head, rows), "", *dict.fromkeys(remarks), ""]

    def plots(self):
        """By file name: CPU time of all cells, latency by percentile of each, scaling with the number of connections."""
        at = {cell: place for place, cell in enumerate(self.cells)}
        by_cell = self.panel("", ["", "linear"], "us per operation", "cpu", at)
        turned = [(name, [point[::-1] for point in points]) for name, points in by_cell["series"]]
        across = {"title": "", "x": by_cell["y"], "y": ["", {"names": self.cells}], "series": turned}
        plots = {"cpu": {"title": "Server CPU per operation", "panels": [across]}}
        curves = [{"title": cell, "x": ["share of the operations", "quantile"], "y": ["latency at most, us", "log"],
                   "series": [(label(line), self.percentiles(line, cell)) for line in self.lines]} for cell in self.cells]  # fmt: skip
        plots["latency"] = {"title": "Latency by percentile, medians over the rounds", "panels": curves}
        sweeps = {}
        for cell in self.cells:
            if found := re.fullmatch(r"(\w+):(\d+)x(\d+)", cell):
                sweeps.setdefault(f"{found[1]}, depth {found[3]}", {})[cell] = int(found[2])
        for depth, swept in sweeps.items():
            if len(swept) >= SWEEP_POINTS_MIN:
                panels = [self.panel(title, ["connections", "log"], unit, figure, swept) for title, unit, figure in (
                    ("throughput", "operations/s", "throughput"), ("99th percentile of latency", "latency, us", "p99"))]  # fmt: skip
                name = f"scaling-{depth.replace(', ', '-').replace(' ', '-')}"
                plots[name] = {"title": f"Scaling with the number of connections: {depth}", "panels": panels}
        return plots

    def panel(self, title, x, unit, figure, cells):
        """Medians of a figure, for each line over cells that have a place on the axis."""
        medians = lambda line: [  # noqa: E731
            (place, statistics.median(found)) for cell, place in cells.items() if (found := self.values(line, cell, figure))
        ]
        return {"title": title, "x": x, "y": [unit, "log"], "series": [(label(line), medians(line)) for line in self.lines]}

    def percentiles(self, line, cell):
        """(quantile, microseconds), each the median over the rounds; without the maximum."""
        curves = [{point["percent"]: point["us"] for point in one["report"]["percentiles"]} for one in self.runs(line, cell)]
        shown = [percent for percent in (curves[0] if curves else ()) if percent < 100]
        return [(percent / 100, statistics.median(curve[percent] for curve in curves if percent in curve)) for percent in shown]


def label(line):
    name, place = line
    return f"{name}, {PLACES[place]}" if place else name


def order(group, server):
    """Where a server stands in the group's list; those of --binary last."""
    return group["servers"].index(server) if server in group["servers"] else len(group["servers"])


def facts(work, settings):
    """What a reader must know of the machine and the run."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"))
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="utf-8").strip()
    filesystem = subprocess.run(["df", "--output=fstype", str(work)], capture_output=True, text=True).stdout.split()
    return {"cpu": model[1] if model else "unknown", "cpus": os.cpu_count(), "memory_mib": int(memory[1]) // 1024,
            "kernel": platform.release(), "congestion_control": congestion,
            "filesystem": filesystem[-1] if filesystem else "unknown", **settings}  # fmt: skip


def without_directories(text):
    """Absolute paths without their directories."""
    return re.sub(r"(?<![\w.:/])/(?:[\w.@+-]+/)+", "", text)


def write(directory, bench=None):
    """Writes report.md of a results directory, and its plots if the load generator is given. Gives the rows of the table."""
    directory = Path(directory)
    told = json.loads((directory / "facts.json").read_text(encoding="utf-8"))
    groups, wanted = plan(told.get("ensembles", False))
    records = load(directory)
    table = Table(records, told["cpus"], told.get("host"))
    rows = [table.row(target) for target in wanted]
    text = [f"# Comparison of {told['commit']}, {told['date']}", "", f"    {told['command']}", "", about(told), ""]
    if shown := [row for row in rows if any(record["group"] == row.group for record in records)]:
        text += ["## Targets", "", summary(shown) + ".", "", markdown(shown), ""]
    plots = []
    for name, group in groups.items():
        own = [record for record in records if record["group"] == name]
        section = Section(group, own)
        if own and "cells" in group:
            text += [section.text(name)]
            plots += [{"file": str(directory / name / "plots" / f"{file}.svg"), **plot} for file, plot in section.plots().items()]
        elif own:
            text += [section.scenario()]
    for title, lines in (("Left out", [f"{name}: {reason}" for name, reason in told["missing"].items()]), ("Failed", told["failures"])):
        if lines:
            text += [f"## {title}", "", *(f"- {line}" for line in lines), ""]
    (directory / "report.md").write_text("\n".join(text), encoding="utf-8")
    if bench and plots:
        for plot in plots:
            Path(plot["file"]).parent.mkdir(exist_ok=True)
        subprocess.run([bench, "draw"], input=json.dumps(plots), text=True, check=True)
    return rows


def about(told):
    where = "two shards on both" if not told.get("ensembles") else "all servers of an ensemble on the same"
    return (
        f"{told['cpu']}, {told['cpus']} CPUs, {told['memory_mib']} MiB, kernel {told['kernel']}, TCP "
        f"{told['congestion_control']}, data on {told['filesystem']}. Servers on CPU {told['server_cpus']}, client on "
        f"{told['client_cpus']}, {where}. {told['rounds']} rounds. ZooKeeper {told['zookeeper']}. "
        f"Load average at the start {told['load_average']:.1f}."
    )


def refresh_docs(directory, docs, rows):
    """Replaces the table in docs/benchmarks.md."""
    told = json.loads((Path(directory) / "facts.json").read_text(encoding="utf-8"))
    text = Path(docs).read_text(encoding="utf-8")
    assert text.count(BEGIN) == 1 and text.count(END) == 1, f"{docs} has no place for the table"
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    link = os.path.relpath(Path(directory) / "report.md", Path(docs).parent)
    middle = f"\n{told['date']}, commit {told['commit']}: {summary(rows)}. [The whole report]({link})\n\n{about(told)}\n\n"
    Path(docs).write_text(f"{head}{BEGIN}\n{middle}{markdown(rows)}\n\n{END}{tail}", encoding="utf-8")
