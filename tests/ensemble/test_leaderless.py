"""What clients of a server without a leader may rely on.

The ensemble has read-only mode switched on; ZooKeeper's has local sessions besides, without which it gives none.
"""

import pytest

from ensemble.cluster import CALM, Ensemble, mode_of
from ensemble.sessions import connect, root, seen
from support import jute, packages
from support.client import Client, Connection, exists_or_none, four_letter_command, words_table
from support.expect import closes, equal, refuses
from support.wait import wait_until

NOT_READ_ONLY = -119


@pytest.fixture(scope="module")
def new_ensemble(options, shards):
    return Ensemble(options.server, shards=shards, settings={**CALM, "ensemble.hold_ms": 500}, read_only=True)


def alone(ensemble):
    """Kills all members but the first, and waits until that has no leader any more."""
    survivor, *others = ensemble.members
    for other in others:
        other.kill()
    wait_until(lambda: four_letter_command(survivor.address, "isro") == "ro", "the server is read-only")


def test_a_server_without_a_leader_serves_only_readers(ensemble):
    top, survivor = root(ensemble, "readable"), ensemble.members[0]
    equal(seen(survivor, top), b"")
    alone(ensemble)
    silent = Connection(survivor.address)
    closes(Client, survivor.address)
    equal(four_letter_command(survivor.address, "ruok"), "imok", "the port stays open")
    equal(four_letter_command(survivor.address, "srvr").splitlines()[1], "READ-ONLY mode; serving only read-only clients")
    equal(mode_of(survivor), "read-only")
    equal(words_table(four_letter_command(survivor.address, "mntr"), "\t")["zk_server_state"], "read-only")
    # A connection without a request is not closed.
    silent.send_frame(jute.connect_request(10_000, read_only=True))
    assert jute.Reader(silent.frame()[8:]).int64(), "a session that reads"
    silent.drop()
    # A client that has seen more.
    closes(Client, survivor.address, read_only=True, last_zxid=1 << 62)
    reader = Client(survivor.address, read_only=True)
    equal(reader.tail, b"\x01", "it tells that it is read-only")
    equal(reader.get(top)[0], b"")
    refuses(NOT_READ_ONLY, reader.set, top, b"x")
    refuses(NOT_READ_ONLY, reader.sync)
    closes(Client, survivor.address, resume=reader)
    ensemble.start()
    assert reader.is_closed(), "a leader is found"
    for read_only in (True, False):
        with Client(survivor.address, read_only=read_only, resume=reader) as client:
            equal((client.session_id, client.timeout_ms), (0, 0), "the ensemble does not know it")
    with connect(survivor, read_only=True) as client:
        equal(client.tail, b"\0", "now all clients may write")
        client.set(top, b"x")
    equal(four_letter_command(survivor.address, "isro"), "rw")


def test_clients_are_sent_away_and_their_sessions_go_on(ensemble):
    top, survivor = root(ensemble, "outlives"), ensemble.members[0]
    idle, client, watcher = connect(survivor), connect(survivor), connect(survivor)
    client.create(f"{top}/mine", b"", jute.EPHEMERAL)
    watcher.exists("/", watch=True)
    alone(ensemble)
    assert idle.is_closed() and watcher.is_closed() and client.is_closed(), "a client stays where there is no leader"
    # No session goes on here, also not as one that reads: it may live elsewhere.
    closes(Client, survivor.address, resume=idle)
    closes(Client, survivor.address, resume=client, read_only=True)
    ensemble.start()
    moved = connect(survivor, resume=client)
    equal(moved.session_id, client.session_id)
    equal(exists_or_none(moved, f"{top}/mine").ephemeral_owner, client.session_id)
    moved.close()


def test_kazoo_reads_and_goes_over_to_a_server_with_a_leader(ensemble):
    packages.need_modules("kazoo")
    from kazoo.client import KazooClient, KeeperState
    from kazoo.exceptions import NotReadOnlyCallError

    top = root(ensemble, "kazoo")
    equal(seen(ensemble.members[0], top), b"")
    alone(ensemble)
    kazoo = KazooClient(hosts=ensemble.addresses(), read_only=True, timeout=10)
    kazoo.start()
    try:
        wait_until(lambda: kazoo.client_state == KeeperState.CONNECTED_RO, "kazoo is connected read-only")
        equal(kazoo.get(top)[0], b"")
        with pytest.raises(NotReadOnlyCallError):
            kazoo.create(f"{top}/x")
        ensemble.start()
        wait_until(lambda: kazoo.client_state == KeeperState.CONNECTED, "kazoo finds a leader")
        equal(kazoo.retry(kazoo.create, f"{top}/x"), f"{top}/x")
    finally:
        kazoo.stop()
        kazoo.close()
