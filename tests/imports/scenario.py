"""Writes of every type of transaction, and the whole tree as clients see it."""

import base64
import hashlib

from support import jute
from support.client import Client, Refused

CREDENTIALS = b"keeper:secret"
DIGEST = "keeper:" + base64.b64encode(hashlib.sha1(CREDENTIALS).digest()).decode()
OWN_ACL = ((jute.ALL, "digest", DIGEST),)
MIXED_ACL = ((jute.READ, "world", "anyone"), (jute.ALL, "digest", DIGEST), (jute.READ, "ip", "127.0.0.0/8"))
TTL_MS = 10_000_000
TIMEOUT_MS = 40_000


def play(client, expired):
    """Leaves something of each kind behind. `expired` is a client of its own, whose session is closed."""
    client.auth("digest", CREDENTIALS)
    client.create("/app", b"0")
    client.create2("/app/two", b"created by create2")
    client.create("/app/null", None)
    client.create("/app/ünï", "päth".encode())
    client.create("/app/secret", b"s", acl=OWN_ACL)
    client.create("/app/mixed", b"m", acl=MIXED_ACL)
    client.set_acl("/app/two", MIXED_ACL)
    for number in range(5):
        client.create("/app/item-", b"%d" % number, jute.SEQUENTIAL)
    client.delete("/app/item-0000000007")
    for number in range(3):
        client.set("/app", b"%d" % number)
    client.call(jute.CREATE_CONTAINER, jute.create_body("/box", b"", jute.CONTAINER))
    client.create("/box/child")
    client.call(jute.CREATE_TTL, jute.create_body("/ttl", b"t", jute.TTL) + jute.int64(TTL_MS))
    client.create("/zookeeper/quota/app")
    client.create("/zookeeper/quota/app/zookeeper_limits", b"count=1000,bytes=-1=;byteHardLimit=-1;countHardLimit=-1")
    client.create("/zookeeper/quota/app/zookeeper_stats", b"count=0,bytes=0")
    client.create("/held", b"e", jute.EPHEMERAL)
    client.create("/held-", b"", jute.EPHEMERAL_SEQUENTIAL)
    expired.create("/gone", b"", jute.EPHEMERAL)
    expired.create("/app/gone", b"", jute.EPHEMERAL)
    expired.close()
    multi = [
        (jute.CREATE, jute.create_body("/many", b"")),
        (jute.CREATE2, jute.create_body("/many/one", b"1")),
        (jute.CREATE, jute.create_body("/many/held", b"", jute.EPHEMERAL)),
        (jute.CREATE_CONTAINER, jute.create_body("/many/box", b"", jute.CONTAINER)),
        (jute.CREATE_TTL, jute.create_body("/many/ttl", b"", jute.TTL) + jute.int64(TTL_MS)),
        (jute.SET_DATA, jute.set_body("/app", b"many")),
        (jute.CHECK, jute.path_and_int("/app", 4)),
        (jute.DELETE, jute.delete_body("/app/item-0000000008")),
    ]
    client.multi(*multi)
    client.multi((jute.CREATE, jute.create_body("/never")), (jute.DELETE, jute.delete_body("/missing")))
    try:
        client.create("/app")
    except Refused as refused:
        assert refused.code == jute.NODE_EXISTS, refused


def ask_all(client, requests, depth=200):
    """The replies to all requests, many of which are on their way at a time."""
    replies, sent = [], 0
    while len(replies) < len(requests):
        while sent < len(requests) and sent - len(replies) < depth:
            client.send(*requests[sent])
            sent += 1
        replies.append(client.reply())
    return replies


def nodes(client):
    """Everything below the root: path to data, ACL and Stat."""
    client.auth("digest", CREDENTIALS)
    found, level = {}, ["/"]
    while level:
        requests = [
            request
            for path in level
            for request in (
                (jute.GET_DATA, jute.read_body(path)), (jute.GET_ACL, jute.string(path)), (jute.GET_CHILDREN, jute.read_body(path)),
            )
        ]  # fmt: skip
        replies, below = ask_all(client, requests), []
        for path, data, acl, children in zip(level, replies[::3], replies[1::3], replies[2::3], strict=True):
            assert not (data.error or acl.error or children.error), (path, data, acl, children)
            found[path] = (data.body.buffer(), data.body.stat(), tuple(acl.body.acl()))
            below += [f"{path.rstrip('/')}/{name}" for name in children.body.strings()]
        level = below
    return found


def tree(client):
    """The same as JSON has it."""

    def node(data, stat, acl):
        text = None if data is None else base64.b64encode(data).decode()
        return [text, [list(entry) for entry in acl], list(stat)]

    return {path: node(*values) for path, values in sorted(nodes(client).items())}


class Resumed(Client):
    """A client that takes over a session by its id and password."""

    def __init__(self, address, session_id, password, timeout_ms=TIMEOUT_MS):
        self.session_id, self.password, self.zxid = session_id, password, 0
        super().__init__(address, timeout_ms, resume=self)
