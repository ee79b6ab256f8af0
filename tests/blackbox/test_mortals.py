"""Containers and TTL nodes: made, emptied or outlived, and deleted by the server with the usual events."""

import time

from support import jute
from support.client import exists_or_none
from support.expect import equal
from support.wait import wait_until

SETTINGS = {
    "corral": {"containers.check_interval_ms": 300},
    "zookeeper": {"extendedTypesEnabled": "true"},
}
JAVA_OPTIONS = ["-Dznode.container.checkIntervalMs=300"]
TTL_MS = 700


def create_ttl(client, path, ttl_ms=TTL_MS):
    return client.call(jute.CREATE_TTL, jute.create_body(path, flags=jute.TTL) + jute.int64(ttl_ms)).string()


def gone(client, path):
    def is_gone():
        client.sync()
        return exists_or_none(client, path) is None

    wait_until(is_gone, f"{path} is deleted")


def test_an_emptied_container_goes(context):
    client = context.client()
    root = context.root(client)
    path = client.call(jute.CREATE_CONTAINER, jute.create_body(f"{root}/c", flags=jute.CONTAINER)).string()
    child = client.create(f"{path}/child")
    client.exists(path, watch=True)
    client.children(root, watch=True)
    client.delete(child)
    gone(client, path)
    equal(client.take_events(), [(jute.DELETED, path), (jute.CHILDREN_CHANGED, root)])
    stat = client.exists(root)
    equal((stat.num_children, stat.cversion), (0, 2))
    assert stat.pzxid > stat.czxid


def test_a_ttl_node_outlives_its_last_write_by_its_time(context):
    client = context.client()
    root = context.root(client)
    path = create_ttl(client, f"{root}/t", 3 * TTL_MS)
    gone(client, create_ttl(client, f"{root}/earlier"))
    written = time.monotonic()
    client.set(path, b"again")
    gone(client, path)
    assert time.monotonic() - written > 3 * TTL_MS / 1000 - 0.05, "the write began its time anew"


def test_a_ttl_node_with_children_stays(context):
    client = context.client()
    root = context.root(client)
    parent = create_ttl(client, f"{root}/p")
    child = client.create(f"{parent}/child")
    gone(client, create_ttl(client, f"{root}/marker"))
    equal(client.exists(parent).num_children, 1)
    client.delete(child)
    gone(client, parent)
