"""Every field of Stat through the life of a node."""

import time

from support import jute
from support.expect import equal, refuses


def test_create_fills_the_stat(context):
    client = context.client()
    before = time.time() * 1000
    root = context.root(client)
    reply_zxid = client.zxid
    stat = client.exists(root)
    equal((stat.mzxid, stat.pzxid, reply_zxid), (stat.czxid,) * 3)
    equal((stat.version, stat.cversion, stat.aversion, stat.ephemeral_owner), (0, 0, 0, 0))
    equal((stat.data_length, stat.num_children, stat.mtime), (0, 0, stat.ctime))
    assert before - 1000 < stat.ctime < time.time() * 1000 + 1000, stat


def test_set_data_changes_mzxid_mtime_and_version(context):
    client = context.client()
    root = context.root(client)
    created = client.exists(root)
    stat = client.set(root, b"12345")
    equal(stat._replace(mzxid=0, mtime=0, version=0, data_length=0), created._replace(mzxid=0, mtime=0))
    equal((stat.version, stat.data_length, stat.mzxid), (1, 5, client.zxid))
    assert stat.mzxid > created.mzxid and stat.mtime >= created.mtime
    equal(client.exists(root), stat)


def test_set_acl_changes_aversion_alone(context):
    client = context.client()
    root = context.root(client)
    created = client.exists(root)
    equal(client.set_acl(root, jute.OPEN_ACL), created._replace(aversion=1))
    equal(client.exists(root), created._replace(aversion=1))


def test_children_change_cversion_pzxid_and_count(context):
    client = context.client()
    root = context.root(client)
    created = client.exists(root)
    _, child = client.create2(f"{root}/a")
    equal(client.exists(root), created._replace(cversion=1, num_children=1, pzxid=child.czxid))
    client.set(f"{root}/a", b"x")
    equal(client.exists(root).pzxid, child.czxid, "a child's data is no change of its parent")
    client.delete(f"{root}/a")
    stat = client.exists(root)
    equal(stat, created._replace(cversion=2, pzxid=client.zxid))
    assert stat.pzxid > child.czxid


def test_ephemerals_show_their_owner(context):
    client, other = context.client(), context.client()
    root = context.root(client)
    client.create(f"{root}/e", flags=jute.EPHEMERAL)
    other.sync()
    equal(other.exists(f"{root}/e").ephemeral_owner, client.session_id)
    equal(other.exists(root).ephemeral_owner, 0)


def test_expiry_and_close_count_as_deletion(context):
    client, other = context.client(), context.client()
    root = context.root(other)
    client.create(f"{root}/e", flags=jute.EPHEMERAL)
    client.create(f"{root}/f", flags=jute.EPHEMERAL)
    other.sync()
    before = other.exists(root)
    client.close()
    other.sync()
    after = other.exists(root)
    equal((after.cversion, after.num_children), (before.cversion + 2, 0))
    assert after.pzxid > before.pzxid and after.mzxid == before.mzxid


def test_a_refused_write_takes_a_zxid(context):
    client = context.client()
    root = context.root(client)
    first = client.create2(f"{root}/a")[1].czxid
    refuses(jute.NO_NODE, client.delete, f"{root}/none")
    second = client.create2(f"{root}/b")[1].czxid
    equal(second - first, 2)


def test_reply_zxids_never_fall_and_reads_do_not_move_them(context):
    client = context.client()
    root = context.root(client)
    last = 0
    for number in range(20):
        client.send(jute.SET_DATA, jute.set_body(root, str(number).encode()))
        client.send(jute.GET_DATA, jute.read_body(root))
        write, read = client.reply(), client.reply()
        equal((write.body.stat().mzxid, write.error, read.error), (write.zxid, 0, 0))
        assert last < write.zxid <= read.zxid, (last, write.zxid, read.zxid)
        last = read.zxid
