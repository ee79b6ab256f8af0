"""What attackers do: each load prepares, then does its worst again and again. Ordinary sockets, no credentials.

A load is a generator function of an `Attacker`. It is prepared at its first `yield`, and each later step does its worst once.
"""

import itertools
import socket
import threading
import time
from collections import namedtuple
from contextlib import suppress

from support import jute
from support.client import Client, Closed, Refused

LIMIT_S = 120
# `settings` are those of the server, `wait_s` tells how long the consequences take to come.
Load = namedtuple("Load", "steps settings wait_s", defaults=({}, 0))
ENTRIES = [1 + 2 * at for at in range(255)]
QUOTA = "/zookeeper/quota"


class Attacker:
    """Clients, and the bytes they send."""

    def __init__(self, address):
        # `kept` are clients that stay connected after the load.
        self.address, self.sent, self.kept = address, 0, []
        self.client = self.connect()

    def connect(self, timeout_ms=40_000, receive_bytes=None):
        client = Client(self.address, timeout_ms=timeout_ms)
        client.socket.settimeout(LIMIT_S)
        if receive_bytes:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sent += 45
        return client

    def send(self, client, op, body=b""):
        self.sent += len(body) + 12
        client.send(op, body)

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

    def create(self, paths, client=None, flags=jute.PERSISTENT):
        """Creates znodes in multis of 5000."""
        creates = [(jute.CREATE, jute.create_body(path, flags=flags)) for path in paths]
        for first in range(0, len(creates), 5000):
            self.call(jute.MULTI, jute.multi_body(creates[first : first + 5000]), client)

    def guard(self, zeros=0):
        entries = [(mask, "ip", "10.0.0.1/" + "0" * zeros + "32") for mask in ENTRIES]
        self.call(jute.CREATE, jute.create_body("/g", entries=[*entries, *jute.OPEN_ACL]))

    def widen(self, count, name="n"):
        self.create(["/wide", *(f"/wide/{name}{at}" for at in range(count))])

    def watch(self, path, receive_bytes=None):
        """A client with a recursive watch."""
        self.kept.append(self.connect(receive_bytes=receive_bytes))
        self.call(jute.ADD_WATCH, jute.string(path) + jute.int32(1), self.kept[-1])

    def authenticate(self):
        # What a connection's identities may have together, its address included.
        self.client.auth("digest", b"u" * 1900 + b":p")


def repeated(request, prepare=lambda attacker: None, settings=None):
    """A load that sends one request after another. `request` gives the (op, body) of the n-th, from 1."""

    def steps(attacker):
        prepare(attacker)
        for number in itertools.count(1):
            yield
            attacker.call(*request(number))

    return Load(steps, settings or {})


def many(times, op, body, outer=jute.MULTI):
    """A load's request: so many operations in one."""
    whole = jute.multi_body([(op, body)] * times)
    return lambda number: (outer, whole)


def long_names(number):
    if number <= 100:
        return jute.CREATE, jute.create_body(f"/wide/{number}" + "x" * 1_000_000)
    return jute.GET_CHILDREN, jute.read_body("/wide")


def watches(number):
    paths = [f"/none{number}-{at}" for at in range(15_000)]
    return jute.SET_WATCHES, jute.set_watches_body(0, exist=paths, data=paths)


def creates(number):
    return jute.MULTI, jute.multi_body([(jute.CREATE, jute.create_body(f"/c{number}-{at}")) for at in range(10_000)])


def nothing(attacker):
    while True:
        yield
        time.sleep(0.1)
        attacker.call(jute.EXISTS, jute.read_body("/"))


def quota_counts(attacker):
    attacker.widen(150_000)
    path = f"{QUOTA}/zookeeper_stats"
    while True:
        yield
        for _ in range(20):
            attacker.send(attacker.client, jute.CREATE, jute.create_body(path))
            attacker.send(attacker.client, jute.DELETE, jute.delete_body(path))
        for _ in range(40):
            attacker.client.reply()


def listings_unread(attacker):
    attacker.widen(50_000, "name-of-some-length-")
    body = jute.multi_body([(jute.GET_CHILDREN, jute.read_body("/wide"))] * 30)
    while True:
        yield
        if len(attacker.kept) < 40:
            attacker.kept.append(attacker.connect(receive_bytes=4096))
            for _ in range(20):
                attacker.send(attacker.kept[-1], jute.MULTI_READ, body)
        attacker.call(jute.EXISTS, jute.read_body("/wide"))


def deepen(attacker, levels=4000):
    """A path of so many levels; a recursive watch elsewhere makes each change of it look at all of them."""
    body_bytes, paths = 0, []
    for level in range(1, levels + 1):
        paths.append("/d" * level)
        body_bytes += 2 * level + 60
        if body_bytes > 800_000 or level == levels:
            attacker.create(paths)
            body_bytes, paths = 0, []
    attacker.watch("/elsewhere")


