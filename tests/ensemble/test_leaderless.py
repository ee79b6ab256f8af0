"""What clients of a server without a leader may rely on.

The ensemble has read-only mode switched on; ZooKeeper's has local sessions besides, without which it gives none.
"""

import pytest

from ensemble.cluster import CALM, Ensemble, mode_of
from ensemble.sessions import connect, root
from support import jute
from support.client import Client, Closed, Connection, exists_or_none, four_letter_command, words_table
from support.expect import equal, refuses
from support.wait import wait_until

NOT_READ_ONLY = -119
HOLD_MS = 500


@pytest.fixture(scope="module")
def new_ensemble(options, shards):
    return Ensemble(options.server, shards=shards, settings={**CALM, "ensemble.hold_ms": HOLD_MS}, read_only=True)


@pytest.fixture(scope="module")
def readable(running_ensemble):
    """A znode that every server has, and its zxid."""
    top = root(running_ensemble, "readable")
    with connect(running_ensemble.members[0]) as client:
        client.sync()
        return top, client.set(top, b"data").mzxid


@pytest.fixture
def survivor(running_ensemble, readable):
    """The first member, which has no leader. The others stay away after the test."""
    return alone(running_ensemble)


def alone(ensemble):
    """Kills all members but the first, and gives that when it has no leader any more."""
    survivor, *others = ensemble.members
    for other in others:
        if other in ensemble.running:
            other.kill()
    wait_until(lambda: four_letter_command(survivor.address, "isro") == "ro", "the server is read-only")
    return survivor


def refused(member, **options):
    """Whether a connect request is answered by closing the connection."""
    try:
        Client(member.address, **options).drop()
    except Closed:
        return True
    return False


def test_newcomers_are_refused(survivor):
    silent = Connection(survivor.address)
    assert refused(survivor), "a new session without a leader"
    equal(four_letter_command(survivor.address, "ruok"), "imok", "the port stays open")
    # A connection without a request is not closed.
    silent.send_frame(jute.connect_request(10_000, read_only=True))
    assert jute.Reader(silent.frame()[8:]).int64(), "a session that reads"
    silent.drop()


def test_a_read_only_session_reads_and_does_not_write(survivor, readable):
    top, zxid = readable
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


def test_words_tell_that_a_server_is_read_only(survivor):
    block = four_letter_command(survivor.address, "srvr")
    equal(mode_of(survivor), "read-only")
    equal(block.splitlines()[1], "READ-ONLY mode; serving only read-only clients")
    equal(words_table(four_letter_command(survivor.address, "mntr"), "\t")["zk_server_state"], "read-only")


def test_a_read_only_session_goes_on_at_its_server_and_nowhere_else(survivor, running_ensemble):
    first = Client(survivor.address, read_only=True)
    again = Client(survivor.address, read_only=True, resume=first)
    equal((again.session_id, again.password), (first.session_id, first.password))
    assert refused(survivor, resume=again), "not as one that writes"
    running_ensemble.start()
    assert again.is_closed(), "a leader is found"
    for read_only in (True, False):
        with Client(survivor.address, read_only=read_only, resume=again) as client:
            equal((client.session_id, client.timeout_ms), (0, 0), "the ensemble does not know it")
    with connect(survivor, read_only=True) as client:
        equal(client.tail, b"\0", "now all clients may write")
        client.create(root(running_ensemble, "written") + "/x")
    equal(four_letter_command(survivor.address, "isro"), "rw")
    assert mode_of(survivor) in ("leader", "follower")


def test_clients_are_sent_away_and_their_sessions_go_on(ensemble):
    top, survivor = root(ensemble, "outlives"), ensemble.members[0]
    idle, client, watcher = connect(survivor), connect(survivor), connect(survivor)
    client.create(f"{top}/mine", b"", jute.EPHEMERAL)
    watcher.exists("/", watch=True)
    alone(ensemble)
    assert idle.is_closed() and watcher.is_closed() and client.is_closed(), "a client stays where there is no leader"
    assert refused(survivor, resume=idle), "a session goes on without a leader"
    assert refused(survivor, resume=client, read_only=True), "it may live elsewhere"
    ensemble.start()
    moved = connect(survivor, resume=client)
    equal(moved.session_id, client.session_id)
    equal(exists_or_none(moved, f"{top}/mine").ephemeral_owner, client.session_id)
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
    kazoo.start()
    try:
        wait_until(lambda: kazoo.client_state == KeeperState.CONNECTED_RO, "kazoo is connected read-only")
        equal(kazoo.get(top)[0], b"")
        try:
            kazoo.create(f"{top}/x")
        except NotReadOnlyCallError:
            pass
        else:
            raise AssertionError("a write without a leader")
        ensemble.start()
        wait_until(lambda: kazoo.client_state == KeeperState.CONNECTED, "kazoo finds a leader")
        equal(kazoo.retry(kazoo.create, f"{top}/x"), f"{top}/x")
    finally:
        kazoo.stop()
        kazoo.close()
