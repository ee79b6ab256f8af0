"""What clients have written by the time there is a leader again, in a log of small segments: many times what an entry takes."""

import pytest

from ensemble.cluster import CALM, Ensemble
from ensemble.sessions import connect, root
from support import jute
from support.client import Closed, four_letter_command
from support.expect import equal
from support.wait import wait_until

CLIENTS, WRITES, BYTES = 16, 2, 900_000
SESSION_MS = 40_000
ROUNDS, ROUNDS_MAX = 2, 6


@pytest.fixture(scope="module")
def new_ensemble(shards, only_corral):
    # Log entries are small, and clients wait long for a leader.
    settings = {**CALM, "log.segment_bytes": 4 << 20, "ensemble.hold_ms": 30_000}
    return Ensemble("corral", shards=shards, tick_ms=SESSION_MS // 20, settings=settings)


def test_requests_queued_without_a_leader_are_ordered(ensemble):
    """The leader aborted, be it the server that had held the writes back or the one that it sent them to.

    On a busy machine that leader may be lost again before it has ordered all; a client that waits is then cut off, as always.
    """
    top, answered, rounds = root(ensemble, "queued"), 0, 0
    while answered < ROUNDS:
        rounds += 1
        assert rounds <= ROUNDS_MAX, f"all were answered in {answered} of {ROUNDS_MAX} rounds"
        survivor = ensemble.followers()[0]
        clients = [connect(survivor, timeout_ms=SESSION_MS) for _ in range(CLIENTS)]
        others = [member for member in ensemble.members if member is not survivor]
        for other in others:
            other.kill()
        wait_until(lambda: four_letter_command(survivor.address, "isro") == "null", "it has no leader")
        for at, client in enumerate(clients):
            for write in range(WRITES):
                path = f"{top}/{rounds}-{at}-{write}"
                client.send(jute.CREATE, jute.create_body(path, b"x" * BYTES, jute.PERSISTENT, jute.OPEN_ACL))
        for other in others:
            other.launch()
        answered += sum(are_answered(client) for client in clients) == CLIENTS
        equal(len(ensemble.running), len(ensemble.members), "servers that run")
        for client in clients:
            client.drop()
        ensemble.start()


def are_answered(client):
    """Whether all that the client has asked for was done, in order. False if its connection ended before."""
    try:
        replies = [client.reply() for _ in range(WRITES)]
    except Closed:
        return False
    equal([(reply.xid, reply.error) for reply in replies], [(xid, 0) for xid in range(1, WRITES + 1)])
    return True
