"""Servers join and leave by reconfig, while clients go on. Each test has an ensemble of three of its own."""

import importlib.util
import random
import socket
import subprocess
import threading
import time

import pytest

from ensemble.cluster import FOLLOWING, LEADING, OBSERVING, SUPER, configure, mode_of, pause
from ensemble.config import admin, lines_and_version, read, reconfig
from ensemble.sessions import connect, connect_to_new_leader, seen
from support import jute
from support.client import Closed, Refused, exists_or_none, four_letter_command
from support.expect import equal
from support.server import java_class_path
from support.wait import free_port, wait_until

IN_PROGRESS, NO_QUORUM = -14, -13
JOIN_LIMIT_S = 30
KILL_ROUNDS = 12
# More than a leader is told to remember, in fewer entries than a server in step may lack; and until the change has
# begun.
LAG_WRITES, LAG_BYTES, BEGIN_S = 4, 600_000, 0.3


@pytest.fixture
def ensemble(own_ensemble):
    """Three servers that have their first list. A server that receives it together with a change takes the change for its first list."""
    for member in own_ensemble.members:
        shows_list_of(member, own_ensemble.specs)
    return own_ensemble


def ask(members, **asked):
    """Sends a reconfig to whichever of the members leads; gives the lines of the new list."""
    with connect_to_new_leader(members) as client:
        client.auth("digest", SUPER)
        client.socket.settimeout(JOIN_LIMIT_S)
        text, stat = reconfig(client, **asked)
        equal(stat.mzxid, lines_and_version(text)[1])
        return lines_and_version(text)[0]


def join(ensemble, member, old):
    """Lets a server in that was made with `ensemble.joiner`; `old` are members that may lead."""
    number = ensemble.number(member)
    member.launch()
    lines = ask(old, joining=f"server.{number}={ensemble.specs[number]}")
    assert f"server.{number}={ensemble.specs[number]}" in lines, lines


def serves_as(member, modes):
    wait_until(lambda: mode_of(member) in modes, f"the server is {' or '.join(modes)}", JOIN_LIMIT_S)


def shows_list_of(member, numbers):
    """Waits until the member shows a list of these servers."""

    def shown():
        try:
            with connect(member) as client:
                client.sync()
                return {int(line.split("=")[0].removeprefix("server.")) for line in lines_and_version(read(client)[0])[0]}
        except (Closed, Refused, OSError):
            # Its leader went meanwhile.
            return None

    wait_until(lambda: shown() == set(numbers), f"the list is of {numbers}", JOIN_LIMIT_S)


class Writer(threading.Thread):
    """Creates one znode after the other wherever somebody serves; knows which were acknowledged."""

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
                    client = connect(member, limit_s=1)
                    client.socket.settimeout(5)
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
        client.socket.settimeout(30)
        client.create("/counts")
    equal(seen(joiner, "/counts"), b"")
    ensemble.start()


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


def test_a_server_moves_while_it_runs(ensemble):
    if not ensemble.is_corral:
        pytest.skip("the word in its log is corral's")
    leader = ensemble.leader()
    moved, other = ensemble.followers()
    number, (host, port) = ensemble.number(moved), moved.address
    spec, next_port = at_another_port(ensemble.specs[number]), free_port()
    spec = f"{spec.split(';')[0]};{host}:{next_port}"
    with connect(moved) as stays:
        lines = ask(ensemble.members, joining=f"server.{number}={spec}")
        wait_until(lambda: moved.log().count("change its configuration accordingly") == 2, "its log says what to do", JOIN_LIMIT_S)
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
    wait_until(lambda: listens(port) and not listens(next_port), "it is back", JOIN_LIMIT_S)
    moved.address = (host, port)
    moved.kill()
    moved.launch()
    serves_as(moved, (FOLLOWING, LEADING))


def test_all_move_by_their_files(ensemble):
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper keeps the list in a file of its own")
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


def test_all_move_and_each_file_tells_of_its_own_server_alone(ensemble):
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper keeps the list in a file of its own")
    before = {f"server.{number}": spec for number, spec in ensemble.specs.items()}
    for number, member in enumerate(ensemble.members, 1):
        ensemble.specs[number] = at_another_port(ensemble.specs[number])
        lines = ask(ensemble.members, joining=f"server.{number}={ensemble.specs[number]}")
        wait_until(lambda: "change its configuration accordingly" in member.log(), "its log says what to do", JOIN_LIMIT_S)
    for number, member in enumerate(ensemble.members, 1):
        file = member.directory / "data" / "SERVERS"
        wait_until(lambda: file.exists() and file.read_text().splitlines()[:3] == lines, "it is remembered", JOIN_LIMIT_S)
        configure(member, number, ensemble.lines | before | {f"server.{number}": ensemble.specs[number]})
    for member in ensemble.members:
        member.kill()
    ensemble.start()
    with connect_to_new_leader(ensemble.members) as client:
        client.create("/found")
        equal(lines_and_version(read(client)[0])[0], lines)
    for member in ensemble.members:
        assert "the membership says" not in member.log(), member.log_tail()


