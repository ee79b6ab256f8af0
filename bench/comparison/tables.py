"""The section of a group of loads: a table and curves for each cell, bars, scaling curves; made from its records alone.

A line of a table is a server, or of an ensemble a server and the place where the load was put.
"""

import re
import statistics

from comparison import cells, peers, plots, targets

# Servers by whose CPU time that of the others is divided.
AGAINST = (peers.EPOLL, peers.GLOMMIO, peers.NIO, peers.NETTY_NAME, peers.ZOOKEEPER)
# Figure, head of its column, digits behind the point.
FIGURES = (
    ("cpu", "CPU us/op", 3), ("throughput", "ops/s", 0), ("p50", "p50 us", 0), ("p99", "p99 us", 0),
    ("p99_9", "p99.9 us", 0), ("max", "max us", 0),
)  # fmt: skip
# A sweep needs at least this many numbers of connections to be drawn.
SWEEP_POINTS_MIN = 3


class Section:
    """The records of one group by cell and line, in the order of the group's servers."""

    def __init__(self, group, records):
        self.group, self.records = group, records
        order = lambda name: group["servers"].index(name) if name in group["servers"] else len(group["servers"])  # noqa: E731
        found = dict.fromkeys((record["server"], record.get("place")) for record in records)
        self.lines = sorted(found, key=lambda line: order(line[0]))
        self.cells = [cells.cell(name) for name in dict.fromkeys(record["cell"] for record in records)]

    def runs(self, line, cell):
        """The runs of a line in a cell, by round."""
        return [one for one in self.records if (one["server"], one.get("place"), one["cell"]) == (*line, cell.name)]

    def values(self, line, cell, figure):
        found = (targets.figures_of(one)[figure] for one in self.runs(line, cell))
        return [value for value in found if value is not None]

    def median(self, line, cell, figure):
        values = self.values(line, cell, figure)
        return statistics.median(values) if values else None

    def write(self, folder):
        """Draws the plots into folder/plots and gives the Markdown, in which their paths begin with the folder's name."""
        (folder / "plots").mkdir(parents=True, exist_ok=True)
        text = [f"## {self.group['title']}", "", *self.head()]

        def draw(name, what, svg):
            (folder / "plots" / f"{name}.svg").write_text(svg, encoding="utf-8")
            text.extend([f"![{what}]({folder.name}/plots/{name}.svg)", ""])

        if groups := self.bars():
            draw("cpu", "Server CPU per operation", plots.bars("Server CPU per operation", "us per operation", groups))
        for name, swept in self.sweeps():
            draw(f"scaling-{file_name(name)}", f"Scaling of {name}", self.scaling(name, swept))
        for cell in self.cells:
            text += self.table(cell)
            draw(file_name(cell.name), f"Latency and throughput of {cell.name}", self.curves(cell))
        return "\n".join([*text, *self.foot()])

    def head(self):
        """What the disk and the machine were like before each round."""
        of_round = {}
        for record in self.records:
            of_round.setdefault(record["round"], record)
        lines = []
        if syncs := [sync for number in sorted(of_round) if (sync := of_round[number].get("fdatasync"))]:
            p50, p99 = (", ".join(f"{sync[name]:.1f}" for sync in syncs) for name in ("p50_us", "p99_us"))
            lines += [f"fdatasync after an append of 512 B, by round: p50 {p50} us, p99 {p99} us."]
        if loads := [load for number in sorted(of_round) if (load := of_round[number].get("load_average")) is not None]:
            lines += [f"Load average before each round (our own included): {', '.join(f'{load:.1f}' for load in loads)}."]
        return [*lines, ""] if lines else []

    def table(self, cell):
        lines = [line for line in self.lines if self.runs(line, cell)]
        against = [name for name in AGAINST if any(line[0] == name and self.values(line, cell, "cpu") for line in lines)]
        head = ["server", *(title for _, title, _ in FIGURES), *(f"CPU x {name}" for name in against)]
        text = [f"### {cell.title}", "", f"`{cell.name}`", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        for line in lines:
            row = [label(line), *(spread(self.values(line, cell, figure), digits) for figure, _, digits in FIGURES)]
            for name in against:
                own, other = self.median(line, cell, "cpu"), self.median((name, line[1]), cell, "cpu")
                row.append(f"{own / other:.2f}" if own is not None and other else "-")
            text.append(f"| {' | '.join(row)} |")
        for remark in dict.fromkeys(
            f"- {label(line)}: {remark}" for line in lines for one in self.runs(line, cell) for remark in one["report"]["remarks"]
        ):
            text += ["", remark]
        return [*text, ""]

    def bars(self):
        """Of each cell the bars of all lines."""
        groups = []
        for cell in self.cells:
            found = ((at, line, self.values(line, cell, "cpu")) for at, line in enumerate(self.lines))
            shown = [plots.Bar(label(line), at, statistics.median(values), min(values), max(values)) for at, line, values in found if values]
            groups += [(cell.name, shown)] if shown else []
        return groups

    def curves(self, cell):
        def series(points):
            found = ((at, line, points(line)) for at, line in enumerate(self.lines))
            return [plots.Series(label(line), at, its) for at, line, its in found if its]

        return plots.lines(cell.title, [
            plots.Panel("latency, median over the rounds", ("share of the operations", plots.QUANTILE),
                        ("latency at most, us", plots.LOG), series(lambda line: self.percentiles(line, cell))),
            plots.Panel("throughput of the median round", ("time, s", plots.LINEAR),
                        ("operations/s", plots.LOG), series(lambda line: self.timeline(line, cell))),
        ])  # fmt: skip

    def percentiles(self, line, cell):
        """(quantile, microseconds), each the median over the rounds; without the maximum."""
        curves = [{point["percent"]: point["us"] for point in one["report"]["percentiles"]} for one in self.runs(line, cell)]
        shown = [percent for percent in (curves[0] if curves else ()) if percent < 100]
        return [(percent / 100, statistics.median(curve[percent] for curve in curves if percent in curve)) for percent in shown]

    def timeline(self, line, cell):
        """(seconds, operations per second) of the round whose throughput is nearest the median."""
        runs, median = self.runs(line, cell), self.median(line, cell, "throughput")
        nearest = min(runs, key=lambda one: abs(one["report"]["throughput"] - median), default=None)
        return [(row["start"], row["throughput"]) for row in nearest["report"]["timeline"]] if nearest else []

    def sweeps(self):
        """What each sweep over the number of connections is of, with its cells."""
        found = {}
        for cell in self.cells:
            if cell.sweep:
                found.setdefault(cell.sweep, {})[cell.connections] = cell
        return [(name, [swept[count] for count in sorted(swept)]) for name, swept in found.items() if len(swept) >= SWEEP_POINTS_MIN]

    def scaling(self, name, swept):
        def panel(title, unit, figure):
            series = []
            for at, line in enumerate(self.lines):
                points = [(cell.connections, self.median(line, cell, figure)) for cell in swept if self.runs(line, cell)]
                series.append(plots.Series(label(line), at, points))
            return plots.Panel(title, ("connections", plots.LOG), (unit, plots.LOG), series)

        panels = [panel("throughput", "operations/s", "throughput"), panel("99th percentile of latency", "latency, us", "p99")]
        return plots.lines(f"Scaling with the number of connections: {name}", panels)

    def foot(self):
        commands = {}
        for record in self.records:
            if record.get("server_command"):
                commands.setdefault(record["server"], record["server_command"])
        text = ["Medians of the rounds, smallest..largest in brackets. Every run with its exact command: `results.jsonl`.", ""]
        return [*text, *(f"- {name}: `{command}`" for name, command in commands.items()), *([""] if commands else [])]


def label(line):
    name, place = line
    return f"{name}, {PLACES[place]}" if place else name


# Where a load on an ensemble is put, as a table says it.
PLACES = {"leader": "at the leader", "follower": "at a follower", "all": "over all"}


def spread(values, digits):
    shown = lambda value: f"{value:,.{digits}f}"  # noqa: E731
    return f"{shown(statistics.median(values))} [{shown(min(values))}..{shown(max(values))}]" if values else "-"


def file_name(text):
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
