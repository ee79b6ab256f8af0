"""Watches and the permission to read. All else about watches is in the recordings, src/sim/src/check/watches.rs and test_transports.py."""

import pytest

from support import jute
from support.expect import equal, refuses
from support.jute import CREATED, DELETED

CLOSED = ((jute.ALL, "auth", ""),)


@pytest.fixture
def watched(context):
    """A watching client, one that owns closed znodes, and this test's node."""
    watcher, owner = context.client(), context.client()
    root = context.root(owner)
    owner.auth("digest", b"owner:secret")
    watcher.sync()
    return watcher, owner, root


def test_events_are_not_sent_without_permission_to_read(watched):
    watcher, owner, root = watched
    a = owner.create(f"{root}/a")
    watcher.sync()
    watcher.exists(a, watch=True)
    owner.set_acl(a, CLOSED)
    owner.set(a, b"1")
    owner.set_acl(a, jute.OPEN_ACL)
    owner.set(a, b"2")
    watcher.sync()
    equal(watcher.take_events(), [], "the hidden event consumed the watch")
    hidden = owner.create(f"{root}/hidden", acl=CLOSED)
    watcher.sync()
    refuses(jute.NO_AUTH, watcher.exists, hidden, watch=True)
    owner.set_acl(hidden, jute.OPEN_ACL)
    owner.set(hidden, b"")
    watcher.sync()
    equal(watcher.take_events(), [], "a refused exists sets no watch")


def test_persistent_watchers_do_not_hear_of_what_they_may_not_read(watched):
    watcher, owner, root = watched
    watcher.add_watch(root, 1)
    watcher.add_watch(f"{root}/hidden", 0)
    hidden = owner.create(f"{root}/hidden", acl=CLOSED)
    owner.set(hidden, b"1")
    owner.create(f"{hidden}/name")
    owner.delete(f"{hidden}/name")
    owner.delete(hidden)
    open_one = owner.create(f"{root}/open")
    watcher.sync()
    equal(watcher.take_events(), [(CREATED, f"{hidden}/name"), (DELETED, f"{hidden}/name"), (CREATED, open_one)])