def sessions_that_expire_together(attacker):
    """Sessions with many ephemerals that fall silent together."""
    attacker.create(["/e"])
    yield
    for at in range(400):
        attacker.kept.append(attacker.connect(timeout_ms=3000))
        attacker.create([f"/e/{at}-{one}" for one in range(150)], attacker.kept[-1], jute.EPHEMERAL)


def sessions_that_are_closed_together(attacker, sessions=16, ephemerals=10_000):
    """Sessions with as many ephemerals as one may have are closed at the same moment, by twelve bytes each."""
    attacker.create(["/closed"])
    kept = [attacker.connect() for _ in range(sessions)]
    for at, client in enumerate(kept):
        attacker.create([f"/closed/{at}-{number}" for number in range(ephemerals)], client, jute.EPHEMERAL)
    yield
    for client in kept:
        attacker.send(client, jute.CLOSE)
    for client in kept:
        client.frame()


def pipelined_multis(attacker, clients=8, operations=7000, in_flight=8):
    """Clients that send multis of sets without waiting for answers, which they read."""
    attacker.create(["/piped"])
    body = jute.multi_body([(jute.SET_DATA, jute.set_body("/piped", b""))] * operations)
    kept = [attacker.connect() for _ in range(clients)]
    while True:
        yield
        threads = [threading.Thread(target=lambda of=client: [of.send(jute.MULTI, body) for _ in range(in_flight)]) for client in kept]
        for thread in threads:
            thread.start()
        for client in kept * in_flight:
            client.frame()
        for thread in threads:
            thread.join()
        attacker.sent += clients * in_flight * (len(body) + 12)


def stall_watchers(attacker):
    for _ in range(45):
        attacker.watch("/", receive_bytes=4096)


def connects(attacker):
    while True:
        yield
        with suppress(Closed, OSError):
            attacker.connect().drop()


def wrong_passwords(attacker):
    attacker.client.password = b"x" * 16
    while True:
        yield
        attacker.sent += 45
        with suppress(Closed, OSError):
            Client(attacker.address, resume=attacker.client).drop()


def auth_packets(attacker):
    for number in itertools.count():
        yield
        attacker.sent += 250_000
        try:
            attacker.client.auth("digest", b"%d" % number + b"u" * 250_000 + b":p")
        except (Closed, Refused, OSError, AssertionError):
            attacker.client = attacker.connect()


CHECKS = many(45_000, jute.CHECK, jute.check_body("/g"))
OWN_ENTRIES = [(mask, "auth", "") for mask in ENTRIES]
LOADS = {
    "nothing": Load(nothing),
    "checks": repeated(CHECKS, Attacker.guard),
    "checks of padded addresses": repeated(CHECKS, lambda attacker: attacker.guard(zeros=3900)),
    "many reads in one": repeated(many(20_000, jute.GET_DATA, jute.read_body("/g"), jute.MULTI_READ), Attacker.guard),
    "quota counts": Load(quota_counts),
    "own ACL entries": repeated(lambda number: (jute.CREATE, jute.create_body(f"/n{number}", entries=OWN_ENTRIES)), Attacker.authenticate),
    "a long identity": repeated(lambda _: (jute.SET_DATA, jute.set_body(QUOTA, b"x")), Attacker.authenticate),
    "long names": repeated(long_names, lambda attacker: attacker.widen(0)),
    "listings": repeated(
        many(35, jute.GET_CHILDREN, jute.read_body("/wide"), jute.MULTI_READ),
        lambda attacker: attacker.widen(50_000, "name-of-some-length-"),
    ),
    "listings unread": Load(listings_unread),
    "a deep path": repeated(many(100, jute.SET_DATA, jute.set_body("/d" * 4000, b"")), deepen),
    "sessions that expire together": Load(sessions_that_expire_together, {"sessions.timeout_min_ms": 1000}, 6),
    "sessions that are closed together": Load(sessions_that_are_closed_together),
    "pipelined multis": Load(pipelined_multis),
    "watchers that do not read": repeated(many(10_000, jute.SET_DATA, jute.set_body(QUOTA, b"")), stall_watchers),
    "connects": Load(connects),
    "wrong passwords": Load(wrong_passwords),
    "auth packets": Load(auth_packets),
    "watches": repeated(watches),
    "filtered lists": repeated(
        many(18, jute.FILTERED_LIST, jute.string("/wide") + b"\0\2", jute.MULTI_READ),
        lambda attacker: attacker.widen(100_000),
        {"features.keeper_extensions": "true"},
    ),
    "creates": repeated(creates),
    "large data": repeated(lambda _: (jute.SET_DATA, jute.set_body(QUOTA, b"x" * 1_000_000))),
}
