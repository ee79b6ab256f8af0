"""`corral doctor`: facts and findings of servers, data directories and this host."""

import json
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time

import pytest

from ensemble.cluster import CALM, Ensemble
from imports.commands import command
from support.expect import equal
from support.http import admin, ask, reaches
from support.log_files import contents, flip_a_bit_of_the_last_durable_record
from support.server import SMALL_LOG, Corral
from support.wait import free_port, wait_until

# What depends on the disk and the load of the host on which the test runs.
OF_THE_HOST = {"sync", "syncs", "sync-latency", "executor-stalls", "space", "disk-space-left", "file system", "limits"}
CODES = {"WARNING": 1, "CRITICAL": 2}
# An answer of another server is changed by this, and its clock is an hour behind.
HEALTHY, FORGED = '"digest_mismatches_count" : 0', '"digest_mismatches_count" : 3'


def doctor(*arguments):
    """The document, which has the exit code of its findings."""
    done = command("doctor", "--json", *arguments)
    document = json.loads(done.stdout)
    code = max((CODES[finding["severity"]] for finding in document["findings"]), default=0)
    if not any(target["is_examined"] for target in document["targets"]):
        code = 3
    equal(done.returncode, code, done.stdout + done.stderr)
    return document


def found(document):
    """Target, check and severity of each finding, in order, but for those of this host."""
    findings = document["findings"]
    return [(one["target"], one["check"], one["severity"]) for one in findings if one["check"] not in OF_THE_HOST]


def facts(document, target):
    return next(one["facts"] for one in document["targets"] if one["target"] == str(target))


@pytest.fixture
def server(shards):
    server = Corral(shards, settings=SMALL_LOG)
    yield server
    server.dispose()


@pytest.fixture
def stopped(server):
    """A data directory with a snapshot and a log."""
    server.start()
    with server.client() as client:
        client.create("/a", b"x" * 100)
    server.stop()
    return server.directory / "data"


def test_a_healthy_server_and_its_directory(server, tmp_path):
    address, _ = admin(server, tmp_path)
    data = server.directory / "data"
    server.start()
    wait_until(lambda: reaches(f"http://{address}/livez"), "it listens")
    with server.client() as client:
        zxid = client.create2("/a", b"x" * 100)[1].czxid
        document = doctor(address, data)
        equal(found(document), [])
        of_server = facts(document, address)
        equal((of_server["role"], of_server["checks"]["fail"], of_server["connections"]["open"]), ("standalone", 0, 1), of_server)
        assert int(of_server["zxid"], 16) >= zxid, of_server
        assert of_server["clock"]["ahead_from_ms"] <= 0 <= of_server["clock"]["ahead_to_ms"], of_server
        of_data = facts(document, data)
        equal((of_data["running"], of_data["mode"]["mode"]), (server.process.pid, "700"), of_data)
        assert of_data["log"]["records"] > 0 and of_data["free_space"]["free_bytes"] > 0, of_data
        page = command("doctor", address, data).stdout
        assert page.startswith(f"server        {address}\n") and f"\nrunning       process {server.process.pid}\n" in page, page
    server.stop()
    before = contents(data)
    document = doctor(data)
    equal((found(document), facts(document, data)["running"]), ([], None))
    equal(contents(data), before, "nothing is changed")


