"""create, create2, delete and setData: results and the order of their checks."""

from support import jute
from support.expect import equal, refuses

BAD_PATHS = ("", "a", "/\0a", "/\x01", "/\x1f", "/\x7f", "/\x9f", "/\ue000", "/\uf8ff", "/\ufff0", "/\uffff", "//", "/.",
             "/..")  # fmt: skip
GOOD_NAMES = ("...", ".a", "a..b", "a b", "ä", "日本", "\ufdd0", "-", "x" * 1000)


def test_create_answers_the_path(context):
    client = context.client()
    root = context.root(client)
    equal(client.create(f"{root}/a", b"data"), f"{root}/a")
    path, stat = client.create2(f"{root}/b", b"12")
    equal((path, stat.data_length, stat.version, stat.cversion), (f"{root}/b", 2, 0, 0))
    equal(client.get(f"{root}/b"), (b"12", stat))


def test_path_rules(context):
    client = context.client()
    root = context.root(client)
    for path in BAD_PATHS:
        refuses(jute.BAD_ARGUMENTS, client.create, path)
        refuses(jute.BAD_ARGUMENTS, client.set, path, b"")
        refuses(jute.BAD_ARGUMENTS, client.set_acl, path, jute.OPEN_ACL)
    for name in GOOD_NAMES:
        equal(client.create(f"{root}/{name}"), f"{root}/{name}")
        client.delete(f"{root}/{name}")
    for path in ("/a/", "/a//b", "/a/./b", "/a/.."):
        refuses(jute.BAD_ARGUMENTS, client.set, path, b"")


def test_create_checks_in_order(context):
    client = context.client()
    root = context.root(client)
    refuses(jute.NODE_EXISTS, client.create, "/")
    refuses(jute.NODE_EXISTS, client.create, root)
    refuses(jute.NO_NODE, client.create, f"{root}/none/x")
    refuses(jute.NO_NODE, client.create, f"{root}/none/")
    refuses(jute.NO_NODE, client.create, f"{root}/a//b")
    refuses(jute.BAD_ARGUMENTS, client.create, f"{root}/")
    refuses(jute.BAD_ARGUMENTS, client.create, "noslash", flags=9)
    refuses(jute.INVALID_ACL, client.create, f"{root}/none/x", acl=())
    refuses(jute.BAD_ARGUMENTS, client.create, "noslash", acl=())
    client.create(f"{root}/e", flags=jute.EPHEMERAL)
    refuses(jute.NO_CHILDREN_FOR_EPHEMERALS, client.create, f"{root}/e/x")
    refuses(jute.NODE_EXISTS, client.create, f"{root}/e", flags=jute.EPHEMERAL)


def test_flags(context):
    client = context.client()
    root = context.root(client)
    for flags in (7, 8, 9, -1, 2**31 - 1):
        refuses(jute.BAD_ARGUMENTS, client.create, f"{root}/x", flags=flags)
    for flags in (5, 6):
        refuses_ttl_without_ttl(client, f"{root}/x", flags)


def refuses_ttl_without_ttl(client, path, flags):
    """A TTL flag in a plain create: UNIMPLEMENTED while extended types are off, else BADARGUMENTS."""
    sent = client.send(jute.CREATE, jute.create_body(path, flags=flags))
    reply = client.reply()
    equal(reply.xid, sent)
    assert reply.error in (jute.UNIMPLEMENTED, jute.BAD_ARGUMENTS), reply


def test_sequence_numbers_count_all_creations(context):
    client = context.client()
    root = context.root(client)
    client.create(f"{root}/plain")
    equal(client.create(f"{root}/b-", flags=jute.SEQUENTIAL), f"{root}/b-0000000001")
    equal(client.create(f"{root}/", flags=jute.SEQUENTIAL), f"{root}/0000000002")
    client.delete(f"{root}/plain")
    equal(client.create(f"{root}/c-", flags=jute.EPHEMERAL_SEQUENTIAL), f"{root}/c-0000000003")
    equal(client.exists(root).cversion, 5)
    refuses(jute.NODE_EXISTS, client.create, f"{root}/c-0000000003")
    equal(client.create(f"{root}/c-", flags=jute.SEQUENTIAL), f"{root}/c-0000000004")


def test_null_data_is_not_empty_data(context):
    client = context.client()
    root = context.root(client)
    client.create(f"{root}/null", None)
    client.create(f"{root}/empty", b"")
    equal((client.get(f"{root}/null")[0], client.exists(f"{root}/null").data_length), (None, 0))
    equal(client.get(f"{root}/empty")[0], b"")
    client.set(f"{root}/empty", None)
    equal(client.get(f"{root}/empty")[0], None)


def test_delete_checks_in_order(context):
    client = context.client()
    root = context.root(client)
    for path in ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config", "noslash", "/\0"):
        refuses(jute.BAD_ARGUMENTS, client.delete, path)
    client.create(f"{root}/x")
    client.create(f"{root}/x/y")
    refuses(jute.NO_NODE, client.delete, f"{root}/none")
    refuses(jute.NO_NODE, client.delete, f"{root}/none/x")
    refuses(jute.NO_NODE, client.delete, f"{root}/x/")
    refuses(jute.BAD_VERSION, client.delete, f"{root}/x", 5)
    refuses(jute.NOT_EMPTY, client.delete, f"{root}/x", 0)
    client.delete(f"{root}/x/y", 0)
    client.delete(f"{root}/x")
    refuses(jute.NO_NODE, client.exists, f"{root}/x")


def test_set_data_checks_in_order(context):
    client = context.client()
    root = context.root(client)
    refuses(jute.NO_NODE, client.set, f"{root}/none", b"", 3)
    refuses(jute.BAD_VERSION, client.set, root, b"", 7)
    equal(client.set(root, b"abc", 0).version, 1)
    equal(client.set(root, b"abcd").version, 2)
    refuses(jute.BAD_VERSION, client.set, root, b"", 0)
    equal(client.get(root)[0], b"abcd")


def test_set_data_of_an_ephemeral(context):
    client, other = context.client(), context.client()
    root = context.root(client)
    client.create(f"{root}/e", flags=jute.EPHEMERAL)
    equal(other.set(f"{root}/e", b"1").ephemeral_owner, client.session_id)
    other.delete(f"{root}/e")
    client.close()
    other.sync()
    equal(other.children(root), [])


def test_a_recreated_ephemeral_belongs_to_its_new_session(context):
    first, second = context.client(), context.client()
    root = context.root(first)
    first.create(f"{root}/e", flags=jute.EPHEMERAL)
    first.delete(f"{root}/e")
    second.create(f"{root}/e", flags=jute.EPHEMERAL)
    first.close()
    second.sync()
    equal(second.exists(f"{root}/e").ephemeral_owner, second.session_id)


def test_deep_and_wide_trees(context):
    client = context.client()
    path = context.root(client)
    for _ in range(100):
        path = client.create(f"{path}/d")
    equal(client.exists(path).num_children, 0)
    for name in range(500):
        client.send(jute.CREATE, jute.create_body(f"{path}/{name}"))
    equal({client.reply().error for _ in range(500)}, {0})
    equal(len(client.children(path)), 500)
