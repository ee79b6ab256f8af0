"""Seeded random cases on a real ZooKeeper 3.9 and on corral side by side. Every answer is compared, byte for byte.

    tests/.venv/bin/pytest tests/campaigns/test_differential.py --seed N --minutes M

N is the first sequence, and the next ones follow it. A case whose answers differ is shrunk and printed with what both
servers sent, and as a line to be added to the recordings (tests/differential/record.py).
"""

import time

import pytest

from differential import recording, servers
from differential.driver import describe
from differential.generator import Generator
from differential.shrink import shrink

FOUND_MAX = 5
PROGRESS_S = 30
# One sequence of so many runs in the strict configuration.
STRICT_SHARE = 5


class Campaign:
    """Both configurations, and the differences found."""

    def __init__(self, shards, say):
        self.pairs = {strict: servers.Pair(strict, shards) for strict in (False, True)}
        self.say, self.found = say, []
        self.sequences, self.operations = 0, 0

    def run(self, first, is_over):
        begin = shown = time.monotonic()
        try:
            while len(self.found) < FOUND_MAX and not is_over():
                self.sequence(first + self.sequences)
                if time.monotonic() - shown > PROGRESS_S:
                    shown = time.monotonic()
                    self.say(f"seed {first + self.sequences}: {self.figures()}, {self.operations / (shown - begin):.0f}/s")
        finally:
            for pair in self.pairs.values():
                pair.stop()

    def figures(self):
        return f"{self.sequences} sequences, {self.operations} operations"

    def sequence(self, seed):
        pair, steps = self.pairs[seed % STRICT_SHARE == 0], Generator(seed).sequence()
        try:
            outcome = pair.run(steps)
        except (OSError, RuntimeError) as broken:
            broken.add_note(f"in the sequence of seed {seed}")
            raise
        self.sequences += 1
        self.operations += outcome.driver.operations
        if outcome.difference:
            self.found.append(f"seed {seed}")
            self.report(pair, seed, steps, outcome)

    def report(self, pair, seed, steps, outcome):
        """Prints a difference, shrunk. A recording runs on new servers, so that the last run does too."""
        self.say(f"seed {seed}: the servers differ; the case is shrunk")
        smallest = shrink(steps, lambda candidate: pair.run(candidate).difference)
        pair.stop()
        last = pair.run(smallest)
        shown = last if last.difference else outcome
        self.say(f"seed {seed}: {describe(shown.difference, shown.driver)}")
        if not last.difference:
            self.say("the shrunk case does not differ on new servers: it depends on the sequences before it, or on timing")
        self.say(f"for {recording.found_file(smallest, pair.strict)}:")
        self.say(recording.case_line(recording.Case(f"seed {seed}", smallest, (), {})))


def test_both_servers_answer_the_same(seed, shards, is_over, say, note):
    if reason := servers.why_not():
        pytest.skip(reason)
    campaign = Campaign(shards, say)
    say(f"seed {seed}")
    campaign.run(seed, is_over)
    note(f"{campaign.figures()} from seed {seed}, beside ZooKeeper {servers.zookeeper_version()}")
    if campaign.found:
        pytest.fail(f"the servers differ: {', '.join(campaign.found)}", pytrace=False)
