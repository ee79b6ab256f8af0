"""Servers whose states differ although every checksum matches: digests of the tree find that, and the wrong server heals."""

import threading
import time

import pytest

from ensemble.sessions import connect, root
from support import snapshot_files
from support.client import Closed, Refused, four_letter_command, words_table
from support.expect import equal
from support.wait import wait_until

# So much more data that a test sees the server while it heals.
BULK, BULK_BYTES = 24, 900_000
DIFFERS = "and on a majority: the state cannot be trusted, this server serves no client"
WORDS = "not currently serving requests: its data differ from those of the other servers"
SERVES_AGAIN = "this server serves again"


pytestmark = pytest.mark.usefixtures("only_corral")


def told(member):
    """What `mntr` tells, nothing if it does not answer."""
    try:
        return words_table(four_letter_command(member.address, "mntr"), "\t")
    except OSError:
        return {}


class Words:
    """Asks a server for `srvr` and `mntr` all the time, and keeps what it said."""

    def __init__(self, member):
        self.member, self.said, self.ends = member, set(), threading.Event()
        self.thread = threading.Thread(target=self.ask)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()

    def ask(self):
        while not self.ends.is_set():
            for word in ("srvr", "mntr"):
                try:
                    self.said.add((word, four_letter_command(self.member.address, word)))
                except OSError:
                    pass


class Writing:
    """A client of the servers that are right writes all the time: none of them stops."""

    def __init__(self, member, path):
        self.client, self.path, self.ends, self.longest = connect(member), path, threading.Event(), 0.0
        self.fault, self.thread = None, threading.Thread(target=self.write)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()
        self.client.close()

    def write(self):
        try:
            while not self.ends.is_set():
                start = time.monotonic()
                self.client.set(self.path, b"")
                self.longest = max(self.longest, time.monotonic() - start)
        except (OSError, Closed, Refused) as fault:
            self.fault = fault


def same_digests(members):
    """Waits until all servers tell one digest for one zxid; returns how many they have in common."""
    lines = {}

    def found():
        for member in members:
            lines[member] = dict(line.split(": ") for line in four_letter_command(member.address, "hash").splitlines())
        common = set.intersection(*(set(table) for table in lines.values()))
        return common or None

    common = wait_until(found, "digests of one zxid")
    for zxid in common:
        equal(len({table[zxid] for table in lines.values()}), 1, f"digests at {zxid}")
    return len(common)


def right(top):
    return f"{top}: what was acknowledged".encode()


def forged(ensemble, top, victim, digest_too):
    """Stops a server, changes a znode in its newest snapshot, and with `digest_too` the digest beside it."""
    with connect(ensemble.leader()) as client:
        client.create(f"{top}/busy")
        client.create(f"{top}/one", right(top))
        for number in range(BULK):
            client.create(f"{top}/bulk{number}", bytes([number]) * BULK_BYTES)
        client.sync()
        stat = client.exists(f"{top}/one")
    with connect(victim) as client:
        client.sync()
    victim.stop()
    snapshot = snapshot_files.newest(victim)
    before = snapshot_files.stored_digest(snapshot)
    wrong = right(top).replace(b"acknowledged", b"ACKNOWLEDGED")
    digest = [snapshot_files.digest_of(f"{top}/one", data, stat) for data in (right(top), wrong)]
    snapshot_files.forge(snapshot, right(top), wrong, digest[1] - digest[0] if digest_too else 0)
    return before, (before + digest[1] - digest[0]) % (1 << 64)


def test_a_server_whose_state_differs_stops_serving_and_heals(ensemble, note):
    top, victim = root(ensemble, "differs"), ensemble.followers()[0]
    others = [member for member in ensemble.members if member is not victim]
    before = told(victim).get("zk_digest_mismatches_count")
    forged(ensemble, top, victim, digest_too=True)
    begin = len(victim.log())
    with Writing(others[0], f"{top}/busy") as writing, Words(victim) as words:
        victim.launch()
        wait_until(lambda: SERVES_AGAIN in victim.log()[begin:], "the server heals")
    said = victim.log()[begin:]
    assert DIFFERS in said and said.index(DIFFERS) < said.index(SERVES_AGAIN), said[-3000:]
    assert "the digest of the tree behind log entry" in said, said[-3000:]
    for word in ("srvr", "mntr"):
        assert any(WORDS in text for asked, text in words.said if asked == word), (word, words.said)
    assert writing.fault is None, writing.fault
    wait_until(victim.is_serving, "the healed server serves")
    assert int(told(victim)["zk_digest_mismatches_count"]) >= 1, (before, told(victim))
    with connect(victim) as client:
        client.sync()
        equal(client.get(f"{top}/one")[0], right(top), "at the healed server")
        for _ in range(260):
            client.set(f"{top}/busy", b"")
    for member in others:
        assert "serves no client" not in member.log(), member.log_tail()
        equal(told(member)["zk_serving"], "1")
    common = same_digests(ensemble.members)
    # The snapshot that it wrote of the right state: what it holds is right after a restart, too.
    victim.stop()
    begin = len(victim.log())
    victim.launch()
    wait_until(victim.is_serving, "the healed server serves")
    with connect(victim) as client:
        client.sync()
        equal(client.get(f"{top}/one")[0], right(top), "after another start")
    assert "digest" not in victim.log()[begin:], victim.log_tail()
    note(f"{common} digests compared; longest write meanwhile {writing.longest * 1000:.0f} ms")


def test_a_snapshot_whose_digest_is_not_its_znodes_is_not_served(ensemble):
    top, victim = root(ensemble, "stored"), ensemble.followers()[0]
    stored, found = forged(ensemble, top, victim, digest_too=False)
    begin = len(victim.log())
    victim.launch()
    wait_until(victim.is_serving, "the server serves")
    assert f"the digest of its znodes is {found}, and {stored} was stored" in victim.log()[begin:], victim.log()[begin:]
    assert int(told(victim)["zk_digest_mismatches_count"]) >= 1, "a difference found at the start is not counted"
    with connect(victim) as client:
        client.sync()
        equal(client.get(f"{top}/one")[0], right(top))
