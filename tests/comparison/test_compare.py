"""bench/compare: the arithmetic of its table on made-up runs, its data, its page, and runs of some seconds with real servers.

The runs need the binaries of corral-bench beside corral's (CORRAL_BIN); without them they are skipped.
"""

import contextlib
import json
import os
import signal
import subprocess
import xml.etree.ElementTree

import pytest

# Of the folder bench, see pytest.ini.
from comparison import host, loads, report
from support import REPOSITORY
from support.expect import equal
from support.server import binary
from support.wait import free_port, wait_until

NIO, NETTY = report.ZOOKEEPERS


def run(name, cell, number, cpu, throughput=1000.0, **more):
    """A made-up run of the load generator."""
    latency = {"p50": cpu * 10, "p99": cpu * 100, "p99_9": cpu * 150, "max": cpu * 1000}
    percentiles = [{"percent": 50.0, "us": cpu * 10}, {"percent": 99.0, "us": cpu * 100}, {"percent": 100.0, "us": cpu * 1000}]
    found = {"server_cpu_us_per_op": cpu, "throughput": throughput, "latency_us": latency, "remarks": [], "percentiles": percentiles}
    return {"server": name, "cell": cell, "round": number, "group": "reads", "report": found, **more}


RUNS = [
    *(run("corral", "get:64x16", at, cpu, 9000.0) for at, cpu in ((1, 1.0), (2, 0.5), (3, 3.0))),
    *(run(NIO, "get:64x16", at, cpu, 100.0) for at, cpu in ((1, 20.0), (2, 10.0), (3, 30.0))),
    *(run(NETTY, "get:64x16", at, cpu, 90.0) for at, cpu in ((1, 16.0), (2, 12.0), (3, 8.0))),
    run("corral", "get:1x1", 1, 5.0), run(NIO, "get:1x1", 1, 10.0), run("corral", "get1k:64x16", 1, 1.4),
    run("corral", "get:64x16@85000", 1, 9.0, group="open-loop"),
    *(run(name, "set:1x1", 1, cpu, group="ensembles", place=place)
      for name, place, cpu in (("corral", "leader", 1.0), ("corral", "all", 4.0), ("ZooKeeper", "leader", 8.0), ("ZooKeeper", "all", 8.0))),
    {"server": "corral", "cell": "idle", "round": 1, "group": "idle", "figures": {"resident_mb": 20.0}},
]  # fmt: skip
TWO = ["get:64x16", "get:1x1", "get:7x7"]
JUDGED = [
    # Of the target what is unlike the usual one; value, met, and a part of what is said.
    ({}, 1 / 12, "yes", "1/12 [1/24..1/2.67]: 1 against 12 of ZooKeeper Netty"),
    ({"figure": "throughput", "limit": ">= 100"}, 90, "no", "of ZooKeeper NIO"),
    ({"against": None, "limit": "<= 1", "unit": "us"}, 1, "yes", "1 [0.5..3] us"),
    ({"cells": TWO, "limit": "<= 1"}, 0.5, "yes", "worst: get:1x1, 2 of 3 measured"),
    ({"cells": ["get1k:64x16"], "against": "corral", "against_cell": "get:64x16", "limit": "<= 1.5"}, 1.4, "yes", ""),
    ({"group": "open-loop", "figure": "p99", "cells": ["get:64x16@*"], "against": None, "limit": "<= 1000"}, 900, "yes", ""),
    ({"group": "idle", "cells": ["idle"], "figure": "resident_mb", "against": None, "limit": "<= 16", "unit": "MB"}, 20, "no", "20 MB"),
    ({"group": "ensembles", "cells": ["set:1x1 leader", "set:1x1 follower", "set:1x1 all"], "against": "ZooKeeper"},
     0.5, "no", "worst: set:1x1 all"),
    ({"cells": ["set:1x1"]}, None, "-", "not measured"),
    ({"note_if_cpus_below": 9, "note": "too few CPUs"}, 1 / 12, "-", "too few CPUs"),
    ({"figure": "p99", "against": None, "limit": "<= 10", "unit": "us", "host": "p99_us", "host_us": 1}, 100, "-", "11 us of it"),
]  # fmt: skip


def test_targets_are_judged():
    base = {"group": "reads", "work": "w", "says": "s", "figure": "cpu", "cells": ["get:64x16"], "against": "zookeeper", "limit": "<= 1/10"}
    for more, value, met, part in JUDGED:
        wanted = {key: of for key, of in (base | more).items() if of is not None}
        found = report.Table(RUNS, [wanted], 8, {"reads": {"p99_us": 11.0}}).rows()[0]
        equal((found.value and round(found.value, 9), found.met), (value and round(value, 9), met), str(more))
        assert part in found.reached, f"{more}: {found.reached}"
    # One gap of 100 ms in a second: a tenth of all comers wait, evenly between nothing and 100 ms.
    equal([round(host.wait([100_000.0], quantile, seconds=1), -2) for quantile in (0.5, 0.95, 0.99)], [0, 50_000, 90_000])


