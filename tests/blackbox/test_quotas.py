"""Quotas that are enforced: what counts, what is refused and where among the checks, what clients see of the usage."""

from support import jute
from support.expect import equal, refuses

SETTINGS = {
    "corral": {"features.enforce_quota": "true"},
    "zookeeper": {"enforceQuota": "true"},
}


def with_quota(context, limits):
    """A client, a path with eight bytes in two nodes that has these limits, and the path of its usage."""
    client = context.client()
    root = context.root(client)
    client.set(root, b"xyz")
    client.create(f"{root}/b", b"12345")
    client.create(f"/zookeeper/quota{root}")
    client.create(f"/zookeeper/quota{root}/zookeeper_limits", limits)
    usage = client.create(f"/zookeeper/quota{root}/zookeeper_stats", b"anything")
    return client, root, usage


def test_usage_follows_the_tree(context):
    client, root, usage = with_quota(context, b"count=100,bytes=10000")
    text, before = client.get(usage, watch=True)
    equal(text, b"count=2,bytes=8")
    client.create(f"{root}/c", b"1", jute.EPHEMERAL)
    text, after = client.get(usage)
    equal(text, b"count=3,bytes=9")
    equal(after._replace(data_length=0), before._replace(data_length=0), "no Stat field moves but the length")
    client.set(f"{root}/c", b"0123456789")
    equal(client.get(usage)[0], b"count=3,bytes=18")
    client.delete(f"{root}/b")
    client.create(f"{root}b", b"a neighbour")
    equal(client.get(usage)[0], b"count=2,bytes=13")
    equal(client.take_events(), [], "usage is kept without events")
    client.close()
    other = context.client()
    other.sync()
    equal(other.get(usage)[0], b"count=1,bytes=3", "the ephemeral went with its session")


def test_soft_limits_refuse_nothing(context):
    client, root, usage = with_quota(context, b"count=1,bytes=1")
    client.create(f"{root}/c", b"1")
    client.set(f"{root}/c", b"22")
    equal(client.get(usage)[0], b"count=3,bytes=10")


def test_hard_limits_refuse_in_their_place(context):
    client, root, usage = with_quota(context, b"count=1,bytes=1=;byteHardLimit=20;countHardLimit=3")
    path = client.create(f"{root}/c", b"1")
    refuses(jute.QUOTA_EXCEEDED, client.create, f"{root}/d")
    refuses(jute.NODE_EXISTS, client.create, path)
    refuses(jute.NO_NODE, client.create, f"{root}/none/d")
    refuses(jute.QUOTA_EXCEEDED, client.set, path, b"0123456789abc", 9)
    refuses(jute.BAD_VERSION, client.set, path, b"0123456789ab", 9)
    client.set(path, b"0123456789ab")
    equal(client.get(usage)[0], b"count=3,bytes=20")
    refuses(jute.QUOTA_EXCEEDED, client.set, f"{root}/b", b"123456")
    client.set(f"{root}/b", b"1234")
    client.delete(path)
    client.create(path)
    equal(client.get(usage)[0], b"count=3,bytes=7")


def test_a_multi_is_judged_by_what_was_used_before_it(context):
    client, root, usage = with_quota(context, b"countHardLimit=3")
    creates = [(jute.CREATE, jute.create_body(f"{root}/{at}")) for at in range(3)]
    equal([code for _, code, _ in client.multi(*creates)], [0, 0, 0])
    equal(client.get(usage)[0], b"count=5,bytes=8")
    results = client.multi((jute.DELETE, jute.delete_body(f"{root}/0")), (jute.CREATE, jute.create_body(f"{root}/x")))
    equal([code for _, code, _ in results], [jute.OK, jute.QUOTA_EXCEEDED])
    equal(client.get(usage)[0], b"count=5,bytes=8")


def test_the_deepest_quota_counts(context):
    client, root, usage = with_quota(context, b"")
    inner = f"/zookeeper/quota{root}/b"
    for path in (inner, f"{inner}/zookeeper_limits", f"{inner}/zookeeper_stats"):
        client.create(path)
    equal(client.get(f"{inner}/zookeeper_stats")[0], b"count=1,bytes=5")
    client.create(f"{root}/b/c", b"1")
    equal(client.get(f"{inner}/zookeeper_stats")[0], b"count=2,bytes=6")
    equal(client.get(usage)[0], b"count=2,bytes=8")
    client.delete(f"{inner}/zookeeper_stats")
    client.create(f"{root}/b/d", b"1")
    equal(client.get(usage)[0], b"count=2,bytes=8", "limits without usage hide those above")
    client.delete(f"{inner}/zookeeper_limits")
    client.create(f"{root}/b/e", b"1")
    equal(client.get(usage)[0], b"count=3,bytes=9")


def test_a_removed_quota_is_gone(context):
    client, root, usage = with_quota(context, b"countHardLimit=2")
    refuses(jute.QUOTA_EXCEEDED, client.create, f"{root}/c")
    client.delete(f"/zookeeper/quota{root}/zookeeper_limits")
    client.create(f"{root}/c")
    equal(client.get(usage)[0], b"count=2,bytes=8")
    client.create(f"/zookeeper/quota{root}/zookeeper_limits", b"countHardLimit=2")
    client.delete(usage)
    client.create(f"{root}/d")
    client.create(usage)
    equal(client.get(usage)[0], b"count=4,bytes=8", "usage made anew counts what is there")


def test_what_clients_write_as_usage_counts(context):
    client, root, usage = with_quota(context, b"countHardLimit=3")
    client.set(usage, b"count==5,bytes=+1;zz=3;yy=4")
    client.delete(f"{root}/b")
    equal(client.get(usage)[0], b"count=-2,bytes=-4=;yy=4;zz=3")
    client.set(usage, b"count=3,bytes=0")
    refuses(jute.QUOTA_EXCEEDED, client.create, f"{root}/c")


def test_unreadable_texts_do_no_harm(context):
    client, root, usage = with_quota(context, b"countHardLimit=1")
    for text in (b"garbage", b"\xff\xfe", b"count=,bytes", b"k=1;" * 1000):
        client.set(usage, text)
        client.set(f"/zookeeper/quota{root}/zookeeper_limits", text)
        if context.is_corral:
            client.create(f"{root}/{len(text)}", b"1")
            equal(client.get(usage)[0], b"count=0,bytes=0")
    client.get(root)


def test_the_root_of_the_quotas_has_none(context):
    if context.is_corral:  # ZooKeeper 3.9 stops for good at the limits
        client = context.client()
        client.create("/zookeeper/quota/zookeeper_limits", b"countHardLimit=1")
        client.create("/zookeeper/quota/zookeeper_stats")
        context.root(client)
        client.delete("/zookeeper/quota/zookeeper_limits")
        client.delete("/zookeeper/quota/zookeeper_stats")
