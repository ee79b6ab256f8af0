"""Corral against the recorded answers of a real ZooKeeper, byte for byte.

mapping.py tells what is mapped before the comparison, explained.py and docs/compatibility.md what differs on purpose. The cases
of a file run in order on one corral. A case is added to the recordings as record.py describes. The search for new
differences beside a real ZooKeeper is tests/campaigns/test_differential.py.
"""

import pytest

from differential import explained, record, servers, words
from differential.driver import describe, run_case
from differential.side import Recorded, Side

FILES = sorted(record.FOLDER.glob("*.jsonl"))


def test_every_explained_difference_is_documented():
    missing = explained.undocumented()
    assert not missing, f"docs/compatibility.md has no row for: {', '.join(missing)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_corral_answers_as_zookeeper_did(path, shards, note):
    recorded = record.load(path)
    if words.IS_ENSEMBLE and "membership" in path.stem:
        pytest.skip("the recorded ZooKeeper is alone and has no membership")
    server = servers.corral(shards, recorded.strict)
    try:
        sides = (Recorded(), Side(server.start(), servers.LIMIT_S))
        operations = 0
        for case in recorded.cases:
            assert case.answers, f"{case.name!r} is not recorded: {record.COMMAND} {path}"
            sides[0].play(case)
            try:
                outcome = run_case(sides, case.steps, recorded.strict)
            except (OSError, RuntimeError) as broken:
                broken.add_note(f"in case {case.name!r}")
                raise
            if outcome.difference:
                pytest.fail(f"case {case.name!r}, {describe(outcome.difference, outcome.driver)}", pytrace=False)
            left = None if outcome.parted else next(sides[0].answers, None)
            assert left is None, f"the recording of {case.name!r} holds more than the case asks: {left}; record it anew"
            operations += outcome.driver.operations
        assert recorded.cases and len(recorded.cases) == recorded.count, f"{len(recorded.cases)} cases of {recorded.count}"
        assert "panicked" not in server.log(), "the server's log shows a panic"
    finally:
        server.dispose()
    note(f"{len(recorded.cases)} cases, {operations} operations, as ZooKeeper {recorded.zookeeper} answered")
