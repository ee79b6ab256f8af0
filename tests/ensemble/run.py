#!/usr/bin/env python3
"""Starts ensembles of three servers: runs the tests on them, and lets leaders go under load."""

import argparse
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ensemble import beginnings, cases, certificates, config, digests, distrusted, failover, impostor, leaderless  # noqa: E402
from ensemble import linearizable, members, observers, old_copies, piles, regressions, slow_disk  # noqa: E402
from ensemble.cluster import Ensemble  # noqa: E402
from support import suite  # noqa: E402


WRITERS = 6


def lose_leaders(options, stop, ensemble):
    """Leaders go under load; returns what that did."""
    rounds = (3 if options.quick else 50) // (3 if stop else 1) or 1
    chosen = argparse.Namespace(server=options.server, rounds=rounds, stop=stop, writers=WRITERS)
    return failover.report(chosen, *failover.run(chosen, ensemble))


def run(options, tally, ensemble, modules, lets_leaders_go=False):
    """Starts the ensemble, runs the modules' tests on it, and ends it."""
    clean = True
    try:
        ensemble.start()
        for name, test in suite.tests_of(modules, options.only):
            clean &= tally.run(name, test, ensemble)
            ensemble.start()
        for stop in (False, True) if lets_leaders_go else ():
            name = f"failover.leaders_{'stopped' if stop else 'killed'}"
            if options.only in name:
                clean &= tally.run(name, lose_leaders, options, stop, ensemble)
        for member in ensemble.members:
            clean &= tally.run(f"server at {member.address[1]} did not panic", suite.check_server, member)
    finally:
        end(ensemble, clean)


def end(ensemble, clean):
    """Ends the ensemble; one with failures shows its logs, and with CORRAL_TEST_KEEP stays on disk."""
    if not clean:
        print(ensemble.log_tails())
    ensemble.dispose(keep=not clean and "CORRAL_TEST_KEEP" in os.environ)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--server", choices=("corral", "zookeeper"), default="corral", help="which servers to start")
    options.add_argument("--shards", type=int, default=2, help="shards of each corral")
    options.add_argument("--quick", action="store_true", help="few leaders go")
    options.add_argument("--only", default="", help="run only tests whose name contains this")
    options = options.parse_args()
    tally = suite.Tally()
    modules = [cases, config, beginnings, regressions]
    run(options, tally, Ensemble(options.server, shards=options.shards), modules, lets_leaders_go=True)
    readable = Ensemble(options.server, shards=options.shards, read_only=True)
    run(options, tally, readable, [leaderless])
    if options.server == "corral":
        run(options, tally, Ensemble(options.server, size=4, shards=options.shards, observers={4}), [observers])
        settings = {"ensemble.linearizable_reads": "true"}
        run(options, tally, Ensemble(options.server, shards=options.shards, settings=settings), [linearizable, slow_disk])
        run(options, tally, piles.SmallSegments(options.shards), [piles])
        run(options, tally, impostor.WithSecret(options.shards), [impostor])
        run(options, tally, Ensemble(options.server, shards=options.shards), [impostor])
        run(options, tally, Ensemble(options.server, shards=options.shards), [distrusted, old_copies])
        run(options, tally, Ensemble(options.server, shards=options.shards), [digests])
        if shutil.which("openssl"):
            run(options, tally, certificates.Encrypted(options.shards), [certificates])
        else:
            tally.run("certificates", certificates.need_openssl)
    for name, test in suite.tests_of([members], options.only):
        run_alone(options, tally, name, test)
    suite.leave(tally)


def run_alone(options, tally, name, test):
    """A test that changes who belongs to the ensemble has one of its own."""
    ensemble, clean = Ensemble(options.server, shards=options.shards), False
    try:
        ensemble.start()
        for member in ensemble.members:
            # One that comes by its first list and by a change of it at once takes the change for what was so at its start.
            members.shows_list_of(member, ensemble.specs)
        clean = tally.run(name, test, ensemble)
        for member in ensemble.running:
            clean &= tally.run(f"{name}: server {ensemble.number(member)} did not panic", suite.check_server, member)
    finally:
        end(ensemble, clean)


if __name__ == "__main__":
    main()
