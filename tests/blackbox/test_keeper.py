"""ClickHouse Keeper's operations, alone and in a multi, on a server that is told to serve them."""

import pytest

from support import jute
from support.expect import equal, refuses

SETTINGS = {"corral": {"features.keeper_extensions": "true"}, "zookeeper": {}}
ANY_STAT = jute.STAT.pack(*[-1] * len(jute.Stat._fields))


def client_of(context):
    if not context.is_corral:
        pytest.skip("ZooKeeper has none of these operations")
    client = context.client()
    return client, context.root(client)


def ensure(client, path, data=b"new", flags=jute.PERSISTENT):
    return client.call(jute.CREATE_IF_NOT_EXISTS, jute.create_body(path, data, flags)).string()


def remove_recursive(client, path, limit):
    equal(client.call(jute.REMOVE_RECURSIVE, jute.string(path) + jute.int32(limit)).rest(), b"")


def check_stat(path, wanted=-1, **fields):
    stat = jute.Stat(*[-1] * len(jute.Stat._fields))._replace(**fields)
    return jute.string(path) + jute.int32(wanted) + jute.STAT.pack(*stat)


def test_system_nodes(context):
    client, _ = client_of(context)
    equal(client.children("/keeper"), ["api_version", "feature_flags"])
    assert client.get("/keeper/api_version")[0].isdigit()
    flags = client.get("/keeper/feature_flags")[0]
    for feature in (0, 2, 3, 4, 6, 7, 8, 9, 10):
        assert flags[feature // 8] & 0x80 >> feature % 8, f"feature {feature} is not told"
    for call, arguments in ((client.set, ("/keeper", b"")), (client.create, ("/keeper/x",)), (client.delete, ("/keeper",)),
                            (client.set_acl, ("/keeper/api_version", jute.OPEN_ACL)), (ensure, (client, "/keeper/x")),
                            (remove_recursive, (client, "/keeper", 9))):  # fmt: skip
        refuses(jute.BAD_ARGUMENTS, call, *arguments)
    results = client.multi((jute.CHECK, jute.check_body("/keeper")))
    equal(results[0][1], jute.BAD_ARGUMENTS)


def test_each_operation_alone(context):
    """What each checks and changes is in src/core/src/ops."""
    client, root = client_of(context)
    client.children(root, watch=True)
    path = ensure(client, f"{root}/x")
    equal((path, client.take_events()), (f"{root}/x", [(jute.CHILDREN_CHANGED, root)]))
    before = client.exists(path)
    equal((ensure(client, path, b"other"), client.get(path)), (path, (b"new", before)))
    refuses(jute.NO_NODE, ensure, client, f"{root}/none/x")
    client.call(jute.CHECK_NOT_EXISTS, jute.check_body(f"{root}/none"))
    refuses(jute.NODE_EXISTS, client.call, jute.CHECK_NOT_EXISTS, jute.check_body(path))
    client.call(jute.CHECK_STAT, check_stat(path, 0, **before._asdict()))
    refuses(jute.BAD_VERSION, client.call, jute.CHECK_STAT, check_stat(path, version=1))
    child = client.create(f"{path}/c")
    client.get(child, watch=True)
    client.call(jute.TRY_REMOVE, jute.delete_body(path))
    refuses(jute.NOT_EMPTY, remove_recursive, client, path, 1)
    remove_recursive(client, path, 2)
    equal((client.take_events(), client.children(root)), ([(jute.DELETED, child)], []))
    client.call(jute.TRY_REMOVE, jute.delete_body(path))


def test_in_a_multi(context):
    client, root = client_of(context)
    top = f"{root}/t"
    results = client.multi(
        (jute.CHECK_NOT_EXISTS, jute.check_body(top)),
        (jute.CREATE_IF_NOT_EXISTS, jute.create_body(top, b"1")),
        (jute.CREATE_IF_NOT_EXISTS, jute.create_body(top, b"2")),
        (jute.CREATE, jute.create_body(f"{top}/x")),
        (jute.CHECK_STAT, check_stat(top, 0, num_children=1, data_length=1)),
        (jute.TRY_REMOVE, jute.delete_body(f"{top}/none")),
        (jute.TRY_REMOVE, jute.delete_body(f"{top}/x")),
        (jute.CREATE, jute.create_body(f"{top}/y")),
        (jute.REMOVE_RECURSIVE, jute.string(top) + jute.int32(2)),
        (jute.CHECK_NOT_EXISTS, jute.check_body(top)),
    )
    equal([(kind, code) for kind, code, _ in results],
          [(op, 0) for op in (501, 502, 502, 1, 504, 505, 505, 1, 503, 501)])  # fmt: skip
    equal(results[1][2], top)
    equal(client.children(root), [])
    failed = client.multi((jute.CREATE, jute.create_body(top)), (jute.CHECK_NOT_EXISTS, jute.check_body(top)))
    equal([code for _, code, _ in failed], [jute.OK, jute.NODE_EXISTS])
    equal(client.children(root), [])


def test_what_cannot_be_read(context):
    client, _ = client_of(context)
    for op in (jute.CHECK_NOT_EXISTS, jute.CREATE_IF_NOT_EXISTS, jute.REMOVE_RECURSIVE, jute.CHECK_STAT, jute.TRY_REMOVE):
        refuses(jute.MARSHALLING_ERROR, client.call, op, b"\0")
        body = jute.create_body(None) if op == jute.CREATE_IF_NOT_EXISTS else jute.string(None) + ANY_STAT
        refuses(jute.MARSHALLING_ERROR, client.call, op, body)
    refuses(jute.MARSHALLING_ERROR, client.call, jute.MULTI, jute.multi_body([(500, jute.read_body("/"))]))
    refuses(jute.UNIMPLEMENTED, client.call, 508)
    assert client.is_closed()


def lists(client, root):
    """A persistent child with data, an ephemeral one, and what listType selects of them: all, persistent, ephemeral."""
    client.create(f"{root}/p", b"data")
    client.create(f"{root}/e", b"", jute.EPHEMERAL)
    return {0: ["e", "p"], 1: ["p"], 2: ["e"]}


def test_filtered_lists(context):
    client, root = client_of(context)
    for kind, names in lists(client, root).items():
        body = client.call(jute.FILTERED_LIST, jute.read_body(root) + bytes([kind]))
        equal((body.strings(), body.stat(), body.rest()), (names, client.exists(root), b""))
        body = client.call(jute.FILTERED_LIST_WHOLE, jute.read_body(root) + bytes([kind, 1, 1]))
        equal((body.strings(), body.stat()), (names, client.exists(root)))
        equal([body.stat() for _ in range(body.int32())], [client.exists(f"{root}/{name}") for name in names])
        equal([body.buffer() for _ in range(body.int32())], [client.get(f"{root}/{name}")[0] for name in names])
        body = client.call(jute.FILTERED_LIST_WHOLE, jute.read_body(root) + bytes([kind, 0, 0]))
        equal((body.strings(), body.stat(), body.int32(), body.int32(), body.rest()), (names, client.exists(root), 0, 0, b""))
    refuses(jute.MARSHALLING_ERROR, client.call, jute.FILTERED_LIST, jute.read_body(root) + b"\3")
    refuses(jute.NO_NODE, client.call, jute.FILTERED_LIST, jute.read_body(f"{root}/none") + b"\0")
    client.call(jute.FILTERED_LIST, jute.read_body(root, True) + b"\2")
    client.create(f"{root}/q")
    equal(client.take_events(), [(jute.CHILDREN_CHANGED, root)])


def test_filtered_lists_keep_what_may_not_be_read(context):
    client, root = client_of(context)
    client.auth("digest", b"owner:secret")
    client.create(f"{root}/closed", acl=((jute.ALL, "auth", ""),))
    other = context.client()
    other.sync()
    equal(other.call(jute.FILTERED_LIST, jute.read_body(root) + b"\0").strings(), ["closed"])
    refuses(jute.NO_AUTH, other.call, jute.FILTERED_LIST, jute.read_body(root) + b"\1")
    refuses(jute.NO_AUTH, other.call, jute.FILTERED_LIST_WHOLE, jute.read_body(root) + b"\0\1\0")


def test_lists_in_a_multi_read(context):
    client, root = client_of(context)
    lists(client, root)
    operations = [(jute.FILTERED_LIST, jute.read_body(root) + b"\1"), (jute.FILTERED_LIST, jute.read_body("/none") + b"\1"),
                  (jute.FILTERED_LIST_WHOLE, jute.read_body(root) + b"\1\0\1")]  # fmt: skip
    body = client.call(jute.MULTI_READ, jute.multi_body(operations))
    stat = client.exists(root)
    equal((body.int32(), body.boolean(), body.int32(), body.strings(), body.stat()), (500, False, 0, ["p"], stat))
    equal((body.int32(), body.boolean(), body.int32(), body.int32()), (-1, False, jute.NO_NODE, jute.NO_NODE))
    equal((body.int32(), body.boolean(), body.int32(), body.strings(), body.stat()), (506, False, 0, ["p"], stat))
    equal((body.int32(), body.int32(), body.buffer()), (0, 1, b"data"))


def test_a_subtree_is_listed(context):
    client, root = client_of(context)
    for name in ("a", "a/b", "a/b/c", "d"):
        client.create(f"{root}/{name}")
    everything = [f"{root}/{name}" for name in ("a", "d", "a/b", "a/b/c")]
    for limit in (9, 4, 2, 0):
        equal(client.call(jute.LIST_RECURSIVE, jute.string(root) + jute.int32(limit)).strings(), everything[:limit])
    refuses(jute.NO_NODE, client.call, jute.LIST_RECURSIVE, jute.string(f"{root}/none") + jute.int32(9))
