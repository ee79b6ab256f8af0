"""What a read shows with ensemble.linearizable_reads: every write that was answered anywhere before it was sent."""

import pytest

from ensemble.cluster import CALM, Ensemble
from ensemble.sessions import connect, root, write_behind
from support.client import Closed
from support.expect import equal

ROUNDS = 60


@pytest.fixture(scope="module")
def new_ensemble(shards, only_corral):
    return Ensemble("corral", shards=shards, settings={**CALM, "ensemble.linearizable_reads": "true"})


def test_a_read_sees_what_another_server_has_answered(ensemble):
    top = root(ensemble, "fresh")
    clients = [connect(member) for member in ensemble.members]
    for number in range(ROUNDS):
        writer, *readers = clients[number % 3 :] + clients[: number % 3]
        writer.set(top, str(number).encode())
        for reader in readers:
            equal(reader.get(top)[0], str(number).encode(), "a read behind an answer elsewhere")
    for client in clients:
        client.close()


def test_a_leader_left_behind_serves_no_old_read(ensemble):
    top = root(ensemble, "behind")
    leader, followers = ensemble.leader(), ensemble.followers()
    stale = connect(leader)
    stale.get(top)
    write_behind(leader, followers, top, b"newer")
    try:
        equal(stale.get(top)[0], b"newer", "a read at a server that led")
    except (Closed, OSError):
        pass
    stale.drop()
    ensemble.leader()
    ensemble.followers()
