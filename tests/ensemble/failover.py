#!/usr/bin/env python3
"""Kills or stops the leader again and again under load, and measures how long the clients of the others wait for a write.

Each round: the clients of every server write, one request after the other; the leader is killed (or stopped); the time until a
client of a follower has a write acknowledged that it sent after that moment is the round's figure. Then the server comes
back. At the end every acknowledged write must be there on every server, and no session may have been lost.
"""

import argparse
import bisect
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ensemble.cluster import Ensemble, pause, resume  # noqa: E402
from ensemble.sessions import connect  # noqa: E402
from support.client import Client, Closed, Refused  # noqa: E402
from support.wait import wait_until  # noqa: E402

SESSION_MS = 10_000
WRITE_LIMIT_S = 30
CALM_S = 0.5
POLL_S = 0.002


class Writer(threading.Thread):
    """One session that creates znodes one after the other; tries the servers in turn when its connection ends."""

    def __init__(self, ensemble, top, number):
        super().__init__(daemon=True)
        self.top = top
        self.members = ensemble.members[number % 3 :] + ensemble.members[: number % 3]
        self.number, self.created = number, []
        # When each write was sent and when acknowledged, in order.
        self.answers = []
        self.sessions_lost = self.reconnects = 0
        self.over = self.away = False
        self.client = connect(self.members[0], timeout_ms=SESSION_MS)
        self.member = self.members[0]

    def run(self):
        turn = 0
        while not self.over:
            if self.away:
                self.away = False
                self.reconnect()
            path = f"{self.top}/{self.number}-{turn}"
            turn += 1
            sent = time.monotonic()
            try:
                self.client.create(path, b"x" * 100)
            except (Closed, OSError, Refused):
                self.reconnect()
                continue
            self.created.append(path)
            self.answers.append((sent, time.monotonic()))

    def reconnect(self):
        """The session at the next server that takes it; a new one, counted as a loss, when it is over."""
        self.client.drop()
        self.reconnects += 1
        turn = 0
        while not self.over:
            self.member = self.members[turn % len(self.members)]
            turn += 1
            try:
                client = Client(self.member.address, timeout_ms=SESSION_MS, resume=self.client)
            except (OSError, Closed):
                time.sleep(POLL_S)
                continue
            if client.session_id == self.client.session_id:
                self.client = client
                return
            client.drop()
            self.sessions_lost += 1
            self.client = connect(self.member, timeout_ms=SESSION_MS)
            return

    def first_answer_after(self, moment):
        """When the first write that was sent after the moment was acknowledged, or None."""
        first = bisect.bisect(self.answers, (moment, 0))
        return self.answers[first][1] if first < len(self.answers) else None


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--server", choices=("corral", "zookeeper"), default="corral", help="which servers to start")
    options.add_argument("--rounds", type=int, default=20, help="how often the leader goes")
    options.add_argument("--stop", action="store_true", help="stop the leader (SIGSTOP) for two seconds instead of killing it")
    options.add_argument("--shards", type=int, default=1, help="shards of each corral")
    options.add_argument("--writers", type=int, default=6, help="sessions that write")
    options = options.parse_args()
    ensemble = Ensemble(options.server, shards=options.shards, tick_ms=500)
    try:
        ensemble.start()
        print(report(options, *run(options, ensemble)))
    except BaseException:
        print(ensemble.log_tails(), file=sys.stderr)
        raise
    finally:
        ensemble.dispose()


def run(options, ensemble):
    """All rounds; returns the waits in seconds and the writers."""
    with connect(ensemble.leader()) as client:
        top = client.create(f"/failover-{time.time_ns():x}")
    writers = [Writer(ensemble, top, number) for number in range(options.writers)]
    for writer in writers:
        writer.start()
    waits = []
    for _ in range(options.rounds):
        time.sleep(CALM_S)
        leader = ensemble.leader()
        others = [writer for writer in writers if writer.member is not leader]
        moment = time.monotonic()
        if options.stop:
            pause(leader)
        else:
            leader.kill()
        first = wait_until(
            lambda: min((when for when in (w.first_answer_after(moment) for w in others) if when), default=None),
            "a write is acknowledged again", WRITE_LIMIT_S,
        )  # fmt: skip
        waits.append(first - moment)
        if options.stop:
            time.sleep(2)
            resume(leader)
        ensemble.start()
        ensemble.followers()
        for writer in writers:
            # Back to the server where it began, so that every server has clients when the next one goes.
            writer.away = True
    for writer in writers:
        writer.over = True
        writer.join(WRITE_LIMIT_S)
    return waits, writers, missing(ensemble, top, writers)


def missing(ensemble, top, writers):
    """Acknowledged znodes that a server does not have."""
    expected = {path.rpartition("/")[2] for writer in writers for path in writer.created}
    lost = set()
    for member in ensemble.members:
        with connect(member) as client:
            client.sync()
            lost |= expected - set(client.children(top))
    return sorted(lost)


def report(options, waits, writers, lost):
    waits = sorted(wait * 1000 for wait in waits)
    p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    written = sum(len(writer.created) for writer in writers)
    sessions = sum(writer.sessions_lost for writer in writers)
    text = (
        f"{options.server}: {len(waits)} leaders {'stopped' if options.stop else 'killed'}, first acknowledged write after "
        f"{statistics.median(waits):.0f} ms median, {p99:.0f} ms p99, {waits[-1]:.0f} ms at most; "
        f"{written} writes acknowledged, {len(lost)} lost; {sessions} sessions lost, "
        f"{sum(writer.reconnects for writer in writers)} reconnects"
    )
    if lost or sessions:
        raise AssertionError(f"{text} {lost[:5]}")
    return text


if __name__ == "__main__":
    main()
