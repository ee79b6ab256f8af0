"""Servers whose states differ although every checksum matches: digests of the tree find that, and the wrong server heals."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ensemble.cluster import CALM, REPLACED, Ensemble, mark_of
from ensemble.sessions import connect, root, seen
from support import snapshot_files
from support.client import four_letter_command, words_table
from support.expect import equal
from support.wait import wait_until

# So much more data that a test sees the server while it heals.
BULK, BULK_BYTES = 24, 900_000
DIFFERS = "and on a majority: the state cannot be trusted, this server serves no client"
WORDS = "not currently serving requests: its data differ from those of the other servers"
SERVES_AGAIN = "this server serves again"
# More than a leader holds in memory for servers that lag.
MIB, AHEAD_WRITES, AHEAD_BYTES = 1 << 20, 12, 500_000
pytestmark = pytest.mark.usefixtures("only_corral")


def told(member):
    """What `mntr` tells."""
    return words_table(four_letter_command(member.address, "mntr"), "\t")


@contextmanager
def repeated(ask):
    """Asks again and again in a thread, until the body is over. Gives the answers."""
    answers, over = [], threading.Event()

    def run():
        while not over.is_set():
            answers.append(ask())

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        try:
            yield answers
        finally:
            over.set()
    done.result()


def words_of(member):
    """What the server answers to `srvr` and to `mntr`, as far as it answers."""
    try:
        return [four_letter_command(member.address, word) for word in ("srvr", "mntr")]
    except OSError:
        return ["", ""]


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
    forged(ensemble, top, victim, digest_too=True)
    begin = len(victim.log())
    with connect(others[0]) as client:
        # A write that fails ends this test: the servers that are right go on.
        with repeated(lambda: client.set(f"{top}/busy", b"")), repeated(lambda: words_of(victim)) as words:
            victim.launch()
            wait_until(mark_of(victim).exists, "the server marks its state")
            wait_until(lambda: SERVES_AGAIN in victim.log()[begin:], "the server heals")
    said = victim.log()[begin:]
    assert DIFFERS in said and said.index(DIFFERS) < said.index(SERVES_AGAIN), said[-3000:]
    assert "the digest of the tree behind log entry" in said, said[-3000:]
    for word, answers in zip(("srvr", "mntr"), zip(*words, strict=True), strict=True):
        assert any(WORDS in text for text in answers), (word, answers[-1])
    wait_until(victim.is_serving, "the healed server serves")
    assert int(told(victim)["zk_digest_mismatches_count"]) >= 1, told(victim)
    with connect(victim) as client:
        client.sync()
        equal(client.get(f"{top}/one")[0], right(top), "at the healed server")
        for _ in range(260):
            client.set(f"{top}/busy", b"")
    for member in others:
        assert "serves no client" not in member.log(), member.log_tail()
        equal(told(member)["zk_serving"], "1")
    note(f"{same_digests(ensemble.members)} digests compared")
    # The snapshot that it wrote of the right state: what it holds is right after a restart, too.
    victim.stop()
    begin = len(victim.log())
    victim.start()
    equal(seen(victim, f"{top}/one"), right(top), "after another start")
    assert "digest" not in victim.log()[begin:], victim.log_tail()


def test_a_snapshot_whose_digest_is_not_its_znodes_is_not_served(ensemble):
    top, victim = root(ensemble, "stored"), ensemble.followers()[0]
    stored, found = forged(ensemble, top, victim, digest_too=False)
    begin = len(victim.log())
    victim.start()
    assert f"the digest of its znodes is {found}, and {stored} was stored" in victim.log()[begin:], victim.log()[begin:]
    assert int(told(victim)["zk_digest_mismatches_count"]) >= 1, "a difference found at the start is not counted"
    equal(seen(victim, f"{top}/one"), right(top))


def test_a_marked_state_is_not_served_by_the_next_process(ensemble):
    """The snapshot is whole by its checksums: nothing but the mark tells."""
    top, victim = root(ensemble, "mark"), ensemble.followers()[0]
    equal(seen(victim, top), b"")
    victim.kill()
    mark_of(victim).write_text("another digest\n")
    begin = len(victim.log())
    victim.start()
    equal(seen(victim, top), b"")
    said = victim.log()[begin:]
    assert 0 <= said.find("the state cannot be trusted") < said.find(REPLACED), said
    wait_until(lambda: not mark_of(victim).exists(), "the mark goes")


def test_the_only_server_with_the_newest_entries_gives_them_from_its_disk(run_ensemble, shards):
    """The server that runs beside it lacks entries that its memory does not hold. It reads them from its log, hands leadership over, and heals."""
    own = run_ensemble(Ensemble("corral", shards=shards, settings={**CALM, "ensemble.election_ms": 300, "ensemble.log_cache_bytes": MIB}))
    late, away = own.followers()
    victim, top = own.leader(), root(own, "alone")
    late.stop()
    with connect(victim) as client:
        for number in range(AHEAD_WRITES):
            client.create(f"{top}/{number}", b"x" * AHEAD_BYTES)
    equal(seen(away, f"{top}/0"), b"x" * AHEAD_BYTES)
    for member in (victim, away):
        member.stop()
    mark_of(victim).write_text("another digest\n")
    begin = len(victim.log())
    for member in (victim, late):
        member.launch()
    wait_until(lambda: REPLACED in victim.log()[begin:], "it heals")
    for member in (victim, late):
        wait_until(member.is_serving, "it serves")
        equal(seen(member, f"{top}/{AHEAD_WRITES - 1}"), b"x" * AHEAD_BYTES)
    wait_until(lambda: not mark_of(victim).exists(), "the mark goes")
