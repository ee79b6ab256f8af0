#!/usr/bin/env python3
"""bench/compare: the arithmetic of its table on made-up runs, its data, its page, and a run of some seconds with real servers.

The run needs the binaries of corral-bench beside corral's (CORRAL_BIN) or in --tools; without them it is skipped.
"""

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(REPOSITORY / "tests"))
sys.path.insert(0, str(REPOSITORY / "bench"))

from comparison import host, page, targets  # noqa: E402
from support import server, suite  # noqa: E402
from support.suite import Skip, equal  # noqa: E402
from support.wait import free_port  # noqa: E402

NIO, NETTY = targets.ZOOKEEPERS


def run(name, cell, number, cpu, throughput=1000.0, group="reads"):
    """A made-up run of the load generator."""
    latency = {"p50": cpu * 10, "p99": cpu * 100, "p99_9": cpu * 150, "max": cpu * 1000}
    report = {"server_cpu_us_per_op": cpu, "throughput": throughput, "latency_us": latency}
    return {"server": name, "cell": cell, "round": number, "group": group, "report": report}


def target(**more):
    base = {"group": "reads", "work": "w", "says": "s", "figure": "cpu", "cells": ["get:64x16"], "limit": "<= 1/10"}
    return {**base, **more}


def row(records, wanted, cpus=8):
    return targets.Table(records, [wanted], cpus).rows()[0]


RUNS = [
    *(run("corral", "get:64x16", at, cpu, 9000.0) for at, cpu in ((1, 1.0), (2, 0.5), (3, 3.0))),
    *(run(NIO, "get:64x16", at, cpu, 100.0) for at, cpu in ((1, 20.0), (2, 10.0), (3, 30.0))),
    *(run(NETTY, "get:64x16", at, cpu, 90.0) for at, cpu in ((1, 16.0), (2, 12.0), (3, 8.0))),
]


def test_the_better_zookeeper_counts_and_medians_are_divided():
    found = row(RUNS, target(against="zookeeper"))
    equal((found.value, found.met), (1 / 12, "yes"))
    assert NETTY in found.reached and "1/12" in found.reached, found.reached
    assert "[1/24..1/2.67]" in found.reached, f"the spread is that of single rounds: {found.reached}"
    found = row(RUNS, target(against="zookeeper", figure="throughput", limit=">= 100"))
    equal((found.value, found.met), (90, "no"), "the better throughput is the larger one")


def test_limits_are_kept_or_missed():
    for limit, met in (("<= 1/12", "yes"), ("<= 1/13", "no"), ("<= 0.5", "yes"), (">= 0.1", "no")):
        equal(row(RUNS, target(against="zookeeper", limit=limit)).met, met, limit)
    equal(row(RUNS, target(limit="<= 1", unit="us")).reached, "1 [0.5..3] us")


def test_the_worst_cell_decides():
    records = [run("corral", "get:1x1", 1, 5.0), run(NIO, "get:1x1", 1, 10.0), *RUNS]
    both = target(cells=["get:64x16", "get:1x1", "get:7x7"], against="zookeeper", limit="<= 1")
    found = row(records, both)
    equal(found.value, 0.5)
    assert "worst: get:1x1, 2 of 3 measured" in found.reached, found.reached
    equal(row(records, {**both, "limit": ">= 0.1"}).value, 1 / 12, "the smaller ratio is the worse one")


def test_other_cells_figures_and_servers():
    records = [run("corral", "get1k:64x16", 1, 1.4), run("corral 2 shards", "get:64x16", 1, 1.05), *RUNS]
    found = row(records, target(cells=["get1k:64x16"], against="corral", against_cell="get:64x16", limit="<= 1.5"))
    equal((round(found.value, 6), found.met), (1.4, "yes"))
    equal(row(records, target(of="corral 2 shards", against="corral", limit="<= 1.1")).met, "yes")
    found = row(records, target(figure="p99_9", against_figure="p99", against="corral", limit="<= 2"))
    equal((found.value, found.met), (1.5, "yes"))
    open_loop = run("corral", "get:64x16@85000", 1, 9.0, group="open-loop")
    found = row([*records, open_loop], target(group="open-loop", figure="p99", cells=["get:64x16@*"], limit="<= 1000"))
    equal((found.value, found.met), (900, "yes"))


