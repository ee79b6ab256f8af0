"""Leaders are killed and stopped under load; failover.py is the same with any number of rounds."""

from argparse import Namespace

import pytest

from ensemble import failover

WRITERS = 6
# How many leaders are lost, by how: in the quick size and in full.
ROUNDS = {"killed": (3, 50), "stopped": (1, 16)}


@pytest.mark.parametrize("how", ROUNDS)
def test_leaders_are_lost(how, ensemble, options, note):
    quick, full = ROUNDS[how]
    chosen = Namespace(server=options.server, rounds=full if options.full else quick, stop=how == "stopped", writers=WRITERS)
    note(failover.report(chosen, *failover.run(chosen, ensemble)))
