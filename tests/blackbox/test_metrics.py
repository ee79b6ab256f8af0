"""Metrics by HTTP, as Prometheus collects them: the same as those of mntr."""

import contextlib
import json
import re
import shutil
import socket
import subprocess

import pytest

from support import REPOSITORY, http
from support.client import four_letter_command, words_table
from support.expect import equal
from support.server import Corral, binary
from support.wait import free_port, wait_until

LIMIT_S = 60
SAMPLE = re.compile(r"([a-z_]+)(\{[a-z_]+=\"[^\"]*\"(?:,le=\"[^\"]*\")?\})? (-?[0-9.e+]+)")
# Of mntr: part, label and name.
TIMES = re.compile(r"([a-z0-9]+)_(\w+?)_(request|write_stage)_ms")
LABELS = {"request": "operation", "write_stage": "stage"}
# Checks that a busy host may fail at any time.
BY_THE_HOST = {"disk-space-left", "growth", "sync-latency", "executor-stalls"}
# They differ between any two looks.
MOVING = ("log_dir_free", "data_dir_free", "uptime", "num_alive_connections", "packets_", "open_file_descriptor_count", "process_", "thread_", "delta_memory", "connections_memory", "log_memory", "anonymous_memory", "bytes_received_count", "response_bytes")


@pytest.fixture(scope="module")
def server(shards):
    address = f"127.0.0.1:{free_port()}"
    server = Corral(shards, settings={"metrics.http_addr": address})
    server.url = f"http://{address}"
    server.http = ("127.0.0.1", int(address.split(":")[1]))
    yield server.start()
    server.dispose()


def scraped(server):
    """Samples by name with label, and the type of each name."""
    answer = http.ask(f"{server.url}/metrics")
    equal((answer.status, answer.headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
    samples, types = {}, {}
    for line in answer.text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert name not in types, f"{name} comes twice"
            types[name] = kind
        elif not line.startswith("# HELP "):
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            samples[sample[1] + (sample[2] or "")] = float(sample[3])
    return samples, types


def test_metrics_are_those_of_mntr(server):
    with server.client() as client:
        client.create("/metric", b"x")
        client.get("/metric", watch=True)
        samples, types = scraped(server)
        told = words_table(four_letter_command(server.address, "mntr"), "\t")
    for key, value in told.items():
        name = key.removeprefix("zk_")
        if name.startswith(MOVING):
            continue
        if times := TIMES.fullmatch(name):
            part, key, kind = times.groups()
            if part == "cnt":
                equal(samples[f'corral_{kind}_seconds_count{{{LABELS[kind]}="{key}"}}'], float(value), name)
            continue
        if shard := re.fullmatch(r"shard_(\d+)_(\w+)", name):
            sample = samples.get(f'corral_shard_{shard[2]}{{shard="{shard[1]}"}}')
            # The connection that asks counts, and is on any shard.
            assert sample == float(value) or shard[2] in ("connections", "requests"), name
            continue
        if name.endswith("_memory_bytes"):
            equal(samples[f'corral_memory_bytes{{owner="{name.removesuffix("_memory_bytes")}"}}'], float(value), name)
            continue
        part, _, summary = name.partition("_")
        if summary in types and types[summary] == "summary":
            if part in ("cnt", "sum"):
                equal(samples[f"{summary}_{'count' if part == 'cnt' else part}"], float(value), name)
            continue
        name = next((known for known in (name, f"corral_{name}", f"corral_{name}_total") if known in types), None)
        assert name, f"{key} is not served"
        try:
            equal(samples.get(name), float(value), name)
        except ValueError:
            label = name.removeprefix("corral_")
            equal(samples.get(f'{name}{{{label}="{value}"}}'), 1.0, name)
    equal((types["znode_count"], types["packets_received"], types["readlatency"]), ("gauge", "counter", "summary"))
    equal(samples["watch_count"], 1.0)
    equal(sum(samples[f'corral_shard_watches{{shard="{shard}"}}'] for shard in range(server.shards)), 1.0)
    assert samples['corral_memory_bytes{owner="watches"}'] > len("/metric"), samples
    assert samples['corral_thread_cpu_seconds_total{thread="log"}'] >= 0, samples
    equal(samples['corral_request_seconds_count{operation="create"}'], 1.0)
    equal(samples['corral_request_seconds_bucket{operation="create",le="+Inf"}'], 1.0)
    equal({re.sub(".*=", "", key) for key in samples if key.startswith("corral_write_stage_seconds_count")}, {f'"{stage}"}}' for stage in ("queue", "sync", "commit", "apply")})


def unknown_metrics(expressions, words):
    """Names in these expressions that are neither metrics nor such words."""
    table = (REPOSITORY / "docs/metrics.md").read_text()
    known = {name + end for name in re.findall(r"^\| `[^`]+` \| `(\w+)`", table, re.M) for end in ("", "_sum", "_count", "_bucket")}
    named = set(re.findall(r"[a-z_]{2,}", " ".join(expressions)))
    return named - known - set(words.split())


def test_alert_rules_are_about_metrics_of_the_table():
    rules = REPOSITORY / "configs/prometheus-alerts.yml"
    expressions = re.findall(r"^ +expr: (.*)", rules.read_text(), re.M)
    assert len(expressions) > 10
    words = "and or by time rate increase count vector job zookeeper up leader standalone"
    equal(unknown_metrics(expressions, words), set(), "no metrics")
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "rules", rules], check=True, timeout=LIMIT_S)


