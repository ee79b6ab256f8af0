"""HTTP for administration: proofs, TLS, and requests that are refused."""

import contextlib
import socket
import ssl
import subprocess
import threading

import pytest

from support import http
from support.client import four_letter_command
from support.expect import equal
from support.server import Corral, binary
from support.wait import free_port, wait_until

TOKEN = "0123456789abcdef0123456789abcdef"
SUPER = "digest super:secret"
SUPER_DIGEST = "super:lK75jTNcA+U9vtVEw5vB51mj/w4="
LIMIT_S = 60
MISSING, WRONG, NOT_ALLOWED = "Auth info is missing for the command", "Not authenticated", "Not authorized"


def served(server, port, **settings):
    """The server with HTTP for administration at this port, started."""
    server.settings |= {"admin.enabled": "true", "admin.http_addr": f"127.0.0.1:{port}"}
    server.settings |= {f"{section}.{name}": value for key, value in settings.items() for section, name in [key.split("__")]}
    server.admin = ("127.0.0.1", port)
    server.url = f"http://127.0.0.1:{port}"
    server.start()
    wait_until(lambda: listens(server.admin), "it listens")
    return server


def listens(address):
    try:
        socket.create_connection(address, timeout=LIMIT_S).close()
        return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def server(shards, tmp_path_factory):
    tokens = tmp_path_factory.mktemp("admin") / "tokens"
    tokens.write_text(TOKEN + "\n")
    tokens.chmod(0o600)
    server = Corral(shards)
    server.tokens = tokens
    allowed = {"admin__allow_changes": "true", "admin__token_file": f'"{tokens}"', "security__super_digest": f'"{SUPER_DIGEST}"'}
    yield served(server, free_port(), **allowed)
    server.dispose()


@pytest.mark.parametrize(("header", "status", "error"), [
    (None, 401, MISSING),
    ("", 401, WRONG),
    ("Bearer", 401, WRONG),
    (f"Bearer {TOKEN[:-1]}", 401, WRONG),
    (f"Basic {TOKEN}", 401, WRONG),
    ("ip", 401, WRONG),
    ("x509", 401, WRONG),
    ("digest super:wrong", 403, NOT_ALLOWED),
    ("digest kim:secret", 403, NOT_ALLOWED),
    (SUPER, 200, None),
    (f"Bearer {TOKEN}", 200, None),
])  # fmt: skip
def test_a_change_needs_a_proof(server, header, status, error):
    with server.client() as client:
        client.exists("/")
    for method in ("GET", "POST"):
        headers = {} if header is None else {"Authorization": header}
        before = http.ask(f"{server.url}/commands/srvr").json()["server_stats"]["packets_received"]
        answer = http.ask(f"{server.url}/commands/stat_reset", method, headers)
        equal((answer.status, answer.json()), (status, {"command": "stat_reset", "error": error}), method)
        after = http.ask(f"{server.url}/commands/srvr").json()["server_stats"]["packets_received"]
        equal(after, before if error else 0)


def test_a_token_is_replaced_without_a_restart(server):
    def status(token):
        return http.ask(f"{server.url}/commands/crst", headers={"Authorization": f"Bearer {token}"}).status

    other = TOKEN[::-1]
    try:
        server.tokens.write_text(other + "\n")
        equal((status(TOKEN), status(other)), (401, 200))
        server.tokens.chmod(0o644)
        equal(status(other), 401, "a file that others may read")
    finally:
        server.tokens.write_text(TOKEN + "\n")
        server.tokens.chmod(0o600)
    equal(status(TOKEN), 200)


def test_a_change_is_off_by_default(shards):
    server = Corral(shards, settings={"security.super_digest": f'"{SUPER_DIGEST}"'})
    try:
        served(server, free_port())
        answer = http.ask(f"{server.url}/commands/crst", headers={"Authorization": SUPER})
        equal((answer.status, answer.json()["command"]), (403, "connection_stat_reset"))
        assert "admin.allow_changes" in answer.json()["error"]
    finally:
        server.dispose()


