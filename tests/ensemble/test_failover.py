"""Servers of three are killed under load, one of them the leader; the oracle judges. The campaign `nemesis` is this without an end."""

from ensemble.cluster import CALM, Ensemble, share_secret
from oracle.rounds import SETTINGS, Rounds

SEED, SESSION_MS = 3, 8_000


def test_leaders_and_followers_are_killed_under_load(only_corral, run_ensemble, shards, note):
    """Nothing acknowledged is lost, the clients of the others go on, and ephemerals of silent sessions go."""
    ensemble = Ensemble("corral", shards=shards, tick_ms=SESSION_MS // 20, settings={**CALM, **SETTINGS})
    for member in ensemble.members:
        share_secret(member, "failover" * 4)
    run_ensemble(ensemble)
    rounds = Rounds(ensemble, SEED, session_ms=SESSION_MS)
    rounds.kill([ensemble.leader()])
    rounds.kill([ensemble.followers()[0]])
    rounds.kill([ensemble.leader(), ensemble.followers()[0]])
    rounds.kill(ensemble.members)
    rounds.settle()
    note(rounds.summary())
