"""A pytest plugin that runs kazoo's own tests on a server of ours instead of the Java cluster kazoo starts.

It stands in for kazoo.testing.common, which starts, stops and destroys the servers; the tests and their harness stay as kazoo
ships them. KAZOO_SUITE_SERVER says which server (corral or zookeeper), KAZOO_SUITE_SHARDS how many shards corral gets,
KAZOO_SUITE_OUTCOMES names the file that gets a line of JSON for each test. It knows nothing of what the tests expect.
"""

import json
import os
import shutil
import signal
import sys
import types

import pytest

from support.server import Corral, ZooKeeper

# Longer than any test takes; one that hangs fails and the rest still runs.
TEST_LIMIT_S = 180
TICK_MS = 2000
# The super user's password is "test", as in kazoo's own cluster.
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


class ManagedServer:
    """What kazoo's ManagedZooKeeper offers to the tests, with one of our servers behind it."""

    def __init__(self, server):
        self.server, self.running = server, False

    def __getattr__(self, name):
        if name in ("secure_address", "secure_client_port"):
            pytest.skip("needs TLS")
        raise AttributeError(name)

    @property
    def address(self):
        host, port = self.server.address
        return f"{host}:{port}"

    @property
    def client_port(self):
        return self.server.address[1]

    def run(self):
        if not self.running:
            self.server.directory.mkdir(exist_ok=True)
            self.server.start()
            self.running = True

    def stop(self):
        if self.running:
            self.server.stop()
            self.running = False

    def reset(self):
        self.stop()
        shutil.rmtree(self.server.directory / "data", ignore_errors=True)

    def destroy(self):
        self.stop()
        self.server.dispose()

    def get_logs(self, num_lines=100):
        return self.server.log().splitlines()[-num_lines:] if self.running else []


class Cluster(list):
    """kazoo's ZookeeperCluster with the one server there is."""

    def __init__(self, configuration_entries=(), java_system_properties=(), jaas_config=None, **_):
        if jaas_config:
            # The test's tearDown, which takes this back, does not run after a skip in its setUp.
            os.environ.pop("ZOOKEEPER_JAAS_AUTH", None)
            pytest.skip("needs SASL")
        make = corral if os.environ["KAZOO_SUITE_SERVER"] == "corral" else zookeeper
        super().__init__([ManagedServer(make(configuration_entries, java_system_properties))])

    def __getitem__(self, index):
        if index > 0:
            pytest.skip("needs an ensemble")
        return super().__getitem__(index)

    def start(self):
        for server in self:
            server.run()

    def stop(self):
        for server in self:
            server.stop()

    def terminate(self):
        for server in self:
            server.destroy()

    def reset(self):
        for server in self:
            server.reset()

    def get_logs(self):
        return [line for server in self for line in server.get_logs()]

    def get_ssl_client_configuration(self):
        pytest.skip("needs TLS")


def corral(entries, properties):
    """A corral with the same settings."""
    reconfig = "true" if "reconfigEnabled=true" in entries else "false"
    settings = {"security.super_digest": SUPER_DIGEST, "features.reconfig": reconfig}
    return Corral(shards=int(os.environ["KAZOO_SUITE_SHARDS"]), tick_ms=TICK_MS, settings=settings)


def zookeeper(entries, properties):
    """A ZooKeeper with the settings and system properties kazoo's own cluster has."""
    options = ["-Dfile.encoding=UTF-8", "-Dreadonlymode.enabled=true", *properties]
    return ZooKeeper(tick_ms=TICK_MS, settings=dict(entry.split("=", 1) for entry in entries), java_options=options)


def pytest_configure(config):
    module = types.ModuleType("kazoo.testing.common")
    module.ZookeeperCluster = Cluster
    sys.modules["kazoo.testing.common"] = module
    signal.signal(signal.SIGALRM, _too_long)


def _too_long(*_):
    raise AssertionError(f"the test takes longer than {TEST_LIMIT_S} s")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    signal.alarm(TEST_LIMIT_S)
    yield
    signal.alarm(0)


def pytest_runtest_logreport(report):
    """Writes one line for each phase that says something: a call, or a setup or teardown that does not pass."""
    if report.when != "call" and report.passed:
        return
    name = report.nodeid.partition("::")
    detail = report.longreprtext
    if report.skipped and isinstance(report.longrepr, tuple):
        detail = report.longrepr[2].removeprefix("Skipped: ")
    line = {
        "name": f"{os.path.basename(name[0])[:-3]}.{name[2].replace('::', '.')}",
        "outcome": report.outcome,
        "detail": detail,
        "seconds": report.duration,
    }
    with open(os.environ["KAZOO_SUITE_OUTCOMES"], "a", encoding="utf-8") as outcomes:
        outcomes.write(json.dumps(line) + "\n")
