"""A server whose state differs from the others': it serves no client until another server's snapshot has taken its place, in a later
process too."""

import time

import pytest

from ensemble.cluster import CALM, Ensemble
from ensemble.sessions import connect, root, seen
from support.client import Closed, four_letter_command
from support.expect import equal
from support.wait import wait_until

LIMIT_S = 60
ATTEMPTS_MAX = 10
MIB = 1 << 20
# More than a leader holds in memory for servers that lag.
AHEAD_WRITES, AHEAD_BYTES = 12, 500_000
CANNOT_HEAL = "no server that runs has all entries and sound data"
OPEN = [(31, "world", "anyone")]


pytestmark = pytest.mark.usefixtures("only_corral")


def snapshots(member):
    return sorted((member.directory / "data").glob("image-*.img"))


def mark(member):
    return member.directory / "data" / "DISTRUSTED"


def change_bytes(path, old, new):
    content = path.read_bytes()
    at = content.index(old)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(new)


def data_of(top):
    return b"the data of a znode that is changed behind the server's back: " + top.encode()


def make_differ(ensemble, top):
    """A follower whose snapshot holds other data than the others', which a change then copies: its digest differs."""
    with connect(ensemble.leader()) as client:
        client.set(top, data_of(top))
    victim = ensemble.followers()[0]
    # A majority may have the data without it, and then they are not in the snapshot that it writes when it is stopped.
    equal(seen(victim, top), data_of(top))
    equal(victim.stop(), 0, "exit code")
    victim.start()
    wait_until(lambda: victim in ensemble.followers(), "it follows")
    path = snapshots(victim)[-1]
    change_bytes(path, data_of(top), b"THE")
    with connect(ensemble.leader()) as client:
        client.set_acl(top, OPEN)
    return victim, path


def test_a_server_whose_digest_differs_and_that_is_killed_does_not_serve_that_state_again(ensemble):
    """Its snapshot is whole by its checksums: nothing but the mark tells the next process."""
    for attempt in range(ATTEMPTS_MAX):
        top = root(ensemble, f"killed{attempt}")
        victim, path = make_differ(ensemble, top)
        end = time.monotonic() + LIMIT_S
        while not mark(victim).exists():
            assert time.monotonic() < end, victim.log_tail()
        victim.kill()
        if mark(victim).exists():
            break
        # It has healed already.
        ensemble.start()
    else:
        pytest.skip(f"it heals before it is killed, {ATTEMPTS_MAX} times")
    if path.exists():
        change_bytes(path, b"THE" + data_of(top)[3:], data_of(top))
    begin = len(victim.log())
    victim.launch()

    def serves():
        try:
            with connect(victim) as client:
                return client.get(top)[0] == data_of(top)
        except (Closed, OSError):
            return False

    wait_until(serves, "it serves")
    said = victim.log()[begin:]
    distrusts, heals = said.find("the state cannot be trusted"), said.find("is replaced by another server's snapshot")
    assert 0 <= distrusts < heals, said
    assert said.find("session") < 0 or said.find("session") > distrusts, said
    wait_until(lambda: not mark(victim).exists(), "the mark goes")
    begin = len(victim.log())
    equal(victim.stop(), 0, "exit code")
    victim.start()
    assert "cannot be trusted" not in victim.log()[begin:], "it trusts itself again"


def test_the_only_server_with_the_newest_entries_is_not_restarted_for_ever(ensemble):
    """It is distrusted since before its start, the server that runs beside it lacks entries that its memory does not hold, and it may
    give no snapshot. It waits, says so, and heals when the third is back."""
    own = Ensemble("corral", shards=ensemble.members[0].shards, settings={**CALM, "ensemble.election_ms": 300, "ensemble.log_cache_bytes": MIB})
    try:
        own.start()
        top = root(own, "alone")
        late, away = own.followers()
        victim = own.leader()
        late.stop()
        with connect(victim) as client:
            for number in range(AHEAD_WRITES):
                client.create(f"{top}/{number}", b"x" * AHEAD_BYTES)
        with connect(away) as client:
            client.sync()
        for member in (victim, away):
            member.stop()
        mark(victim).write_text("another digest\n")
        begin = len(victim.log())
        for member in (victim, late):
            member.launch()
        for word in ("srvr", "mntr"):
            wait_until(lambda word=word: says(victim, word), f"{word} tells the reason")
        wait_until(lambda: "a new start did not change that" in victim.log()[begin:], "the log tells the reason")
        equal(victim.process.poll(), None, "exit code")
        away.launch()
        wait_until(lambda: "is replaced by another server's snapshot" in victim.log()[begin:], "it heals")
        for member in own.members:
            wait_until(member.is_serving, "it serves")
            with connect(member) as client:
                client.sync()
                equal(len(client.children(top)), AHEAD_WRITES, "acknowledged writes")
        wait_until(lambda: not mark(victim).exists(), "the mark goes")
    finally:
        own.dispose()


def says(member, word):
    """Whether the server answers this word with the reason."""
    assert member.process.poll() is None, member.log_tail()
    try:
        return CANNOT_HEAL in four_letter_command(member.address, word)
    except OSError:
        return False
