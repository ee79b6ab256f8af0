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


def newest(found, worker, **changes):
    """The worker's last znode gets another Stat."""
    nodes = found[worker.root]
    data, stat = nodes[max(nodes)]
    nodes[max(nodes)] = data, stat._replace(**{name: getattr(stat, name) + more for name, more in changes.items()})


TAMPERINGS = {
    "a lost write": lambda found, worker: found[worker.root].pop(max(found[worker.root])),
    "a write done twice": lambda found, worker: newest(found, worker, version=1),
    "another zxid": lambda found, worker: newest(found, worker, czxid=1),
    "a lost ephemeral": lambda found, worker: found[worker.ephemeral_root].pop(next(iter(worker.model.ephemerals))),
}


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
    for name, tampering in TAMPERINGS.items():
        changed = copy.deepcopy(found)
        tampering(changed, worker)
        with pytest.raises(Mismatch) as mismatch:
            copy.deepcopy(rounds.history).judge(changed, zxid, set())
        note(f"{name}: {str(mismatch.value).splitlines()[-1].strip()[:80]}")
