"""Corral against the recorded answers of a real ZooKeeper, byte for byte.

mapping.py tells what is mapped before the comparison, explained.py and docs/compatibility.md what differs on purpose. The cases
of a file run in order on one corral. A case is added to the recordings as record.py describes. The search for new
differences beside a real ZooKeeper is tests/campaigns/test_differential.py.
"""

import pytest

from differential import explained, recording, servers, words
from differential.driver import describe, run_case
from differential.side import Recorded, Side

FILES = sorted(recording.FOLDER.glob("*.jsonl"))


def test_every_explained_difference_is_documented():
    missing = explained.undocumented()
    assert not missing, f"docs/compatibility.md has no row for: {', '.join(missing)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_corral_answers_as_zookeeper_did(path, shards, note):
    recorded = recording.load(path)
    if words.HAS_LIST and any(words.about_list(case.steps) for case in recorded.cases):
        pytest.skip("the recorded ZooKeeper is alone and has no membership")
    server = servers.corral(shards, recorded.strict)
    try:
        sides = (Recorded(), Side(server.start(), servers.LIMIT_S))
        operations = 0
        for case in recorded.cases:
            sides[0].play(case)
            outcome = run_case(sides, case.steps, recorded.strict)
            if outcome.difference:
                title = f"{path.stem}: case {case.name!r}, step {outcome.driver.step} of {len(case.steps)}"
                pytest.fail(f"{title}: {describe(outcome.difference, outcome.driver)}", pytrace=False)
            left = None if outcome.parted else next(sides[0].answers, None)
            assert left is None, f"the recording of {case.name!r} holds more than the case asks: {left}; record it anew"
            operations += outcome.driver.operations
    finally:
        server.dispose()
    note(f"{len(recorded.cases)} cases, {operations} operations, as ZooKeeper {recorded.zookeeper} answered")
