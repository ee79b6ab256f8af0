"""Servers join and leave by reconfig, while clients go on. Each test has an ensemble of three of its own."""

import importlib.util
import subprocess
import threading

import pytest

from ensemble.cluster import FOLLOWING, LEADING, OBSERVING, mode_of, pause
from ensemble.config import admin, ask, lines_and_version, read, reconfig, reconfig_step, serves_as, shows_list_of
from ensemble.sessions import connect, connect_to_new_leader, seen
from support import jute
from support.client import Closed, Refused, exists_or_none
from support.expect import equal
from support.server import java_class_path
from support.wait import free_port, wait_until

IN_PROGRESS, NO_QUORUM = -14, -13
# More than a leader is told to keep, in fewer entries than a server in step may lack.
LAG_WRITES, LAG_BYTES = 4, 600_000


@pytest.fixture
def ensemble(own_ensemble):
    """Three servers that have their first list. A server that receives it together with a change takes the change for its first list."""
    for member in own_ensemble.members:
        shows_list_of(member, own_ensemble.specs)
    return own_ensemble


def join(ensemble, member, old):
    """Lets a server in that was made with `ensemble.joiner`; `old` are members that may lead."""
    number = ensemble.number(member)
    member.launch()
    lines = ask(old, joining=f"server.{number}={ensemble.specs[number]}")
    assert f"server.{number}={ensemble.specs[number]}" in lines, lines


class Writer(threading.Thread):
    """Creates one znode after the other at any server that serves; keeps those that were acknowledged."""

    def __init__(self, members, top):
        super().__init__(daemon=True)
        self.members, self.top, self.acknowledged, self.ends = members, top, [], threading.Event()
        self.broken = 0

    def run(self):
        client, number = None, 0
        while not self.ends.is_set():
            try:
                if client is None:
                    member = self.members[self.broken % len(self.members)]
                    client = connect(member, limit_s=5)
                    client.socket.settimeout(10)
                number += 1
                self.acknowledged.append(client.create(f"{self.top}/{number}", b"x" * 100))
            except Exception:  # noqa: BLE001 - whatever it is, another server is tried
                self.broken += 1
                client = None

    def finish(self):
        self.ends.set()
        self.join(30)
        return self.acknowledged


def test_an_observer_joins_and_leaves(ensemble):
    with connect(ensemble.leader()) as client:
        client.create("/before", b"data")
    joiner = ensemble.joiner("observer")
    old = list(ensemble.members[:3])
    join(ensemble, joiner, old)
    serves_as(joiner, (OBSERVING,))
    shows_list_of(joiner, (1, 2, 3, 4))
    equal(seen(joiner, "/before"), b"data")
    with connect(joiner) as client:
        client.create("/by-observer")
    for member in old:
        equal(seen(member, "/by-observer"), b"")
    lines = ask(old, leaving="4")
    equal(len(lines), 3)
    shows_list_of(old[0], (1, 2, 3))


def test_a_voter_joins_and_counts(ensemble):
    with connect(ensemble.leader()) as client:
        for number in range(100):
            client.create(f"/before-{number}", b"x" * 1000)
    joiner = ensemble.joiner("participant")
    old = list(ensemble.members[:3])
    join(ensemble, joiner, old)
    serves_as(joiner, (FOLLOWING, LEADING))
    shows_list_of(joiner, (1, 2, 3, 4))
    # Three of four are a majority, with it.
    victim = next(member for member in old if mode_of(member) == FOLLOWING)
    victim.kill()
    with connect_to_new_leader([member for member in [*old, joiner] if member is not victim]) as client:
        client.create("/counts")
    equal(seen(joiner, "/counts"), b"")
    ensemble.start()


def test_a_server_changes_its_role_and_back(ensemble):
    number, member = next((at, one) for at, one in enumerate(ensemble.members, 1) if mode_of(one) == FOLLOWING)
    spec = ensemble.specs[number]
    ask(ensemble.members, joining=f"server.{number}={spec.replace('participant', 'observer')}")
    serves_as(member, (OBSERVING,))
    ask(ensemble.members, joining=f"server.{number}={spec}")
    serves_as(member, (FOLLOWING, LEADING))


