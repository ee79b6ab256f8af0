#!/usr/bin/env python3
"""Model-based watch test: `watches/run.py [--quick] [--events N] [--shards N] [--seed S] [--server zookeeper]`.

Sessions with watches of all kinds on overlapping paths change a small tree at random, lose their connections, set their watches
again, end and expire; corral is also killed and started again on the same data. A model written from the protocol foresees the exact sequence of
events, with zxids, for each connection: none may be lost, doubled, out of order, behind the data or seen without permission.
A real ZooKeeper passes too; it is not killed.
"""

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import suite  # noqa: E402
from watches import tampering  # noqa: E402
from watches.checker import Checker  # noqa: E402
from watches.player import Player  # noqa: E402

EVENTS, EVENTS_QUICK = 1_000_000, 250_000
CONNECTIONS = 8
ROUND_REQUESTS = (30, 700)
# A kill after so many events.
KILL_EVENTS, KILL_EVENTS_QUICK = 60_000, 50_000
# Of the rounds, that end with waiting for a session to expire.
EXPIRY_SHARE = 0.02
RECORDED_ROUNDS = 12


def play(context, options):
    """The run itself. Rounds are judged as they come and not kept."""
    events = options.events or (EVENTS_QUICK if options.quick else EVENTS)
    kill_events = KILL_EVENTS_QUICK if options.quick else KILL_EVENTS
    can_kill = context.is_corral and context.server.process is not None
    player, checker = Player(context.server, CONNECTIONS, options.seed, context.is_corral), Checker()
    pick = random.Random(f"{options.seed}-rounds")
    next_kill, began = kill_events, time.monotonic()
    while checker.counts["events"] < events:
        player.round(pick.randint(*ROUND_REQUESTS))
        if pick.random() < EXPIRY_SHARE:
            player.expire()
        if can_kill and checker.counts["events"] > next_kill:
            player.kill()
            next_kill += kill_events
        checker.judge(player.entries)
        player.entries.clear()
    player.end()
    counts = {**checker.counts, **player.counts}
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    return f"seed {options.seed}, {told}, {checker.counts['events'] / (time.monotonic() - began):.0f} events a second"


def record(context, options):
    """A short run, kept to be spoilt."""
    player = Player(context.server, CONNECTIONS, f"{options.seed}-recorded", context.is_corral)
    for _ in range(RECORDED_ROUNDS):
        player.round(ROUND_REQUESTS[1])
    player.expire()
    player.end()
    return player.entries


def main():
    parser = suite.parser(__doc__)
    parser.add_argument("--events", type=int, help="events to see")
    parser.add_argument("--seed", default=str(time.time_ns()), help="what the requests follow from")
    options = parser.parse_args()
    tally = suite.Tally()
    recorded = []

    def watches(context):
        return play(context, options)

    def recording(context):
        recorded.extend(record(context, options))
        return f"{sum(Checker().judge(recorded).values())} things judged"

    for name, function in [("watches.recording", recording), ("watches.model", watches)]:
        if options.only in name or name == "watches.recording":
            server = suite.make_server(options, tick_ms=500)
            suite.run_with_server(server, [(name, function)], tally)
    for name, function in tampering.tests(options.only):
        tally.run(name, function, recorded)
    suite.leave(tally)


if __name__ == "__main__":
    main()
