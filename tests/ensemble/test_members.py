"""Servers join, leave and move to other addresses while clients go on. Each test has an ensemble of three of its own."""

import socket
import threading

import pytest

from ensemble.cluster import FOLLOWING, LEADING, OBSERVING, configure, mode_of
from ensemble.config import CONFIG, ask, lines_and_version, read, serves_as, shows_list_of
from ensemble.sessions import connect, connect_to_new_leader, seen
from support import packages
from support.client import exists_or_none, four_letter_command, words_table
from support.expect import equal
from support.wait import free_port, wait_until

COUNTS = ("quorum_size", "learners", "synced_followers", "synced_non_voting_followers", "synced_observers")


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


def counts(member):
    """What mntr tells of the servers that vote and of those that keep up."""
    table = words_table(four_letter_command(member.address, "mntr"), "\t")
    return [table.get(f"zk_{key}") for key in COUNTS]


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


def test_a_server_joins_gets_a_vote_outlives_a_restart_and_leaves(ensemble, only_corral):
    with connect(ensemble.leader()) as client:
        client.create("/before", b"data")
    joiner = ensemble.joiner("observer")
    old = list(ensemble.members[:3])
    join(ensemble, joiner, old)
    serves_as(joiner, (OBSERVING,))
    equal(seen(joiner, "/before"), b"data")
    with connect(joiner) as client:
        client.create("/by-observer")
    leader, follower = ensemble.leader(), next(member for member in old if mode_of(member) == FOLLOWING)
    wait_until(lambda: counts(leader) == ["3", "3", "2", "0", "1"], "all keep up")
    wait_until(lambda: counts(follower) == ["3", None, None, None, None], "mntr of a follower knows the quorum alone")
    follower.kill()
    wait_until(lambda: counts(leader) == ["3", "2", "1", "0", "1"], "one is gone")
    ensemble.start()
    wait_until(lambda: counts(leader) == ["3", "3", "2", "0", "1"], "all keep up again")
    ask(old, joining=f"server.4={ensemble.specs[4].replace('observer', 'participant')}")
    serves_as(joiner, (FOLLOWING, LEADING))
    for member in ensemble.members:
        member.kill()
    ensemble.start()
    for member in ensemble.members:
        shows_list_of(member, (1, 2, 3, 4))
        equal(seen(member, "/by-observer"), b"")
    ask(ensemble.members, joining=f"server.4={ensemble.specs[4]}")
    serves_as(joiner, (OBSERVING,))
    equal(len(ask(ensemble.members, leaving="4")), 3)
    shows_list_of(old[0], (1, 2, 3))


def test_a_voter_leaves_and_comes_back(ensemble):
    member = ensemble.followers()[0]
    number, rest = ensemble.number(member), [one for one in ensemble.members if one is not member]
    equal(len(ask(ensemble.members, leaving=str(number))), 2)
    with connect(rest[0]) as client:
        client.create("/meanwhile")
    if ensemble.is_corral:
        wait_until(lambda: mode_of(member) is None, "it has no leader")
        for count in (1, 2):
            told = lambda count=count: member.log().count("not a member of the ensemble: stop it") >= count  # noqa: E731
            wait_until(told, "its log says why it serves no client")
            member.kill()
            member.launch()
    ask(rest, joining=f"server.{number}={ensemble.specs[number]}")
    serves_as(member, (FOLLOWING, LEADING))
    equal(seen(member, "/meanwhile"), b"")
    shows_list_of(member, (1, 2, 3))


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


def test_kazoo_changes_the_list(ensemble):
    packages.need_modules("kazoo")
    from kazoo.client import KazooClient
    from kazoo.exceptions import BadVersionError, NewConfigNoQuorumError

    ensemble.joiner("observer").launch()
    client = KazooClient(ensemble.addresses(), timeout=60, auth_data=[("digest", "super:secret")])
    client.start()
    try:
        changed = threading.Event()
        client.get(CONFIG, watch=lambda _: changed.set())
        data, stat = client.reconfig(joining=f"server.4={ensemble.specs[4]}", leaving=None, new_members=None)
        equal(len(lines_and_version(data.decode())[0]), 4)
        assert changed.wait(60), "the watch fires"
        with pytest.raises(BadVersionError):
            client.reconfig(joining=None, leaving="4", new_members=None, from_config=stat.mzxid - 1)
        three = ",".join(f"server.{number}={ensemble.specs[number]}" for number in (1, 2, 3))
        data, _ = client.reconfig(joining=None, leaving=None, new_members=three, from_config=stat.mzxid)
        equal(len(lines_and_version(data.decode())[0]), 3)
        nowhere = ",".join(f"server.{number}=127.0.0.1:{free_port()}:{free_port()};{free_port()}" for number in (5, 6, 7, 8))
        with pytest.raises(NewConfigNoQuorumError):
            client.reconfig(joining=nowhere, leaving=None, new_members=None)
    finally:
        client.stop()
        client.close()


