"""Plays a run on a server: several sessions that watch, change and reconnect at random, in rounds, and now and then a kill.

Gives the entries that the checker judges. Everything random follows from the seed; what the server makes of it does not.
"""

import random
import selectors
from collections import Counter

from support import jute
from support.client import exists_or_none
from support.wait import wait_until
from watches.checker import REPLY
from watches.model import USERS, parent_of
from watches.session import Session, await_all, turn

ROOT = "/w"
LETTERS = "abc"
# What a request is, by weight.
CONNECTIONS = 8
# Of a round, at least and at most.
ROUND_REQUESTS = (30, 700)
KINDS = {
    "read": 27, "add": 4, "remove": 3, "check": 3, "create": 22, "delete": 15, "set": 22, "acl": 3,
    "multi": 7,
}  # fmt: skip
EPHEMERALS_SHARE = 0.2
EXPIRING_TIMEOUT_MS = 1000


def paths():
    """All paths of the small tree, the deeper ones more often."""
    level, found = [ROOT], [ROOT]
    for _ in range(2):
        level = [f"{up}/{letter}" for up in level for letter in LETTERS]
        found += level
    return found


PATHS = paths()


class Workload:
    """Makes requests."""

    def __init__(self, seed, owns_many):
        self.random, self.number, self.owns_many = random.Random(seed), 0, owns_many

    def path(self):
        return self.random.choice(PATHS)

    def child(self):
        return self.random.choice(PATHS[1:])

    def request(self, ephemerals):
        """One request; `ephemerals` says whether the session may still make such nodes."""
        kind = self.random.choices(list(KINDS), KINDS.values())[0]
        if kind == "read":
            return self.read(0.8)
        if kind == "add":
            return (kind, self.path(), self.random.randrange(2))
        if kind in ("remove", "check"):
            return (kind, self.path(), self.random.choice((1, 2, 3, 4, 5)))
        if kind == "acl":
            return (kind, self.path(), self.acl())
        if kind == "multi":
            return (kind, [self.write(False) for _ in range(self.random.randrange(1, 5))])
        return self.write(ephemerals, kind)

    def read(self, watched):
        """A read that also watches, with this probability."""
        kind = self.random.choice(("get", "exists", "children"))
        return (kind, self.path(), self.random.random() < watched)

    def acl(self):
        return self.random.choice(("open", "open", "open", "one", "both", "nobody"))

    def write(self, ephemerals, kind=None):
        self.number += 1
        data = b"%d" % self.number
        kind = kind or self.random.choice(("create", "create", "delete", "set", "set"))
        if kind == "delete":
            return (kind, self.child())
        if kind == "set":
            return (kind, self.path(), data)
        flags = jute.EPHEMERAL if ephemerals and self.random.random() < EPHEMERALS_SHARE else jute.PERSISTENT
        return (kind, self.child(), data, flags, self.acl())


