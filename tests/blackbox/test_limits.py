"""What a server configured tightly refuses: words that are not listed, connections beyond the limit of their address."""

import socket

from support.client import Connection, four_letter_command
from support.expect import equal
from support.wait import wait_until

CONNECTIONS_MAX = 5
SETTINGS = {
    "corral": {
        "limits.connections_per_ip_max": CONNECTIONS_MAX,
        "commands.four_letter_whitelist": '["ruok"]',
        "sessions.sessionless_timeout_ms": 1000,
    },
    "zookeeper": {
        "maxClientCnxns": CONNECTIONS_MAX,
        "4lw.commands.whitelist": "ruok",
        "nio.sessionlessCnxnTimeout": 1000,
    },
}


def test_words_that_are_not_listed(context):
    equal(four_letter_command(context.address, "ruok"), "imok")
    assert "Mode: " in four_letter_command(context.address, "srvr"), "srvr is always served"
    words = "conf cons crst dirs dump envi gtmk hash mntr srst stat stmk wchc wchp wchs".split()
    for word in words if not context.is_corral else [*words, "isro"]:
        refusal = f"{word} is not executed because it is not in the whitelist.\n"
        equal(four_letter_command(context.address, word), refusal)


def test_connections_beyond_the_limit_are_closed(context):
    clients = [context.client() for _ in range(CONNECTIONS_MAX)]
    for _ in range(3):
        with Connection(context.address) as refused:
            assert refused.is_closed(), "one connection too many stays open"
    for client in clients:
        client.ping()
    clients.pop().close()

    def admitted():
        try:
            with socket.create_connection(context.address, timeout=60) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False

    wait_until(admitted, "a place is free again")


def test_connections_without_a_session_are_closed(context):
    with Connection(context.address) as silent, Connection(context.address) as slow:
        slow.send_bytes(b"\0\0\0")
        assert silent.is_closed() and slow.is_closed()
