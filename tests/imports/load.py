"""Random writes on real ZooKeepers, over several connections in threads, until the servers are killed."""

import random
import threading
import time

from imports import scenario
from support import jute
from support.client import Client, Closed, Refused, Reply

# Sessions that end neither within the load nor while the servers are compared.
TIMEOUTS_MS = (60_000, 120_000, 600_000)
ROOTS = [f"/r{number}" for number in range(6)]
CHILDREN, GRANDCHILDREN, BATCH_MAX, BATCHES_MAX = 12, 5, 24, 30
TTL_SEQUENTIAL = 6
ACLS = (jute.OPEN_ACL, scenario.OWN_ACL, scenario.MIXED_ACL)
LIMITS = (b"count=100,bytes=-1", b"count=1000,bytes=-1=;byteHardLimit=-1;countHardLimit=-1", b"count=-1,bytes=5")
PAUSE_S = 0.02


def path_of(chance):
    """A path of few, so that requests often fail or hit the same znode."""
    path = chance.choice(ROOTS)
    for count in (CHILDREN, GRANDCHILDREN):
        if chance.random() < 0.15:
            break
        path += f"/{chance.choice(('c', 'ü', 'list-'))}{chance.randrange(count)}"
    return path


def data_of(chance):
    return chance.choice((None, b"", b"x", b"datum", chance.randbytes(chance.randint(1, 300))))


class Requests:
    """Draws requests: (operation, body)."""

    def __init__(self, seed, made):
        """`made` is a list of paths that some worker created. All share it."""
        self.chance, self.made = random.Random(seed), made

    def path(self):
        if self.made and self.chance.random() < 0.3:
            return self.chance.choice(self.made)
        return path_of(self.chance)

    def create(self):
        chance = self.chance
        op, flags = chance.choices(
            (
                (jute.CREATE, jute.PERSISTENT), (jute.CREATE2, jute.PERSISTENT), (jute.CREATE, jute.SEQUENTIAL),
                (jute.CREATE2, jute.SEQUENTIAL), (jute.CREATE, jute.EPHEMERAL), (jute.CREATE2, jute.EPHEMERAL),
                (jute.CREATE, jute.EPHEMERAL_SEQUENTIAL), (jute.CREATE_CONTAINER, jute.CONTAINER), (jute.CREATE_TTL, jute.TTL),
                (jute.CREATE_TTL, TTL_SEQUENTIAL),
            ),
            (8, 5, 3, 2, 4, 2, 2, 2, 2, 1),
        )[0]  # fmt: skip
        body = jute.create_body(self.path(), data_of(chance), flags, chance.choices(ACLS, (6, 1, 1))[0])
        return op, body + (jute.int64(chance.choice((1, 50, 10**9))) if op == jute.CREATE_TTL else b"")

    def set_data(self):
        return jute.SET_DATA, jute.set_body(self.path(), data_of(self.chance), self.version())

    def version(self):
        return self.chance.choices((-1, 0, 1), (8, 1, 1))[0]

    def set_acl(self):
        return jute.SET_ACL, jute.set_acl_body(self.path(), self.chance.choice(ACLS), self.version())

    def delete(self):
        path = self.path()
        if self.made and self.chance.random() < 0.5:
            path = self.made.pop(self.chance.randrange(len(self.made))) if len(self.made) > 1 else self.made[0]
        return jute.DELETE, jute.delete_body(path, self.version())

    def check(self):
        return jute.CHECK, jute.check_body(self.path(), self.version())

    def multi(self):
        kinds = (self.create, self.set_data, self.delete, self.check)
        parts = [self.chance.choices(kinds, (6, 4, 3, 1))[0]() for _ in range(self.chance.randint(1, 4))]
        return jute.MULTI, jute.multi_body(parts)

    def quota(self):
        """The znodes of a quota are created and deleted as zkCli does."""
        path = f"/zookeeper/quota{self.chance.choice(ROOTS)}"
        limits, stats = f"{path}/zookeeper_limits", f"{path}/zookeeper_stats"
        if self.chance.random() < 0.3:
            return jute.MULTI, jute.multi_body([(jute.DELETE, jute.delete_body(name)) for name in (limits, stats)])
        create = [(limits, self.chance.choice(LIMITS)), (stats, b"count=0,bytes=0")]
        return jute.MULTI, jute.multi_body([(jute.CREATE, jute.create_body(name, data)) for name, data in create])

    def quota_root(self):
        return jute.CREATE, jute.create_body(f"/zookeeper/quota{self.chance.choice(ROOTS)}")

    def root(self):
        return jute.CREATE, jute.create_body(self.chance.choice(ROOTS))

    def draw(self):
        kinds = (self.create, self.set_data, self.delete, self.set_acl, self.multi, self.quota, self.quota_root, self.root)
        return self.chance.choices(kinds, (40, 20, 18, 5, 14, 2, 1, 2))[0]()


