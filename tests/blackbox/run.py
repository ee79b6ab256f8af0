#!/usr/bin/env python3
"""Runs the raw protocol tests on one server: `blackbox/run.py [--server zookeeper] [--shards N] [--only NAME]`.

What corral does unlike ZooKeeper on purpose; the tests ask `context.is_corral` only for these:
  1. A wrong password leaves the session's present connection open (sessions.wrong_password).
  2. Op code 20, deleteContainer, is refused (requests.unknown_op_codes): ZooKeeper lets anybody delete with it.
  3. Op code -10, createSession, is refused (requests.unknown_op_codes).
  4. A create flag that contradicts its op code is refused (writes.flags), where ZooKeeper 3.9 makes a plain node.
  5. `wchs` counts the connections that watch something, ZooKeeper also those that did (words.watches_of_several_kinds).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from blackbox import (  # noqa: E402
    acls, beside, demanding, digests, hostile_reads, hostile_writes, keeper, limits, mortals, multis, ordering, persistent, quotas,
    reads, requests, sessions, sizes, stats,
    switched, watches, words, writes,
)  # fmt: skip
from support import suite  # noqa: E402

MODULES = [sessions, requests, writes, reads, stats, acls, multis, watches, persistent, ordering, sizes, words, beside, hostile_writes]

# Each on a server of its own, with its own settings.
OTHERWISE = [digests, limits, demanding, quotas, mortals, switched, keeper, hostile_reads]


def main():
    options = suite.parser(__doc__).parse_args()
    server = suite.make_server(options, tick_ms=500)
    tally = suite.run_with_server(server, suite.tests_of(MODULES, options.only))
    shards = options.shards
    for module in OTHERWISE:
        tests = list(suite.tests_of([module], options.only))
        if tests and not options.against:
            options.shards = getattr(module, "SHARDS", shards)
            server = suite.make_server(options, tick_ms=500, settings=module.SETTINGS, java_options=getattr(module, "JAVA_OPTIONS", ()))
            suite.run_with_server(server, tests, tally)
    suite.leave(tally)


if __name__ == "__main__":
    main()