def test_a_voter_leaves(ensemble):
    number, member = next((at, one) for at, one in enumerate(ensemble.members, 1) if mode_of(one) == FOLLOWING)
    rest = [one for one in ensemble.members if one is not member]
    equal(len(ask(ensemble.members, leaving=str(number))), 2)
    with connect(rest[0]) as client:
        client.create("/after")
    if ensemble.is_corral:
        # Nobody tells it anything any more, and it does not pretend to be of use.
        wait_until(lambda: mode_of(member) is None, "it has no leader")
        for start in range(2):
            told = "not a member of the ensemble: stop it"
            wait_until(lambda: member.log().count(told) > start, "its log says why it serves no client")
            member.kill()
            member.launch()
    member.kill()
    for one in rest:
        equal(seen(one, "/after"), b"")


def test_a_server_leaves_and_comes_back(ensemble):
    member = ensemble.followers()[0]
    number, rest = ensemble.number(member), [one for one in ensemble.members if one is not member]
    ask(ensemble.members, leaving=str(number))
    with connect(rest[0]) as client:
        client.create("/meanwhile")
    ask(rest, joining=f"server.{number}={ensemble.specs[number]}")
    serves_as(member, (FOLLOWING, LEADING))
    equal(seen(member, "/meanwhile"), b"")
    shows_list_of(member, (1, 2, 3))


def test_the_leader_leaves(ensemble):
    leader = ensemble.leader()
    rest = [one for one in ensemble.members if one is not leader]
    with admin(rest[0]) as client:
        try:
            reconfig(client, leaving=str(ensemble.number(leader)))
        except (Closed, OSError):
            assert not ensemble.is_corral, "the answer comes before the leader goes"
    with connect_to_new_leader(rest) as client:
        client.create("/after")
    for one in rest:
        shows_list_of(one, [ensemble.number(other) for other in rest])
    leader.kill()
    with connect(rest[0]) as client:
        client.create("/without-it")


def test_all_are_replaced_one_by_one_under_load(ensemble):
    if not ensemble.is_corral:
        pytest.skip("a joining ZooKeeper has to be configured anew for each step")
    with connect(ensemble.leader()) as client:
        client.create("/load")
    everybody = list(ensemble.members)
    writer = Writer(everybody, "/load")
    writer.start()
    for old in list(ensemble.members):
        joiner = ensemble.joiner("participant")
        everybody.append(joiner)
        present = [member for member in ensemble.running if member is not joiner]
        join(ensemble, joiner, present)
        serves_as(joiner, (FOLLOWING, LEADING))
        ask(ensemble.running, leaving=str(ensemble.number(old)))
        old.kill()
    acknowledged = writer.finish()
    assert len(acknowledged) > 50, f"{len(acknowledged)} writes"
    for member in ensemble.running:
        shows_list_of(member, (4, 5, 6))
        with connect(member) as client:
            client.sync()
            equal([path for path in acknowledged if exists_or_none(client, path) is None], [], "lost")


def refusal(client, **asked):
    """The error code that a reconfig is answered with; 0 if there is none."""
    try:
        reconfig(client, **asked)
    except Refused as refused:
        return refused.code
    return 0


def test_a_majority_that_is_not_there(ensemble):
    unknown = ",".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()};{free_port()}" for number in (4, 5, 6, 7))
    with admin(ensemble.followers()[0]) as client, admin(ensemble.leader()) as other:
        before, _ = read(client)
        sent = client.send(jute.RECONFIG, jute.reconfig_body(joining=unknown))
        if ensemble.is_corral:
            # It takes its time to find out. Whether a change is under way is looked at before the version.
            wait_until(lambda: refusal(other, version=1) == IN_PROGRESS, "the change is under way")
            equal(refusal(other, joining="server.9=127.0.0.1:1:2:observer;3"), IN_PROGRESS)
            equal(refusal(other), IN_PROGRESS)
        reply = client.reply()
        equal((reply.xid, reply.error), (sent, NO_QUORUM))
        client.create("/behind-it")
        equal(read(client)[0], before)
        reconfig(other)


def test_those_who_joined_outlive_a_restart(ensemble):
    if not ensemble.is_corral:
        pytest.skip("its zoo.cfg is written anew at each start")
    joiner = ensemble.joiner("participant")
    join(ensemble, joiner, list(ensemble.members[:3]))
    serves_as(joiner, (FOLLOWING, LEADING))
    with connect(joiner) as client:
        client.create("/kept")
    for member in ensemble.members:
        member.kill()
    ensemble.start()
    for member in ensemble.members:
        shows_list_of(member, (1, 2, 3, 4))
        equal(seen(member, "/kept"), b"")


