"""addWatch, checkWatches, removeWatches, setWatches2, and what a session owns."""

from blackbox.operations import create, delete, set_data, two_clients
from support import jute
from support.client import Event
from support.expect import equal, refuses
from support.jute import CHANGED, CHILDREN_CHANGED, CREATED, DELETED

PERSISTENT, RECURSIVE = 0, 1
CHILDREN, DATA, ANY, OF_PERSISTENT, OF_RECURSIVE = range(1, 6)


def test_a_persistent_watch_stays(context):
    watcher, other, root = two_clients(context)
    a = f"{root}/a"
    equal(watcher.add_watch(a, PERSISTENT), 0)
    for _ in range(2):
        other.create(a)
        other.set(a, b"1")
        other.create(f"{a}/x")
        other.set(f"{a}/x", b"1")
        other.delete(f"{a}/x")
        other.delete(a)
        watcher.sync()
        events = [(CREATED, a), (CHANGED, a), (CHILDREN_CHANGED, a), (CHILDREN_CHANGED, a), (DELETED, a)]
        equal(watcher.take_events(), events)


def test_a_recursive_watch_tells_of_nodes_and_never_of_children(context):
    watcher, other, root = two_clients(context)
    equal(watcher.add_watch(root, RECURSIVE), 0)
    a, b = f"{root}/a", f"{root}/a/b"
    other.multi(create(a), create(b), set_data(b), delete(b))
    other.set(root, b"x")
    other.delete(a)
    watcher.sync()
    equal(watcher.take_events(), [(CREATED, a), (CREATED, b), (CHANGED, b), (DELETED, b), (CHANGED, root), (DELETED, a)])


def test_the_root_may_be_watched_recursively(context):
    watcher, other, root = two_clients(context)
    watcher.add_watch("/", RECURSIVE)
    other.create(f"{root}/a")
    watcher.sync()
    assert (CREATED, f"{root}/a") in watcher.take_events()
    watcher.remove_watches("/", OF_RECURSIVE)
    other.delete(f"{root}/a")
    watcher.sync()
    equal(watcher.take_events(), [])


def test_a_connection_is_told_once_whatever_its_watches(context):
    watcher, other, root = two_clients(context)
    a = other.create(f"{root}/a")
    watcher.sync()
    watcher.get(a, watch=True)
    watcher.children(a, watch=True)
    watcher.add_watch(a, PERSISTENT)
    watcher.add_watch(a, RECURSIVE)
    watcher.add_watch(root, RECURSIVE)
    other.set(a, b"1")
    other.set(a, b"2")
    other.delete(a)
    watcher.sync()
    equal(watcher.take_events(), [(CHANGED, a), (CHANGED, a), (DELETED, a)])


def test_checking_and_removing_look_at_one_kind(context):
    watcher, _, root = two_clients(context)
    for kind in (CHILDREN, DATA, ANY, OF_PERSISTENT, OF_RECURSIVE):
        refuses(jute.NO_WATCHER, watcher.check_watches, root, kind)
        refuses(jute.NO_WATCHER, watcher.remove_watches, root, kind)
    setters = {
        CHILDREN: lambda: watcher.children(root, watch=True),
        DATA: lambda: watcher.get(root, watch=True),
        OF_PERSISTENT: lambda: watcher.add_watch(root, PERSISTENT),
        OF_RECURSIVE: lambda: watcher.add_watch(root, RECURSIVE),
    }
    for kind, set_one in setters.items():
        set_one()
        for other in setters:
            if other == kind:
                watcher.check_watches(root, other)
            else:
                refuses(jute.NO_WATCHER, watcher.check_watches, root, other)
                refuses(jute.NO_WATCHER, watcher.remove_watches, root, other)
        watcher.check_watches(root, ANY)
        watcher.remove_watches(root, kind)
        refuses(jute.NO_WATCHER, watcher.check_watches, root, ANY)
    for set_one in setters.values():
        set_one()
    watcher.remove_watches(root, ANY)
    refuses(jute.NO_WATCHER, watcher.check_watches, root, ANY)


def test_a_removed_watch_is_silent_and_others_stay(context):
    watcher, other, root = two_clients(context)
    watcher.get(root, watch=True)
    watcher.children(root, watch=True)
    watcher.add_watch(root, PERSISTENT)
    watcher.remove_watches(root, OF_PERSISTENT)
    watcher.remove_watches(root, DATA)
    other.set(root, b"1")
    other.create(f"{root}/a")
    watcher.sync()
    equal(watcher.take_events(), [(CHILDREN_CHANGED, root)])


