"""The report of a whole run: facts of the machine, the table of targets, and a section for each group.

Made from the files of a results directory alone, so that it can be made again at any time.
"""

import json
import os
import platform
import re
import statistics
import subprocess
from pathlib import Path

from comparison import tables, targets

BEGIN, END = "<!-- targets: made by bench/compare report, do not edit -->", "<!-- end of targets -->"


def facts(work, label, settings):
    """What a reader must know of the machine and the run."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"))
    read = lambda path: Path(path).read_text(encoding="utf-8").strip()  # noqa: E731
    filesystem = subprocess.run(["df", "--output=fstype", str(work)], capture_output=True, text=True).stdout.split()
    return {
        "commit": label,
        "cpu": model[1] if model else "unknown",
        "cpus": os.cpu_count(),
        "memory_mib": int(memory[1]) // 1024 if memory else None,
        "kernel": platform.release(),
        "congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "filesystem": filesystem[-1] if filesystem else "unknown",
        **settings,
    }


def without_directories(text):
    """Absolute paths without their directories."""
    return re.sub(r"(?<![\w.:/])/(?:[\w.@+-]+/)+", "", text)


def write(directory):
    """Writes report.md of a results directory and gives the rows of the table."""
    directory = Path(directory)
    told = json.loads((directory / "facts.json").read_text(encoding="utf-8"))
    groups, wanted = targets.plan(told.get("ensembles", False))
    records = targets.load(directory)
    rows = targets.Table(records, wanted, told["cpus"], told.get("host")).rows()
    text = [f"# Comparison of {told['commit']}, {told['date']}", "", f"    {told['command']}", "", about(told), ""]
    measured = {record["group"] for record in records}
    if shown := [row for row in rows if row.group in measured]:
        text += ["## Targets", "", targets.summary(shown) + ".", "", targets.markdown(shown), ""]
    for name, group in groups.items():
        own = [record for record in records if record["group"] == name]
        if own and "cells" in group:
            text += [tables.Section(group, own).write(directory / name)]
        elif own:
            text += [f"## {group['title']}", "", scenario(group, own)]
    if told["missing"]:
        text += ["## Left out", "", *(f"- {name}: {reason}" for name, reason in told["missing"].items()), ""]
    if told["failures"]:
        text += ["## Failed", "", *(f"- {failure}" for failure in told["failures"]), ""]
    (directory / "report.md").write_text("\n".join(text), encoding="utf-8")
    return rows


def about(told):
    where = "two shards on both" if not told.get("ensembles") else "all servers of an ensemble on the same"
    return (
        f"{told['cpu']}, {told['cpus']} CPUs, {told['memory_mib']} MiB, kernel {told['kernel']}, TCP "
        f"{told['congestion_control']}, data on {told['filesystem']}. Servers on CPU {told['server_cpus']}, client on "
        f"{told['client_cpus']}; {where}. {told['rounds']} rounds. ZooKeeper {told['zookeeper']}. "
        f"Load average at the start {told['load_average']:.1f}."
    )


def scenario(group, records):
    """A table for each cell of a scenario: medians with smallest..largest of the rounds."""
    cells = {}
    for record in records:
        servers = cells.setdefault(record["cell"], {})
        servers.setdefault(record["server"], []).append(targets.figures_of(record))
    text = [group["note"], ""] if "note" in group else []
    for cell, servers in cells.items():
        names = list(dict.fromkeys(name for rounds in servers.values() for figures in rounds for name in figures))
        text += [f"### {cell}", "", "| server | " + " | ".join(name.replace("_", " ") for name in names) + " |"]
        text.append("|" + "---|" * (len(names) + 1))
        for server in sorted(servers, key=lambda name: order(group, name)):
            shown = [median_of(servers[server], name) for name in names]
            text.append(f"| {server} | " + " | ".join(shown) + " |")
        text.append("")
    return "\n".join(text)


def order(group, server):
    """Where a server stands in the group's list; those of --binary last."""
    return group["servers"].index(server) if server in group["servers"] else len(group["servers"])


def median_of(rounds, name):
    values = [figures[name] for figures in rounds if figures.get(name) is not None]
    return targets.spread(statistics.median(values), min(values), max(values), {}) if values else "-"


def refresh_docs(directory, docs, rows):
    """Replaces the table in docs/benchmarks.md."""
    told = json.loads((Path(directory) / "facts.json").read_text(encoding="utf-8"))
    text = Path(docs).read_text(encoding="utf-8")
    assert text.count(BEGIN) == 1 and text.count(END) == 1, f"{docs} has no place for the table"
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    link = os.path.relpath(Path(directory) / "report.md", Path(docs).parent)
    middle = f"\n{told['date']}, commit {told['commit']}: {targets.summary(rows)}. [The whole report]({link})\n\n{about(told)}\n\n"
    Path(docs).write_text(f"{head}{BEGIN}\n{middle}{targets.markdown(rows)}\n\n{END}{tail}", encoding="utf-8")
