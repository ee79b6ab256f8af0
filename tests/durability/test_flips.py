"""Few places are damaged of each kind, see flips.py. The campaign `durability` damages others without an end."""

import pytest

from durability import flips

SEED, PLACES = 1, 2
# Whether a snapshot is written before the next scrub, in each round.
MERGES = {flips.Alone: (False, True), flips.OneOfThree: (True,)}


@pytest.mark.parametrize("world", flips.WORLDS)
@pytest.mark.parametrize("kind", flips.FILES)
@pytest.mark.parametrize("when", flips.WHEN)
def test_nothing_damaged_is_served(world, kind, when, shards, note):
    damage, servers = flips.Damage(SEED), world(shards, SEED)
    try:
        for merges in MERGES[world]:
            when(servers, kind, damage, PLACES, merges)
    finally:
        servers.dispose(keep=False)
    note(f"{damage.places} places")
