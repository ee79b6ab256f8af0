"""Limits on the rates of an address: its connections wait together, and those of other addresses do not."""

import socket
import time

import pytest
from support import jute
from support.client import Client, Closed, Connection, four_letter_command, words_table

RATE, BURST = 100, 20
SETTINGS = {
    "corral": {
        "rate_limits.requests_per_second": RATE,
        "rate_limits.burst_ms": 1000 * BURST // RATE,
        "rate_limits.connection_tokens": 8,
        # None comes back within a test.
        "rate_limits.connection_fill_ms": 3_600_000,
    },
}
SENT = 60


class Elsewhere(Client):
    """A client of another address of the loopback."""

    def connect(self, address, limit_s):
        return socket.create_connection(address, timeout=limit_s, source_address=("127.0.0.2", 0))


def rate_limited(context):
    return int(words_table(four_letter_command(context.address, "mntr"), "\t")["zk_rate_limited"])


def test_a_client_that_hammers_waits_and_others_do_not(context):
    hammering, same_address = context.client(), context.client()
    polite = Elsewhere(context.address)
    begin = time.monotonic()
    for client in (hammering, same_address):
        client.send_bytes(jute.frame(jute.int32(jute.PING_XID) + jute.int32(jute.PING)) * SENT)
    for _ in range(SENT):
        polite.get("/")
    assert rate_limited(context) > 0
    for client in (hammering, same_address):
        for _ in range(SENT):
            client.reply()
    # The connect requests are not counted.
    at_least_s = (2 * SENT - BURST - 2) / RATE
    assert time.monotonic() - begin >= at_least_s, "faster than the rate"
    polite.close()


def test_connections_come_no_faster_than_their_rate(context):
    """The bucket has eight tokens, and the tests before took some."""
    made = []
    with pytest.raises(Closed):
        while len(made) <= 8:
            made.append(Connection(context.address))
            made[-1].send_frame(jute.connect_request(10_000, 0, b"\0" * 16, 0, False))
            made[-1].frame()
    for connection in made:
        connection.drop()
