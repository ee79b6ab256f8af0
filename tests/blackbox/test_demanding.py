"""A server that demands a digest user of every connection."""

from support import jute
from support.expect import equal

SETTINGS = {
    "corral": {"security.enforce_digest": "true"},
    "zookeeper": {"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"},
}


def test_nothing_is_served_before_authentication(context):
    requests = {
        jute.GET_DATA: jute.read_body("/"),
        jute.CREATE: jute.create_body("/x"),
        jute.SYNC: jute.string("/"),
        jute.CLOSE: b"",
        999: b"",
    }
    for op, body in requests.items():
        client = context.client()
        sent = client.send(op, body)
        reply = client.reply()
        equal((reply.xid, reply.zxid, reply.error), (sent, 0, jute.SESSION_CLOSED_REQUIRE_AUTH), f"op {op}")
        assert client.is_closed(), f"op {op} leaves the connection open"


def test_a_digest_user_is_served(context):
    client = context.client()
    client.auth("ip", b"")
    client.auth("digest", b"bob:pw")
    client.ping()
    client.create("/served")
    client.close()
