"""Clients of a secured ZooKeeper: TLS with client certificates, SASL, and authentication that is enforced.

The servers are started with the same zoo.cfg, key stores and users as a ZooKeeper. The outcomes are those of ZooKeeper 3.9: run the tests
with `--server zookeeper`.
"""

import base64
import hashlib
import re
import signal
import socket
import ssl
import subprocess

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, InvalidACLError, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_acl, make_digest_acl

from clients import programs
from clients.secured import ALICE, PASSWORD, ROOT, USERS, digest_md5, java_login, java_tls, need_files, secured
from differential import operations
from support import jute, packages
from support.client import Refused, four_letter_command
from support.server import binary
from support.wait import wait_until

LIMIT_S = 120
# A client that is refused tries again for ever. A slow machine changes no outcome: all others have a minute.
REFUSED_LIMIT_MS, LIMIT_MS = 4000, 60_000
REFUSED = "no session"
# By the moment at which kazoo hears that its user is refused: in a request, or while it still waits for its session.
USER_REFUSED = (AuthFailedError, KazooTimeoutError)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return need_files(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def start(options, files):
    """A function that starts a server with settings beside those of the files."""
    started = []

    def begin(store="jks", kind=options.server, flags=(), **more):
        server = secured(kind, files, files.settings(store, **more), flags)
        started.append(server.start())
        return server

    yield begin
    for server in started:
        told = server.log() + "".join(four_letter_command(server.address, word) for word in ("conf", "envi", "mntr", "cons"))
        assert not [secret for secret in (PASSWORD, *USERS.values()) if secret in told], "a secret is shown"
        server.dispose()


@pytest.fixture(scope="module")
def server(start):
    return start()


@pytest.fixture(scope="module")
def enforcing(start):
    return start(store="pem", **{"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl,x509"})


@pytest.fixture(scope="module")
def java(files, tmp_path_factory):
    """A function that gives the outcomes of sessions of the Java client by their names."""
    command = programs.java_program(tmp_path_factory.mktemp("java"), packages.zookeeper(), "SecuredClient")
    command[1:1] = [f"-Djava.security.auth.login.config={files.path('client.jaas')}", "-Dzookeeper.fips-mode=false"]

    def run(cases):
        lines = [f"{name} {REFUSED_LIMIT_MS if outcome == REFUSED else LIMIT_MS} {address[0]}:{address[1]} "
                 + " ".join(f"{key}={value}" for key, value in keys.items())
                 for name, (address, keys, outcome) in cases.items()]  # fmt: skip
        done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        print(done.stderr)
        return dict(line.split(" ", 2)[1:] for line in done.stdout.splitlines() if line.startswith("result "))

    return run


def test_java_clients(files, server, enforcing, java):
    plain = {"zookeeper.sasl.client": "false"}
    local = "ip:127.0.0.1"
    expect = {
        "pem": (server.secure, java_tls(files), f"{local} x509:{ALICE}"),
        "pkcs12": (server.secure, java_tls(files, kind="p12"), f"{local} x509:{ALICE}"),
        "jks": (server.secure, java_tls(files, kind="jks"), f"{local} x509:{ALICE}"),
        "super-certificate": (server.secure, java_tls(files, "root"), f"{local} super: x509:{ROOT}"),
        "other-authority": (server.secure, java_tls(files, "stranger"), REFUSED),
        "expired": (server.secure, java_tls(files, "expired"), REFUSED),
        "no-certificate": (server.secure, java_tls(files, None), REFUSED),
        "distrusting": (server.secure, java_tls(files, trust="other-ca.pem"), REFUSED),
        "plaintext-to-tls": (server.secure, plain, REFUSED),
        "tls-to-plaintext": (server.address, java_tls(files), REFUSED),
        "plain": (server.address, plain, local),
        "sasl": (server.address, java_login("Bob"), f"{local} sasl:bob"),
        "sasl-over-tls": (server.secure, {**java_tls(files), **java_login("Bob")}, f"{local} sasl:bob x509:{ALICE}"),
        "sasl-super": (server.address, java_login("Super"), f"{local} sasl:super super:"),
        "wrong-password": (server.address, java_login("Wrong"), "AUTHFAILED"),
        "unknown-user": (server.address, java_login("Eve"), "AUTHFAILED"),
        "enforced-none": (enforcing.address, plain, "SESSIONCLOSEDREQUIRESASLAUTH"),
        "enforced-sasl": (enforcing.address, java_login("Bob"), f"{local} sasl:bob"),
        "enforced-certificate": (enforcing.secure, java_tls(files), f"{local} x509:{ALICE}"),
        "enforced-wrong-password": (enforcing.address, java_login("Wrong"), "AUTHFAILED"),
    }
    assert java(expect) == {name: outcome for name, (_, _, outcome) in expect.items()}


@pytest.fixture
def kazoo():
    """A function that opens a session of kazoo."""
    clients = []

    def connect(address, limit_s=60, **more):
        client = KazooClient(f"{address[0]}:{address[1]}", timeout=10, **more)
        clients.append(client)
        client.start(timeout=limit_s)
        return client

    yield connect
    for client in clients:
        client.stop()
        client.close()


def of(files, name):
    return {"use_ssl": True, "ca": files.path("ca.pem"), "certfile": files.path(f"{name}.crt"), "keyfile": files.path(f"{name}.key")}


def sasl(user, password):
    return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": user, "password": password}}


def test_kazoo_with_certificates(files, server, kazoo):
    alice = kazoo(server.secure, **of(files, "alice"))
    alice.create("/alice", b"x" * 500_000, acl=[make_acl("x509", ALICE, all=True)])
    assert alice.get("/alice")[0] == b"x" * 500_000
    with pytest.raises(NoAuthError):
        kazoo(server.address).get("/alice")
    assert kazoo(server.secure, **of(files, "root")).get("/alice")[0] == b"x" * 500_000
    for name in ("stranger", "expired"):
        with pytest.raises(KazooTimeoutError):
            kazoo(server.secure, limit_s=1, **of(files, name))


def test_kazoo_with_sasl(server, kazoo):
    bob = kazoo(server.address, **sasl("bob", USERS["bob"]))
    bob.create("/bob", b"of bob", acl=[make_acl("sasl", "bob", all=True)])
    with pytest.raises(NoAuthError):
        kazoo(server.address).get("/bob")
    assert kazoo(server.address, **sasl("super", USERS["super"])).get("/bob")[0] == b"of bob"
    for user, password in (("bob", "wrong"), ("eve", "x")):
        with pytest.raises(USER_REFUSED):
            kazoo(server.address, **sasl(user, password)).get("/")


def test_rights_of_any_sasl_user(start, kazoo):
    server = start(letAnySaslUserDoX="everyone")
    bob = kazoo(server.address, **sasl("bob", USERS["bob"]))
    bob.create("/shared", b"of all", acl=[make_acl("sasl", "everyone", all=True)])
    assert bob.get("/shared")[0] == b"of all"
    with pytest.raises(NoAuthError):
        kazoo(server.address).get("/shared")
    # It is no identity of the connection: an ACL for its creator is for bob alone.
    bob.create("/own", acl=[make_acl("auth", "", all=True)])
    assert [acl.id.id for acl in bob.get_acls("/own")[0]] == ["bob"]
    with pytest.raises(InvalidACLError):
        kazoo(server.address).create("/none", acl=[make_acl("auth", "", all=True)])
    with server.client() as client:
        challenge = client.call(jute.SASL, jute.buffer(b"")).buffer()
        mechanism = digest_md5("bob", USERS["bob"])
        client.call(jute.SASL, jute.buffer(mechanism.process(challenge)))
        assert b"everyone" not in client.call(operations.WHO_AM_I).rest()


def test_one_sasl_exchange_a_connection(server):
    mechanism = digest_md5("bob", USERS["bob"])
    with server.client() as client:
        challenge = client.call(jute.SASL, jute.buffer(b"anything")).buffer()
        assert re.sub(rb'"[^"]{20,}"', b"N", challenge) == b'realm="zk-sasl-md5",nonce=N,charset=utf-8,algorithm=md5-sess'
        assert client.call(jute.SASL, jute.buffer(mechanism.process(challenge))).buffer().startswith(b"rspauth=")
        with pytest.raises(Refused) as refused:
            client.call(jute.SASL, jute.buffer(b""))
        assert refused.value.code == jute.AUTH_FAILED
        assert client.is_closed()


@pytest.mark.parametrize("name", ["SHA256", "SHA3-256", "SHA-512"])
def test_digests_of_another_hash(start, kazoo, name):
    server = start(**{"DigestAuthenticationProvider.digestAlg": name})
    kim = kazoo(server.address)
    kim.add_auth("digest", "kim:secret")
    kim.create("/kim", acl=[make_acl("auth", "", all=True)])
    digest = hashlib.new(name.replace("SHA3", "SHA3_").replace("-", "").lower(), b"kim:secret").digest()
    assert [acl.id.id for acl in kim.get_acls("/kim")[0]] == ["kim:" + base64.b64encode(digest).decode()]
    other = kazoo(server.address)
    other.add_auth("digest", "kim:wrong")
    with pytest.raises(NoAuthError):
        other.get("/kim")


def test_no_digests(start, kazoo):
    server = start(**{"DigestAuthenticationProvider.enabled": "false"})
    client = kazoo(server.address)
    by_digest = [make_digest_acl("kim", "secret", all=True)]
    with pytest.raises(InvalidACLError):
        client.create("/kim", acl=by_digest)
    with pytest.raises(InvalidACLError):
        client.set_acls("/", by_digest)
    multi = client.transaction()
    multi.create("/kim", acl=by_digest)
    assert [type(result) for result in multi.commit()] == [InvalidACLError]
    with pytest.raises(AuthFailedError):
        client.add_auth("digest", "kim:secret")


def wrapped(files, address, version=None, name="alice"):
    context = files.context(name)
    if version:
        context.minimum_version = context.maximum_version = version
    return context.wrap_socket(socket.create_connection(address, timeout=60), server_hostname="localhost")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_four_letter_commands_over_tls(files, server, version):
    with wrapped(files, server.secure, version) as connection:
        connection.sendall(b"conf")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert f"secureClientPort={server.secure[1]}\n".encode() in answer


def test_one_port_for_both(files, start):
    both = start(store="p12", **{"client.portUnification": "true"})
    with wrapped(files, both.address) as connection:
        connection.sendall(b"ruok")
        assert connection.recv(9) == b"imok"
    with socket.create_connection(both.address, timeout=60) as connection:
        connection.sendall(b"ruok")
        assert connection.recv(9) == b"imok"


def test_one_handshake_at_a_time_serves_every_port(files, start, options):
    if options.server != "corral":
        pytest.skip("ZooKeeper refuses a client when so many handshakes are under way")
    both = start(store="p12", **{"client.portUnification": "true", "netty.server.outstandingHandshake.limit": "1"})
    for address in (both.address, both.secure, both.address):
        with wrapped(files, address) as connection:
            connection.sendall(b"ruok")
            assert connection.recv(9) == b"imok"


@pytest.fixture
def corral_only(options):
    if options.server != "corral":
        pytest.skip("corral's own way")


def test_a_revoked_certificate_is_refused(files, start, corral_only):
    files.write("lists.crl", "".join((files.directory / name).read_text() for name in ("older.crl", "ca.crl")))
    checking = start(store="pem", flags=("--set", f"tls.crl_file={files.path('lists.crl')}"), **{"ssl.crl": "true"})
    with wrapped(files, checking.secure, name="alice") as connection:
        connection.sendall(b"ruok")
        assert connection.recv(9) == b"imok"
    # With TLS 1.3 the client hears of it after its own side of the handshake.
    with pytest.raises(ssl.SSLError), wrapped(files, checking.secure, name="revoked") as connection:
        connection.recv(9)
    wait_until(lambda: "the client's certificate is revoked" in checking.log(), "the refusal is logged")
    # A list that has expired says nothing of any client.
    files.write("lists.crl", (files.directory / "expired.crl").read_text())
    checking.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the revocation list expired" in checking.log(), "the list is judged")
    with pytest.raises(ssl.SSLError), wrapped(files, checking.secure, name="alice") as connection:
        connection.recv(9)
    wait_until(lambda: "the revocation list of the client's authority has expired" in checking.log(), "the refusal is logged")


def test_files_are_reloaded_at_sighup(files, start, kazoo, corral_only):
    for name in ("server.pem", "server.jaas"):
        files.write(f"old-{name}", (files.directory / name).read_text())
    jaas = ("--set", f"security.sasl_jaas_file={files.path('old-server.jaas')}")
    server = start(store="pem", flags=jaas, **{"ssl.keyStore.location": files.path("old-server.pem")})

    def serial():
        with wrapped(files, server.secure) as connection:
            return connection.getpeercert()["serialNumber"]

    def reload(line):
        before = server.log().count(line)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log().count(line) > before, "the reload is logged")

    first = serial()
    files.write("old-server.pem", "no key")
    reload("certificates not reloaded, those in use stay")
    assert serial() == first
    files.sign("newer", "/CN=localhost")
    files.write("old-server.pem", (files.directory / "newer.pem").read_text())
    files.write("old-server.jaas", (files.directory / "server.jaas").read_text().replace(USERS["bob"], "another"))
    reload("certificates reloaded")
    assert "SASL users reloaded" in server.log()
    assert serial() != first
    kazoo(server.address, **sasl("bob", "another")).get("/")
    with pytest.raises(USER_REFUSED):
        kazoo(server.address, **sasl("bob", USERS["bob"])).get("/")