def test_the_dashboard_is_about_metrics_of_the_table():
    dashboard = json.loads((REPOSITORY / "configs/grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 25
    equal(unknown_metrics(expressions, "rate max sum by le operation stage histogram_quantile time job instance __name__ __rate_interval"), set(), "no metrics")


def probe(url, path):
    """Status and lines."""
    answer = http.ask(url + path)
    return answer.status, answer.text.splitlines()


def test_a_healthy_server_passes_every_probe(server):
    for path in ("/livez", "/readyz", "/readyz?x=1"):
        equal(probe(server.url, path), (200, ["ok"]), path)
    checks = ["has-leader", "serving", "disk-space"]
    equal(probe(server.url, "/readyz?verbose"), (200, [*(f"[+]{name} ok" for name in checks), "readyz check passed"]))
    status, lines = probe(server.url, "/healthz?verbose")
    checks += ["disk-space-left", "growth", "applied-lag", "sync-latency", "executor-stalls", "clock", "data", "certificates"]
    equal([line[3:].split()[0] for line in lines[:-1]], checks)
    failed = {line[3:].split()[0] for line in lines if line.startswith("[-]")}
    assert failed <= BY_THE_HOST, lines
    equal((status, lines[-1]), (503, "healthz check failed") if failed else (200, "healthz check passed"))
    code, line = health(server.http)
    assert (code, line.split()[0]) in ((0, "OK"), (1, "WARNING")), line


def health(address, *flags):
    """Exit code and output of `corral health`."""
    run = subprocess.run([binary(), "health", "%s:%s" % address, *flags], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    return run.returncode, run.stdout or run.stderr


def test_health_of_what_is_no_server():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        code, line = health(address, "--timeout", "1")
        equal((code, line.split(": ", 1)[1]), (3, "no answer within 1 s\n"))
    code, line = health(address)
    assert code == 3 and line.startswith("UNKNOWN 127.0.0.1:") and "not reached: Connection refused" in line, line
    equal(health(("ftp://x", "1"))[0], 3)


def test_a_server_without_a_leader_is_alive_but_not_ready(shards):
    ports = [free_port() for _ in range(4)]
    others = [f'"{number}=127.0.0.1:{port}"' for number, port in enumerate(ports[:3], 1)]
    settings = {"server.server_id": 1, "metrics.http_addr": f"127.0.0.1:{ports[3]}", "ensemble.servers": f"[{', '.join(others)}]"}
    url = f"http://127.0.0.1:{ports[3]}"
    alone = Corral(shards, settings=settings)
    try:
        alone.launch()
        wait_until(lambda: is_reached(url), "it answers")
        equal(probe(url, "/livez"), (200, ["ok"]))
        status, lines = probe(url, "/readyz")
        equal((status, lines[0].split(":")[0], lines[2:]), (503, "[-]has-leader failed", ["[+]disk-space ok", "readyz check failed"]))
        code, line = health(("127.0.0.1", ports[3]))
        assert code == 2 and line.startswith(f"CRITICAL 127.0.0.1:{ports[3]}: has-leader failed: "), line
    finally:
        alone.dispose()


def is_reached(url):
    try:
        return probe(url, "/livez")
    except OSError:
        return None


@pytest.mark.parametrize(("method", "path", "code"), [("POST", "/metrics", 405), ("GET", "/metrics/", 404), ("GET", "/../metrics", 404)])
def test_other_requests_are_refused(server, method, path, code):
    equal(http.ask(server.url + path, method).status, code)


def test_idle_connections_keep_no_probe_out(server):
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(server.http, timeout=LIMIT_S))
        equal(probe(server.url, "/readyz"), (200, ["ok"]))


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01", b"ruok", b"GET /metrics HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000])
def test_what_is_no_http_is_closed(server, sent):
    with socket.create_connection(server.http, timeout=LIMIT_S) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            # It was closed before all was sent.
            answer = b""
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 ")), answer
    assert scraped(server)[0]["znode_count"] >= 5