class Player:
    """See the module."""

    def __init__(self, server, connections, seed, owns_many=True):
        self.server, self.entries = server, []
        self.random = random.Random(f"{seed}-player")
        self.workload = Workload(seed, owns_many)
        self.selector = selectors.DefaultSelector()
        self.control = self.controller()
        self.plant(connections)
        self.sessions, self.going = {}, []
        self.counts = Counter()
        for name in range(connections):
            self.begin(name)

    def controller(self):
        """A client outside of the model, which may read nearly all."""
        client = self.server.client(timeout_ms=60_000)
        for credentials in USERS.values():
            client.auth("digest", credentials)
        return client

    def plant(self, connections):
        """The nodes that are there before: the root of the tree and a journal for each connection."""
        nodes = []
        for path in [ROOT, "/journal", *(f"/journal/{name}" for name in range(connections))]:
            self.control.create(path)
            stat = self.control.exists(path)
            nodes.append((path, (b"", "open", 0, stat.czxid)))
        self.entries.append(("plant", nodes))

    def begin(self, name):
        """A new session, which proves at random who it is."""
        users = self.random.choice(((), ("one",), ("two",), ("one", "two")))
        session = Session(self.server.address, users)
        self.sessions[name] = session
        self.counts["sessions"] += 1
        self.opened(name)

    def opened(self, name):
        session = self.sessions[name]
        self.entries.append(("open", name, session.client.session_id))
        self.selector.register(session.client.socket, selectors.EVENT_READ, session)

    def forget(self, name):
        """The connection ends, from the client's side or the server's."""
        session = self.sessions[name]
        if session.client.socket.fileno() >= 0 and session.client.socket in self.selector.get_map():
            self.selector.unregister(session.client.socket)
        session.drop()

    def reconnect(self, name):
        self.forget(name)
        self.counts["set again"] += sum(map(len, self.sessions[name].belief.lists()))
        self.sessions[name].connect()
        self.counts["reconnections"] += 1
        self.opened(name)

    def round(self, requests):
        """Everybody sends at random; some connections break and come back meanwhile; then everything is answered."""
        everybody = list(self.sessions.values())
        lost, self.going = self.going, []
        for name in lost:
            self.forget(name)
            self.sessions[name].closed = True
        left = requests
        while left > 0:
            for session in everybody:
                if not session.closed:
                    count = self.random.randrange(9)
                    left -= count
                    for _ in range(count):
                        self.ask_one(session)
            turn(self.selector, everybody, 0.0005)
            if lost and self.random.random() < 0.1:
                self.reconnect(lost.pop())
        for name in lost:
            self.reconnect(name)
        self.finish_round()

    def ask_one(self, session):
        self.counts["requests"] += 1
        request = self.workload.request(self.may_own(session))
        if request[0] == "create" and request[3] & jute.EPHEMERAL:
            session.owns = True
        session.ask(request)

    def may_own(self, session):
        return self.workload.owns_many or not getattr(session, "owns", False)

    def finish_round(self, extra=()):
        leaver = self.random.choice(list(self.sessions)) if self.random.random() < 0.05 else None
        self.going = [name for name in self.sessions if name != leaver and self.random.random() < 0.2]
        for name in self.going:
            # It takes some one-shot watches with it, in a tree where none lasts long.
            for _ in range(self.random.randrange(20)):
                self.sessions[name].ask(self.workload.read(1.0))
        for name, session in self.sessions.items():
            session.ask(("close",) if name == leaver else ("ping",))
        self.settle(extra, leaver)
        if leaver is not None:
            self.forget(leaver)
            self.begin(leaver)

    def settle(self, extra=(), leaver=None):
        """Waits until everything is answered; the round ends."""
        everybody = list(self.sessions.values())
        await_all(self.selector, everybody)
        # One shard may be behind another. What was answered to anybody in this round is seen by everybody in the next.
        for name, session in self.sessions.items():
            if name != leaver:
                session.ask(("sync",))
        await_all(self.selector, everybody)
        self.entries.append(("round", {name: session.hand_over() for name, session in self.sessions.items()}, list(extra)))

    def expire(self):
        """A session is left alone until it expires; nobody else writes meanwhile, so its nodes' parent tells the zxid."""
        ghost, session = "ghost", Session(self.server.address, (), EXPIRING_TIMEOUT_MS)
        self.sessions[ghost] = session
        self.opened(ghost)
        for _ in range(8 if self.workload.owns_many else 1):
            path = self.workload.child()
            # Its end must be visible to the one who waits for it.
            session.ask(("acl", parent_of(path), "open"))
            session.ask(("create", path, b"", jute.EPHEMERAL, self.random.choice(("open", "one", "both"))))
        self.settle()
        replies = [message for message in self.entries[-1][1][ghost] if message[0] == REPLY]
        created = [request[1] for _, request, _, error, _ in replies if request[0] == "create" and error == jute.OK]
        self.forget(ghost)
        del self.sessions[ghost]
        extra = []
        if created:
            wait_until(lambda: not any(self.owns(session, path) for path in created), "the session expires", 30)
            stat = self.control.exists(parent_of(created[0]))
            extra = [(stat.pzxid, ghost, ("close",), [None])]
            self.counts["expired"] += 1
        self.settle(extra)
        self.entries.append(("gone", ghost))

    def owns(self, session, path):
        self.control.sync()
        stat = exists_or_none(self.control, path)
        return stat is not None and stat.ephemeral_owner == session.client.session_id

    def kill(self):
        """Everybody writes with a journal, one write at a time; the server is killed; who had a write under way finds out."""
        everybody, number = list(self.sessions.values()), {}
        for _ in range(self.random.randrange(200, 2000)):
            for name, session in self.sessions.items():
                if not session.asked and not session.closed:
                    number[name] = number.get(name, self.counts["restarts"] << 20) + 1
                    write = ("set", f"/journal/{name}", b"%d" % number[name])
                    for _ in range(self.random.randrange(3)):
                        session.ask(self.workload.read(0.9))
                    session.ask(("multi", [self.workload.write(False), write]))
            turn(self.selector, everybody, 0.001)
        self.server.kill()
        under_way = {}
        for name, session in self.sessions.items():
            while session.receive():
                pass
            under_way.update({name: request for _, request in session.asked if request[0] == "multi"})
            self.forget(name)
        messages = {name: session.hand_over() for name, session in self.sessions.items()}
        self.going = []
        self.server.start()
        self.counts["restarts"] += 1
        self.control = self.controller()
        extra = [found for name, request in under_way.items() if (found := self.resolve(name, request))]
        self.entries.append(("round", messages, extra))
        for name, session in self.sessions.items():
            session.connect()
            self.opened(name)
        self.finish_round()

    def resolve(self, name, request):
        """The transaction of a write whose reply was lost, if it took place: the journal tells."""
        path, written = request[1][1][1:]
        data, stat = self.control.get(path)
        return (stat.mzxid, name, request, [one[1] for one in request[1]]) if data == written else None

    def end(self):
        for name in self.sessions:
            self.forget(name)
        self.selector.close()
        self.control.drop()

