"""Makes the recordings anew from a real ZooKeeper 3.9: cd tests && .venv/bin/python -m differential.record [FILE...]

Each file is recorded twice, on a new ZooKeeper each time. A case whose two recordings differ is dropped, and its name is
printed. To add a case that the campaign found (tests/campaigns/test_differential.py) or one written by hand:

1. Append its line {"from": name, "steps": [...]} to recordings/found.jsonl, or to the file that the campaign names (recording.py
   tells the names). The file may be new. The name of a case is unique in its file.
2. Run this program with that file.
3. Run tests/run tests/differential, which compares corral with the recording, and commit the file.
"""

import sys
from pathlib import Path

from differential import servers
from differential.driver import run_case
from differential.recording import FOLDER, Case, Recording, load, save
from differential.side import ENDS, Side
from support.server import zookeeper_version


def record(path):
    """Records the cases of a file until all of them are stable."""
    old = load(path)
    cases, unstable = old.cases, [None]
    while unstable:
        first, second = answers(cases, old.strict), answers(cases, old.strict)
        unstable = [left.name for left, right in zip(first, second) if left != right or is_stuck(left)]
        print(f"{path.name}: {len(cases)} cases recorded twice, not stable: {', '.join(unstable) or 'none'}", flush=True)
        cases = [case for case in first if case.name not in unstable]
    save(path, Recording(zookeeper_version(), old.strict, cases))


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


def main():
    if reason := servers.why_not():
        sys.exit(f"cannot record: {reason}")
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.jsonl")):
        record(path)


if __name__ == "__main__":
    main()
