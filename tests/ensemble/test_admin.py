"""The commands of ZooKeeper's AdminServer: the same names, keys, types and status codes, in each role.

A recording of a real ZooKeeper 3.9.4 says what they are. `--server zookeeper` compares a real one with it, and writes it anew if
CORRAL_WRITE_RECORDINGS is set.
"""

import json
import os
import re
from pathlib import Path

import pytest

from ensemble.cluster import CALM, FOLLOWING, LEADING, OBSERVING, Ensemble, mode_of
from support import REPOSITORY, http
from support.client import Client
from support.expect import equal
from support.jute import EPHEMERAL
from support.server import Corral, ZooKeeper
from support.wait import free_port, wait_until

RECORDED = Path(__file__).with_name("admin_recorded.json")
STANDALONE = "standalone"
SUPER = {"Authorization": "digest super:secret"}
SUPER_DIGEST = "super:lK75jTNcA+U9vtVEw5vB51mj/w4="
NAMES = """configuration conf config connection_stat_reset crst connections cons dirs dump environment env envi get_trace_mask gtmk hash
initial_configuration icfg is_read_only isro last_snapshot lsnp leader lead observer_connection_stat_reset orst observers obsr ruok
server_stats srvr set_trace_mask?traceMask=306 stmk?traceMask=306 stmk stmk?traceMask=x stat_reset srst stats stat voting_view
watch_summary wchs watches wchc watches_by_path wchp zabstate nosuch ruok/ RUOK""".split()
# Objects whose keys are ids or times.
MAPS = "expiry_time_to_session_ids session_id_to_ephemeral_paths session_id_to_watched_paths path_to_session_ids current_config".split()
SUMMARY_PARTS = "avg min max cnt sum p50 p95 p99 p999".split()
GAUGES_LIKE_PARTS = "latency client_response_size proposal_size file_descriptor_count".split()
# Of an ensemble ZooKeeper has none.
EXPLAINED = {"initial_configuration": ("null", "text")}


@pytest.fixture(scope="module")
def new_ensemble(options):
    settings = {**CALM, "admin.allow_changes": "true"}
    return Ensemble(options.server, shards=options.shards, settings=settings, observers={3}, admin=True)


@pytest.fixture
def alone(options):
    port = free_port()
    if options.server == "corral":
        address, super_digest = f"127.0.0.1:{port}", f'"{SUPER_DIGEST}"'
        settings = {"admin.enabled": "true", "admin.http_addr": address, "admin.allow_changes": "true"}
        server = Corral(options.shards, settings=settings | {"security.super_digest": super_digest})
    else:
        server = ZooKeeper(settings={"admin.enableServer": "true", "admin.serverAddress": "127.0.0.1", "admin.serverPort": port})
    server.admin_port = port
    yield server.start()
    server.dispose()


def shape(value, key=""):
    """Keys and types of a JSON value."""
    if isinstance(value, dict):
        if key in MAPS:
            # ZooKeeper also lists times at which no session ends.
            return {"*": shape(max(value.values(), key=bool))} if value else {}
        return {key: shape(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if key in ("command", "error"):
        return value
    kinds = {bool: "truth", int: "whole", float: "decimal", str: "text", type(None): "null"}
    return kinds[type(value)]


def metrics(names):
    """Names of metrics without the parts of summaries, and without znodes, sessions and servers."""
    parts = "|".join(SUMMARY_PARTS)
    plain = (re.sub(rf"^({parts})_(?!({'|'.join(GAUGES_LIKE_PARTS)})$)", "", name) for name in names)
    return sorted({re.sub(r"^[^_]+_(?=(read|write)_per_namespace|learner_handler_)", "", name) for name in plain})


def is_reached(url):
    try:
        return http.ask(url).status == 200
    except OSError:
        return False


def shapes(server):
    """Status and shape of each command, asked while a session holds an ephemeral and a watch."""
    url = f"http://127.0.0.1:{server.admin_port}/commands/"
    wait_until(lambda: is_reached(url), "the commands are served")
    with Client(server.address) as client:
        client.create(f"/admin-{server.admin_port}", b"", EPHEMERAL)
        client.get("/zookeeper", watch=True)
        found = {}
        for name in NAMES:
            answer = http.ask(url + name, headers=SUPER)
            equal(answer.headers["Content-Type"], "application/json", name)
            found[name] = [answer.status, shape(answer.json())]
        found["monitor"] = [200, metrics(http.ask(url + "monitor").json())]
        return found


def json_of_lines(recorded):
    """A line for each command."""
    roles = []
    for role, found in sorted(recorded.items()):
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(found.items()))
        roles.append(f"{json.dumps(role)}: {{\n{lines}\n}}")
    return "{" + ",\n".join(roles) + "}\n"


def without(value, key, kinds):
    """The value with the key's other kind in place of the one that is explained."""
    return {name: kinds[1] if (name, inner) == (key, kinds[0]) else inner for name, inner in value.items()}


def check(role, found, options):
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if options.server == "zookeeper" and os.environ.get("CORRAL_WRITE_RECORDINGS"):
        recorded[role] = found
        RECORDED.write_text(json_of_lines(recorded))
    for name, (status, expect) in recorded[role].items():
        if name == "monitor":
            # The test of the table of metrics looks at these.
            continue
        if options.server == "corral":
            for key, kinds in EXPLAINED.items():
                expect = without(expect, key, kinds)
        equal(found[name], [status, expect], f"{name} of a {role}")


def test_each_metric_of_zookeeper_is_served_or_has_a_reason():
    served = re.findall(r"^\| `[^`]+` \| `(\w+)` \|", (REPOSITORY / "docs/metrics.md").read_text(), re.M)
    page = (REPOSITORY / "docs/compatibility.md").read_text()
    lists = re.findall(r"^- (`.*)", page.split("## Metrics that corral does not have\n")[1].split("\n## ")[0], re.M)
    absent = re.findall(r"`(\w+)`", " ".join(lists))
    names = {name for found in json.loads(RECORDED.read_text()).values() for name in found["monitor"][1]} - {"command", "error"}
    assert len(names) > 150
    equal(sorted(names - set(served) - set(absent)), [], "neither served nor explained")
    equal(sorted(set(absent) & set(served)), [], "served, and explained as absent")


def test_commands_of_a_server_alone(alone, options):
    check(STANDALONE, shapes(alone), options)


@pytest.mark.parametrize("role", [LEADING, FOLLOWING, OBSERVING])
def test_commands_of_each_role(ensemble, options, role):
    ensemble.followers()
    member = next(member for member in ensemble.members if mode_of(member) == role)
    check(role, shapes(member), options)
