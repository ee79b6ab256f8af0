"""What holds of a server without a vote. The ensemble has three that vote and one that does not."""

import pytest

from ensemble.cluster import CALM, OBSERVING, Ensemble, mode_of
from support.client import four_letter_command, words_table
from support.wait import wait_until

CENSUS = ("zk_quorum_size", "zk_learners", "zk_synced_followers", "zk_synced_non_voting_followers", "zk_synced_observers")


@pytest.fixture(scope="module")
def new_ensemble(shards, only_corral):
    return Ensemble("corral", size=4, shards=shards, observers={4}, settings=CALM)


def census(member):
    """What mntr tells of who votes and who keeps up."""
    table = words_table(four_letter_command(member.address, "mntr"), "\t")
    return {key: int(table[key]) for key in CENSUS if key in table}


def test_mntr_counts_servers_that_keep_up(ensemble):
    def told(learners, followers, observers):
        return dict(zip(CENSUS, (3, learners, followers, 0, observers)))

    ensemble.start()
    leader = ensemble.leader()
    wait_until(lambda: census(leader) == told(3, 2, 1), "all keep up")
    for member in ensemble.followers():
        wait_until(lambda member=member: census(member) == {"zk_quorum_size": 3}, "who does not lead knows")
    follower = next(member for member in ensemble.followers() if mode_of(member) != OBSERVING)
    follower.kill()
    wait_until(lambda: census(leader) == told(2, 1, 1), "one is gone")
    ensemble.start()
    wait_until(lambda: census(leader) == told(3, 2, 1), "all keep up again")
