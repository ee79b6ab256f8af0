"""The clients of a secured ZooKeeper, one beside the other: by certificate and by SASL, and the ways to be refused.

The outcomes are those of ZooKeeper 3.9: run it with `--server zookeeper`. Debian's C client has neither TLS nor SASL. The gate has a
shorter table, for the Java client and kazoo (tests/clients/test_secured.py).
"""

import subprocess

import pytest
from kazoo.client import KazooClient

from campaigns.changed import Changed
from campaigns.test_clients import build_rust_client
from clients import programs
from clients.secured import LOGINS, java_login, java_tls, need_files, secured
from support import packages

# A client that is refused tries again for ever. A slow machine changes no outcome: all others have a minute.
REFUSED_LIMIT_MS, LIMIT_MS = 5000, 60_000
NO_CERTIFICATE = ""
# Changed inputs between two looks at the server.
STEPS = 200
# Server, name of the certificate (None: no TLS), login (None: no SASL), whether it is served.
CASES = {
    "plain": ("plain", None, None, True),
    "certificate": ("tls", "alice", None, True),
    "sasl": ("plain", None, "Bob", True),
    "sasl-over-tls": ("tls", "alice", "Bob", True),
    "other-authority": ("tls", "stranger", None, False),
    "expired": ("tls", "expired", None, False),
    "revoked": ("checking", "revoked", None, False),
    "no-certificate": ("tls", NO_CERTIFICATE, None, False),
    "wrong-password": ("plain", None, "Wrong", False),
    "unknown-user": ("plain", None, "Eve", False),
    "not-authenticated": ("enforcing", None, None, False),
    "enforced-sasl": ("enforcing", None, "Bob", True),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return need_files(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def servers(options, files):
    """An ordinary server, one that enforces authentication, and, of corral, one that checks revocation."""

    def begin(flags=(), **more):
        server = secured(options.server, files, files.settings("pem", **more), flags)
        started.append(server.start())
        return server

    started = []
    begin()
    begin(**{"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl,x509"})
    if options.server == "corral":
        begin(("--set", f"tls.crl_file={files.path('ca.crl')}"), **{"ssl.crl": "true"})
    yield started
    for server in started:
        server.dispose()


@pytest.fixture(scope="module")
def addresses(servers):
    """Where each server listens, by the names in CASES. ZooKeeper takes revocation lists from the JVM, so it has no `checking`."""
    ordinary, enforcing, *checking = servers
    found = {"plain": ordinary.address, "tls": ordinary.secure, "enforcing": enforcing.address}
    for server in checking:
        found["checking"] = server.secure
    return {name: f"{host}:{port}" for name, (host, port) in found.items()}


def java_keys(files, certificate, login):
    keys = {"zookeeper.sasl.client": "false"} if certificate is None else java_tls(files, certificate or None)
    return {**keys, **(java_login(login) if login else {})}


def told(command, limit_ms, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_ms / 1000 + 60, check=False, **more)
    print(done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def zkcli(files):
    def serves(address, limit_ms, certificate, login):
        flags = [f"-D{key}={value}" for key, value in java_keys(files, certificate, login).items()]
        flags += [f"-Djava.security.auth.login.config={files.path('client.jaas')}", "-Dzookeeper.fips-mode=false"]
        command = ["java", *flags, "-cp", packages.zookeeper(), "org.apache.zookeeper.ZooKeeperMain", "-server", address]
        try:
            return "[zookeeper]" in told([*command, "-timeout", "10000", "-waitforconnection", "ls", "/"], limit_ms - 60_000)
        except subprocess.TimeoutExpired:
            return False

    return serves


@pytest.fixture(scope="module")
def curator(files, tmp_path_factory):
    folder = packages.curator_jars()
    if not folder:
        pytest.skip("no Curator: install pyspark, or put its jars into ZOOKEEPER_JARS")
    program = programs.java_program(tmp_path_factory.mktemp("java"), f"{folder}/*", "SecuredCurator")
    program[1:1] = [f"-Djava.security.auth.login.config={files.path('client.jaas')}", "-Dzookeeper.fips-mode=false"]

    def serves(address, limit_ms, certificate, login):
        pairs = [f"{key}={value}" for key, value in java_keys(files, certificate, login).items()]
        return "served" in told([*program, address, str(limit_ms), *pairs], limit_ms)

    return serves


@pytest.fixture(scope="module")
def rust(files):
    program = build_rust_client("secured")

    def serves(address, limit_ms, certificate, login):
        tls = ["-", "-", "-"] if certificate is None else [files.path("ca.pem"), "-", "-"]
        if certificate:
            tls[1:] = [files.path(f"{certificate}.crt"), files.path(f"{certificate}.key")]
        return "served" in told([program, address, str(limit_ms), *tls, *(LOGINS[login] if login else ("-", "-"))], limit_ms)

    return serves


@pytest.fixture(scope="module")
def kazoo(files):
    def serves(address, limit_ms, certificate, login):
        keys = {} if certificate is None else {"use_ssl": True, "ca": files.path("ca.pem")}
        if certificate:
            keys.update(certfile=files.path(f"{certificate}.crt"), keyfile=files.path(f"{certificate}.key"))
        if login:
            user, password = LOGINS[login]
            keys["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
        client = KazooClient(address, timeout=10, **keys)
        try:
            client.start(limit_ms / 1000)
            return "zookeeper" in client.get_children_async("/").get(timeout=limit_ms / 1000)
        except Exception as fault:  # Whatever its reason: it is refused.
            print(repr(fault))
            return False
        finally:
            client.stop()
            client.close()

    return serves


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["zkcli", "curator", "kazoo", "rust"])
def test_secured_clients(request, addresses, name, case):
    server, certificate, login, is_served = CASES[case]
    if server not in addresses:
        pytest.skip("the JVM alone configures revocation lists")
    serves = request.getfixturevalue(name)
    assert serves(addresses[server], LIMIT_MS if is_served else REFUSED_LIMIT_MS, certificate, login) == is_served


def test_changed_bytes(options, files, servers, is_over, seed, note):
    if options.server != "corral":
        pytest.skip("corral's own files and limits")
    ordinary = servers[0]
    changed = Changed(files, ordinary, seed)
    first_kib = ordinary.memory().own_kib
    while not is_over():
        for _ in range(STEPS):
            changed.step()
        grown_kib = changed.look(first_kib)
    note(f"{dict(changed.kinds)}; {grown_kib} KiB more memory")
