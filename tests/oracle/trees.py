"""The whole tree of every server, read over the wire and compared at one zxid.

A tree is {path: (data, Stat, ACL)}. No client may write meanwhile. A session that expires in between makes the comparison begin again.
"""

from support import jute
from support.client import Closed
from support.pipeline import Pipelined
from support.wait import wait_until

READ_DEPTH = 64
# Differing paths that a message shows.
SHOWN = 5
# ZooKeeper's servers make this znode themselves, each at its own time.
OWN_OF_ZOOKEEPER = "/zookeeper/config"


class Differ(Exception):
    """Two servers have different trees at the same zxid."""


def reader_at(member):
    """A pipelined session at this member, or None."""
    try:
        session = Pipelined(member.address, READ_DEPTH)
    except (OSError, Closed):
        return None
    if session.session_id:
        return session
    session.drop()
    return None


def read_tree(session):
    """The tree of the session's server and the zxid it has, or None when the zxid moved meanwhile."""
    zxids, tree, level = set(), {}, ["/"]
    while level:
        requests = []
        for path in level:
            requests.append(((path, "data"), jute.GET_DATA, jute.read_body(path)))
            requests.append(((path, "acl"), jute.GET_ACL, jute.string(path)))
            requests.append(((path, "children"), jute.GET_CHILDREN, jute.read_body(path)))
        level = []
        for answer in session.ask_all(requests):
            zxids.add(answer.zxid)
            if answer.error or len(zxids) > 1:
                return None
            path, what = answer.tag
            if what == "data":
                tree[path] = (answer.body.buffer(), answer.body.stat())
            elif what == "acl":
                tree[path] += (tuple(answer.body.acl()),)
            else:
                level += [f"{path.rstrip('/')}/{name}" for name in answer.body.strings()]
    return tree, zxids.pop()


def equal_trees(members):
    """The tree all these servers have, and its zxid. Raises Differ when two of them differ at the same zxid."""
    read = wait_until(lambda: read_all(members), "the servers come to rest at one zxid")
    if members[0].kind == "zookeeper":
        for one, _ in read:
            del one[OWN_OF_ZOOKEEPER]
    (tree, zxid), *others = read
    for member, (other, _) in zip(members[1:], others, strict=True):
        if other != tree:
            raise Differ(f"{members[0].address[1]} and {member.address[1]} at {zxid:#x}: {difference(tree, other)}")
    return tree, zxid


def read_all(members):
    """The tree and zxid of each server, or None when they were not at the same zxid all the while."""
    sessions = [wait_until(lambda member=member: reader_at(member), f"{member.address[1]} gives a session") for member in members]
    try:
        sync = [(None, jute.SYNC, jute.string("/"))]
        read = [session.ask_all(sync)[0].error == 0 and read_tree(session) for session in sessions]
    except (AssertionError, IndexError):
        # An election in between ends connections that wait for the answer to a sync.
        return None
    finally:
        for session in sessions:
            session.drop()
    return read if all(read) and len({zxid for _, zxid in read}) == 1 else None


def difference(left, right):
    """Some of the paths in which two trees differ, with what both have."""
    paths = sorted(path for path in left.keys() | right.keys() if left.get(path) != right.get(path))
    shown = [f"{path}: {left.get(path)} and {right.get(path)}" for path in paths[:SHOWN]]
    return f"{len(paths)} paths differ: {'; '.join(shown)}"


def below(tree, root):
    """The root with what is directly below it, as {path: (data, Stat)}."""
    return {path: node[:2] for path, node in tree.items() if path == root or path.rpartition("/")[0] == root}
