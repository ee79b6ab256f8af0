"""Makes the recordings anew from a real ZooKeeper 3.9: cd tests && .venv/bin/python -m differential.record [FILE...]

Each file is recorded twice, on a new ZooKeeper each time. A case whose two recordings differ is dropped, and its name is
printed. With `--choose N` the files of generated cases are replaced first. They get the beginnings of sequences, of the
seeds 1 to N, that together reach every outcome which one of these sequences reaches (Driver.reached).

To add a case that the campaign found (tests/campaigns/test_differential.py): append the line that it printed to
recordings/found.jsonl, or found_strict.jsonl for the strict configuration, and run this program with that file. Then
`tests/run differential` compares corral with the recording.
"""

import argparse
import sys
from pathlib import Path

from differential import recording, servers, words
from differential.driver import run_case
from differential.generator import Generator, is_strict
from differential.recording import FOLDER, Case, Recording
from differential.side import ENDS, Side
from support.server import zookeeper_version

CASES_A_FILE = 20
GENERATED = "generated"
# What the beginning of a case costs, in steps.
CONNECT_STEPS = 6


def record(path):
    """Records the cases of a file until all of them are stable."""
    old = recording.load(path)
    cases, unstable = old.cases, [None]
    while unstable:
        first, second = answers(cases, old.strict), answers(cases, old.strict)
        unstable = [left.name for left, right in zip(first, second) if left != right or is_stuck(left)]
        print(f"{path.name}: {len(cases)} cases recorded twice, not stable: {', '.join(unstable) or 'none'}", flush=True)
        cases = [case for case in first if case.name not in unstable]
    recording.save(path, Recording(zookeeper_version(), old.strict, cases))


def answers(cases, strict):
    """The cases with what a new ZooKeeper answers."""
    server = servers.zookeeper(strict)
    try:
        side = Side(server.start(), servers.SEARCH_LIMIT_S)
        recorded = []
        for case in cases:
            outcome = run_case([side], case.steps, strict)
            messages = [tuple(messages) for _, _, messages in outcome.driver.transcript]
            recorded.append(Case(case.name, case.steps, messages, outcome.tree))
        return recorded
    finally:
        server.dispose()


def is_stuck(case):
    """Whether ZooKeeper did not answer: the test would wait for its limit."""
    return any(message in ENDS[1:] for messages in case.answers for message in messages)


def choose(count):
    """Writes the files of generated cases, not recorded yet. corral runs beside ZooKeeper: what explains a difference counts."""
    found, chosen = {}, {}
    pairs = [servers.Pair(strict=strict) for strict in (False, True)]
    for seed in range(1, count + 1):
        pair, steps = pairs[is_strict(seed)], Generator(seed).sequence()
        outcome = pair.run(steps)
        if outcome.difference:
            print(f"seed {seed}: the servers differ, left out", flush=True)
        else:
            found[seed] = (pair.strict, steps, outcome.driver.reached)
    for pair in pairs:
        pair.stop()
    wanted = {outcome for _, _, reached in found.values() for outcome in reached}
    print(f"{len(found)} sequences reach {len(wanted)} outcomes", flush=True)
    while wanted:
        _, seed, length = max(best_length(seed, reached, chosen.get(seed, 0), wanted) for seed, (_, _, reached) in found.items())
        chosen[seed] = length
        wanted -= {outcome for outcome, step in found[seed][2].items() if step <= length}
    groups = {}
    for seed, length in sorted(chosen.items()):
        strict, steps = found[seed][0], found[seed][1][:length]
        kind = (GENERATED, *["strict"] * strict, *["membership"] * words.about_list(steps))
        groups.setdefault((kind, strict), []).append(Case(f"seed {seed}", steps, [], {}))
    for old in FOLDER.glob(f"{GENERATED}*.jsonl"):
        old.unlink()
    for (kind, strict), cases in groups.items():
        for number, begin in enumerate(range(0, len(cases), CASES_A_FILE), 1):
            recording.save(FOLDER / f"{'_'.join(kind)}_{number}.jsonl", Recording(None, strict, cases[begin : begin + CASES_A_FILE]))


def best_length(seed, reached, have, wanted):
    """(wanted outcomes a step, seed, length): how far this case is best extended beyond its first `have` steps."""
    steps = sorted(step for outcome, step in reached.items() if outcome in wanted)
    cost = CONNECT_STEPS * (not have) - have
    return max(((count / (step + cost), seed, step) for count, step in enumerate(steps, 1)), default=(0, seed, have))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="the recordings to make anew [all]")
    parser.add_argument("--choose", metavar="N", type=int, help="choose generated cases anew from so many seeds")
    arguments = parser.parse_args()
    if reason := servers.why_not():
        sys.exit(f"cannot record: {reason}")
    if arguments.choose:
        choose(arguments.choose)
    for path in arguments.files or sorted(FOLDER.glob("*.jsonl")):
        record(path)


if __name__ == "__main__":
    main()
