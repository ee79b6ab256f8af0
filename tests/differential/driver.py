"""Runs a case, a list of steps, on two servers at once and compares what they send, step by step.

Steps: ["connect", slot, options], ["send", slot, operations, ending], ["drop", slot], ["raw", slot, hex]. A slot is the place
of a connection. `ending` tells what follows the replies: "" nothing, "maybe" a ping that shows whether the connection is
open, "ends" the end of the connection. A session reads the writes of another behind a sync, which precedes its next
operations. On a standalone ZooKeeper the sync changes nothing.

In the place of ZooKeeper there may be its recorded answers. A recording runs the case on ZooKeeper alone.
"""

import json
from collections import namedtuple

from differential import control, explained, mapping, operations, words
from differential.side import LAST_SLOTS

SYNC = ["sync", "/"]
SHOWN_MESSAGES = 12
# `difference` is None if the servers agree. `parted` tells that the comparison ended early at an explained difference.
Outcome = namedtuple("Outcome", "difference parted driver tree")


class Difference(Exception):
    """The servers sent different things and nothing explains it."""

    def __init__(self, step, what, zookeeper, corral):
        super().__init__(what)
        self.step, self.what, self.zookeeper, self.corral = step, what, zookeeper, corral


class Parted(Exception):
    """The servers differ on purpose, and what follows cannot be compared any more."""


def run_case(sides, steps, strict):
    """Runs a case and returns its Outcome. The first side is ZooKeeper. A side whose server runs is clean afterwards."""
    for side in sides:
        side.begin()
    # ZooKeeper's quotas do not count what is not applied yet.
    driver = Driver(sides, lone_writes=strict and "zookeeper_limits" in str(steps))
    difference, parted = None, False
    try:
        driver.run(steps)
    except Difference as found:
        difference = found
    except Parted:
        parted = True
    trees = [side.tree() for side in sides]
    if not difference and not parted:
        difference = tree_difference(trees[0], trees[-1])
    return Outcome(difference, parted, driver, trees[0])


def tree_difference(zookeeper, corral):
    """The first unexplained difference of the trees after a case, or None."""
    for path, left, right in control.compare(zookeeper, corral):
        if words.IS_ENSEMBLE and path == words.CONFIG_PATH:
            continue
        case = explained.Case([explained.TREES, path], [], None, left or (), right or ())
        if not explained.find(case):
            return Difference([explained.TREES, path], "the znode", [left], [right])
    return None


