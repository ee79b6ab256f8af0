"""Servers move to other addresses by reconfig or by their files. Each test has an ensemble of three of its own."""

import socket

import pytest

from ensemble.cluster import FOLLOWING, LEADING, configure
from ensemble.config import ask, lines_and_version, read, serves_as, shows_list_of
from ensemble.sessions import connect, connect_to_new_leader
from support.client import four_letter_command
from support.expect import equal
from support.wait import free_port, wait_until

pytestmark = pytest.mark.usefixtures("only_corral")


@pytest.fixture
def ensemble(own_ensemble):
    for member in own_ensemble.members:
        shows_list_of(member, own_ensemble.specs)
    return own_ensemble


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


def test_all_move_by_their_files(ensemble):
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


def test_a_server_that_moves_again_and_again_is_found(ensemble):
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
    moved = ensemble.followers()[0]
    number, next_port = ensemble.number(moved), free_port()
    spec = f"{ensemble.specs[number].split(';')[0]};{next_port}"
    ask(ensemble.members, joining=f"server.{number}={spec}")
    wait_until(lambda: listens(next_port), "clients find it at the new port")
    moved.stop()
    moved.launch()
    serves_as(moved, (FOLLOWING, LEADING))
    wait_until(lambda: f"clients find this one at port {next_port}" in moved.log(), "it says so")
    assert not listens(next_port), "its file says where it listens"