def test_what_was_not_measured_is_not_judged():
    for wanted in (target(cells=["set:1x1"]), target(group="writes"), target(against="epoll echo"), target(of="etcd")):
        found = row(RUNS, wanted)
        equal((found.reached, found.met, found.value), ("not measured", "-", None))
    noted = target(limit="<= 9", note_if_cpus_below=4, note="too few CPUs")
    equal(row(RUNS, noted, cpus=2).met, "-")
    equal(row(RUNS, noted, cpus=4).met, "yes")


def test_what_the_idle_machine_takes_is_told_and_not_judged():
    tail = target(figure="p99", limit="<= 10", unit="us", host="p99_us", host_us=1)
    judge = lambda taken: targets.Table(RUNS, [tail], 8, {"reads": {"p99_us": taken}}).rows()[0]  # noqa: E731
    equal([judge(taken).met for taken in (9.0, 10.0, 11.0)], ["no", "-", "-"], "100 us against 10 us")
    assert "11 us of it" in judge(11.0).reached, judge(11.0).reached
    met = targets.Table(RUNS, [{**tail, "limit": "<= 200"}], 8, {"reads": {"p99_us": 300.0}}).rows()[0]
    equal(met.met, "yes", "what is met is met")
    equal(row(RUNS, tail).met, "no", "nothing known of the machine")


def test_a_gap_keeps_whoever_comes_within_it():
    # One gap of 100 ms in a second: a tenth of all comers wait, evenly between nothing and 100 ms.
    one = [100_000.0]
    waits = [round(host.wait(one, quantile, seconds=1), -2) for quantile in (0.5, 0.95, 0.99)]
    equal(waits, [0, 50_000, 90_000])
    equal(host.wait([], 0.99), 0.0)
    # On each of two CPUs: whoever needs both is kept by either.
    equal(round(host.wait(one * 2, 0.95, seconds=1), -2), 75_000)
    found = host.facts([sorted(os.sched_getaffinity(0))[0]])
    assert 0 <= found["p99_us"] <= found["p99_9_us"] <= found["longest_us"] + 1, found


def test_figures_of_scenarios():
    scenario = {"server": "corral", "cell": "idle", "round": 1, "group": "idle", "figures": {"resident_mb": 20.0}}
    found = row([scenario], target(group="idle", cells=["idle"], figure="resident_mb", limit="<= 16", unit="MB"))
    equal((found.reached, found.met), ("20 MB", "no"))


def test_numbers_as_people_read_them():
    for value, shown in ((0, "0"), (0.1234, "0.123"), (12.34, "12.3"), (1234567.8, "1,234,568")):
        equal(targets.number(value), shown)
    for ratio, shown in ((0.1, "1/10"), (0.9, "0.9 x"), (2.5, "2.5 x")):
        equal(targets.times(ratio), shown)


def test_the_plan_fits_together():
    groups, wanted = targets.plan()
    for entry in wanted:
        group = groups[entry["group"]]
        known = {*group.get("cells", []), *(run["cell"] for run in group.get("run", []))}
        for cell in [*entry["cells"], *([entry["against_cell"]] if "against_cell" in entry else [])]:
            scenario = not known or cell.endswith("@*")
            assert scenario or cell in known, f"{entry['says']}: the group {entry['group']} has no cell {cell}"
        for run_of in group.get("run", []):
            assert run_of["cell"] not in entry["cells"] or entry["figure"] in run_of["figures"], entry["says"]
        targets.limit_of(entry["limit"])
        assert "against" in entry or "unit" in entry, f"{entry['says']}: an absolute figure has a unit"
    for group in groups.values():
        assert {*group.get("quick", [])} <= {*group.get("cells", [])}, group["name"]


def test_directories_are_not_told():
    told = "--corral /home/me/bin/corral --work-dir /tmp/x/ --addr 127.0.0.1:24010 plots/cpu.svg --chroot /m http://a/b/c"
    equal(page.without_directories(told), "--corral corral --work-dir  --addr 127.0.0.1:24010 plots/cpu.svg --chroot /m http://a/b/c")


