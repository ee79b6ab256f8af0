"""Few places are damaged of each kind, see flips.py. The campaign `durability` damages others without an end."""

import pytest

from durability import flips

SEED, ROUNDS, PLACES = 1, 2, 2


@pytest.mark.parametrize("world", flips.WORLDS)
@pytest.mark.parametrize("kind", flips.FILES)
@pytest.mark.parametrize("when", flips.WHEN)
def test_nothing_damaged_is_served(world, kind, when, shards, note):
    damage, servers = flips.Damage(SEED), world(shards, SEED)
    try:
        for number in range(ROUNDS):
            when(servers, kind, damage, PLACES, merges=number % 2 == 1)
    finally:
        servers.dispose(keep=False)
    note(f"{damage.places} places")