class Driver:
    """Runs one case. After it `transcript` holds (step, slot, ZooKeeper's messages) of each exchange."""

    def __init__(self, sides, lone_writes=False):
        """With `lone_writes` each write waits for the reply to the one before."""
        self.sides, self.lone_writes = sides, lone_writes
        # `step` is the number of the step that runs, from 1.
        self.transcript, self.operations, self.step = [], 0, 0
        # `stale` are the slots whose next operations go behind a sync, `ended` the sessions that were closed.
        self.next_xid, self.stale, self.ended = {}, set(), set()

    def run(self, steps):
        try:
            for self.step, step in enumerate(steps, 1):
                getattr(self, step[0])(step, *step[1:])
            self.end_sessions()
        except (Difference, Parted):
            for side in self.sides:
                side.end_quietly()
            raise

    def is_open(self, slot):
        return all(slot in side.open for side in self.sides)

    # --- the kinds of steps

    def connect(self, step, slot, options):
        source = options.get("session")
        if self.is_open(slot) or (source is not None and source not in self.sides[0].sessions):
            return
        rivals = [other for other in self.sides[0].open if source is not None and self.same_session(other, source)]
        for other in rivals:
            self.send(step, other, [], "")
        outcomes = [side.connect(slot, options) for side in self.sides]
        self.settle(step, slot, [["connect"]], outcomes)
        self.next_xid[slot] = 1
        for other in rivals:
            if options.get("password", "right") == "right":
                self.expect_end(step, other)
            else:
                self.send(step, other, [], "maybe")
        self.stale = set(self.sides[0].open)

    def same_session(self, slot, other):
        return slot in self.sides[0].sessions and all(side.sessions[slot] == side.sessions[other] for side in self.sides)

    def send(self, step, slot, ops, ending):
        """Sends a burst. What follows a setACL waits for its reply: ZooKeeper may otherwise use the old ACL or the new."""
        lone = operations.is_write if self.lone_writes else lambda op: operations.plain(op)[0] == "setACL"
        begin = 0
        for at, op in enumerate(ops[:-1]):
            if lone(op):
                self.burst(step, slot, ops[begin : at + 1], "")
                begin = at + 1
        self.burst(step, slot, ops[begin:], ending)

    def burst(self, step, slot, ops, ending):
        if not self.is_open(slot):
            return
        if slot in self.stale:
            self.stale.discard(slot)
            if any(operations.overtakes(op) for op in ops):
                self.burst(step, slot, [SYNC], "")
            else:
                ops = [SYNC, *ops]
        if not self.is_open(slot):
            return
        xids = [self.xid(slot, op) for op in ops]
        for side in self.sides:
            side.send(slot, ops, xids)
        outcomes = [side.read(slot, ops, ending) for side in self.sides]
        ops = [*ops, ["ping"]] if ending == "maybe" else ops
        self.operations += len(ops)
        if any(map(operations.is_write, ops)):
            self.stale.update(other for other in self.sides[0].open if other != slot)
        if ["close"] in map(operations.plain, ops):
            self.ended.add(self.sides[0].sessions[slot][0])
        self.settle(step, slot, ops, outcomes)

    def xid(self, slot, op):
        given = operations.xid_of(op)
        if given is not None:
            return given
        self.next_xid[slot] += 1
        return self.next_xid[slot] - 1

    def drop(self, step, slot):
        if self.is_open(slot):
            self.send(step, slot, [], "")
            for side in self.sides:
                side.release(slot)

    def raw(self, step, slot, data):
        """Sends bytes that are no request. The server has to close the connection."""
        if not self.is_open(slot):
            return
        self.send(step, slot, [], "")
        if self.is_open(slot):
            for side in self.sides:
                side.send_raw(slot, bytes.fromhex(data))
        self.expect_end(step, slot)

    def expect_end(self, step, slot):
        """Reads all messages until the servers close the connection."""
        if self.is_open(slot):
            outcomes = [side.read(slot, [], "ends") for side in self.sides]
            self.settle(step, slot, [], outcomes)

    def end_sessions(self):
        """Closes all sessions, so that none of them expires during a later case."""
        for number, session in enumerate(self.sides[0].opened):
            if session[0] in self.ended:
                continue
            holders = [slot for slot in self.sides[0].open if self.sides[0].sessions[slot] == session]
            slot = holders[0] if holders else LAST_SLOTS + number
            security = self.sides[0].security
            if holders and security and security.refuses(slot):
                self.drop(["drop", slot], slot)
                holders, slot = [], LAST_SLOTS + number
            if not holders:
                for side in self.sides:
                    side.sessions[slot] = side.opened[number]
                self.connect(["connect", slot, {"session": slot}], slot, {"session": slot})
            self.send(["send", slot, [["close"]], "ends"], slot, [["close"]], "ends")

    # --- comparing

    def settle(self, step, slot, ops, outcomes):
        left, right = outcomes[0], outcomes[-1]
        self.transcript.append((step, slot, left))
        verdict = explained.SAME if left == right else self.explain(step, ops, left, right)
        if verdict != explained.SAME:
            for side in self.sides:
                side.release(slot)
        if verdict == explained.PARTED:
            raise Parted

    def explain(self, step, ops, left, right):
        """The verdict on messages that differ. Raises Difference if one of them is not explained."""
        for at in range(max(len(left), len(right))):
            pair = tuple(side[at] if at < len(side) else None for side in (left, right))
            if pair[0] == pair[1]:
                continue
            replies = sum(not mapping.is_event(message) for message in left[:at])
            op = ops[replies] if replies < len(ops) else None
            entry = explained.find(explained.Case(step, ops, op, *pair))
            if not entry:
                raise Difference(step, f"message {at + 1}, {json.dumps(op)[:300]}", left, right)
            if entry.verdict != explained.SAME:
                return entry.verdict
        return explained.SAME


def describe(difference, driver):
    """What both servers sent at the step that differs, and the exchanges before it, as text."""
    lines = [f"step {driver.step}: {json.dumps(difference.step)[:2000]}, {difference.what}:"]
    for side, messages in zip(driver.sides, (difference.zookeeper, difference.corral)):
        lines += [f"    {side.kind}: {str(message)[:1500]}" for message in messages[:SHOWN_MESSAGES] or ["nothing"]]
    lines.append("  before it, the same on both:")
    for step, slot, messages in driver.transcript if difference.step[0] == explained.TREES else driver.transcript[:-1]:
        lines.append(f"    {json.dumps(step)[:400]}\n        slot {slot}: {str(messages)[:600]}")
    return "\n".join(lines)
