"""What a ZooKeeper 3.9 server must tell its watching clients, written from protocol chapters 13 and 14, for one connection after
the other: a tree that transactions change in the order of their zxids, watch tables, and the events they give.

Knows no socket and no server. `Tree` holds the znodes, `Watches` one connection's watches on the server, `Belief` the watches its
client still believes in.
"""

from support import jute
from support.jute import CHANGED, CHILDREN_CHANGED, CREATED, DELETED

# The ACLs in use, by name. With each of them everybody may write; what differs is who may read.
USERS = {"one": b"one:secret", "two": b"two:secret"}
DIGESTS = {"one": "one:Ufs9EbiqWN6tU8NHmHTo2twhzQU=", "two": "two:zYhNweCdbjH1SiHcE0egvike7rk="}
BLIND = jute.ALL & ~jute.READ
ACLS = {
    "open": ((jute.ALL, "world", "anyone"),),
    "one": ((BLIND, "world", "anyone"), (jute.READ, "digest", DIGESTS["one"])),
    "both": ((BLIND, "world", "anyone"), (jute.READ, "digest", DIGESTS["one"]), (jute.READ, "digest", DIGESTS["two"])),
    "nobody": ((BLIND, "world", "anyone"),),
}
READERS = {"open": None, "one": {"one"}, "both": {"one", "two"}, "nobody": set()}


def parent_of(path):
    return path[: path.rindex("/")] or "/"


class Node:
    """A znode's state."""

    __slots__ = ("data", "acl", "owner", "czxid", "mzxid", "pzxid", "version", "cversion", "aversion", "children")

    def __init__(self, data, acl, owner, zxid):
        self.data, self.acl, self.owner = data, acl, owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.version = self.cversion = self.aversion = 0
        self.children = set()

    def stat(self):
        """What of a Stat the model foresees: all but the times; cversion counts deletions twice less, as clients see it."""
        return (
            self.czxid, self.mzxid, self.version, self.aversion, self.owner, len(self.data), len(self.children), self.pzxid,
        )  # fmt: skip


def seen_stat(stat):
    """The same fields of a Stat that was received."""
    return (
        stat.czxid, stat.mzxid, stat.version, stat.aversion, stat.ephemeral_owner, stat.data_length, stat.num_children,
        stat.pzxid,
    )  # fmt: skip


class Tree:
    """The znodes below the test's root, at one zxid. Each change calls `fire(zxid, kind, path, acl, parent, parent_acl)`."""

    def __init__(self, fire):
        self.nodes, self.fire = {}, fire
        self.ephemerals = {}

    def readable(self, path, users):
        """Whether a connection with these users may read the node, which exists."""
        readers = READERS[self.nodes[path].acl]
        return readers is None or bool(readers & users)

    def plant(self, path, node):
        """Puts a node there without an event: what was there before the test."""
        self.nodes[path] = node

    def create(self, zxid, path, data, acl, owner):
        parent = self.nodes[parent_of(path)]
        self.nodes[path] = Node(data, acl, owner, zxid)
        if owner:
            self.ephemerals.setdefault(owner, set()).add(path)
        parent.children.add(path[path.rindex("/") + 1 :])
        parent.pzxid, parent.cversion = zxid, parent.cversion + 1
        self.fire(zxid, CREATED, path, acl, parent_of(path), parent.acl)

    def delete(self, zxid, path):
        node = self.nodes.pop(path)
        parent = self.nodes[parent_of(path)]
        if node.owner:
            self.ephemerals[node.owner].discard(path)
        parent.children.remove(path[path.rindex("/") + 1 :])
        parent.pzxid, parent.cversion = zxid, parent.cversion + 1
        self.fire(zxid, DELETED, path, node.acl, parent_of(path), parent.acl)

    def set(self, zxid, path, data):
        node = self.nodes[path]
        node.data, node.mzxid, node.version = data, zxid, node.version + 1
        self.fire(zxid, CHANGED, path, node.acl, None, None)

    def set_acl(self, _zxid, path, acl):
        node = self.nodes[path]
        node.acl, node.aversion = acl, node.aversion + 1

    def close_session(self, zxid, owner):
        """Its ephemerals go in the order of their paths."""
        for path in sorted(self.ephemerals.get(owner, ())):
            self.delete(zxid, path)
        self.ephemerals.pop(owner, None)


