"""One-shot watches, their events and their order, and setWatches."""

from blackbox.operations import create, delete, set_data, two_clients
from support import jute
from support.client import Event, Reply
from support.expect import equal, refuses
from support.jute import CHANGED, CHILDREN_CHANGED, CREATED, DELETED


def test_the_event_comes_before_the_reply_of_its_cause(context):
    client = context.client()
    root = context.root(client)
    client.exists(root, watch=True)
    client.send(jute.SET_DATA, jute.set_body(root, b""))
    event, reply = client.receive(), client.receive()
    assert isinstance(event, Event) and isinstance(reply, Reply)
    equal((event.zxid, event.state, event.kind, event.path), (reply.zxid, 3, CHANGED, root))


def test_the_event_comes_before_any_read_that_shows_its_cause(context):
    watcher, other, root = two_clients(context)
    for number in range(50):
        watcher.get(root, watch=True)
        other.set(root, str(number).encode())
        for _ in range(100):
            if watcher.get(root)[0] == str(number).encode():
                break
        equal([event.kind for event in watcher.events], [CHANGED], f"round {number}")
        watcher.events.clear()


def test_watches_fire_once(context):
    watcher, other, root = two_clients(context)
    watcher.get(root, watch=True)
    watcher.exists(root, watch=True)
    other.set(root, b"1")
    other.set(root, b"2")
    other.sync(root)
    watcher.sync()
    equal(watcher.take_events(), [(CHANGED, root)])


def test_exists_watches_a_missing_node_and_others_do_not(context):
    watcher, other, root = two_clients(context)
    a, b = f"{root}/a", f"{root}/b"
    refuses(jute.NO_NODE, watcher.exists, a, watch=True)
    for call in (watcher.get, watcher.children, watcher.children2):
        refuses(jute.NO_NODE, call, b, watch=True)
    other.create(a)
    other.create(b)
    watcher.sync()
    equal(watcher.take_events(), [(CREATED, a)])


def test_each_read_watches_what_it_shows(context):
    watcher, other, root = two_clients(context)
    a = other.create(f"{root}/a")
    watcher.sync()
    cases = [
        (watcher.exists, lambda: other.set(a, b""), [(CHANGED, a)]),
        (watcher.get, lambda: other.set(a, b""), [(CHANGED, a)]),
        (watcher.children, lambda: other.create(f"{a}/x"), [(CHILDREN_CHANGED, a)]),
        (watcher.children2, lambda: other.delete(f"{a}/x"), [(CHILDREN_CHANGED, a)]),
        (watcher.exists, lambda: other.set_acl(a, jute.OPEN_ACL), []),
    ]
    for read, change, events in cases:
        read(a, watch=True)
        change()
        watcher.sync()
        equal(watcher.take_events(), events, read.__name__)
    other.set(a, b"")
    watcher.sync()
    equal(watcher.take_events(), [(CHANGED, a)], "the watch the ACL did not fire")


def test_deletion_fires_once_for_data_and_child_watch(context):
    watcher, other, root = two_clients(context)
    a = other.create(f"{root}/a")
    watcher.sync()
    watcher.get(a, watch=True)
    watcher.children(a, watch=True)
    watcher.children(root, watch=True)
    other.delete(a)
    watcher.sync()
    equal(watcher.take_events(), [(DELETED, a), (CHILDREN_CHANGED, root)])


def test_child_watches_ignore_data_and_grandchildren(context):
    watcher, other, root = two_clients(context)
    other.create(f"{root}/a")
    watcher.sync()
    watcher.children(root, watch=True)
    other.set(f"{root}/a", b"x")
    other.create(f"{root}/a/b")
    other.set(root, b"x")
    watcher.sync()
    equal(watcher.take_events(), [])
    other.create(f"{root}/c")
    watcher.sync()
    equal(watcher.take_events(), [(CHILDREN_CHANGED, root)])


