#!/usr/bin/env python3
"""Sends seeded random sequences of operations to a real ZooKeeper and to corral and compares all they answer, byte for byte.

`differential/run.py [--quick] [--seeds A..B] [--ops N] [--shards N] [--strict] [--replay FILE]`. What is mapped before comparing
is told in mapping.py, what differs on purpose in explained.py and docs/compatibility.md. A sequence that differs is shrunk and
printed with what both servers sent, and kept in the folder --keep names. What differed once is in cases/, a line of JSON each,
and runs first, always; --replay takes such a file.
ZooKeeper is found as the other suites find it: the jars of ZOOKEEPER_JARS, or Debian's package.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from differential import explained, pair, session  # noqa: E402
from support import suite  # noqa: E402

QUICK_SEEDS, FULL_SEEDS = range(1, 601), range(1, 10_001)
OPERATIONS = 110


def seeds(text):
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def options():
    parser = suite.parser(__doc__)
    parser.add_argument("--seeds", type=seeds, help="run these instead of the size's own")
    parser.add_argument("--ops", type=int, default=OPERATIONS, help="operations of a sequence")
    parser.add_argument("--strict", action="store_true", help="only the second configuration: quotas enforced, reconfig enabled")
    parser.add_argument("--replay", metavar="FILE", type=Path, help="run the cases of this file alone")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="where shrunk cases are written")
    parser.add_argument("--without", default="", help="operations and steps to leave out, separated by commas")
    parser.add_argument("--failures-max", type=int, default=5, help="stop after so many failing sequences")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of corral")
    return parser.parse_args()


def main():
    chosen = options()
    tally = suite.Tally()
    if reason := pair.why_not():
        tally.skipped += 1
        print(f"skip differential: {reason}")
        suite.leave(tally)
    if missing := explained.undocumented():
        tally.failed += 1
        print(f"FAIL docs/compatibility.md has no row for: {', '.join(missing)}")
    print(f"comparing with ZooKeeper {pair.zookeeper_version()}", flush=True)
    wanted = chosen.seeds if chosen.seeds is not None else QUICK_SEEDS if chosen.quick else FULL_SEEDS
    for strict in (True,) if chosen.strict else (False, True):
        # The second configuration gets a fifth of the sequences, the last ones.
        if not chosen.strict and chosen.seeds is None:
            split = len(wanted) * 4 // 5
            part = wanted[split:] if strict else wanted[:split]
        else:
            part = wanted if strict == chosen.strict else range(0)
        run = session.Session(chosen, strict, tally)
        run.all(part)
    suite.leave(tally)


if __name__ == "__main__":
    main()
