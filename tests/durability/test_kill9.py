"""kill -9 under pipelined load; after every restart the whole tree is compared with a linear oracle.

Every acknowledged write is there with the same zxid and Stat, of the others a prefix per session, multis all or nothing;
zxids never repeat; ephemerals of expired sessions go, those of resumed ones stay. The campaign `nemesis` is the same
with an ensemble and without an end.
"""

import copy

import pytest

from oracle import trees
from oracle.model import Mismatch
from oracle.rounds import SETTINGS as ROUNDS_SETTINGS
from oracle.rounds import Alone, Rounds

TICK_MS, SESSION_MS = 200, 4000
SETTINGS = {"corral": ROUNDS_SETTINGS, "zookeeper": {"snapCount": 2000}}
SEED, KILLS, WORKERS = 9, 5, 4


def test_nothing_acknowledged_is_lost(own_server, note):
    rounds = Rounds(Alone(own_server), SEED, WORKERS, SESSION_MS)
    for _ in range(KILLS):
        rounds.kill([own_server])
    rounds.settle()
    note(rounds.summary())


def lose_a_write(found, worker):
    nodes = found[worker.root]
    del nodes[max(nodes)]


def do_a_write_twice(found, worker):
    nodes = found[worker.root]
    data, stat = nodes[max(nodes)]
    nodes[max(nodes)] = data, stat._replace(version=stat.version + 1)


def give_back_another_zxid(found, worker):
    nodes = found[worker.root]
    data, stat = nodes[max(nodes)]
    nodes[max(nodes)] = data, stat._replace(czxid=stat.czxid + 1)


def lose_an_ephemeral(found, worker):
    del found[worker.ephemeral_root][next(iter(worker.model.ephemerals))]


TAMPERINGS = (lose_a_write, do_a_write_twice, give_back_another_zxid, lose_an_ephemeral)


def test_the_oracle_finds_each_kind_of_loss(own_server, note):
    """A changed tree must not pass, or the test above shows nothing."""
    rounds = Rounds(Alone(own_server), SEED, WORKERS, SESSION_MS)
    rounds.finish(rounds.begin())
    tree, zxid = trees.equal_trees([own_server])
    found = {root: trees.below(tree, root) for root in rounds.history.roots()}
    rounds.judge(found, zxid)
    worker = next(worker for worker in rounds.workers if worker.model.ephemerals)
    for one in rounds.workers:
        one.session.drop()
        one.session = one.member = None
    for tampering in TAMPERINGS:
        changed = copy.deepcopy(found)
        tampering(changed, worker)
        with pytest.raises(Mismatch) as mismatch:
            copy.deepcopy(rounds.history).judge(changed, zxid, set())
        note(f"{tampering.__name__}: {str(mismatch.value).splitlines()[-1].strip()[:80]}")