def test_the_plan_fits_together():
    for ensembles in (False, True):
        groups, wanted = report.plan(ensembles)
        for entry in wanted:
            group = groups[entry["group"]]
            known = {*group.get("cells", []), *(run["cell"] for run in group.get("run", []))}
            known = {f"{cell} {place}" for cell in known for place in report.PLACES} if ensembles else known
            for name in [*entry["cells"], *([entry["against_cell"]] if "against_cell" in entry else [])]:
                assert not known or name.endswith("@*") or name in known, f"{entry['says']}: {entry['group']} has no cell {name}"
            for of in group.get("run", []):
                assert of["cell"] not in entry["cells"] or entry["figure"] in of["figures"], entry["says"]
            assert report.limit_of(entry["limit"]) and ("against" in entry or "unit" in entry), f"{entry['says']}: limit and unit"
        for group in groups.values():
            assert {*group.get("quick", [])} <= {*group.get("cells", [])}, group["name"]
            for text in group.get("cells", []):
                equal(loads.cell(loads.cell(text).name), loads.cell(text), "the full name of a cell is a cell")
    equal([loads.cell(text).name for text in ("get1k", "mix90:64x16", "set0:1x1@0.5")], ["get1k:64x16", "mix:64x16", "set0:1x1@0.5"])


def test_the_page_and_the_table_of_the_documentation(tmp_path):
    directory = tmp_path / "results"
    told = {"commit": "abc1234", "date": "2026-01-02", "command": "bench/compare", "server_cpus": [0], "client_cpus": [1], "rounds": 3,
            "zookeeper": "3.9.4", "load_average": 0.1, "missing": {"etcd": "there is none"}, "failures": ["one fell over"]}  # fmt: skip
    records = [run(name, f"get:{count}x1", at, cpu * factor, load_average=0.5, fdatasync={"p50_us": 70.0, "p99_us": 90.0})
               for name, factor in (("corral", 1), (NIO, 10)) for count in (1, 8, 64)
               for at, cpu in ((1, 1.0), (2, 3.0), (3, 2.0))]  # fmt: skip
    records[0]["report"]["remarks"] = ["beware"]
    idle = [{"server": name, "cell": "idle", "round": at, "group": "idle", "figures": figures}
            for name, at, figures in ((NIO, 1, {"cpu": 1.0}), ("corral", 1, {"cpu": 2.0}),
                                      ("corral", 2, {"cpu": 4.0, "mb": 7.0}))]  # fmt: skip
    for group, of in (("reads", [*records, *RUNS[:9]]), ("idle", idle)):
        (directory / group).mkdir(parents=True)
        (directory / group / "results.jsonl").write_text("".join(json.dumps(record) + "\n" for record in of))
    (directory / "facts.json").write_text(json.dumps(report.facts(tmp_path, told)))
    rows = report.write(directory)
    text = (directory / "report.md").read_text()
    for part in (
        "# Comparison of abc1234", "\n## Reads\n", "\n### `get:8x1`", "](reads/plots/cpu.svg)", "](reads/plots/scaling-get-depth-1.svg)",
        "| corral | 2.000 [1.000..3.000] | 1,000 | 20 [10..30] |", "| 0.10 |", "- corral: beware", "p50 70.0, 70.0, 70.0 us",
        "| server | cpu | mb |\n|---|---|---|\n| corral | 3 [2..4] | 7 |\n| ZooKeeper NIO | 1 | - |\n", "there is none", "one fell over",
    ):  # fmt: skip
        assert part in text, f"{part!r} is not in\n{text}"
    docs = tmp_path / "benchmarks.md"
    docs.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.refresh_docs(directory, docs, rows)
    once = docs.read_text()
    report.refresh_docs(directory, docs, rows)
    equal(docs.read_text(), once, "refreshing twice")
    assert once.startswith("before\n") and once.endswith("\nafter\n") and "old" not in once and "results/report.md" in once, once


