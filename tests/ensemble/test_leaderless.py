"""What clients of a server without a leader may rely on. Each test stops two servers of three and starts them again.

The ensemble has read-only mode switched on; ZooKeeper's has local sessions besides, without which it gives none.
"""

import time

import pytest

from ensemble.cluster import Ensemble, mode_of
from ensemble.sessions import RECONNECT_LIMIT_S, connect, root
from support import jute
from support.client import Client, Closed, Connection, exists_or_none, four_letter_command, words_table
from support.expect import equal, refuses
from support.wait import wait_until

NOT_READ_ONLY = -119
AT_ONCE_S = 1


@pytest.fixture(scope="module")
def new_ensemble(options, shards):
    return Ensemble(options.server, shards=shards, read_only=True)


def alone(ensemble):
    """Kills all members but the first, and gives that when it has no leader any more."""
    survivor, *others = ensemble.members
    for other in others:
        other.kill()
    wait_until(lambda: four_letter_command(survivor.address, "isro") == "ro", "the server is read-only", RECONNECT_LIMIT_S)
    return survivor


def refused(member, **options):
    """Whether a connect request is answered by closing the connection, at once."""
    began = time.monotonic()
    try:
        Client(member.address, **options).drop()
    except Closed:
        assert time.monotonic() - began < AT_ONCE_S, "the client had to wait"
        return True
    return False


def test_clients_are_sent_away_and_newcomers_refused(ensemble):
    survivor = ensemble.members[0]
    idle, watcher = connect(survivor), connect(survivor)
    watcher.exists("/", watch=True)
    alone(ensemble)
    assert idle.is_closed() and watcher.is_closed(), "a client stays where there is no leader"
    assert refused(survivor), "a new session without a leader"
    assert refused(survivor, resume=idle), "a session goes on without a leader"
    equal(four_letter_command(survivor.address, "ruok"), "imok", "the port stays open")
    # Nothing is said before there is a request.
    assert not Connection(survivor.address).is_closed(AT_ONCE_S / 2)
    ensemble.start()
    connect(survivor).close()


def test_a_read_only_session_reads_and_does_not_write(ensemble):
    top = root(ensemble, "readable")
    with connect(ensemble.members[0]) as client:
        client.sync()
        zxid = client.set(top, b"data")[1]
    survivor = alone(ensemble)
    with Client(survivor.address, read_only=True) as client:
        assert client.session_id and client.timeout_ms == 10_000
        equal(client.tail, b"\x01", "it tells that it is read-only")
        equal(client.get(top, watch=True)[0], b"data")
        assert top[1:] in client.children("/")
        refuses(jute.NO_NODE, client.get, f"{top}/none")
        equal(client.add_watch(top, 1), 0)
        client.ping()
        client.auth("digest", b"a:b")
        writes = {
            jute.CREATE: jute.create_body(f"{top}/x", b"", jute.PERSISTENT, jute.OPEN_ACL),
            jute.CREATE2: jute.create_body(f"{top}/x", b"", jute.EPHEMERAL, jute.OPEN_ACL),
            jute.DELETE: jute.delete_body("/none"),
            jute.SET_DATA: jute.set_body(top, b""),
            jute.SET_ACL: jute.set_acl_body(top, jute.OPEN_ACL),
            jute.MULTI: jute.multi_body([]),
            jute.RECONFIG: jute.reconfig_body(),
            jute.SYNC: jute.string("/"),
        }
        for op, body in writes.items():
            client.send(op, body)
            reply = client.reply()
            equal((op, reply.error, reply.xid), (op, NOT_READ_ONLY, client.last_xid))
            assert reply.zxid >= zxid, "the refusal tells how far the server is"
        equal(exists_or_none(client, f"{top}/x"), None)
        client.close()
    assert refused(survivor, read_only=True, last_zxid=1 << 62), "a client that has seen more"
    ensemble.start()


def test_words_tell_that_a_server_is_read_only(ensemble):
    survivor = alone(ensemble)
    block = four_letter_command(survivor.address, "srvr")
    equal(mode_of(survivor), "read-only")
    equal(block.splitlines()[1], "READ-ONLY mode; serving only read-only clients")
    equal(words_table(four_letter_command(survivor.address, "mntr"), "\t")["zk_server_state"], "read-only")
    ensemble.start()
    equal(four_letter_command(survivor.address, "isro"), "rw")
    assert mode_of(survivor) in ("leader", "follower")


def test_a_read_only_session_goes_on_at_its_server_and_nowhere_else(ensemble):
    survivor = alone(ensemble)
    first = Client(survivor.address, read_only=True)
    again = Client(survivor.address, read_only=True, resume=first)
    equal((again.session_id, again.password), (first.session_id, first.password))
    assert refused(survivor, resume=again), "not as one that writes"
    ensemble.start()
    assert again.is_closed(RECONNECT_LIMIT_S), "a leader is found"
    for read_only in (True, False):
        with Client(survivor.address, read_only=read_only, resume=again) as client:
            equal((client.session_id, client.timeout_ms), (0, 0), "the ensemble knows nothing of it")
    with connect(survivor, read_only=True) as client:
        equal(client.tail, b"\0", "now everybody may write")
        client.create(root(ensemble, "written") + "/x")


def test_a_session_of_the_ensemble_outlives_its_client_being_sent_away(ensemble):
    top = root(ensemble, "outlives")
    survivor = ensemble.members[0]
    client = connect(survivor)
    client.create(f"{top}/mine", b"", jute.EPHEMERAL)
    alone(ensemble)
    assert client.is_closed()
    assert refused(survivor, resume=client, read_only=True), "it may live elsewhere"
    ensemble.start()
    moved = connect(survivor, resume=client)
    equal(moved.session_id, client.session_id)
    equal(exists_or_none(moved, f"{top}/mine")[7], client.session_id, "the ephemeral's owner")
    moved.close()


def test_kazoo_reads_and_goes_over_to_a_server_with_a_leader(ensemble):
    try:
        from kazoo.client import KazooClient, KeeperState
        from kazoo.exceptions import NotReadOnlyCallError
    except ImportError:
        pytest.skip("kazoo is not installed")
    top = root(ensemble, "kazoo")
    with connect(ensemble.members[0]) as client:
        client.sync()
    alone(ensemble)
    kazoo = KazooClient(hosts=ensemble.addresses(), read_only=True, timeout=10)
    kazoo.start(RECONNECT_LIMIT_S)
    try:
        wait_until(lambda: kazoo.client_state == KeeperState.CONNECTED_RO, "kazoo is connected read-only", 30)
        equal(kazoo.get(top)[0], b"")
        try:
            kazoo.create(f"{top}/x")
        except NotReadOnlyCallError:
            pass
        else:
            raise AssertionError("a write without a leader")
        ensemble.start()
        wait_until(lambda: kazoo.client_state == KeeperState.CONNECTED, "kazoo finds a leader", 90)
        equal(kazoo.retry(kazoo.create, f"{top}/x"), f"{top}/x")
    finally:
        kazoo.stop()
        kazoo.close()


__all__ = ["alone", "refused"]
