"""Every event that a watch promises, against a model: `--events N` sets how many are seen, `--seed S` repeats a run.

Sessions with watches of all kinds on overlapping paths change a small tree at random, lose their connections, set their watches
again, end and expire; corral is also killed and started again on the same data. A model written from the protocol foresees the exact sequence of
events, with zxids, for each connection: none may be lost, doubled, out of order, behind the data or seen without permission.
A real ZooKeeper passes too (`--server zookeeper`); it is not killed.
"""

import random
import time

from watches.checker import Checker
from watches.player import CONNECTIONS, ROUND_REQUESTS, Player

EVENTS, EVENTS_QUICK = 1_000_000, 250_000
# A kill after so many events.
KILL_EVENTS, KILL_EVENTS_QUICK = 60_000, 50_000
# Of the rounds, that end with waiting for a session to expire.
EXPIRY_SHARE = 0.02


def test_every_event_is_the_one_that_the_model_foresees(context, options, seed, note):
    """Rounds are judged as they come and not kept."""
    events = options.sized("events", EVENTS_QUICK, EVENTS)
    kill_events = KILL_EVENTS if options.full else KILL_EVENTS_QUICK
    can_kill = context.is_corral and context.server.process is not None
    player, checker = Player(context.server, CONNECTIONS, seed, context.is_corral), Checker()
    pick = random.Random(f"{seed}-rounds")
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
    note(f"seed {seed}, {told}, {checker.counts['events'] / (time.monotonic() - began):.0f} events a second")
