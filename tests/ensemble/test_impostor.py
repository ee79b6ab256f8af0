"""An attacker on this host that reaches the ports of the servers: with a shared secret, and as far as it goes without.

The attacker speaks bytes. It learns the version from a rejection, so that it attacks other builds, too. Unless a test says otherwise no
connection between servers may end, no other server may lead, and every write of a client beside it must be answered. What rejections
tell, strangers and many handshakes are tested in src/net/peers/tests.
"""

import re
import socket
import struct
import subprocess
import threading

import pytest

from ensemble.cluster import CALM, Ensemble, share_secret
from ensemble.sessions import connect, root
from support.expect import equal
from support.server import binary
from support.snapshot_files import crc32c
from support.wait import wait_until

ANSWER_BYTES = 28
WELCOME = 0
RAFT = 1
TERM_MAX = 2**31 - 1
LIMIT_S = 60
# No leader may change here.
STEADY = {"ensemble.election_ms": 2500}
ENDS = ("the connection from the peer", "the connection to the peer", "leadership changed", "panicked")


def sealed(data):
    return data + struct.pack("<I", crc32c(data))


class WithSecret(Ensemble):
    """Servers that share a secret."""

    def __init__(self, shards):
        super().__init__("corral", shards=shards, settings=CALM | STEADY)
        text = "0123456789abcdef" * 4
        for member in self.members:
            share_secret(member, text)


@pytest.fixture(scope="module", params=("with_secret", "without_secret"))
def new_ensemble(request, shards, only_corral):
    return WithSecret(shards) if request.param == "with_secret" else Ensemble("corral", shards=shards, settings=CALM | STEADY)


def has_secret(ensemble):
    return "ensemble.secret_file" in ensemble.members[0].settings


def port_of(ensemble, member):
    return int(ensemble.specs[ensemble.number(member)].split(":")[1])


def handshake(version, sender, to, generation=0, incarnation=7, cluster=b"corral", token=bytes(7)):
    name = cluster.ljust(62, b"\0")
    fields = struct.pack("<HBBQQB", version, sender, to, generation, incarnation, len(cluster))
    return sealed(b"cRrL" + fields + name + token)


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


def version_of(port):
    link, told = knock(port, handshake(0xFFFF, 1, 2))
    link.close()
    return struct.unpack_from("<H", told, 4)[0]


def is_welcome(told):
    return len(told) == ANSWER_BYTES and told[:4] == b"cRaN" and told[6] == WELCOME


def vote(sender, to, term):
    """A candidate of that term, whose log is the longest, and whom a leader's lease does not stop."""
    return struct.pack("<BBQQQBQQQQ", 1, 4, sender, to, term, 2, 2**40, term, 0, 0)


def frame(sequence, payload, kind=RAFT):
    head = struct.pack("<IBQ", len(payload), kind, sequence)
    return head + struct.pack("<I", crc32c(head + payload)) + payload


class Beside:
    """A client that writes while something happens to the servers, and what they log meanwhile."""

    def __init__(self, ensemble, name):
        self.ensemble, self.leader = ensemble, ensemble.leader()
        self.top = root(ensemble, name)
        self.logged = {member: len(member.log()) for member in ensemble.members}
        self.paths, self.failures, self.over = [], [], False
        self.client = connect(ensemble.followers()[0])
        self.thread = threading.Thread(target=self.write, daemon=True)

    def write(self):
        while not self.over:
            try:
                self.paths.append(self.client.create(f"{self.top}/{len(self.paths)}"))
            except Exception as failure:  # noqa: BLE001
                self.failures.append(repr(failure))
                return

    def __enter__(self):
        self.thread.start()
        wait_until(lambda: self.paths, "the client writes")
        return self

    def __exit__(self, kind, *_):
        done = len(self.paths)
        if kind is None:
            wait_until(lambda: len(self.paths) > done + 10 or self.failures, "the client writes on")
        self.over = True
        self.thread.join(LIMIT_S)

    def new_lines(self, member):
        return member.log()[self.logged[member] :].splitlines()

    def check(self):
        """Nothing happened."""
        equal(self.failures, [], "writes")
        assert self.ensemble.leader() is self.leader, "another server leads"
        for member in self.ensemble.members:
            ended = [line for line in self.new_lines(member) if any(words in line for words in ENDS)]
            equal(ended, [], f"server {self.ensemble.number(member)}")
            with connect(member) as client:
                client.sync()
                equal(set(client.children(self.top)), {path.rsplit("/", 1)[1] for path in self.paths})


def pairs(ensemble):
    """Each server with each other one: their numbers, and the port of the second."""
    members = ensemble.members
    for one in members:
        for other in members:
            if one is not other:
                yield ensemble.number(one), ensemble.number(other), port_of(ensemble, other)


