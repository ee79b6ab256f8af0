"""Many rounds of kill -9 (`--kill N`) and of rolling restarts (`--rolling N`), see rounds.py; `--seed S` repeats them."""

import pytest

from ensemble import rounds
from ensemble.cluster import Ensemble

# How many, in the quick size and in full.
SIZES = {"kill": (6, 500), "rolling": (1, 100)}


@pytest.mark.parametrize("kind", SIZES)
def test_rounds(kind, only_corral, run_ensemble, options, shards, seed, say, note):
    count = options.sized(kind, *SIZES[kind])
    if not count:
        pytest.skip("no rounds of this kind are asked for")
    ensemble = run_ensemble(Ensemble("corral", shards=shards, tick_ms=rounds.TICK_MS, settings=rounds.SETTINGS), keep=True)
    note(rounds.run(ensemble, kind, count, seed, say))
