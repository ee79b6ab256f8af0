"""bench/compare: the arithmetic of its table on made-up runs, its data, its page, and runs of some seconds with real servers.

The runs need the binaries of corral-bench beside corral's (CORRAL_BIN) or in --tools; without them they are skipped.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

import pytest

# Of the folder bench, see pytest.ini.
from comparison import cells, host, loads, page, peers, plots, tables, targets
from support.expect import equal
from support.server import REPOSITORY, binary
from support.wait import free_port, wait_until

NIO, NETTY = targets.ZOOKEEPERS


def run(name, cell, number, cpu, throughput=1000.0, group="reads"):
    """A made-up run of the load generator."""
    latency = {"p50": cpu * 10, "p99": cpu * 100, "p99_9": cpu * 150, "max": cpu * 1000}
    report = {"server_cpu_us_per_op": cpu, "throughput": throughput, "latency_us": latency, "remarks": [],
              "percentiles": [{"percent": 50.0, "us": cpu * 10}, {"percent": 99.0, "us": cpu * 100}, {"percent": 100.0, "us": cpu * 1000}],
              "timeline": [{"start": at, "throughput": throughput} for at in (0.0, 0.5)]}  # fmt: skip
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


def test_places_of_ensembles_are_targets_of_their_own():
    at = lambda name, place, cpu: {**run(name, "set:1x1", 1, cpu, group="ensembles"), "place": place}  # noqa: E731
    records = [at("corral", "leader", 1.0), at("corral", "all", 4.0), at("ZooKeeper", "leader", 8.0), at("ZooKeeper", "all", 8.0)]
    wanted = target(group="ensembles", cells=["set:1x1 leader", "set:1x1 follower", "set:1x1 all"], against="ZooKeeper", limit="<= 1/5")
    found = row(records, wanted)
    equal((found.value, found.met), (0.5, "no"))
    assert "worst: set:1x1 all, 2 of 3 measured" in found.reached, found.reached


def test_the_plan_fits_together():
    check_plan(*targets.plan())
    check_plan(*targets.plan(ensembles=True))


def check_plan(groups, wanted):
    for entry in wanted:
        group = groups[entry["group"]]
        known = {*group.get("cells", []), *(run["cell"] for run in group.get("run", []))}
        known = {f"{cell} {place}" for cell in known for place in ("leader", "follower", "all")} if "ensembles" in group else known
        for cell in [*entry["cells"], *([entry["against_cell"]] if "against_cell" in entry else [])]:
            scenario = not known or cell.endswith("@*")
            assert scenario or cell in known, f"{entry['says']}: the group {entry['group']} has no cell {cell}"
        for run_of in group.get("run", []):
            assert run_of["cell"] not in entry["cells"] or entry["figure"] in run_of["figures"], entry["says"]
        targets.limit_of(entry["limit"])
        assert "against" in entry or "unit" in entry, f"{entry['says']}: an absolute figure has a unit"
    for group in groups.values():
        assert {*group.get("quick", [])} <= {*group.get("cells", [])}, group["name"]
        for text in group.get("cells", []):
            equal(cells.cell(cells.cell(text).name), cells.cell(text), "the full name of a cell is a cell")


def test_cells_have_a_full_name_and_flags():
    for text, name, flags in (
        ("get:64x16", "get:64x16", "--op get --connections 64 --depth 16 --value-bytes 100"),
        ("get1k", "get1k:64x16", "--op get --connections 64 --depth 16 --value-bytes 1024"),
        ("mix90:64x16", "mix:64x16", "--op mix --connections 64 --depth 16 --read-percent 90"),
        ("mix50:2x3", "mix50:2x3", "--op mix --connections 2 --depth 3 --read-percent 50"),
        ("children:8x1", "children:8x1", "--op children --connections 8 --depth 1 --children 100"),
        ("get@50000", "get:64x16@50000", "--op get --connections 64 --depth 16 --value-bytes 100 --rate 50000"),
        ("set0:1x1@0.5", "set0:1x1@0.5", "--op set --connections 1 --depth 1 --value-bytes 0 --rate 0.5"),
    ):
        made = cells.cell(text)
        equal((made.name, " ".join(map(str, made.flags()))), (name, flags))
    equal(cells.cell("get1k:1x2").title, "Get of 1024 B, 1 connection x 2")
    equal((cells.cell("get:1x1").sweep, cells.cell("get:1x1@5").sweep), ("get, depth 1", None))
    for text in ("", "put", "get:64", "get:x1", "get:0x1", "get:1x0", "get@fast", "get@0", "get5q", "get:1x1x1", ":1x1"):
        try:
            cells.cell(text)
        except ValueError as error:
            assert cells.GRAMMAR in str(error) or "positive" in str(error), error
        else:
            raise AssertionError(f"{text!r} is taken")


def test_running_servers():
    equal(peers.running("a b=h:1"), peers.RunningPeer("a b", "h:1"))
    equal(peers.running("a=127.0.0.1:2181,pid=7"), peers.RunningPeer("a", "127.0.0.1:2181", 7))
    for text in ("", "a", "a=", "=h:1", "a=h", "a=h:1,pid=x", "a=h:1,cpu=2"):
        with contextlib.suppress(ValueError):
            raise AssertionError(f"{peers.running(text)} is taken")


def test_a_disk_takes_some_time():
    with tempfile.TemporaryDirectory() as place:
        probe = host.sync_probe(Path(place))
        assert 0 < probe["p50_us"] <= probe["p99_us"], probe
        equal(os.listdir(place), [], "what is left behind")


def test_axes_hold_their_figures_and_ticks():
    for scale in (plots.LINEAR, plots.LOG):
        for figures in ([0.003], [1.0, 1000.0], [37.0, 38.0], [0.2, 7e6]):
            shown = plots.Range(scale, figures)
            shares = [shown.share(figure) for figure in figures] + [share for share, _ in shown.ticks()]
            assert all(-1e-6 <= share <= 1 + 1e-6 for share in shares), (scale, figures, shares)
            assert 2 <= len(shown.ticks()) <= 12, (scale, figures, shown.ticks())
    by_nines = plots.Range(plots.QUANTILE, [0.5, 0.9, 0.999])
    equal([text for _, text in by_nines.ticks()], ["50 %", "90 %", "99 %", "99.9 %"])
    assert plots.Range(plots.LOG, [0.0, -1.0, float("nan")]).empty
    for figure, told in ((0.0, "0"), (0.62, "0.62"), (0.00425, "0.0043"), (12.34, "12.3"), (999.6, "1k"), (150e3, "150k"), (2e9, "2G")):
        equal(plots.short(figure), told)


def test_plots_are_xml_without_a_flaw():
    panel = plots.Panel("a <title> & more", ("share", plots.QUANTILE), ("latency, us", plots.LOG), [
        plots.Series("one & only", 0, [(0.0, 10.0), (0.5, 20.0), (0.99, 90.0)]), plots.Series("two", 3, [(0.5, 2.0), (0.9, 0.0)]),
    ])  # fmt: skip
    drawn = plots.lines("late\x00ncy", [panel, panel])
    xml.etree.ElementTree.fromstring(drawn)
    equal((drawn.count('<circle class="s0"'), drawn.count('<circle class="s3"')), (6, 2), "no zero on a logarithmic axis")
    equal(drawn.count('class="s s3"'), 1, "one entry in the legend")
    empty = plots.lines("empty", [plots.Panel("empty", ("x", plots.LINEAR), ("y", plots.LOG), [plots.Series("none", 0, [])])])
    assert "no figures" in empty, empty
    drawn = plots.bars("CPU", "us", [(name, [plots.Bar("one", 0, 1.0, 0.9, 1.2), plots.Bar("two", 1, 0.0, 0.0, 0.0)]) for name in "abc"])
    xml.etree.ElementTree.fromstring(drawn)
    equal((drawn.count('<rect class="s0"'), drawn.count('<line class="whisker"')), (3, 6))


def test_a_group_of_loads_has_tables_ratios_and_plots():
    records = [run(name, f"get:{count}x1", at, cpu * factor) for name, factor in (("corral", 1), (NIO, 10))
               for count in (1, 8, 64) for at, cpu in ((1, 1.0), (2, 3.0), (3, 2.0))]  # fmt: skip
    records[0] |= {"load_average": 0.5, "fdatasync": {"p50_us": 70.0, "p99_us": 90.0}, "server_command": "corral serve"}
    records[0]["report"]["remarks"] = ["beware"]
    with tempfile.TemporaryDirectory() as place:
        text = tables.Section({"title": "Reads", "servers": ["corral", NIO]}, records).write(Path(place) / "reads")
        for part in ("## Reads", "| corral | 2.000 [1.000..3.000] | 1,000 [1,000..1,000] | 20 [10..30] |", "| 0.10 |", "- corral: beware",
                     "p50 70.0 us, p99 90.0 us", "- corral: `corral serve`"):  # fmt: skip
            assert part in text, f"{part!r} is not in\n{text}"
        for name in ("cpu", "scaling-get-depth-1", "get-1x1", "get-8x1", "get-64x1"):
            xml.etree.ElementTree.parse(Path(place, "reads", "plots", f"{name}.svg"))
            assert f"](reads/plots/{name}.svg)" in text, name


def test_an_ensemble_has_a_line_for_each_place():
    records = [{**run(name, "set:1x1", 1, cpu), "place": place} for name, cpu in (("ZooKeeper", 8.0), ("corral", 2.0))
               for place in ("leader", "all")]  # fmt: skip
    section = tables.Section({"title": "Three", "servers": ["corral", "ZooKeeper"]}, records)
    lines = [line for line in section.table(cells.cell("set:1x1")) if line.startswith("| ")]
    equal([line.split(" | ")[0] for line in lines[1:]],
          ["| corral, at the leader", "| corral, over all", "| ZooKeeper, at the leader", "| ZooKeeper, over all"])  # fmt: skip
    assert lines[1].endswith("| 0.25 |") and lines[3].endswith("| 1.00 |"), lines


def test_directories_are_not_told():
    told = "--corral /home/me/bin/corral --work-dir /tmp/x/ --addr 127.0.0.1:24010 plots/cpu.svg --chroot /m http://a/b/c"
    equal(page.without_directories(told), "--corral corral --work-dir  --addr 127.0.0.1:24010 plots/cpu.svg --chroot /m http://a/b/c")


def results(directory):
    """A made-up results directory."""
    folder = directory / "reads"
    folder.mkdir(parents=True)
    lines = [json.dumps({key: value for key, value in record.items() if key != "group"}) for record in RUNS]
    (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
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
        for part in ("# Comparison of abc1234", "\n## Reads\n", "\n### Get of", "](reads/plots/cpu.svg)", "there is none", "one fell over"):
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


class Lab:
    """A lab whose load generator is made up."""

    rounds, label, client_cpus, failures = 2, "x", [0], None

    def __init__(self, work):
        self.work, self.kept, self.failures = Path(work), [], []

    def generate(self, *words):
        if "broken" in words:
            raise RuntimeError("value length is wrong")
        return run("", "", 1, 1.0)["report"]

    def keep(self, record):
        self.kept.append(record)

    def shown(self, command):
        return command

    def failed(self, what, error):
        self.failures.append(f"{what}: {error}")


class Made:
    """A contestant without a server."""

    command, cpus, warm_s, cell_warm_s, stopped = "serve", [0], 0.1, 0, 0

    def __init__(self, name, places=(None,)):
        self.name, self.places = name, places

    def start(self, number):
        if self.name == "gone":
            raise RuntimeError("ended with code 1")

    def target(self, place):
        return [self.name]

    def log_tail(self):
        return "its last words"

    def stop(self):
        self.stopped += 1


def test_rounds_rotate_and_a_failure_ends_only_its_own_round():
    with tempfile.TemporaryDirectory() as place:
        lab, made = Lab(place), [Made("a"), Made("gone"), Made("broken"), Made("b", ("leader", "all"))]
        loads.run(lab, made, ["get:1x1", "set"], 1.0, 0.1)
    order = [(one["round"], one["server"], one["cell"], one.get("place")) for one in lab.kept]
    of_a = [("a", "get:1x1", None), ("a", "set:64x16", None)]
    of_b = [("b", cell, at) for cell in ("get:1x1", "set:64x16") for at in ("leader", "all")]
    equal(order, [(1, *one) for one in of_a + of_b] + [(2, *one) for one in of_b + of_a], "who is first rotates")
    assert all(one["fdatasync"]["p50_us"] > 0 and one["load_average"] >= 0 for one in lab.kept), lab.kept
    equal([one.stopped for one in made], [2, 2, 2, 2], "every one is ended in every round")
    equal(len(lab.failures), 4)
    assert "gone, round 1: ended with code 1" in lab.failures, lab.failures
    assert any("broken, round 2: value length is wrong" in one and "its last words" in one for one in lab.failures), lab.failures


@pytest.fixture
def programs(options):
    """The corral binary and the folder of the tools."""
    try:
        corral = binary()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    tools = Path(options.tools) if options.tools else corral.parent
    if not all((tools / name).exists() for name in ("corral-bench", "glommio-echo", "epoll-echo")):
        pytest.skip(f"corral-bench and the echoes are not in {tools} (cargo build -p corral-bench --bins)")
    return corral, tools


def compare(programs, place, *flags):
    """The command of a short run, without ZooKeeper."""
    corral, tools = programs
    command = [REPOSITORY / "bench" / "compare", "--quick", "--seconds", "0.3", "--cell-warm", "0.1", "--corral", corral]
    command += ["--tools", tools, "--port", free_port(), "--work-dir", place, "--out", f"{place}/out", *flags]
    return {"args": list(map(str, command)), "text": True, "env": {**os.environ, "ZOOKEEPER_JARS": ""}}


def test_single_servers(programs):
    with tempfile.TemporaryDirectory() as place:
        flags = ["--only", "reads,idle", "--servers", "corral,epoll echo"]
        ended = subprocess.run(**compare(programs, place, *flags), capture_output=True)
        equal(ended.returncode, 0, ended.stderr)
        records = targets.load(f"{place}/out")
        assert {record["server"] for record in records} == {"corral", "epoll echo"}, records
        text = Path(place, "out", "report.md").read_text()
        assert str(REPOSITORY) not in text and place not in text, "directories of this machine are in the page"
        assert "| idle server |" in ended.stdout and "| getData 100 B, 64 x 16 |" in ended.stdout, ended.stdout
        drawn = list(Path(place, "out", "reads", "plots").glob("*.svg"))
        assert len(drawn) >= 4, drawn
        for plot in drawn:
            xml.etree.ElementTree.parse(plot)
        left = sorted(path.name for path in Path(place).iterdir())
        equal(left, ["out"], "what is left behind")
        again = subprocess.run([sys.executable, "-B", "-c", "import sys; sys.path.insert(0, sys.argv[1]); from comparison import page; "
                                "page.write(sys.argv[2])", str(REPOSITORY / "bench"), f"{place}/out"], check=False)  # fmt: skip
        equal((again.returncode, Path(place, "out", "report.md").read_text()), (0, text), "the page is made again from the raw runs")


def test_an_ensemble_of_three(programs):
    with tempfile.TemporaryDirectory() as place:
        ended = subprocess.run(**compare(programs, place, "--ensembles", "--cells", "set:4x2", "--servers", "corral"), capture_output=True)
        equal(ended.returncode, 0, ended.stderr)
        records = targets.load(f"{place}/out")
        equal([record["place"] for record in records], ["leader", "follower", "all"])
        for record in records:
            assert record["report"]["operations"] > 0 and record["report"]["server_cpu_us_per_op"] > 0, record
        text = Path(place, "out", "report.md").read_text()
        assert "| corral, at a follower |" in text and place not in text, text
        equal(os.listdir(place), ["out"], "what is left behind")


def test_a_server_that_runs_beside_one_that_lies(programs):
    _, tools = programs
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as after:
        port, absent = free_port(), free_port()
        # Its values are shorter than the load's.
        words = [str(tools / "epoll-echo"), "--addr", f"127.0.0.1:{port}", "--value-bytes", "9"]
        liar = after.enter_context(subprocess.Popen(words, stderr=subprocess.DEVNULL))
        after.callback(liar.kill)
        flags = ["--cells", "get:2x2", "--servers", "liar,gone,epoll echo", "--server", f"liar=127.0.0.1:{port},pid={liar.pid}"]
        ended = subprocess.run(**compare(programs, place, *flags, "--server", f"gone=127.0.0.1:{absent}"), capture_output=True)
        equal(ended.returncode, 1, ended.stderr)
        assert "FAILED liar, round 1: " in ended.stdout and "value length is wrong" in ended.stdout, ended.stdout
        assert "gone, round 1" in ended.stdout and "no session in 5 s" in ended.stdout, ended.stdout
        equal([record["server"] for record in targets.load(f"{place}/out")], ["epoll echo"])
        assert liar.poll() is None, "a server that runs already is not ended"


def test_an_interrupted_run_ends_what_it_started(programs):
    with tempfile.TemporaryDirectory() as place:
        flags = ["--cells", "get:2x2", "--servers", "epoll echo", "--seconds", "600"]
        child = subprocess.Popen(**compare(programs, place, *flags), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        echo = wait_until(lambda: list(Path(place).glob("compare-*/1-epoll-echo/server.log")), "the echo is started", 30)
        child.send_signal(signal.SIGTERM)
        errors = child.communicate(timeout=30)[1]
        assert child.returncode and "interrupted" in errors, errors
        assert not echo[0].exists() and os.listdir(place) == ["out"], os.listdir(place)
        running = subprocess.run(["pgrep", "-f", place], capture_output=True, text=True).stdout
        equal(running, "", "what still runs")


def test_flags_that_make_no_sense_are_refused():
    for flags, part in (
        (["--cells", "get:1"], "is not OP[N]"), (["--server", "b"], "is not NAME=HOST:PORT"), (["--rounds", "0"], "are positive"),
        (["--only", "ensembles"], "there are no groups ensembles"), (["--ensembles", "--server", "a=h:1"], "not with --ensembles"),
        (["--seconds", "-2"], "are positive"), (["--only", "loads"], "there are no groups loads"),
    ):  # fmt: skip
        ended = subprocess.run([str(REPOSITORY / "bench" / "compare"), *flags], capture_output=True, text=True)
        equal(ended.returncode, 2, ended.stderr)
        assert part in ended.stderr, f"{flags}: {ended.stderr}"
