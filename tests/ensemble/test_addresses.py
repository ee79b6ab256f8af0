"""Where servers of an ensemble listen, and names that do not resolve."""

import os
import socket
import subprocess

import pytest

from ensemble import config
from ensemble.cluster import CALM, Ensemble, configure, says, share_secret
from ensemble.sessions import connect, root, seen
from support import jute, unshare
from support.client import Client, Refused, four_letter_command
from support.expect import equal
from support.wait import free_port, wait_until

HOSTS, LATE, NEVER = "/etc/hosts", "late.corral.invalid", "never.corral.invalid"
UNRESOLVED = "does not resolve yet"
READ_BY_IPV4 = ((jute.ALL, "ip", "127.0.0.1"),)
pytestmark = pytest.mark.usefixtures("only_corral")


@pytest.fixture
def own(shards):
    """An ensemble of the test's own, not started, whose servers may be on several hosts."""
    made = Ensemble("corral", shards=shards, settings={**CALM, "ensemble.allow_plaintext": "true"})
    for member in made.members:
        share_secret(member, "x" * 44)
    yield made
    made.dispose()


@pytest.fixture
def hosts(tmp_path):
    """A file of this thread, and of what it starts, in the place of /etc/hosts."""
    if os.geteuid() != 0:
        pytest.skip("a mount needs root: run it under unshare --mount --map-root-user")
    with unshare.own(unshare.MOUNTS):
        path = tmp_path / "hosts"
        path.write_text("127.0.0.1 localhost\n")
        for command in (["mount", "--make-rprivate", "/"], ["mount", "--bind", path, HOSTS]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"no mounts of its own can be made: {done.stderr.strip()}")
        yield path


@pytest.fixture
def ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"this host has no IPv6: {error}")


def respecify(ensemble, specs, **lines):
    """Gives the servers of these numbers other lines `server.N`, and all of them more lines."""
    ensemble.specs |= specs
    lines |= {f"server.{number}": spec for number, spec in ensemble.specs.items()}
    for number, member in enumerate(ensemble.members, 1):
        configure(member, number, lines)


def is_ok(address):
    try:
        return four_letter_command(address, "ruok") == "imok"
    except OSError:
        return False


def test_a_name_that_never_resolves_keeps_no_majority_from_serving(own):
    """On the very first start, where none of the three has data."""
    first, second, _ = own.members
    respecify(own, {3: f"{NEVER}:{free_port()}:{free_port()}"})
    first.launch()
    second.launch()
    top = root(own, "majority")
    equal([seen(member, top) for member in (first, second)], [b"", b""])
    assert any("bootstrapping a new ensemble without them" in member.log() for member in (first, second)), first.log_tail()


def test_a_server_serves_as_soon_as_its_own_name_resolves(own, hosts):
    """Its name for the others, and that for clients."""
    first, second, third = own.members
    respecify(own, {3: f"{LATE}:{free_port()}:{free_port()}:participant;{LATE}:{third.address[1]}"})
    for member in own.members:
        member.launch()
    says(third, UNRESOLVED)
    equal(third.stop(), 0, "exit code")
    third.launch()
    says(third, UNRESOLVED, times=2)
    with hosts.open("a") as file:
        file.write(f"127.0.0.1 {LATE}\n")
    wait_until(third.is_serving, "it serves")
    equal(seen(third, root(own, "late")), b"")
    says(third, "resolves now")
    equal(third.log().count(UNRESOLVED), 2, "one line a start")


def test_a_port_without_an_address_is_open_to_ipv4_and_ipv6(own, ipv6):
    """The ports for clients and for the other servers, which reach each other by IPv6 alone."""
    specs = {n: f"[::1]:{free_port()}:{free_port()}:participant;{member.address[1]}" for n, member in enumerate(own.members, 1)}
    respecify(own, specs, quorumListenOnAllIPs="true")
    own.start()
    top = root(own, "both")
    for number, member in enumerate(own.members, 1):
        (_, port), path = member.address, f"{top}/{number}"
        with connect(member) as four, Client(("::1", port)) as six:
            four.create(path, b"x", acl=READ_BY_IPV4)
            equal(four.get(path)[0], b"x")
            six.sync()
            with pytest.raises(Refused, match=str(jute.NO_AUTH)):
                six.get(path)
            lines = four_letter_command(member.address, "cons")
            assert " /127.0.0.1:" in lines and "[0:0:0:0:0:0:0:1]:" in lines and "ffff" not in lines, lines
            text, _ = config.read(four)
            assert f"server.{number}=[0:0:0:0:0:0:0:1]" in text and f";0.0.0.0:{port}" in text, text


def test_a_plain_zoo_cfg_serves_both_families(own, ipv6):
    """The port alone, and the addresses that a file states."""
    member, every = own.members[0], ["127.0.0.1", "127.0.0.2", "::1"]
    _, port = member.address

    def answers():
        return [host for host in every if is_ok((host, port))]

    for address, expect in ((None, every), ("0.0.0.0", every[:2]), ("127.0.0.1", every[:1]), ("::1", every[2:])):
        configure(member, 1, {"clientPort": port, **({"clientPortAddress": address} if address else {})})
        member.launch()
        wait_until(answers, "it serves")
        equal(answers(), expect, f"clientPortAddress={address}")
        equal(member.stop(), 0, "exit code")