@pytest.mark.parametrize("headers", [
    {"Host": "example.org"},
    {"Host": "127.0.0.1.example.org"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Authorization": SUPER},
])  # fmt: skip
@pytest.mark.parametrize("path", ["/commands/cons", "/commands/srst", "/metrics", "/commands"])
def test_requests_of_other_sites_are_refused(server, path, headers):
    equal(http.ask(server.url + path, headers=headers).status, 403)


@pytest.mark.parametrize(("method", "path", "status"), [
    ("POST", "/commands/ruok", 405),
    ("HEAD", "/commands/srst", 405),
    ("PUT", "/commands/ruok", 405),
    ("DELETE", "/commands/srst", 405),
    ("GET", "/commands/../commands/ruok", 200),
    ("GET", "/commands/%2e%2e/%2e%2e/etc/passwd", 200),
    ("GET", "/commands/..%00", 200),
    ("GET", "/commands/%ff", 400),
    ("GET", "/", 404),
    ("GET", "/etc/passwd", 404),
    ("POST", "/commands/snapshot", 405),
    ("GET", "/commands/snapshot", 401),
    ("POST", "/commands/restore", 401),
])  # fmt: skip
def test_other_methods_and_paths(server, method, path, status):
    answer = http.ask(server.url + path, method)
    equal(answer.status, status)
    if status == 200:
        assert answer.json()["error"].startswith("Unknown command: "), answer.text


def test_slow_and_idle_connections_keep_no_command_out(server):
    with contextlib.ExitStack() as stack:
        for number in range(100):
            connection = stack.enter_context(socket.create_connection(server.admin, timeout=LIMIT_S))
            connection.sendall(b"GET /commands/ruok HTTP/1.1\r\nHost: localhost\r\n"[: number % 40])
        equal(http.ask(f"{server.url}/commands/ruok").status, 200)


def test_clients_that_take_no_long_answer_keep_the_others_waiting_no_longer_than_they_last(server):
    """Two long answers are made at once. Connections that hold them are closed when newer ones come."""
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(socket.create_connection(server.admin, timeout=LIMIT_S))
            connection.sendall(b"GET /commands/cons HTTP/1.1\r\nHost: localhost\r\n\r\n")
        equal(http.ask(f"{server.url}/commands/ruok").status, 200)
        equal(http.ask(f"{server.url}/commands/cons").status, 200)


@pytest.fixture(scope="module")
def certificate(authority, tmp_path_factory):
    """A PEM file with key and certificate, for the server and for clients. Its subject is CN=server."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    path.write_text("".join(authority.sign(90)))
    path.chmod(0o600)
    return path


def secured(shards, authority, certificate, tls):
    stores = {"tls__key_store": f'"{certificate}"', "tls__trust_store": f'"{authority.directory / "first.pem"}"'}
    changes = {"admin__allow_changes": "true", "security__x509_super_user": '"CN=server"'}
    server = served(Corral(shards), free_port(), **stores, **changes, admin__tls=f'"{tls}"', admin__client_auth='"want"')
    server.https = f"https://127.0.0.1:{server.admin[1]}"
    return server


def context_of(authority, certificate=None):
    context = ssl.create_default_context(cafile=authority.directory / "first.pem")
    if certificate:
        context.load_cert_chain(certificate)
    return context


def test_a_certificate_is_a_proof(shards, authority, certificate):
    server = secured(shards, authority, certificate, "also")
    try:
        with_one, without = context_of(authority, certificate), context_of(authority)
        equal(http.ask(f"{server.url}/commands/ruok").status, 200, "plaintext")
        for context, status in ((with_one, 200), (without, 401)):
            equal(http.ask(f"{server.https}/commands/ruok", context=context).status, 200)
            answer = http.ask(f"{server.https}/commands/srst", headers={"Authorization": "x509"}, context=context)
            equal(answer.status, status)
        command = [binary(), "health", server.https, "--ca", authority.directory / "first.pem", "--cert", certificate]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
        assert (run.returncode, run.stdout.split()[0]) in ((0, "OK"), (1, "WARNING")), run
    finally:
        server.dispose()


def test_a_port_for_tls_alone_serves_no_plaintext(shards, authority, certificate):
    server = secured(shards, authority, certificate, "only")
    try:
        with socket.create_connection(server.admin, timeout=LIMIT_S) as connection:
            connection.sendall(b"GET /commands/ruok HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP/" not in connection.recv(4096)
        equal(http.ask(f"{server.https}/metrics", context=context_of(authority)).status, 200)
    finally:
        server.dispose()


def test_an_address_in_use_ends_no_start(shards):
    """The server serves clients without it, and takes it when it is free."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = Corral(shards)
        try:
            port = other.getsockname()[1]
            server.settings |= {"admin.enabled": "true", "admin.http_addr": f"127.0.0.1:{port}"}
            server.start()
            wait_until(lambda: "admin HTTP is not served, trying again" in server.log(), "it says so")
            other.close()
            wait_until(lambda: listens(("127.0.0.1", port)), "it listens")
            equal(http.ask(f"http://127.0.0.1:{port}/livez").status, 200)
        finally:
            server.dispose()


def test_top_names_the_client_that_hammers(server):
    """One client asks all the time, another now and then. HTTP, command and four-letter command tell the same."""
    ended = threading.Event()

    def hammer(client):
        while not ended.is_set():
            client.get("/zookeeper/config")

    def polite_is_seen():
        polite.get("/")
        top = http.ask(f"{server.url}/top").json()
        # The first look may fall into the beginning.
        return top if [row["session_id"] for row in top["sessions"]] == [f"0x{one.session_id:x}" for one in (hammering, polite)] else None

    with server.client() as hammering, server.client() as polite:
        polite.get("/zookeeper", watch=True)
        thread = threading.Thread(target=hammer, args=(hammering,))
        thread.start()
        try:
            found = wait_until(polite_is_seen, "both sessions are seen")
            run = subprocess.run([binary(), "top", server.url.removeprefix("http://")], capture_output=True, text=True, check=False, timeout=LIMIT_S)
            text = four_letter_command(server.address, "top\n")
        finally:
            ended.set()
            thread.join()
        first, second = found["sessions"]
        assert first["requests_per_second"] > second["requests_per_second"], found
        equal((second["watches"], found["addresses"][0]["address"], found["addresses"][0]["connections"]), (1, "127.0.0.1", 2))
        equal((found["paths"][0]["path"], found["command"], found["error"]), ("/zookeeper/config", "top", None))
        equal(run.returncode, 0, run.stderr)
        for told in (run.stdout, text):
            sessions = told.split("session ")[1].splitlines()
            assert sessions[1].startswith(f"0x{hammering.session_id:x} 127.0.0.1 "), told


def test_connections_are_shed_and_sessions_go_on(server):
    clients = [server.client() for _ in range(4)]
    shed = http.ask(f"{server.url}/commands/shed_connections?percentage=50", "POST", {"Authorization": f"Bearer {TOKEN}"})
    equal((shed.status, shed.json()["percentage_requested"], shed.json()["error"]), (200, 50, None))
    assert shed.json()["connections_shed"] >= 2
    closed = wait_until(lambda: [client for client in clients if client.is_closed(limit_s=0.05)][1:], "two are closed")
    with server.client(resume=closed[0]) as again:
        equal(again.session_id, closed[0].session_id, "the session goes on")
        again.get("/")
    for query in ("", "?percentage=101", "?percentage=-1", "?percentage=x"):
        answer = http.ask(f"{server.url}/commands/shed{query}", "POST", {"Authorization": f"Bearer {TOKEN}"})
        assert answer.json()["error"].startswith("shed_connections requires"), query
    for client in clients:
        client.drop()
