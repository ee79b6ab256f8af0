"""Judges what every connection received: the events that the model foresees, each once, in order, before the data.

Takes a run as a list of entries, made by `player`, and never talks to a server, so that a run can be recorded, spoilt and judged
again. Entries: `("open", connection, session id)` a connection begins; `("round", {connection: messages}, extra)` what the
connections received in a round at whose end nothing was on its way, and transactions that are known without their replies;
`("plant", [(path, state)])` nodes that are there before; `("gone", connection)` one that is not looked at any more.
A message is `(EVENT, zxid, kind, state, path)` or `(REPLY, request, zxid, error, body)`; a request is a tuple that begins with
its name.
"""

from collections import Counter, deque

from support import jute
from watches.model import READERS, Node, Tree, Watches, seen_stat

EVENT, REPLY = "event", "reply"
WRITES = {"create", "delete", "set", "acl", "multi", "close"}
SYNC_CONNECTED = 3
MADE_UP = -1
READ_ERRORS = (jute.OK, jute.NO_NODE, jute.NO_AUTH)


class Violation(Exception):
    """A promise was broken."""


class Watcher:
    """One connection as the model has it."""

    def __init__(self, name, session):
        self.name, self.session = name, session
        self.watches, self.users = Watches(), set()
        self.stream, self.expected, self.made_up = deque(), deque(), []
        self.zxid = 0
        self.taken = deque(maxlen=3)

    def fail(self, what):
        context = "".join(f"\n    {message}" for message in [*self.taken, "here:", *list(self.stream)[:4]])
        raise Violation(f"connection {self.name}: {what}; among these messages:{context}")