def test_unknown_modes_and_kinds_are_marshalling_errors(context):
    client = context.client()
    for mode in (-1, 2, 3, 2**31 - 1):
        refuses(jute.MARSHALLING_ERROR, client.add_watch, "/", mode)
    for kind in (-1, 0, 6):
        refuses(jute.MARSHALLING_ERROR, client.check_watches, "/", kind)
        refuses(jute.MARSHALLING_ERROR, client.remove_watches, "/", kind)
    client.ping()


def test_set_watches2_catches_up_and_registers(context):
    watcher, other, root = two_clients(context)
    a, b = other.create(f"{root}/a"), f"{root}/b"
    watcher.sync()
    seen = watcher.exists(a).mzxid
    other.set(a, b"1")
    other.create(b)
    watcher.sync()
    body = jute.set_watches2_body(seen, data=[a], exist=[b], child=[root], persistent=[a], recursive=[root])
    watcher.send(jute.SET_WATCHES2, body, jute.SET_WATCHES_XID)
    told = [watcher.receive() for _ in range(3)]
    assert all(isinstance(event, Event) for event in told)
    equal([(event.zxid, event.kind, event.path) for event in told],
          [(-1, CHANGED, a), (-1, CREATED, b), (-1, CHILDREN_CHANGED, root)])
    equal(watcher.reply().error, jute.OK)
    other.set(a, b"2")
    other.delete(b)
    watcher.sync()
    equal(watcher.take_events(), [(CHANGED, a), (DELETED, b)])


def test_persistent_watchers_do_not_hear_of_what_they_may_not_read(context):
    watcher, other, root = two_clients(context)
    other.auth("digest", b"owner:secret")
    closed = ((jute.ALL, "auth", ""),)
    watcher.add_watch(root, RECURSIVE)
    watcher.add_watch(f"{root}/hidden", PERSISTENT)
    hidden = other.create(f"{root}/hidden", acl=closed)
    other.set(hidden, b"1")
    other.create(f"{hidden}/name")
    other.delete(f"{hidden}/name")
    other.delete(hidden)
    open_one = other.create(f"{root}/open")
    watcher.sync()
    equal(watcher.take_events(), [(CREATED, f"{hidden}/name"), (DELETED, f"{hidden}/name"), (CREATED, open_one)])


def test_ephemerals_of_the_session(context):
    client, other = context.client(), context.client()
    root = context.root(other)
    client.sync()
    equal(client.ephemerals(root), [])
    names = [client.create(f"{root}/{name}", flags=jute.EPHEMERAL) for name in ("b", "a", "ab")]
    other.create(f"{root}/c", flags=jute.EPHEMERAL)
    client.create(f"{root}/d")
    equal(client.ephemerals(root), sorted(names))
    equal(client.ephemerals(f"{root}/a"), [f"{root}/a", f"{root}/ab"])
    for everything in ("/", "", None):
        equal(client.ephemerals(everything), sorted(names))
    other.delete(f"{root}/ab")
    client.sync()
    equal(client.ephemerals(), [f"{root}/a", f"{root}/b"])
    again = context.client(resume=client)
    equal(again.ephemerals(), [f"{root}/a", f"{root}/b"])
    again.delete(f"{root}/a")
    again.create(f"{root}/e", flags=jute.EPHEMERAL)
    equal(again.ephemerals(), [f"{root}/b", f"{root}/e"])


def test_descendants_are_counted(context):
    client = context.client()
    root = context.root(client)
    equal(client.count_descendants(root), 0)
    for name in ("a", "a/b", "a/b/c", "ab"):
        client.create(f"{root}/{name}")
    equal(client.count_descendants(root), 4)
    equal(client.count_descendants(f"{root}/a"), 2)
    client.delete(f"{root}/a/b/c")
    equal(client.count_descendants(f"{root}/a"), 1)
    refuses(jute.NO_NODE, client.count_descendants, f"{root}/none")
    assert client.count_descendants("/") >= 8
    client.auth("digest", b"owner:secret")
    closed = client.create(f"{root}/closed", acl=((jute.ALL, "auth", ""),))
    stranger = context.client()
    stranger.sync()
    refuses(jute.NO_AUTH, stranger.count_descendants, closed)


def test_sasl_without_a_mechanism_ends_the_exchange(context):
    client = context.client()
    sent = client.send(jute.SASL, jute.buffer(b""))
    reply = client.reply()
    equal((reply.xid, reply.zxid, reply.error), (sent, 0, jute.OK))
    equal(reply.body.rest(), b"\xff\xff\xff\xff")
    client.ping()
    client.send(jute.SASL, jute.buffer(None))
    assert client.is_closed(), "a null token leaves the connection open"
