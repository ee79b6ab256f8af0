"""Headers, op codes, malformed records and frame sizes."""

import struct

from support import jute
from support.expect import closes, equal, refuses


def test_reconfig_is_disabled_and_the_connection_lives(context):
    client = context.client()
    refuses(jute.RECONFIG_DISABLED, client.call, jute.RECONFIG, jute.reconfig_body(leaving="1"))
    refuses(jute.MARSHALLING_ERROR, client.call, jute.RECONFIG, b"")
    client.ping()


def test_unknown_op_codes_are_unimplemented_and_close(context):
    codes = [0, 10, 13, 999, -1, 23, 2**31 - 1, -(2**31)]
    if context.is_corral:
        codes += [20, -10]
    for code in codes:
        client = context.client()
        sent = client.send(code, jute.string("/x") + jute.int32(-1))
        reply = client.reply()
        equal((reply.xid, reply.zxid, reply.error), (sent, -1, jute.UNIMPLEMENTED), f"op {code}")
        assert client.is_closed(), f"op {code} leaves the connection open"


def test_replies_echo_any_xid(context):
    client = context.client()
    for xid in (1, 7, 2**31 - 1, 0, -77, -(2**31)):
        client.call(jute.EXISTS, jute.read_body("/"), xid=xid)


def test_trailing_bytes_are_ignored(context):
    client = context.client()
    body = client.call(jute.GET_CHILDREN, jute.read_body("/zookeeper") + b"trailing")
    equal(sorted(body.strings()), ["config", "quota"])


def test_malformed_records_are_marshalling_errors(context):
    client = context.client()
    bodies = {
        "empty": b"",
        "cut length": b"\0\0",
        "negative length": jute.int32(-5) + b"\0",
        "length beyond the frame": jute.int32(100) + b"/x",
        "missing watch byte": jute.string("/x"),
    }
    for what, body in bodies.items():
        for op in (jute.GET_DATA, jute.EXISTS, jute.GET_CHILDREN):
            sent = client.send(op, body)
            equal(client.reply()[:3:2], (sent, jute.MARSHALLING_ERROR), f"{what} to op {op}")
    client.ping()


def test_malformed_writes_are_marshalling_errors(context):
    client = context.client()
    head = jute.string("/malformed") + jute.buffer(b"")
    bodies = {
        "huge vector": head + struct.pack(">ii", 2**31 - 1, 0),
        "no flags": head + jute.acl(jute.OPEN_ACL),
        "no ACL": head,
        "null path": jute.create_body(None),
    }
    for what, body in bodies.items():
        sent = client.send(jute.CREATE, body)
        equal(client.reply()[:3:2], (sent, jute.MARSHALLING_ERROR), what)
    refuses(jute.MARSHALLING_ERROR, client.call, jute.DELETE, jute.string("/x"))
    refuses(jute.MARSHALLING_ERROR, client.call, jute.SET_DATA, jute.string("/x"))
    client.ping()


def test_the_largest_frame_is_served_and_one_more_byte_closes(context):
    client = context.client()
    root = context.root(client)
    overhead = 8 + len(jute.create_body(f"{root}/big"))
    client.create(f"{root}/big", b"x" * (jute.FRAME_BYTES_MAX - overhead))
    equal(client.exists(f"{root}/big").data_length, jute.FRAME_BYTES_MAX - overhead)
    data, _ = client.get(f"{root}/big")
    equal(len(data), jute.FRAME_BYTES_MAX - overhead)
    closes(client.create, f"{root}/bi2", b"x" * (jute.FRAME_BYTES_MAX - overhead + 1))


def test_pings_are_answered_with_the_xid_of_pings(context):
    client = context.client()
    client.send(jute.PING, xid=4)
    equal(client.reply().xid, jute.PING_XID)


def test_ping_is_answered_in_order(context):
    client = context.client()
    root = context.root(client)
    client.send(jute.CREATE, jute.create_body(f"{root}/a"), xid=11)
    client.send(jute.PING, xid=jute.PING_XID)
    client.send(jute.GET_DATA, jute.read_body(f"{root}/a"), xid=12)
    equal([client.reply().xid for _ in range(3)], [11, jute.PING_XID, 12])
