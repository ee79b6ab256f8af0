"""Seeded random sequences of operations to a real ZooKeeper and to corral; all they answer is compared, byte for byte.

What is mapped before comparing is told in mapping.py, what differs on purpose in explained.py and docs/compatibility.md. A sequence that
differs is shrunk and printed with what both servers sent, and kept in the folder `--keep` names. What differed once is in cases/, a line of JSON
each, and runs first, always; `--replay FILE` runs such a file alone. `--seeds A..B` and `--ops N` choose other sequences, `--without NAMES`
leaves operations and steps out, `--strict-only` runs the second configuration alone.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest

from differential import explained, pair, session

QUICK_SEEDS, FULL_SEEDS = range(1, 601), range(1, 10_001)
OPERATIONS, FAILURES_MAX = 110, 5


def seeds(text):
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def seeds_of(options, strict):
    """The sequences of a configuration. The second one gets a fifth of the size's, the last ones."""
    if options.seeds or options.strict_only:
        wanted = seeds(options.seeds) if options.seeds else FULL_SEEDS if options.full else QUICK_SEEDS
        return wanted if strict == options.strict_only else range(0)
    wanted = FULL_SEEDS if options.full else QUICK_SEEDS
    split = len(wanted) * 4 // 5
    return wanted[split:] if strict else wanted[:split]


@pytest.fixture
def chosen(options):
    return SimpleNamespace(
        shards=options.shards,
        ops=options.sized("ops", OPERATIONS, OPERATIONS),
        failures_max=options.sized("failures_max", FAILURES_MAX, FAILURES_MAX),
        replay=options.replay and Path(options.replay),
        keep=options.keep and Path(options.keep),
        without=[name for name in (options.without or "").split(",") if name],
        set=[pair for pair in (options.set or "").split(",") if pair],
    )


def test_every_explained_difference_is_documented():
    missing = explained.undocumented()
    assert not missing, f"docs/compatibility.md has no row for: {', '.join(missing)}"


@pytest.mark.parametrize("strict", (False, True), ids=("first_configuration", "second_configuration"))
def test_both_servers_answer_the_same(strict, chosen, options, say, note):
    if reason := pair.why_not():
        pytest.skip(reason)
    if options.strict_only and not strict:
        pytest.skip("only the second configuration is asked for")
    run = session.Session(chosen, strict, say)
    run.all(seeds_of(options, strict))
    assert not run.failures, f"the servers differ: {', '.join(run.failures)}"
    note(f"{run.sequences} sequences, {run.operations} operations beside ZooKeeper {pair.zookeeper_version()}")