def forger(address):
    """A server that passes answers of another one on, with other contents. Gives it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            answer = ask(f"http://{address}{self.path}")
            body = answer.text.replace(HEALTHY, FORGED).encode()
            self.send_response_only(answer.status)
            self.send_header("Date", formatdate(time() - 3600, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def test_an_ensemble_with_faults(shards):
    """Whole, then with one server that is stopped, and one that tells of other data and another time."""
    ensemble = Ensemble("corral", shards=shards, settings=CALM, admin=True)
    try:
        ensemble.start()
        targets = {member: f"127.0.0.1:{member.admin_port}" for member in ensemble.members}
        for address in targets.values():
            wait_until(lambda address=address: reaches(f"http://{address}/livez"), "it listens")
        wait_until(lambda: found(doctor(*targets.values())) == [], "all is well")
        leader, (odd, gone) = ensemble.leader(), ensemble.followers()
        all_servers = facts(doctor(*targets.values()), "all servers")
        equal((all_servers["leader"], all_servers["not_examined"]), ([ensemble.number(leader)], []))
        equal(set(all_servers["voters"]), {"1", "2", "3"})
        wait_until(lambda: found(doctor(targets[leader])) == [], "the others were not asked for")
        no_target = [("all servers", "members", "WARNING")]
        wait_until(lambda: found(doctor(targets[leader], targets[odd])) == no_target, "one voter is no target")

        gone.stop()
        forged = forger(targets[odd])
        try:
            odd_address = f"127.0.0.1:{forged.server_port}"
            given = (targets[leader], odd_address, targets[gone])
            expected = {
                (targets[leader], "peers", "WARNING"),
                (targets[leader], "followers", "WARNING"),
                (odd_address, "digests", "WARNING"),
                (odd_address, "peers", "WARNING"),
                (odd_address, "clock", "WARNING"),
                (targets[gone], "reached", "CRITICAL"),
                ("all servers", "clock", "WARNING"),
            }
            wait_until(lambda: set(found(doctor(*given))) == expected, "all findings")
            page = command("doctor", *given)
            equal((page.returncode, page.stdout.count("; do: ")), (2, len(expected)), page.stdout)
            assert f"WARNING {odd_address}: it has found 3 differences" in page.stdout, page.stdout
            assert f"WARNING {odd_address}: its clock differs from the clock of this host: 3" in page.stdout, page.stdout
        finally:
            forged.shutdown()
            forged.server_close()
    finally:
        ensemble.dispose()


def test_a_damaged_directory(stopped):
    flip_a_bit_of_the_last_durable_record(stopped, 5)
    document = doctor(stopped)
    equal(found(document), [(str(stopped), "log", "CRITICAL")])
    assert "holds no valid record at offset" in document["findings"][0]["sentence"], document
    (snapshot,) = stopped.glob("image-*")
    with open(snapshot, "r+b") as file:
        file.seek(-10, 2)
        file.write(b"\xff")
    (stopped / "DISTRUSTED").write_text("another digest\n")
    stopped.chmod(0o755)
    checks = {check for _, check, _ in found(doctor(stopped))}
    equal(checks, {"log", "snapshot", "distrusted", "mode"})


def test_certificates_and_keys_of_a_configuration(authority, stopped, tmp_path):
    """The certificate is good, expires soon, has expired. Others may read the key. The directory is another server's."""
    key_store, config = tmp_path / "server.pem", tmp_path / "corral.toml"
    config.write_text(f"""
[server]
data_dir = "{stopped}"
[tls]
client_addr = "127.0.0.1:{free_port()}"
key_store = "{key_store}"
client_auth = "none"
[admin]
enabled = false
""")
    cases = [
        (90, 0o600, []),
        (10, 0o600, [("certificates", "WARNING")]),
        (0, 0o644, [("certificates", "CRITICAL"), ("secrets", "WARNING")]),
    ]
    for days, mode, expected in cases:
        certificate, key = authority.sign(days)
        key_store.write_text(certificate + key)
        key_store.chmod(mode)
        document = doctor("--config", config)
        equal(found(document), [(str(config), check, severity) for check, severity in expected])
        assert facts(document, stopped)["snapshots"]["count"] == 1, document
    config.write_text(f'[server]\ndata_dir = "{stopped}"\nserver_id = 2\n')
    document = doctor("--config", config)
    assert (str(config), "owner", "CRITICAL") in found(document), document
    config.write_text("[server]\nno_such_key = 1\nanother = 2\n")
    equal(found(doctor("--config", config, stopped)), [(str(config), "configuration", "CRITICAL")] * 2)


def test_nothing_to_examine(tmp_path):
    for target in (f"127.0.0.1:{free_port()}", tmp_path / "missing", "ftp://host"):
        equal(len(found(doctor(target))), 1)
    (tmp_path / "foreign").write_text("")
    document = doctor(tmp_path)
    equal(found(document), [(str(tmp_path), "directory", "CRITICAL")])
