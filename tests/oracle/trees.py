"""The whole tree of every server, read over the wire and compared at one zxid.

A tree is {path: (data, Stat, ACL)}. It stands for a digest of the state: servers with the same tree at the same zxid give the same
answers. Nobody may write meanwhile; a session that expires in between makes the comparison begin again.
"""

import hashlib
import time

from support import jute
from support.client import Closed
from support.pipeline import Pipelined

READ_DEPTH = 64
LIMIT_S = 60
# Differing paths that a message shows.
SHOWN = 5
# ZooKeeper's servers make this znode themselves, each at its own time.
OWN_OF_ZOOKEEPER = "/zookeeper/config"


class Differ(Exception):
    """Two servers have different trees at the same zxid."""


def reader_at(member, timeout_ms=10_000, limit_s=LIMIT_S):
    """A pipelined session at this member, tried until it gives one."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            session = Pipelined(member.address, READ_DEPTH, timeout_ms)
            if session.session_id:
                return session
            session.drop()
        except (OSError, Closed):
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server at {member.address[1]} gives no session within {limit_s} s")
        time.sleep(0.01)


def synced(session):
    """Whether the session's server has answered a sync."""
    return session.ask_all([(None, jute.SYNC, jute.string("/"))])[0].error == 0


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


def digest(tree):
    """A hash of the tree, the same for the same tree."""
    return hashlib.sha256(repr(sorted(tree.items())).encode()).hexdigest()


def equal_trees(members, limit_s=LIMIT_S):
    """The tree all these servers have, and its zxid. Raises Differ when two of them differ at the same zxid."""
    deadline = time.monotonic() + limit_s
    while not (read := read_all(members)):
        if time.monotonic() > deadline:
            raise TimeoutError("the servers do not come to rest at one zxid")
    if members[0].kind == "zookeeper":
        for one, _ in read:
            del one[OWN_OF_ZOOKEEPER]
    (tree, zxid), *others = read
    for member, (other, _) in zip(members[1:], others):
        if digest(other) != digest(tree):
            raise Differ(f"{members[0].address[1]} and {member.address[1]} at {zxid:#x}: {difference(tree, other)}")
    return tree, zxid


def read_all(members):
    """The tree and zxid of each server, or None when they were not at the same zxid all the while."""
    sessions = [reader_at(member) for member in members]
    try:
        read = [synced(session) and read_tree(session) for session in sessions]
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
