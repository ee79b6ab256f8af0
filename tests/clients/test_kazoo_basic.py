"""What programs do with kazoo every day, also across a kill -9 and restart of the server."""

import queue

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.security import make_digest_acl

from support.expect import equal
from support.wait import wait_until

TICK_MS = 1000


class Kazoo:
    """A started client that is stopped at the end of the block."""

    def __init__(self, context, **options):
        self.client = KazooClient(hosts=f"{context.address[0]}:{context.address[1]}", **options)

    def __enter__(self):
        self.client.start(timeout=60)
        return self.client

    def __exit__(self, *_):
        self.client.stop()
        self.client.close()


def test_nodes(context):
    with Kazoo(context) as client:
        client.ensure_path(f"{context.path}/deep/path")
        path = client.create(f"{context.path}/n", b"data")
        pytest.raises(NodeExistsError, client.create, path)
        data, stat = client.get(path)
        equal((data, stat.version, stat.data_length), (b"data", 0, 4))
        equal(client.set(path, b"new", version=0).version, 1)
        pytest.raises(BadVersionError, client.set, path, b"", version=0)
        equal(sorted(client.get_children(context.path)), ["deep", "n"])
        children, stat = client.get_children(context.path, include_data=True)
        equal((sorted(children), stat.numChildren), (["deep", "n"], 2))
        pytest.raises(NotEmptyError, client.delete, context.path)
        client.delete(path, version=1)
        equal(client.exists(path), None)
        pytest.raises(NoNodeError, client.get, path)
        client.delete(context.path, recursive=True)
        equal(client.exists(context.path), None)


def test_sequences_and_ephemerals(context):
    with Kazoo(context) as watcher:
        watcher.create(context.path)
        with Kazoo(context) as client:
            paths = [client.create(f"{context.path}/e-", ephemeral=True, sequence=True) for _ in range(3)]
            equal(paths, [f"{context.path}/e-{number:010}" for number in range(3)])
            path, stat = client.create(f"{context.path}/x", include_data=True)
            equal((path, stat.version), (f"{context.path}/x", 0))
        equal(watcher.get_children(context.path), ["x"])


def test_transactions(context):
    with Kazoo(context) as client:
        client.create(context.path)
        good = client.transaction()
        good.create(f"{context.path}/a", b"1")
        good.set_data(f"{context.path}/a", b"2")
        good.check(f"{context.path}/a", 1)
        equal(good.commit()[::2], [f"{context.path}/a", True])
        bad = client.transaction()
        bad.delete(f"{context.path}/a")
        bad.check(f"{context.path}/none", 0)
        results = [type(result).__name__ for result in bad.commit()]
        equal(results, ["RolledBackError", "NoNodeError"])
        equal(client.get(f"{context.path}/a")[0], b"2")


def test_acls(context):
    with Kazoo(context, auth_data=[("digest", "u:p")]) as owner, Kazoo(context) as other:
        owner.create(context.path, b"secret", acl=[make_digest_acl("u", "p", all=True)])
        pytest.raises(NoAuthError, other.get, context.path)
        equal(owner.get(context.path)[0], b"secret")
        other.add_auth("digest", "u:p")
        equal(other.get(context.path)[0], b"secret")


def test_watches(context):
    with Kazoo(context) as client, Kazoo(context) as other:
        other.create(context.path, b"0")
        data, children = queue.Queue(), queue.Queue()
        client.DataWatch(context.path, lambda value, stat: data.put(value))
        client.ChildrenWatch(context.path, lambda names: children.put(sorted(names)))
        equal((data.get(timeout=60), children.get(timeout=60)), (b"0", []))
        for number in range(1, 10):
            other.set(context.path, b"%d" % number)
            equal(data.get(timeout=60), b"%d" % number)
        other.create(f"{context.path}/a")
        equal(children.get(timeout=60), ["a"])


def test_a_session_outlives_a_killed_server(context):
    with Kazoo(context, timeout=60) as client:
        states, seen = queue.Queue(), queue.Queue()
        client.create(context.path, b"before")
        client.create(f"{context.path}/e", ephemeral=True)
        client.DataWatch(context.path, lambda value, stat: seen.put(value))
        equal(seen.get(timeout=60), b"before")
        session = client.client_id[0]
        client.add_listener(states.put)
        context.server.restart()
        equal((states.get(timeout=60), states.get(timeout=60)), (KazooState.SUSPENDED, KazooState.CONNECTED))
        equal(client.client_id[0], session)
        assert client.exists(f"{context.path}/e").ephemeralOwner == session
        context.client().set(context.path, b"after")
        wait_until(lambda: seen.get(timeout=60) == b"after", "the watch survives the restart")