def results(directory):
    """A made-up results directory."""
    folder = directory / "reads"
    folder.mkdir(parents=True)
    lines = [json.dumps({key: value for key, value in record.items() if key != "group"}) for record in RUNS]
    (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "report.md").write_text("# Reads\n\n![x](plots/cpu.svg)\n\n## get\n")
    told = page.facts(directory, "abc1234", {
        "date": "2026-01-02", "command": "bench/compare", "server_cpus": [0], "client_cpus": [1], "rounds": 3,
        "zookeeper": "3.9.4", "load_average": 0.1, "missing": {"etcd": "there is none"}, "failures": ["one fell over"],
    })  # fmt: skip
    (directory / "facts.json").write_text(json.dumps(told))


def test_scenarios_have_a_table_for_each_cell():
    def record(server, cell, number, **figures):
        return {"server": server, "cell": cell, "round": number, "group": "idle", "figures": figures}

    records = [record("b", "two", 1, ms=5.0), record("b", "one", 1, cpu=1.0), record("a", "one", 1, cpu=2.0),
               record("a", "one", 2, cpu=4.0, mb=7.0)]  # fmt: skip
    text = page.scenario({"servers": ["a", "b"], "note": "beware"}, records)
    equal(text.split("\n")[0], "beware")
    assert "### one\n\n| server | cpu | mb |\n|---|---|---|\n| a | 3 [2..4] | 7 |\n| b | 1 | - |\n" in text, text
    assert "### two\n\n| server | ms |\n|---|---|\n| b | 5 |\n" in text, text


def test_the_page_and_the_documentation():
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "results"
        directory.mkdir()
        results(directory)
        rows = page.write(directory)
        text = (directory / "report.md").read_text()
        for part in ("# Comparison of abc1234", "\n## Reads\n", "\n### get", "](reads/plots/cpu.svg)", "there is none", "one fell over"):
            assert part in text, f"{part!r} is not in\n{text}"
        assert text.count("| yes |") == sum(found.met == "yes" for found in rows) > 0, text
        docs = Path(place) / "benchmarks.md"
        docs.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
        page.refresh_docs(directory, docs, rows)
        once = docs.read_text()
        page.refresh_docs(directory, docs, rows)
        equal(docs.read_text(), once, "refreshing twice")
        assert once.startswith("before\n") and once.endswith("\nafter\n") and "old" not in once, once
        assert "results/report.md" in once and once.count("| yes |") == text.count("| yes |"), once


def test_a_run_of_some_seconds(options):
    try:
        binary = server.binary()
    except FileNotFoundError as missing:
        raise Skip(str(missing)) from missing
    tools = Path(options.tools) if options.tools else binary.parent
    if not all((tools / name).exists() for name in ("corral-bench", "glommio-echo", "epoll-echo")):
        raise Skip(f"corral-bench and the echoes are not in {tools} (cargo build -p corral-bench --bins)")
    with tempfile.TemporaryDirectory() as place:
        command = [REPOSITORY / "bench" / "compare", "--quick", "--only", "reads,idle", "--servers", "corral,epoll echo"]
        command += ["--seconds", "0.3", "--cell-warm", "0.1", "--corral", binary, "--tools", tools, "--port", free_port()]
        command += ["--work-dir", place, "--out", f"{place}/out"]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, "ZOOKEEPER_JARS": ""})
        equal(ended.returncode, 0, ended.stderr)
        records = targets.load(f"{place}/out")
        assert {record["server"] for record in records} == {"corral", "epoll echo"}, records
        text = Path(place, "out", "report.md").read_text()
        assert str(REPOSITORY) not in text and place not in text, "directories of this machine are in the page"
        assert "| idle server |" in ended.stdout and "| getData 100 B, 64 x 16 |" in ended.stdout, ended.stdout
        plots = list(Path(place, "out", "reads", "plots").glob("*.svg"))
        assert len(plots) >= 4, plots
        for plot in plots:
            xml.etree.ElementTree.parse(plot)
        left = sorted(path.name for path in Path(place).iterdir())
        equal(left, ["out"], "what is left behind")


def main():
    parser = suite.parser(__doc__)
    parser.add_argument("--tools", help="folder of corral-bench and the echoes [that of corral]")
    options = parser.parse_args()
    tally = suite.Tally()
    for name, function in suite.tests_of([sys.modules[__name__]], options.only):
        tally.run(name, function, *([options] if name.endswith("a_run_of_some_seconds") else []))
    suite.leave(tally)


if __name__ == "__main__":
    main()
