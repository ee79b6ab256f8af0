"""What attackers do: each load prepares, then does its worst again and again. Ordinary sockets, no credentials."""

import socket
import threading
import time

from support import jute
from support.client import Client, Closed, Refused

LIMIT_S = 120


class Attack:
    """A load; `again` is called until the time is over, or gives False."""

    settings = {}
    # How long its consequences take to come.
    wait_s = 0

    def __init__(self, address):
        self.address, self.sent, self.kept, self.number = address, 0, [], 0
        self.client = self.connect()

    def connect(self, timeout_ms=40_000):
        client = Client(self.address, timeout_ms=timeout_ms)
        client.socket.settimeout(LIMIT_S)
        self.sent += 45
        return client

    def prepare(self):
        """What goes before."""

    def again(self):
        """Once more."""
        raise NotImplementedError

    def call(self, op, body, client=None):
        """Asks, and waits for whatever comes of it. A connection that is closed is followed by a new one."""
        client = client or self.client
        try:
            self.sent += len(body) + 12
            client.call(op, body)
        except Refused:
            pass
        except (Closed, OSError):
            if client is self.client:
                self.client = self.connect()
        return True

    def many(self, times, body, op=jute.MULTI):
        return self.call(op, jute.multi_body([body] * times))

    def guarded(self, path, zeros):
        """A znode with 255 addresses that no client has in its ACL."""
        entries = [(1 + 2 * at, "ip", "10.0.0.1/" + "0" * zeros + "32") for at in range(255)]
        self.call(jute.CREATE, jute.create_body(path, entries=[*entries, (31, "world", "anyone")]))

    def wide(self, path, count, name="n"):
        self.call(jute.CREATE, jute.create_body(path))
        for first in range(0, count, 5000):
            creates = [(jute.CREATE, jute.create_body(f"{path}/{name}{first + at}")) for at in range(min(5000, count))]
            self.call(jute.MULTI, jute.multi_body(creates))

    def user(self):
        # What a connection's identities may have together, its address included.
        self.client.auth("digest", b"u" * 1900 + b":p")


class Nothing(Attack):
    def again(self):
        time.sleep(0.1)
        return self.call(jute.EXISTS, jute.read_body("/"))


class Checks(Attack):
    zeros = 0

    def prepare(self):
        self.guarded("/g", self.zeros)

    def again(self):
        return self.many(45_000, (jute.CHECK, jute.check_body("/g")))


class PaddedChecks(Checks):
    zeros = 3900


class ManyReads(Checks):
    def again(self):
        return self.many(20_000, (jute.GET_DATA, jute.read_body("/g")), jute.MULTI_READ)


class QuotaCounts(Attack):
    stats = "/zookeeper/quota/zookeeper_stats"

    def prepare(self):
        self.wide("/large", 150_000)

    def again(self):
        pair = [(jute.CREATE, jute.create_body(self.stats)), (jute.DELETE, jute.delete_body(self.stats))]
        for _ in range(20):
            for op, body in pair:
                self.client.send(op, body)
                self.sent += len(body) + 12
        for _ in range(40):
            self.client.reply()
        return True


class OwnEntries(Attack):
    def prepare(self):
        self.user()

    def again(self):
        self.number += 1
        entries = [(1 + 2 * at, "auth", "") for at in range(255)]
        return self.call(jute.CREATE, jute.create_body(f"/n{self.number}", entries=entries))


class LongIdentity(Attack):
    def prepare(self):
        self.user()

    def again(self):
        return self.call(jute.SET_DATA, jute.set_body("/zookeeper/quota", b"x"))


class LongNames(Attack):
    def prepare(self):
        self.call(jute.CREATE, jute.create_body("/p"))

    def again(self):
        self.number += 1
        if self.number <= 100:
            return self.call(jute.CREATE, jute.create_body(f"/p/{self.number}" + "x" * 1_000_000))
        return self.call(jute.GET_CHILDREN, jute.read_body("/p"))


class Unread(Attack):
    """Clients that ask for listings and do not read."""

    def prepare(self):
        self.wide("/wide", 50_000, "name-of-some-length-")

    def again(self):
        if len(self.kept) < 40:
            client = self.connect()
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(20):
                body = jute.multi_body([(jute.GET_CHILDREN, jute.read_body("/wide"))] * 30)
                self.sent += len(body) + 12
                client.send(jute.MULTI_READ, body)
            self.kept.append(client)
        return self.call(jute.EXISTS, jute.read_body("/wide"))


class Listings(Unread):
    def again(self):
        return self.many(35, (jute.GET_CHILDREN, jute.read_body("/wide")), jute.MULTI_READ)


class DeepPath(Attack):
    levels = 4000

    def prepare(self):
        creates, at = [], 0
        for level in range(1, self.levels + 1):
            creates.append((jute.CREATE, jute.create_body("/d" * level)))
            at += 2 * level + 60
            if at > 800_000 or level == self.levels:
                self.call(jute.MULTI, jute.multi_body(creates))
                creates, at = [], 0
        self.connected = self.connect()
        self.call(jute.ADD_WATCH, jute.string("/elsewhere") + jute.int32(1), self.connected)

    def again(self):
        return self.many(100, (jute.SET_DATA, jute.set_body("/d" * self.levels, b"")))