def at_another_port(spec):
    """What stands behind `server.N=`, with a free port for the other servers."""
    host, _, rest = spec.split(":", 2)
    return f"{host}:{free_port()}:{rest}"


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_a_server_moves_while_it_runs(ensemble, only_corral):
    leader = ensemble.leader()
    moved, other = ensemble.followers()
    number, (host, port) = ensemble.number(moved), moved.address
    spec, next_port = at_another_port(ensemble.specs[number]), free_port()
    spec = f"{spec.split(';')[0]};{host}:{next_port}"
    with connect(moved) as stays:
        lines = ask(ensemble.members, joining=f"server.{number}={spec}")
        wait_until(lambda: moved.log().count("change its configuration accordingly") == 2, "its log says what to do")
        # Clients of before go on, new ones find it at the new port alone, and the other servers at both of theirs.
        equal(stays.create("/moved"), "/moved")
    equal([listens(at) for at in (port, next_port, int(spec.split(":")[1]))], [False, True, True])
    moved.address = (host, next_port)
    conf = four_letter_command(moved.address, "conf")
    assert f"clientPort={next_port}\n" in conf, conf
    # It is found by who starts again with a file of before, too, and makes up a majority.
    other.kill()
    with connect_to_new_leader([leader, moved]) as client:
        client.create("/with-it")
    other.launch()
    serves_as(other, (FOLLOWING, LEADING))
    leader.kill()
    with connect_to_new_leader([moved, other]) as client:
        client.create("/by-two")
    for member in (moved, other):
        with connect(member) as client:
            client.sync()
            equal([client.get(path)[0] for path in ("/with-it", "/by-two")], [b"", b""])
            equal(lines_and_version(read(client)[0])[0], lines)
    leader.launch()
    # Back to where its own file says.
    ask(ensemble.members, joining=f"server.{number}={ensemble.specs[number]}")
    wait_until(lambda: listens(port) and not listens(next_port), "it is back")
    moved.address = (host, port)
    moved.kill()
    moved.launch()
    serves_as(moved, (FOLLOWING, LEADING))


def test_all_move_by_their_files(ensemble, only_corral):
    old = ask(ensemble.members)
    for member in ensemble.members:
        member.kill()
    ensemble.specs = {number: at_another_port(spec) for number, spec in ensemble.specs.items()}
    servers = {f"server.{number}": spec for number, spec in ensemble.specs.items()}
    for number, member in enumerate(ensemble.members, 1):
        configure(member, number, ensemble.lines | servers)
    # The list in their data says otherwise, and is found wrong.
    ensemble.start()
    with connect_to_new_leader(ensemble.members) as client:
        equal(lines_and_version(read(client)[0])[0], old)
    lines = [f"{server}={spec}" for server, spec in servers.items()]
    equal(ask(ensemble.members, joining=",".join(lines)), lines)


def test_all_move_and_each_file_tells_of_its_own_server_alone(ensemble, only_corral):
    before = {f"server.{number}": spec for number, spec in ensemble.specs.items()}
    for number, member in enumerate(ensemble.members, 1):
        ensemble.specs[number] = at_another_port(ensemble.specs[number])
        lines = ask(ensemble.members, joining=f"server.{number}={ensemble.specs[number]}")
        wait_until(lambda: "change its configuration accordingly" in member.log(), "its log says what to do")
    for number, member in enumerate(ensemble.members, 1):
        file = member.directory / "data" / "SERVERS"
        wait_until(lambda: file.exists() and file.read_text().splitlines()[:3] == lines, "it is remembered")
        configure(member, number, ensemble.lines | before | {f"server.{number}": ensemble.specs[number]})
    for member in ensemble.members:
        member.kill()
    ensemble.start()
    with connect_to_new_leader(ensemble.members) as client:
        client.create("/found")
        equal(lines_and_version(read(client)[0])[0], lines)
    for member in ensemble.members:
        assert "the membership says" not in member.log(), member.log_tail()


def test_a_server_that_moves_again_and_again_is_found(ensemble, only_corral):
    """More often than it can listen, and back."""
    leader = ensemble.leader()
    moved, other = ensemble.followers()
    number = ensemble.number(moved)
    for place in [*(at_another_port(ensemble.specs[number]) for _ in range(5)), ensemble.specs[number]]:
        ask([leader, other], joining=f"server.{number}={place}")
        other.restart()
        serves_as(other, (FOLLOWING, LEADING))
        serves_as(moved, (FOLLOWING, LEADING))
    assert "it listens at 4 addresses already" in moved.log(), moved.log_tail()