class Worker(threading.Thread):
    """Opens sessions one after the other, and keeps some of them."""

    def __init__(self, addresses, seed, made):
        super().__init__(daemon=True)
        self.addresses, self.requests, self.made = addresses, Requests(seed, made), made
        self.chance, self.over, self.answers = self.requests.chance, threading.Event(), 0
        # Sessions that no client has closed: (id, password, timeout).
        self.living = []

    def run(self):
        while not self.over.is_set():
            try:
                self.session()
            except (OSError, Closed, Refused, IndexError):
                time.sleep(PAUSE_S)

    def session(self):
        with Client(self.chance.choice(self.addresses), self.chance.choice(TIMEOUTS_MS)) as client:
            if not client.session_id:
                return
            session = (client.session_id, client.password, client.timeout_ms)
            self.living.append(session)
            client.auth("digest", scenario.CREDENTIALS)
            for _ in range(self.chance.randint(1, BATCHES_MAX)):
                if self.over.is_set():
                    return
                self.batch(client)
            if self.chance.random() < 0.6:
                self.living.remove(session)
                client.close()

    def batch(self, client):
        for _ in range(self.chance.randint(1, BATCH_MAX)):
            client.send(*self.requests.draw())
        while client.last_xid > self.received(client):
            pass

    def received(self, client):
        """Takes a reply; its xid."""
        reply = client.receive()
        if not isinstance(reply, Reply):
            return 0
        self.answers += 1
        if not reply.error and len(reply.body.rest()) > 4:
            self.keep(reply.body)
        return reply.xid

    def keep(self, body):
        """The path of a created znode is a text at the beginning."""
        rest = body.rest()
        size = int.from_bytes(rest[:4], "big")
        if rest[4:5] == b"/" and 0 < size <= len(rest) - 4:
            self.made.append(rest[4 : 4 + size].decode())


class Load:
    """Workers on all these servers."""

    def __init__(self, servers, seed, workers):
        made, addresses = [], [server.address for server in servers]
        self.workers = [Worker(addresses, f"{seed}-{number}", made) for number in range(workers)]
        for worker in self.workers:
            worker.start()

    def end(self):
        """The servers are gone. Returns the sessions that no client closed, and the number of answers."""
        for worker in self.workers:
            worker.over.set()
        for worker in self.workers:
            worker.join()
        return [session for worker in self.workers for session in worker.living], sum(worker.answers for worker in self.workers)


def ballast(server, count, data_bytes=20):
    """Znodes that make a snapshot take some time, so that the load goes on meanwhile."""
    with server.client(timeout_ms=TIMEOUTS_MS[0]) as client:
        for path in ("/ballast", *(f"/ballast/{number // 1000}" for number in range(0, count, 1000))):
            client.create(path)
        bodies = [jute.create_body(f"/ballast/{number // 1000}/{number}", b"b" * data_bytes) for number in range(count)]
        scenario.ask_all(client, [(jute.CREATE, body) for body in bodies])


def read_tree(server):
    with Client(server.address, TIMEOUTS_MS[0]) as client:
        return scenario.nodes(client)


def differences(expect, found, but=()):
    """Lines of the paths that two trees do not have in common."""
    paths = sorted((expect.keys() | found.keys()) - set(but))
    return [f"{path!r}: ZooKeeper {expect.get(path)}, corral {found.get(path)}" for path in paths if expect.get(path) != found.get(path)]