def test_a_voter_that_is_needed_and_lags_is_fed_in_the_middle_of_a_change(ensemble):
    if not ensemble.is_corral:
        pytest.skip("how much of the log ZooKeeper's leader keeps is its own business")
    for member in ensemble.members:
        member.settings = {**(member.settings or {}), "ensemble.log_cache_bytes": 1 << 20}
        member.kill()
    ensemble.start()
    leader = ensemble.leader()
    victim, other = ensemble.followers()
    with admin(leader) as client:
        client.create("/big")
        pause(victim)
        for _ in range(LAG_WRITES):
            client.set("/big", b"x" * LAG_BYTES)
        client.send(jute.RECONFIG, jute.reconfig_body(leaving=str(ensemble.number(other))))
        wait_until(lambda: reconfig_step(leader) not in ("none", None), "the change has begun")
        # What was on its way to it is lost with it.
        victim.kill()
        victim.launch()
        with connect_to_new_leader([leader, victim]) as second:
            second.create("/after")
    equal(seen(victim, "/after"), b"")
    assert "snapshot installed" in victim.log(), "the leader had everything in memory still"


def test_kazoo_changes_the_list(ensemble):
    if not importlib.util.find_spec("kazoo"):
        pytest.skip("kazoo is not installed")
    from kazoo.client import KazooClient
    from kazoo.exceptions import BadVersionError, NewConfigNoQuorumError

    joiner = ensemble.joiner("observer")
    joiner.launch()
    client = KazooClient(ensemble.addresses(), timeout=60, auth_data=[("digest", "super:secret")])
    client.start()
    try:
        changed = threading.Event()
        client.get("/zookeeper/config", watch=lambda _: changed.set())
        data, stat = client.reconfig(joining=f"server.4={ensemble.specs[4]}", leaving=None, new_members=None)
        equal(len(lines_and_version(data.decode())[0]), 4)
        assert changed.wait(60), "the watch fires"
        try:
            client.reconfig(joining=None, leaving="4", new_members=None, from_config=stat.mzxid - 1)
        except BadVersionError:
            pass
        else:
            raise AssertionError("another version than the list has")
        everybody = ",".join(f"server.{number}={spec}" for number, spec in ensemble.specs.items() if number < 4)
        data, _ = client.reconfig(joining=None, leaving=None, new_members=everybody, from_config=stat.mzxid)
        equal(len(lines_and_version(data.decode())[0]), 3)
        nowhere = ",".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()};{free_port()}" for number in (5, 6, 7, 8))
        try:
            client.reconfig(joining=nowhere, leaving=None, new_members=None)
        except NewConfigNoQuorumError:
            pass
        else:
            raise AssertionError("a majority that no server can reach")
    finally:
        client.stop()
        client.close()


def test_zkcli_changes_the_list(ensemble):
    if not java_class_path():
        pytest.skip("zkCli needs Java and ZooKeeper's jars")
    joiner = ensemble.joiner("observer")
    joiner.launch()
    everybody = ",".join(f"server.{number}={spec}" for number, spec in ensemble.specs.items() if number < 4)
    script = [
        "reconfig -remove 4",
        "addauth digest super:secret",
        f"reconfig -add server.4={ensemble.specs[4]}",
        "config",
        "reconfig -v 5 -remove 4",
        "reconfig -remove 4",
        f"reconfig -members {everybody}",
        "quit",
    ]
    command = ["java", "-cp", java_class_path(), "org.apache.zookeeper.ZooKeeperMain", "-server", ensemble.addresses()]
    done = subprocess.run(
        command, input="\n".join(script) + "\n", capture_output=True, text=True, timeout=120, check=False
    )
    told = done.stdout + done.stderr
    equal(told.count("Committed new configuration"), 3, told)
    equal(told.splitlines().count(f"server.4={ensemble.specs[4]}"), 2, told)
    assert "NoAuth" in told or "Insufficient permission" in told or "not valid" in told, told
    shows_list_of(ensemble.members[0], (1, 2, 3))