def test_a_multi_fires_operation_by_operation(context):
    watcher, other, root = two_clients(context)
    a, b = other.create(f"{root}/a"), f"{root}/b"
    watcher.sync()
    watcher.get(a, watch=True)
    refuses(jute.NO_NODE, watcher.exists, b, watch=True)
    watcher.children(root, watch=True)
    other.multi(set_data(a), create(b), delete(a))
    watcher.sync()
    watcher.ping()
    zxids = {event.zxid for event in watcher.events}
    equal(watcher.take_events(), [(CHANGED, a), (CREATED, b), (CHILDREN_CHANGED, root)])
    equal(len(zxids), 1)
    watcher.get(b, watch=True)
    other.multi(set_data(b), delete(f"{root}/none"))
    watcher.sync()
    equal(watcher.take_events(), [], "a failed multi")


def test_watches_of_many_connections(context):
    watchers, other = [context.client() for _ in range(20)], context.client()
    root = context.root(other)
    for watcher in watchers:
        watcher.sync()
        watcher.get(root, watch=True)
    other.set(root, b"1")
    for watcher in watchers:
        watcher.sync()
        equal(watcher.take_events(), [(CHANGED, root)])


def test_expiry_fires_watches(context):
    watcher, other, root = two_clients(context)
    doomed = context.client(timeout_ms=1000)
    a = doomed.create(f"{root}/a", flags=jute.EPHEMERAL)
    watcher.sync()
    watcher.exists(a, watch=True)
    doomed.drop()
    event = watcher.receive()
    equal((event.kind, event.path), (DELETED, a))


def test_events_are_not_sent_without_permission_to_read(context):
    watcher, other, root = two_clients(context)
    a = other.create(f"{root}/a")
    other.auth("digest", b"u:p")
    watcher.sync()
    watcher.exists(a, watch=True)
    other.set_acl(a, ((jute.ALL, "auth", ""),))
    other.set(a, b"1")
    other.set_acl(a, jute.OPEN_ACL)
    other.set(a, b"2")
    watcher.sync()
    equal(watcher.take_events(), [], "the hidden event consumed the watch")
    hidden = other.create(f"{root}/hidden", acl=((jute.ALL, "auth", ""),))
    watcher.sync()
    refuses(jute.NO_AUTH, watcher.exists, hidden, watch=True)
    other.set_acl(hidden, jute.OPEN_ACL)
    other.set(hidden, b"")
    watcher.sync()
    equal(watcher.take_events(), [], "a refused exists sets no watch")


def test_set_watches_catches_up_and_registers(context):
    watcher, other, root = two_clients(context)
    same, changed, born = other.create(f"{root}/same"), other.create(f"{root}/changed"), f"{root}/born"
    gone, parent, absent = other.create(f"{root}/gone"), other.create(f"{root}/parent"), f"{root}/absent"
    seen = other.zxid
    other.set(changed, b"new")
    other.create(born)
    other.delete(gone)
    other.create(f"{parent}/child")
    body = jute.set_watches_body(seen, [same, changed, gone], [born, absent], [parent, same, gone])
    watcher.sync()
    watcher.send(jute.SET_WATCHES, body, jute.SET_WATCHES_XID)
    events = [watcher.receive() for _ in range(5)]
    equal({event.zxid for event in events}, {-1})
    expected = [(CHANGED, changed), (DELETED, gone), (CREATED, born), (CHILDREN_CHANGED, parent), (DELETED, gone)]
    equal([(event.kind, event.path) for event in events], expected)
    reply = watcher.receive()
    equal((reply.xid, reply.error, reply.body.rest()), (jute.SET_WATCHES_XID, 0, b""))
    other.set(same, b"new")
    other.create(f"{same}/child")
    other.create(absent)
    watcher.sync()
    equal(watcher.take_events(), [(CHANGED, same), (CHILDREN_CHANGED, same), (CREATED, absent)])


def test_many_watches_of_one_connection(context):
    watcher, other, root = two_clients(context)
    paths = [f"{root}/{number}" for number in range(5000)]
    for begin in range(0, len(paths), 500):
        other.multi(*[create(path) for path in paths[begin : begin + 500]])
    watcher.sync()
    for path in paths:
        watcher.send(jute.GET_DATA, jute.read_body(path, watch=True))
    for _ in paths:
        equal(watcher.reply().error, 0)
    for begin in range(0, len(paths), 500):
        other.multi(*[delete(path) for path in paths[begin : begin + 500]])
    watcher.sync()
    equal(watcher.take_events(), [(DELETED, path) for path in paths])
