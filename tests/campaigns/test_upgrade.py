"""Three servers of an earlier build, which CORRAL_OLD_BIN names, are upgraded one by one under load, each stopped by SIGTERM or by kill -9.

Each step is a round of oracle/rounds.py, which compares the servers and judges their trees while both builds serve. At the end all servers
are killed and start again from files of both builds. tests/campaign upgrade builds an earlier commit and names it.
"""

import os
import random
from pathlib import Path

import pytest

from ensemble.cluster import Ensemble
from oracle import trees
from oracle.model import Mismatch
from oracle.rounds import SETTINGS, Rounds
from support.wait import TooLate


def upgrade(rounds, victim, kill):
    """One server ends and starts again as the new build. The others are under load meanwhile."""
    fleet = rounds.begin()
    if kill:
        victim.kill()
    else:
        code = victim.stop()
        if code:
            raise Mismatch(f"SIGTERM ended the server at {victim.address[1]} with {code}")
    rounds.load(fleet, rounds.some_writes())
    victim.program = None
    victim.start()
    rounds.load(fleet, rounds.some_writes())
    rounds.end(fleet)


def test_servers_are_upgraded_one_by_one(only_corral, run_ensemble, shards, seed, is_over, say, note):
    old = os.environ.get("CORRAL_OLD_BIN")
    if not old or not Path(old).exists():
        pytest.skip("CORRAL_OLD_BIN names no binary of an earlier build; tests/campaign upgrade makes one")
    say(f"seed {seed}, from {old}")
    chance, upgraded = random.Random(seed), 0
    while not is_over():
        ensemble = Ensemble("corral", shards=shards, settings=SETTINGS)
        for member in ensemble.members:
            member.program = old
        rounds = Rounds(run_ensemble(ensemble, keep=True), chance.random())
        try:
            for victim in chance.sample(ensemble.members, len(ensemble.members)):
                upgrade(rounds, victim, kill=chance.random() < 0.5)
            rounds.kill(ensemble.members)
        except (Mismatch, TooLate, trees.Differ, TimeoutError) as error:
            raise AssertionError(f"ensemble {upgraded} of seed {seed}: {error}") from error
        upgraded += 1
        say(f"{upgraded} ensembles upgraded; the last: {rounds.summary()}")
        ensemble.dispose()
    note(f"seed {seed}: {upgraded} ensembles upgraded")