@pytest.fixture
def compare(tmp_path):
    """A function that starts a short run, without ZooKeeper; and the folder of the tools."""
    try:
        corral = binary()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    tools = corral.parent
    if not all((tools / name).exists() for name in ("corral-bench", "glommio-echo", "epoll-echo")):
        pytest.skip(f"corral-bench and the echoes are not in {tools} (cargo build -p corral-bench --bins)")

    def start(*flags):
        command = [REPOSITORY / "bench" / "compare", "--quick", "--seconds", "0.3", "--cell-warm", "0.1", "--corral", corral]
        command += ["--tools", tools, "--work-dir", tmp_path, "--out", tmp_path / "out", *flags]
        return subprocess.Popen(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return start, tools


def test_single_servers(compare, tmp_path):
    child = compare[0]("--only", "reads,idle", "--servers", "corral,epoll echo")
    printed, errors = child.communicate()
    equal(child.returncode, 0, errors)
    equal({record["server"] for record in report.load(tmp_path / "out")}, {"corral", "epoll echo"})
    text = (tmp_path / "out" / "report.md").read_text()
    assert str(REPOSITORY) not in text and str(tmp_path) not in text, "directories of this machine are in the page"
    assert "| idle server |" in printed and "| getData 100 B, 64 x 16 |" in printed, printed
    for name in ("cpu", "latency"):
        xml.etree.ElementTree.parse(tmp_path / "out" / "reads" / "plots" / f"{name}.svg")
    equal(os.listdir(tmp_path), ["out"], "what is left behind")
    report.write(tmp_path / "out")
    equal((tmp_path / "out" / "report.md").read_text(), text, "the page is made again from the raw runs")


def test_an_ensemble_of_three(compare, tmp_path):
    child = compare[0]("--ensembles", "--cells", "set:4x2", "--servers", "corral")
    equal(child.wait(), 0, child.communicate()[1])
    records = report.load(tmp_path / "out")
    equal([record["place"] for record in records], ["leader", "follower", "all"])
    assert all(record["report"]["operations"] > 0 and record["report"]["server_cpu_us_per_op"] > 0 for record in records), records
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| corral, at a follower |" in text and str(tmp_path) not in text, text


def test_a_failure_ends_only_its_own_round_and_the_order_rotates(compare, tmp_path):
    start, tools = compare
    port, absent = free_port(), free_port()
    # Its values are shorter than the load's.
    liar = subprocess.Popen([tools / "epoll-echo", "--addr", f"127.0.0.1:{port}", "--value-bytes", "9"], stderr=subprocess.DEVNULL)
    with contextlib.ExitStack() as after:
        after.callback(liar.wait)
        after.callback(liar.kill)
        flags = ["--cells", "get:2x2", "--servers", "liar,gone,epoll echo", "--server", f"liar=127.0.0.1:{port},pid={liar.pid}"]
        child = start(*flags, "--server", f"gone=127.0.0.1:{absent}", "--rounds", "2")
        printed, errors = child.communicate()
        equal(child.returncode, 1, errors)
        for number in (1, 2):
            assert f"FAILED liar, round {number}: " in printed and "value length is wrong" in printed, printed
            assert f"gone, round {number}" in printed and "granted no session: not within 5 s" in printed, printed
        visits = [line.removeprefix("round ") for line in errors.splitlines() if line.startswith("round ")]
        order = [visit.partition(": ")[2] for visit in visits]
        equal(order[3:], [*order[1:3], order[0]], "the order of the second round")
        records = report.load(tmp_path / "out")
        equal([(record["server"], record["round"]) for record in records], [("epoll echo", 1), ("epoll echo", 2)])
        assert all(record["fdatasync"]["p50_us"] > 0 and record["load_average"] >= 0 for record in records), records
        assert liar.poll() is None, "a server that runs already is not ended"


def test_an_interrupted_run_ends_what_it_started(compare, tmp_path):
    child = compare[0]("--cells", "get:2x2", "--servers", "epoll echo", "--seconds", "600")
    wait_until(lambda: list(tmp_path.glob("compare-*/corral-test-*/log")), "the echo is started", 60)
    child.send_signal(signal.SIGTERM)
    errors = child.communicate(timeout=60)[1]
    assert child.returncode and "interrupted" in errors, errors
    equal(os.listdir(tmp_path), ["out"], "what is left behind")
    equal(subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout, "", "what still runs")


def test_flags_that_make_no_sense_are_refused():
    for flags, part in (
        (["--cells", "get:1"], "is not OP[N]"), (["--cells", "get@0"], "are positive"), (["--server", "b"], "is not NAME=HOST:PORT"),
        (["--rounds", "0"], "are positive"), (["--only", "ensembles"], "there are no groups ensembles"),
        (["--ensembles", "--server", "a=h:1"], "not with --ensembles"),
    ):  # fmt: skip
        ended = subprocess.run([str(REPOSITORY / "bench" / "compare"), *flags], capture_output=True, text=True)
        equal(ended.returncode, 2, ended.stderr)
        assert part in ended.stderr, f"{flags}: {ended.stderr}"
