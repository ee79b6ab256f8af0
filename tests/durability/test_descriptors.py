"""File descriptors that run out: clients and strangers take none from log and other servers. Nothing ends, and writes go on.

A storm is more connections than the server may have descriptors. They are made while the server is paused, so that the kernel has all of
them when it goes on.
"""

import re
import resource
import socket
import threading

import pytest

from ensemble.cluster import CALM, Ensemble, pause, resume
from ensemble.sessions import connect, seen
from support.expect import equal
from support.server import NO_SNAPSHOT, Corral
from support.wait import wait_until

MIB = 1 << 20
# A segment holds four of these.
VALUE = b"x" * 900_000
SETTINGS = {"log.segment_bytes": 4 * MIB, "log.spare_segments_max": 1, "sessions.sessionless_timeout_ms": 600_000, **NO_SNAPSHOT}
STORM = 1000
# What a server needs and some 100 clients more, alone and in an ensemble.
LIMIT, ENSEMBLE_LIMIT = 300, 600


@pytest.fixture(scope="module", autouse=True)
def many_descriptors():
    """This process may have as many descriptors as it likes."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Connections:
    """Connections that never say anything."""

    def __init__(self, *addresses, count=STORM):
        self.sockets = []
        for address in addresses * count:
            self.sockets.append(socket.socket())
            self.sockets[-1].setblocking(False)
            self.sockets[-1].connect_ex(address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.sockets:
            one.close()


def storm(server, *addresses):
    pause(server)
    try:
        return Connections(*addresses)
    finally:
        resume(server)


def write(client, path, first, count=5):
    """So many writes, with a change of segments."""
    for number in range(first, first + count):
        client.set(path, VALUE + str(number).encode())


def had_enough(server):
    log = server.log()
    assert "Too many open files" not in log and "writes wait" not in log, server.log_tail(40)
    equal(server.process.poll(), None, "it runs")


def leads(server):
    return re.findall('leadership changed role="(.*?)"', server.log())[-1] == "leader"


def test_clients_take_no_descriptor_from_the_log(shards):
    server = Corral(shards, settings=SETTINGS)
    server.open_files_max = LIMIT
    try:
        with server.start().client(timeout_ms=60_000) as client, Connections(server.address):
            client.create("/n")
            for round in range(5):
                with storm(server, server.address):
                    write(client, "/n", 5 * round)
            assert "connection refused: " in server.log(), "the limit was not reached"
            had_enough(server)
        server.restart()
        with server.client() as client:
            equal(client.get("/n")[0], VALUE + b"24", "the last value")
        had_enough(server)
    finally:
        server.dispose()


def test_writes_wait_for_a_descriptor_as_for_space(shards):
    server = Corral(shards, settings=SETTINGS)
    try:
        with server.start().client(timeout_ms=60_000) as client:
            client.create("/n")
            limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
            # The standard streams take these.
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
            writer = threading.Thread(target=write, args=(client, "/n", 0, 20))
            writer.start()
            wait_until(lambda: "writes wait: no file descriptors" in server.log(), "writes wait")
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
            writer.join(60)
            equal(client.get("/n")[0], VALUE + b"19", "the last value")
            assert "writes go on" in server.log(), server.log_tail()
    finally:
        server.dispose()


def test_an_ensemble_goes_on_without_a_descriptor_left(shards):
    ensemble = Ensemble("corral", shards=shards, settings={**CALM, **SETTINGS})
    for member in ensemble.members:
        member.open_files_max = ENSEMBLE_LIMIT
    peers = [("127.0.0.1", int(spec.split(":")[1])) for spec in ensemble.specs.values()]

    def storm_at(member):
        return storm(member, member.address, peers[ensemble.number(member) - 1])

    try:
        leader = ensemble.start().leader()
        first, second = ensemble.followers()
        client = connect(first)
        client.create("/n")
        with Connections(*[member.address for member in ensemble.members], count=20):
            for number, member in enumerate(ensemble.members):
                with storm_at(member):
                    write(client, "/n", 5 * number)
            leader.kill()
            with storm_at(first), storm_at(second):
                # No session can begin now, and a probe is refused.
                wait_until(lambda: leads(first) or leads(second), "another server leads")
                write(client, "/n", 15)
            leader.start()
            with storm_at(leader):
                write(client, "/n", 20)
            for member in ensemble.members:
                equal(seen(member, "/n"), VALUE + b"24", "the last value")
                had_enough(member)
    finally:
        ensemble.dispose()