def test_a_server_that_moves_again_and_again_is_found(ensemble):
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper is found where it is listed alone")
    leader = ensemble.leader()
    moved, other = ensemble.followers()
    number = ensemble.number(moved)
    home = ensemble.specs[number]
    away = home.replace("127.0.0.1", "192.0.2.1", 1)
    # More often than it can listen, then four times to where it cannot be, and back.
    places = [at_another_port(home) for _ in range(6)] + [at_another_port(away) for _ in range(4)] + [home]
    for place in places:
        ask([leader, other], joining=f"server.{number}={place}")
        other.kill()
        with connect_to_new_leader([leader, moved]) as client:
            client.create(f"/with-it-{places.index(place)}")
        other.launch()
        serves_as(other, (FOLLOWING, LEADING))
        serves_as(moved, (FOLLOWING, LEADING))
    told = moved.log()
    assert "it listens at 4 addresses already" in told and "would cross the network unencrypted" in told, told


def test_a_client_port_that_the_list_knows_otherwise_is_told_at_start(ensemble):
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper writes the list into its file")
    moved = ensemble.followers()[0]
    number, next_port = ensemble.number(moved), free_port()
    spec = f"{ensemble.specs[number].split(';')[0]};{next_port}"
    ask(ensemble.members, joining=f"server.{number}={spec}")
    wait_until(lambda: listens(next_port), "clients find it at the new port", JOIN_LIMIT_S)
    moved.stop()
    moved.launch()
    serves_as(moved, (FOLLOWING, LEADING))
    wait_until(lambda: f"clients find this one at port {next_port}" in moved.log(), "it says so", JOIN_LIMIT_S)
    assert not listens(next_port), "its file says where it listens"


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
        wait_until(lambda: mode_of(member) is None, "it has no leader", JOIN_LIMIT_S)
        for start in range(2):
            told = "not a member of the ensemble: stop it"
            wait_until(lambda: member.log().count(told) > start, "its log says why it serves nobody", JOIN_LIMIT_S)
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
        client.socket.settimeout(JOIN_LIMIT_S)
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
        client.socket.settimeout(30)
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


def test_changes_go_on_while_servers_are_killed(ensemble):
    if not ensemble.is_corral:
        pytest.skip("ZooKeeper is given its files anew at each start")
    join(ensemble, ensemble.joiner("participant"), list(ensemble.members[:3]))
    with connect_to_new_leader(ensemble.members) as client:
        client.create("/load")
    writer = Writer(list(ensemble.members), "/load")
    writer.start()
    draw = random.Random(7)
    for _ in range(KILL_ROUNDS):
        change_something(ensemble, draw)
        # Not all of them serve: some may have left.
        for member in ensemble.members:
            if member not in ensemble.running:
                member.launch()
    wait_until(lambda: settled(ensemble), "all servers have their votes", JOIN_LIMIT_S)
    acknowledged = writer.finish()
    assert len(acknowledged) > KILL_ROUNDS, f"{len(acknowledged)} writes"
    texts = set()
    for member in ensemble.members:
        shows_list_of(member, (1, 2, 3, 4))
        with connect(member) as client:
            client.sync()
            texts.add(read(client)[0])
            equal([path for path in acknowledged if exists_or_none(client, path) is None], [], "lost")
    equal(len(texts), 1, "all show the same list")


def change_something(ensemble, draw):
    """Asks for a change, and kills a server while it is under way. Whether it comes about nobody knows."""
    number = draw.randint(1, 4)
    spec = ensemble.specs[number]
    asked = draw.choice(
        [
            {"leaving": str(number)},
            {"joining": f"server.{number}={spec.replace('participant', 'observer')}"},
            {"joining": ",".join(f"server.{at}={spec}" for at, spec in ensemble.specs.items())},
        ]
    )
    victim = draw.choice(ensemble.members)
    killer = threading.Timer(draw.choice([0, 0.002, 0.01, 0.05]), victim.kill)
    try:
        with connect_to_new_leader(ensemble.members) as client:
            client.auth("digest", SUPER)
            client.socket.settimeout(JOIN_LIMIT_S)
            killer.start()
            reconfig(client, **asked)
    except (Closed, Refused, OSError):
        pass
    killer.join()


def settled(ensemble):
    """Asks for all four with their votes; whether all of them have them."""
    everybody = ",".join(f"server.{at}={spec}" for at, spec in ensemble.specs.items())
    try:
        with connect_to_new_leader(ensemble.members) as client:
            client.auth("digest", SUPER)
            client.socket.settimeout(JOIN_LIMIT_S)
            reconfig(client, members=everybody)
    except (Closed, Refused, OSError):
        return False
    return sorted(str(mode) for mode in ensemble.modes().values()) == [FOLLOWING] * 3 + [LEADING]


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
        client.socket.settimeout(JOIN_LIMIT_S)
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
        time.sleep(BEGIN_S)
        # What was on its way to it is lost with it.
        victim.kill()
        victim.launch()
        with connect_to_new_leader([leader, victim]) as second:
            second.socket.settimeout(JOIN_LIMIT_S)
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
    client = KazooClient(ensemble.addresses(), auth_data=[("digest", "super:secret")])
    client.start()
    try:
        changed = threading.Event()
        client.get("/zookeeper/config", watch=lambda _: changed.set())
        data, stat = client.reconfig(joining=f"server.4={ensemble.specs[4]}", leaving=None, new_members=None)
        equal(len(lines_and_version(data.decode())[0]), 4)
        assert changed.wait(10), "the watch fires"
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
            raise AssertionError("a majority that nobody can reach")
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
    equal(told.count(f"server.4={ensemble.specs[4]}"), 2, told)
    assert "NoAuth" in told or "Insufficient permission" in told or "not valid" in told, told
    shows_list_of(ensemble.members[0], (1, 2, 3))