class Watches:
    """One connection's watches as its server holds them: two tables, three modes."""

    def __init__(self):
        self.data, self.child, self.persistent, self.recursive = set(), set(), set(), set()

    def hits_data(self, path):
        """Whether an event of the data table is for this connection; one-shot watches are used up by it."""
        hit = path in self.persistent
        if path in self.data:
            self.data.remove(path)
            hit = True
        return hit or self.is_below(path)

    def is_below(self, path):
        if not self.recursive:
            return False
        if path in self.recursive or "/" in self.recursive:
            return True
        end = len(path)
        while (end := path.rfind("/", 0, end)) > 0:
            if path[:end] in self.recursive:
                return True
        return False

    def hits_child(self, path):
        hit = path in self.persistent
        if path in self.child:
            self.child.remove(path)
            hit = True
        return hit

    def events(self, kind, path, parent):
        """What a change means for this connection, before permissions: (kind, path, whether the parent's ACL counts)."""
        hit = self.hits_data(path)
        if kind == DELETED:
            # Both tables lose their one-shot watches; the event comes once.
            hit = self.hits_child(path) or hit
        found = [(kind, path, False)] if hit else []
        if parent is not None and self.hits_child(parent):
            found.append((CHILDREN_CHANGED, parent, True))
        return found

    def tables(self, kind):
        """The sets that checkWatches and removeWatches look in."""
        return {
            1: [self.child],
            2: [self.data],
            3: [self.data, self.child, self.persistent, self.recursive],
            4: [self.persistent],
            5: [self.recursive],
        }[kind]

    def holds(self, path, kind):
        return any(path in table for table in self.tables(kind))

    def remove(self, path, kind):
        for table in self.tables(kind):
            table.discard(path)

    def catch_up(self, tree, zxid, data, exist, child, persistent, recursive):
        """setWatches2: registers, and gives the (kind, path) of what was missed since the zxid, in order."""
        missed = []
        for path in data:
            node = tree.nodes.get(path)
            if node is None:
                missed.append((DELETED, path))
            elif node.mzxid > zxid:
                missed.append((CHANGED, path))
            else:
                self.data.add(path)
        for path in exist:
            if path in tree.nodes:
                missed.append((CREATED, path))
            else:
                self.data.add(path)
        for path in child:
            node = tree.nodes.get(path)
            if node is None:
                missed.append((DELETED, path))
            elif node.pzxid > zxid:
                missed.append((CHILDREN_CHANGED, path))
            else:
                self.child.add(path)
        self.persistent.update(persistent)
        self.recursive.update(recursive)
        return missed


class Belief:
    """The watches a client library believes it has: what it sets again after a reconnection."""

    def __init__(self):
        self.data, self.exist, self.child, self.persistent, self.recursive = set(), set(), set(), set(), set()

    def told(self, kind, path):
        """An event uses up the one-shot watches that it is an answer to."""
        if kind != CHILDREN_CHANGED:
            self.data.discard(path)
            self.exist.discard(path)
        if kind in (CHILDREN_CHANGED, DELETED):
            self.child.discard(path)

    def removed(self, path, kind):
        tables = {
            1: [self.child],
            2: [self.data, self.exist],
            3: [self.data, self.exist, self.child, self.persistent, self.recursive],
            4: [self.persistent],
            5: [self.recursive],
        }
        for table in tables[kind]:
            table.discard(path)

    def lists(self):
        return tuple(sorted(table) for table in (self.data, self.exist, self.child, self.persistent, self.recursive))
