"""exists, getData, getChildren, getChildren2, sync and the nodes every server has."""

from support import jute
from support.expect import equal, refuses


def test_reads_of_missing_and_odd_paths(context):
    client = context.client()
    refuses(jute.BAD_ARGUMENTS, client.exists, "/a\0")
    for call in (client.get, client.children, client.children2, client.get_acl):
        for path in ("/none", "/a\0", "bad", "bad//", "/zookeeper/"):
            refuses(jute.NO_NODE, call, path)
    for path in ("/none", "bad", "/zookeeper/"):
        refuses(jute.NO_NODE, client.exists, path)


def test_children(context):
    client = context.client()
    root = context.root(client)
    equal(client.children(root), [])
    for name in ("b", "a", "c"):
        client.create(f"{root}/{name}")
        client.create(f"{root}/{name}/below")
    equal(client.children(root), ["a", "b", "c"])
    names, stat = client.children2(root)
    equal((names, stat), (["a", "b", "c"], client.exists(root)))


def test_sync_echoes_any_path(context):
    client = context.client()
    for path in ("/", "/none", "/zookeeper", "/none/below"):
        equal(client.sync(path), path)


def test_sync_shows_the_writes_of_others(context):
    writer, reader = context.client(), context.client()
    root = context.root(writer)
    for number in range(50):
        writer.set(root, str(number).encode())
        reader.sync(root)
        equal(reader.get(root)[0], str(number).encode())


def test_pre_created_nodes(context):
    client = context.client()
    equal(client.children("/zookeeper"), ["config", "quota"])
    equal(client.get("/zookeeper/config")[0], b"")
    equal(client.get_acl("/zookeeper/config")[0], [(jute.READ, "world", "anyone")])
    equal(client.get_acl("/zookeeper")[0], [(jute.ALL, "world", "anyone")])
    stat = client.exists("/zookeeper/config")
    equal((stat.czxid, stat.mzxid, stat.ctime, stat.aversion), (0, 0, 0, -1))
    equal(stat.mtime, 0)
    equal(client.exists("/zookeeper").num_children, 2)
    refuses(jute.NO_AUTH, client.set, "/zookeeper/config", b"")