def test_an_open_root_is_a_risk(start, kazoo, corral_only):
    server = start()

    def risks():
        assert server.stop() == 0
        command = [str(binary()), "check-config", "--security", "--data-dir", str(server.directory / "data")]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False).stderr

    # Without a write there is no snapshot, whose root could be looked at.
    kazoo(server.address).create("/any")
    assert "risk: the tree: every client may make znodes below the root" in risks()
    kazoo(server.start().address).set_acls("/", [make_acl("world", "anyone", read=True), make_acl("sasl", "bob", all=True)])
    assert "the tree" not in risks()
    server.start()


def test_the_shell(files, server, tmp_path):
    def shell(address, *words):
        command = [binary(), "cli", "-server", f"localhost:{address[1]}", "-timeout", str(LIMIT_MS), *words]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=LIMIT_S)

    def identities(address, *words):
        return sorted(shell(address, *words, "whoami").stdout.splitlines()[1:])

    (tmp_path / "bob").write_text(f"bob:{USERS['bob']}\n")
    (tmp_path / "eve").write_text("eve:x\n")
    tls = ("--ca", files.path("ca.pem"))
    assert identities(server.secure, *tls, "--cert", files.path("alice.pem")) == ["ip: 127.0.0.1", f"x509: {ALICE}"]
    assert identities(server.address, "--sasl-file", tmp_path / "bob") == ["ip: 127.0.0.1", "sasl: bob"]
    assert shell(server.address, "--sasl-file", tmp_path / "eve", "whoami").returncode == 18
    assert "TLS failed" in shell(server.secure, "--ca", files.path("other-ca.pem"), "whoami").stderr
