"""What a server configured tightly refuses: words that are not listed, and connections without a digest user."""

from support import jute
from support.client import four_letter_command
from support.expect import equal

SETTINGS = {
    "corral": {"commands.four_letter_whitelist": '["ruok"]', "security.enforce_schemes": '["digest"]'},
    "zookeeper": {"4lw.commands.whitelist": "ruok", "enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"},
}


def test_words_that_are_not_listed(context):
    equal(four_letter_command(context.address, "ruok"), "imok")
    assert "Mode: " in four_letter_command(context.address, "srvr"), "srvr is always served"
    words = "conf cons crst dirs dump envi gtmk hash mntr srst stat stmk wchc wchp wchs".split()
    for word in words if not context.is_corral else [*words, "isro"]:
        refusal = f"{word} is not executed because it is not in the whitelist.\n"
        equal(four_letter_command(context.address, word), refusal)


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