class Expiry(Attack):
    """Sessions with many ephemerals that fall silent together."""

    settings = {"sessions.timeout_min_ms": 1000}
    wait_s = 6

    def prepare(self):
        self.call(jute.CREATE, jute.create_body("/e"))

    def again(self):
        if self.number:
            return False
        self.number = 1
        for at in range(400):
            client = self.connect(timeout_ms=3000)
            creates = [
                (jute.CREATE, jute.create_body(f"/e/{at}-{one}", flags=jute.EPHEMERAL)) for one in range(150)
            ]
            self.call(jute.MULTI, jute.multi_body(creates), client)
            self.kept.append(client)
        return True


class ClosedSessions(Attack):
    """Sessions with as many ephemerals as one may have are closed at the same moment, by twelve bytes each."""

    sessions, ephemerals = 16, 10_000

    def prepare(self):
        self.call(jute.CREATE, jute.create_body("/closed"))
        self.kept = [self.connect() for _ in range(self.sessions)]
        for at, client in enumerate(self.kept):
            for first in range(0, self.ephemerals, 10_000):
                paths = [f"/closed/{at}-{first + number}" for number in range(10_000)]
                creates = [(jute.CREATE, jute.create_body(path, flags=jute.EPHEMERAL)) for path in paths]
                self.call(jute.MULTI, jute.multi_body(creates), client)

    def again(self):
        closed, self.kept = self.kept, []
        for client in closed:
            client.send(jute.CLOSE)
            self.sent += 12
        for client in closed:
            client.frame()
        return False


class PipelinedMultis(Attack):
    """Clients that send multis of sets without waiting for answers, which they read."""

    clients, operations, in_flight = 8, 7000, 8

    def prepare(self):
        self.call(jute.CREATE, jute.create_body("/piped"))
        sets = [(jute.SET_DATA, jute.set_body("/piped", b""))] * self.operations
        self.multi = jute.multi_body(sets)
        self.kept = [self.connect() for _ in range(self.clients)]

    def again(self):
        threads = [threading.Thread(target=self.send, args=(client,)) for client in self.kept]
        for thread in threads:
            thread.start()
        for client in self.kept:
            for _ in range(self.in_flight):
                client.frame()
        for thread in threads:
            thread.join()
        return True

    def send(self, client):
        for _ in range(self.in_flight):
            client.send(jute.MULTI, self.multi)
            self.sent += len(self.multi) + 12


class StalledWatchers(Attack):
    def prepare(self):
        for _ in range(45):
            client = self.connect()
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.call(jute.ADD_WATCH, jute.string("/") + jute.int32(1), client)
            self.kept.append(client)

    def again(self):
        return self.many(10_000, (jute.SET_DATA, jute.set_body("/zookeeper/quota", b"")))


class Connects(Attack):
    def again(self):
        try:
            self.connect().drop()
        except (Closed, OSError):
            pass
        return True


class WrongPasswords(Attack):
    def again(self):
        self.client.password = b"x" * 16
        try:
            self.sent += 45
            Client(self.address, resume=self.client).drop()
        except (Closed, OSError):
            pass
        return True


class AuthPackets(Attack):
    def again(self):
        self.number += 1
        self.sent += 250_000
        try:
            self.client.auth("digest", b"%d" % self.number + b"u" * 250_000 + b":p")
        except (Closed, Refused, OSError, AssertionError):
            self.client = self.connect()
        return True


class ManyWatches(Attack):
    def again(self):
        self.number += 1
        paths = [f"/none{self.number}-{at}" for at in range(15_000)]
        return self.call(jute.SET_WATCHES, jute.set_watches_body(0, exist=paths, data=paths))


class FilteredLists(Attack):
    settings = {"features.keeper_extensions": "true"}

    def prepare(self):
        self.wide("/wide", 100_000)

    def again(self):
        body = jute.string("/wide") + b"\0\2"
        return self.many(18, (jute.FILTERED_LIST, body), jute.MULTI_READ)


class Creates(Attack):
    def again(self):
        self.number += 1
        creates = [(jute.CREATE, jute.create_body(f"/c{self.number}-{at}")) for at in range(10_000)]
        return self.call(jute.MULTI, jute.multi_body(creates))


class LargeData(Attack):
    def again(self):
        return self.call(jute.SET_DATA, jute.set_body("/zookeeper/quota", b"x" * 1_000_000))


ATTACKS = {
    "nothing": Nothing,
    "checks": Checks,
    "checks of padded addresses": PaddedChecks,
    "many reads in one": ManyReads,
    "quota counts": QuotaCounts,
    "own ACL entries": OwnEntries,
    "a long identity": LongIdentity,
    "long names": LongNames,
    "listings": Listings,
    "listings unread": Unread,
    "a deep path": DeepPath,
    "sessions that expire together": Expiry,
    "sessions that are closed together": ClosedSessions,
    "pipelined multis": PipelinedMultis,
    "watchers that do not read": StalledWatchers,
    "connects": Connects,
    "wrong passwords": WrongPasswords,
    "auth packets": AuthPackets,
    "watches": ManyWatches,
    "filtered lists": FilteredLists,
    "creates": Creates,
    "large data": LargeData,
}
