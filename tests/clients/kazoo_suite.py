"""kazoo's own tests, which its package contains, on a server of ours: whatever passes on a standalone ZooKeeper 3.9 has to pass here.

The tests are those of the installed package, with the Java cluster they start replaced (see kazoo_cluster.py).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import kazoo
import pytest

from support import packages

TESTS = Path(__file__).resolve().parents[1]
SUITE_LIMIT_S = 1800
# What fails on a standalone ZooKeeper 3.9.4 as well, by the end of the test's name.
FAILS_ON_ZOOKEEPER = {
    "test_update_host_list": "needs an ensemble: it stops one server of three",
    "TestReconfig.test_add_remove_observer": "needs an ensemble: a standalone server refuses reconfig",
    "TestReconfig.test_bad_input": "needs an ensemble: a standalone server refuses reconfig",
    "TestReconfig.test_no_super_auth": "needs an ensemble: a standalone server refuses reconfig",
}


def outcomes_on(kind, shards, selection):
    """Runs the selected tests on one kind of server; returns the outcome of each by its name, the worst if there are several."""
    packages.need_modules("kazoo", "objgraph")
    if kind == "zookeeper" and not packages.zookeeper():
        pytest.skip("no ZooKeeper: install Debian's package zookeeper, or set ZOOKEEPER_JARS")
    with tempfile.TemporaryDirectory(prefix="corral-kazoo-") as directory:
        lines, log = Path(directory, "outcomes"), Path(directory, "log")
        environment = {
            **os.environ,
            "KAZOO_SUITE_SERVER": kind,
            "KAZOO_SUITE_SHARDS": str(shards),
            "KAZOO_SUITE_OUTCOMES": str(lines),
            "ZOOKEEPER_VERSION": "3.9.4",
            "ZOOKEEPER_CLUSTER_SIZE": "1",
            "PYTHONPATH": str(TESTS),
        }
        environment.pop("CI", None)
        command = [sys.executable, "-m", "pytest", "-p", "clients.kazoo_cluster", "-p", "no:cacheprovider", "-q"]
        # The virtual environment lies in our folder: without a configuration of their own the tests would get ours.
        configuration = Path(directory, "pytest.ini")
        configuration.write_text("[pytest]\n")
        command += ["-c", str(configuration), "--confcutdir", str(Path(kazoo.__file__).parent)]
        command += ["--pyargs", "kazoo.tests", "-k", selection]
        with open(log, "wb") as output:
            done = subprocess.run(command, cwd=directory, env=environment, stdout=output, stderr=output, timeout=SUITE_LIMIT_S, check=False)
        if not lines.exists() or done.returncode not in (0, 1):
            raise AssertionError(f"pytest ended with code {done.returncode}:\n{log.read_text(errors='replace')[-4000:]}")
        found = {}
        for line in map(json.loads, lines.read_text(encoding="utf-8").splitlines()):
            if found.get(line["name"], {}).get("outcome") != "failed":
                found[line["name"]] = line
    return found


def judge(outcome, fails_on_zookeeper, passes_on_zookeeper):
    """Raises unless the test passed."""
    if outcome["outcome"] == "skipped":
        assert not passes_on_zookeeper, f"passes on ZooKeeper, and is skipped here: {outcome['detail']}"
        pytest.skip(outcome["detail"])
    if outcome["outcome"] == "failed":
        if fails_on_zookeeper:
            pytest.skip(f"fails on ZooKeeper too: {fails_on_zookeeper}")
        raise AssertionError(outcome["detail"])


def reason(name, on_zookeeper):
    """Why a test cannot pass on ZooKeeper either, if so."""
    listed = next((why for end, why in FAILS_ON_ZOOKEEPER.items() if name.endswith(end)), None)
    if on_zookeeper is None:
        return listed
    if on_zookeeper.get(name, {}).get("outcome") != "failed":
        return None
    return listed or on_zookeeper[name]["detail"].strip().splitlines()[-1]


def run(options, subtests, selection, compare):
    """Runs and judges the selected tests, each a part of the test. With `compare` they run on a real ZooKeeper first. What fails there is
    not asked of ours. Otherwise the list above says what does. Returns how many pass on ZooKeeper.
    """
    on_zookeeper = outcomes_on("zookeeper", options.shards, selection) if compare else None
    passed = {name for name, outcome in (on_zookeeper or {}).items() if outcome["outcome"] == "passed"}
    found = outcomes_on(options.server, options.shards, selection)
    for name, outcome in found.items():
        with subtests.test(name, took=f"{outcome['seconds'] * 1000:.0f} ms"):
            judge(outcome, reason(name, on_zookeeper), name in passed)
    assert passed <= found.keys(), f"did not run: {sorted(passed - found.keys())}"
    return len(passed)
