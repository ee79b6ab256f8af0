"""bench/compare: its page from stored runs, its data, and runs of some seconds with real servers.

The runs need the binaries of corral-bench beside corral's (CORRAL_BIN); without them they are skipped.
"""

import contextlib
import json
import os
import shutil
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

RESULTS, DOCS = REPOSITORY / "bench/results", REPOSITORY / "docs/benchmarks.md"


def test_stored_pages_are_what_their_raw_runs_give(tmp_path):
    """The newest of single servers is in the documentation, too. `bench/compare report DIRECTORY` makes pages again."""
    docs, singles = tmp_path / "docs/benchmarks.md", []
    docs.parent.mkdir()
    for stored in sorted(path.parent for path in RESULTS.glob("*/facts.json")):
        copy = tmp_path / "bench/results" / stored.name
        shutil.copytree(stored, copy, ignore=shutil.ignore_patterns("report.md", "plots"))
        rows = report.write(copy)
        equal((copy / "report.md").read_text(), (stored / "report.md").read_text(), stored.name)
        singles += [] if json.loads((stored / "facts.json").read_text()).get("ensembles") else [(copy, rows)]
    begin, _, rest = DOCS.read_text().partition(report.BEGIN)
    docs.write_text(f"{begin}{report.BEGIN}\nold\n{report.END}{rest.partition(report.END)[2]}")
    report.refresh_docs(singles[-1][0], docs, singles[-1][1])
    equal(docs.read_text(), DOCS.read_text(), "the table of the documentation")


def test_what_the_machine_takes_by_itself():
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
    equal([loads.cell(text).name for text in ("get1k", "mix90:64x16", "set0:1x1@0.5")], ["get1k:64x16", "mix90:64x16", "set0:1x1@0.5"])


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
        text = (tmp_path / "out/report.md").read_text()
        assert "## Failed" in text and "- liar, round 1: " in text, text
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