class Checker:
    """See the module."""

    def __init__(self):
        self.tree = Tree(self.fire)
        self.watchers, self.counts = {}, Counter()
        self.last_txn = 0

    def judge(self, entries):
        for entry in entries:
            self.take(entry)
        return self.counts

    def take(self, entry):
        if entry[0] == "plant":
            for path, node in entry[1]:
                self.tree.plant(path, Node(*node))
        elif entry[0] == "open":
            _, name, session = entry
            self.watchers[name] = Watcher(name, session)
        elif entry[0] == "gone":
            del self.watchers[entry[1]]
        else:
            self.round(*entry[1:])

    def round(self, received, extra):
        for name, messages in received.items():
            self.watchers[name].stream.extend(messages)
        for zxid, name, request, results in self.transactions(received, extra):
            for watcher in self.watchers.values():
                self.advance(watcher, zxid - 1)
            self.apply(zxid, self.watchers[name], request, results)
        for watcher in self.watchers.values():
            self.advance(watcher, 1 << 62)
            if watcher.made_up:
                watcher.fail(f"{watcher.made_up} come without a setWatches")

    def transactions(self, received, extra):
        """The writes of a round that changed something, by zxid."""
        found = list(extra)
        for name, messages in received.items():
            for message in messages:
                if message[0] == REPLY and message[1][0] in WRITES and message[3] == 0:
                    _, request, zxid, _, body = message
                    results = results_of(request, body)
                    if results is not None:
                        found.append((zxid, name, request, results))
        found.sort(key=lambda txn: txn[0])
        for one in found:
            if one[0] <= self.last_txn:
                raise Violation(f"two transactions, or one too late, have the zxid {one[0]:#x}: {one}")
            self.last_txn = one[0]
        return found

    def apply(self, zxid, watcher, request, results):
        self.counts["transactions"] += 1
        if request[0] == "close":
            self.tree.close_session(zxid, watcher.session)
            return
        operations = request[1] if request[0] == "multi" else [request]
        try:
            for operation, result in zip(operations, results, strict=True):
                self.apply_one(zxid, watcher, operation, result)
        except KeyError as error:
            raise Violation(f"{request} succeeds at {zxid:#x} although the model has no {error}") from error

    def apply_one(self, zxid, watcher, operation, path):
        name, *rest = operation
        if name == "create":
            _, data, flags, acl = rest
            owner = watcher.session if flags & jute.EPHEMERAL else 0
            self.tree.create(zxid, path, data, acl, owner)
        elif name == "delete":
            self.tree.delete(zxid, rest[0])
        elif name == "set":
            self.tree.set(zxid, *rest)
        elif name == "acl":
            self.tree.set_acl(zxid, *rest)

    def fire(self, zxid, kind, path, acl, parent, parent_acl):
        for watcher in self.watchers.values():
            for found, where, by_parent in watcher.watches.events(kind, path, parent):
                readers = READERS[parent_acl if by_parent else acl]
                if readers is None or readers & watcher.users:
                    watcher.expected.append((zxid, found, where))
                else:
                    self.counts["withheld"] += 1

    def advance(self, watcher, limit):
        """Takes what the connection received while the tree was as it is now: everything up to the zxid `limit`."""
        stream = watcher.stream
        while stream:
            message = stream[0]
            if message[0] == EVENT:
                if not self.take_event(watcher, message, limit):
                    return
            elif message[2] > limit:
                return
            else:
                self.take_reply(watcher, message)
            watcher.taken.append(stream.popleft())

    def take_event(self, watcher, message, limit):
        _, zxid, kind, state, path = message
        if state != SYNC_CONNECTED:
            watcher.fail(f"an event with state {state}")
        if zxid == MADE_UP:
            watcher.made_up.append((kind, path))
            return True
        if watcher.made_up:
            watcher.fail("an event stands between those made up for setWatches and its reply")
        if watcher.expected and watcher.expected[0] == (zxid, kind, path):
            watcher.expected.popleft()
            self.counts["events"] += 1
            return True
        if zxid > limit:
            return False
        due = list(watcher.expected)[:3]
        return watcher.fail(f"event {(zxid, kind, path)} where {due} are due")

    def take_reply(self, watcher, message):
        _, request, zxid, error, body = message
        if request[0] == "auth":
            watcher.users.add(request[1])
            return
        if zxid < watcher.zxid:
            watcher.fail(f"zxid {zxid:#x} after {watcher.zxid:#x}")
        watcher.zxid = zxid
        if watcher.expected:
            watcher.fail(f"{list(watcher.expected)[:3]} are lost: the reply of zxid {zxid:#x} comes first")
        if watcher.made_up and request[0] != "set_watches":
            watcher.fail(f"{watcher.made_up} come without a setWatches")
        handler = getattr(self, f"on_{request[0]}", None)
        if handler:
            handler(watcher, request, error, jute.Reader(body))
        self.counts["replies"] += 1

    # Reads: the answer shows the tree exactly as it was, and registers.

    def found(self, watcher, path, error):
        """The node a read shows, None if there is none; fails if the error is another than the model's."""
        node = self.tree.nodes.get(path)
        if node is None:
            due = jute.NO_NODE
        else:
            due = jute.OK if self.tree.readable(path, watcher.users) else jute.NO_AUTH
        if error != due:
            watcher.fail(f"a read of {path} is answered {error}, not {due}")
        self.counts["reads"] += 1
        return node if due == jute.OK else None

    def same(self, watcher, what, shown, due):
        if shown != due:
            watcher.fail(f"{what} shows {shown}, not {due}, at zxid {watcher.zxid:#x}")

    def on_get(self, watcher, request, error, body):
        _, path, watch = request
        node = self.found(watcher, path, error)
        if node:
            self.same(watcher, path, (body.buffer(), seen_stat(body.stat())), (node.data, node.stat()))
            if watch:
                watcher.watches.data.add(path)

    def on_exists(self, watcher, request, error, body):
        _, path, watch = request
        node = self.found(watcher, path, error)
        if node:
            self.same(watcher, path, seen_stat(body.stat()), node.stat())
        if watch and error != jute.NO_AUTH:
            watcher.watches.data.add(path)

    def on_children(self, watcher, request, error, body):
        _, path, watch = request
        node = self.found(watcher, path, error)
        if node:
            self.same(watcher, path, sorted(body.strings()), sorted(node.children))
            if watch:
                watcher.watches.child.add(path)

    # Watches.

    def on_add(self, watcher, request, error, _body):
        _, path, mode = request
        self.same(watcher, "addWatch", error, jute.OK)
        (watcher.watches.recursive if mode else watcher.watches.persistent).add(path)
        self.counts["addWatch"] += 1

    def on_check(self, watcher, request, error, _body):
        _, path, kind = request
        due = jute.OK if watcher.watches.holds(path, kind) else jute.NO_WATCHER
        self.same(watcher, f"checkWatches {request}", error, due)
        self.counts["checkWatches"] += 1

    def on_remove(self, watcher, request, error, body):
        self.on_check(watcher, request, error, body)
        watcher.watches.remove(*request[1:])
        self.counts["removed"] += error == jute.OK

    def on_set_watches(self, watcher, request, error, _body):
        self.same(watcher, "setWatches", error, jute.OK)
        due = watcher.watches.catch_up(self.tree, *request[1:])
        self.same(watcher, "setWatches", watcher.made_up, due)
        self.counts["made up"] += len(due)
        self.counts["events"] += len(due)
        self.counts["setWatches"] += 1
        watcher.made_up = []


def results_of(request, body):
    """The path for each operation of a write that was answered without error; None if it is a multi that failed."""
    if request[0] == "create":
        return [jute.Reader(body).string()]
    if request[0] != "multi":
        return [None]
    results = jute.multi_results(jute.Reader(body))
    if any(kind == -1 for kind, _, _ in results):
        return None
    return [value if kind == jute.CREATE else None for kind, _, value in results]