def test_forged_frames_and_generations_are_not_delivered(ensemble):
    with Beside(ensemble, "forged") as beside:
        for sender, to, port in pairs(ensemble):
            for generation in (0, 1, 2**63, 2**64 - 2, 2**64 - 1):
                data = handshake(version_of(port), sender, to, generation=generation)
                link, told = knock(port, data)
                assert not is_welcome(told)
                try:
                    for sequence in range(3):
                        link.sendall(frame(sequence, vote(sender, to, TERM_MAX - sequence)))
                except OSError:
                    pass
                link.close()
    beside.check()


def test_a_forged_term_leaves_the_ensemble_with_a_leader(ensemble):
    """The attacker takes the place of a server that does not run, which it can without a secret, and speaks for it."""
    away = ensemble.followers()[0]
    number = ensemble.number(away)
    away.kill()
    leader = ensemble.leader()
    others = [member for member in ensemble.members if member is not away]
    for term in (TERM_MAX, 2**21, 2**32, 2**64 - 1):
        for member in others:
            to, port = ensemble.number(member), port_of(ensemble, member)

            def spoken(to=to, port=port, term=term):
                link, told = knock(port, handshake(version_of(port), number, to, incarnation=term))
                try:
                    if is_welcome(told):
                        link.sendall(frame(0, vote(number, to, term)))
                        link.recv(1)
                    return is_welcome(told) or has_secret(ensemble)
                except OSError:
                    return True
                finally:
                    link.close()

            wait_until(spoken, "the attacker is heard")
    for member in others:
        lines = [line for line in member.log().splitlines() if "is implausible" in line]
        assert lines or has_secret(ensemble), "the log tells of the term"
    with connect(leader) as client:
        client.set("/", b"")
    assert ensemble.leader() is leader, "another server leads"
    ensemble.start()
    for member in ensemble.members:
        member.kill()
    ensemble.start()
    with connect(ensemble.leader()) as client:
        client.set("/", b"")


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


def test_forged_entries_and_snapshots_stop_no_server(ensemble):
    """An entry that no server can read would stop each server at each start, and a snapshot of what is committed empties a log."""
    if has_secret(ensemble):
        pytest.skip("without the secret no connection is taken for a server")
    top = root(ensemble, "forged")
    away = ensemble.followers()[0]
    others = [member for member in ensemble.members if member is not away]
    for member in others:
        with connect(member) as client:
            client.create(f"{top}/{ensemble.number(member)}", b"kept")
    number = ensemble.number(away)
    away.kill()
    for round_number, forged in enumerate(("entry", "snapshot")):
        for member in others:
            to, port, behind = ensemble.number(member), port_of(ensemble, member), last_entry(member)
            term = behind[0] + 1000 * (round_number + 1)
            if forged == "entry":
                said = [append(number, to, term, behind, b"garbage!")]
            else:
                said = [snapshot(number, to, term, index) for index in range(max(1, behind[1] - 30), behind[1] + 1)]

            def spoken(to=to, port=port, said=said):
                link, told = knock(port, handshake(version_of(port), number, to))
                try:
                    if is_welcome(told):
                        for sequence, one in enumerate(said):
                            link.sendall(frame(sequence, one))
                        link.shutdown(socket.SHUT_WR)
                        while link.recv(1 << 16):
                            pass
                    return is_welcome(told)
                except OSError:
                    return True
                finally:
                    link.close()

            wait_until(spoken, "the attacker is heard")
        equal([member.process.poll() for member in others], [None, None], f"servers after a forged {forged}")
    ensemble.start()
    for member in ensemble.members:
        member.kill()
    ensemble.start()
    for member in ensemble.members:
        with connect(member) as client:
            client.sync()
            equal(len(client.children(top)), 2, "what was acknowledged")


def test_a_server_without_the_secret_is_refused(ensemble):
    if not has_secret(ensemble):
        pytest.skip("these servers share no secret")
    member = ensemble.followers()[0]
    member.kill()
    kept = (member.directory / "secret").read_text().strip()
    share_secret(member, "y" * 40)
    begin = len(member.log())
    member.launch()
    wait_until(lambda: "does not accept this server's secret" in member.log()[begin:], "its log tells why")
    others = [one for one in ensemble.members if one is not member]
    wait_until(lambda: all("does not hold this ensemble's secret" in one.log() for one in others), "the others' logs tell why")
    member.kill()
    share_secret(member, kept)
    ensemble.start()


def test_a_secret_that_others_can_read_is_refused_at_the_start(ensemble):
    if not has_secret(ensemble):
        pytest.skip("these servers share no secret")
    member = ensemble.followers()[0]
    member.kill()
    path = member.directory / "secret"
    path.chmod(0o644)
    begin = len(member.log())
    member.launch()
    wait_until(lambda: member.process.poll() is not None, "it ends")
    assert "others than its owner may use it (mode 0644); chmod 600" in member.log()[begin:], member.log()[begin:]
    path.chmod(0o600)
    ensemble.start()
