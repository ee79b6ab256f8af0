"""An attacker on this host that reaches the ports of servers without a shared secret, and speaks for one that does not run.

The attacker speaks bytes. It learns the version from a rejection, so that it attacks other builds, too. Secrets, generations, strangers and
many handshakes are tested in src/net/peers/tests.
"""

import re
import socket
import struct
import subprocess

import pytest

from ensemble.cluster import CALM, Ensemble
from ensemble.sessions import connect, root, seen
from support.expect import equal
from support.server import binary
from support.snapshot_files import crc32c
from support.wait import wait_until

ANSWER_BYTES, WELCOME, RAFT = 28, 0, 1
TERMS = (2**31 - 1, 2**21, 2**32, 2**64 - 1)
LIMIT_S = 60


@pytest.fixture(scope="module")
def new_ensemble(shards, only_corral):
    # No leader may change here.
    return Ensemble("corral", shards=shards, settings={**CALM, "ensemble.election_ms": 2500})


@pytest.fixture
def attacked(ensemble):
    """The number of a server that was killed, the others. At the end all are killed, start again, and have what they had."""
    top, away = root(ensemble, "kept"), ensemble.followers()[0]
    others = [member for member in ensemble.members if member is not away]
    for member in others:
        equal(seen(member, top), b"")
    away.kill()
    yield ensemble.number(away), others
    equal([member.process.poll() for member in others], [None, None], "exit codes after the attack")
    ensemble.start()
    for member in ensemble.members:
        member.kill()
    ensemble.start()
    for member in ensemble.members:
        equal(seen(member, top), b"", "what was acknowledged")


def handshake(version, sender, to, incarnation=7):
    data = b"cRrL" + struct.pack("<HBBQQB", version, sender, to, 0, incarnation, 6) + b"corral".ljust(62, b"\0") + bytes(7)
    return data + struct.pack("<I", crc32c(data))


def knock(port, data):
    """A connection that said this, and the first bytes of what came back."""
    link = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    link.sendall(data)
    told = b""
    try:
        while len(told) < ANSWER_BYTES and (piece := link.recv(ANSWER_BYTES - len(told))):
            told += piece
    except OSError:
        pass
    return link, told


def impersonate(ensemble, number, member, messages, incarnation=7):
    """Says this to a member in the name of the server of that number, as soon as the member welcomes it."""
    to = ensemble.number(member)
    port = int(ensemble.specs[to].split(":")[1])

    def heard():
        link, told = knock(port, handshake(0xFFFF, 1, 2))
        link.close()
        link, told = knock(port, handshake(struct.unpack_from("<H", told, 4)[0], number, to, incarnation))
        try:
            if len(told) < ANSWER_BYTES or told[:4] != b"cRaN" or told[6] != WELCOME:
                return False
            for sequence, message in enumerate(messages):
                link.sendall(frame(sequence, message))
            link.shutdown(socket.SHUT_WR)
            while link.recv(1 << 16):
                pass
            return True
        except OSError:
            return True
        finally:
            link.close()

    wait_until(heard, "the attacker is heard")


def frame(sequence, payload):
    head = struct.pack("<IBQ", len(payload), RAFT, sequence)
    return head + struct.pack("<I", crc32c(head + payload)) + payload


def vote(sender, to, term):
    """A candidate of that term, whose log is the longest, and whom a leader's lease does not stop."""
    return struct.pack("<BBQQQBQQQQ", 1, 4, sender, to, term, 2, 2**40, term, 0, 0)


def append(sender, to, term, behind, payload):
    """One entry behind this one, a term and an index, committed."""
    entry = struct.pack("<IQQBI", 1, term, behind[1] + 1, 0, len(payload)) + payload
    return struct.pack("<BBQQQQQQ", 1, 1, sender, to, term, behind[1], behind[0], behind[1] + 1) + entry


def snapshot(sender, to, term, index):
    """A snapshot that ends there, of an ensemble of three."""
    members = struct.pack("<H3QHHHB", 3, 1, 2, 3, 0, 0, 0, 0)
    return struct.pack("<BBQQQQQ", 1, 10, sender, to, term, index, term) + members


def last_entry(member):
    """Its term and index, as the log has it."""
    shown = subprocess.run([binary(), "log", "dump", member.directory / "data"], capture_output=True, text=True, check=True)
    return [(int(term), int(index)) for term, index in re.findall(r"(?:Entry|Membership): term (\d+), index (\d+)", shown.stdout)][-1]


def test_a_forged_term_leaves_the_ensemble_with_a_leader(ensemble, attacked):
    number, others = attacked
    leader = ensemble.leader()
    for term in TERMS:
        for member in others:
            impersonate(ensemble, number, member, [vote(number, ensemble.number(member), term)], incarnation=term)
    for member in others:
        assert "is implausible" in member.log(), "the log tells of the term"
    with connect(leader) as client:
        client.set("/", b"")
    assert ensemble.leader() is leader, "another server leads"


@pytest.mark.parametrize("forged", ("entry", "snapshot"))
def test_forged_entries_and_snapshots_stop_no_server(forged, ensemble, attacked):
    """An entry that no server can read would stop each server at each start, and a snapshot of what is committed empties a log."""
    number, others = attacked
    for member in others:
        to, behind = ensemble.number(member), last_entry(member)
        term = behind[0] + 1000
        entries = [append(number, to, term, behind, b"garbage!")]
        snapshots = [snapshot(number, to, term, index) for index in range(max(1, behind[1] - 30), behind[1] + 1)]
        impersonate(ensemble, number, member, entries if forged == "entry" else snapshots)
