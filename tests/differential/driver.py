"""Runs a sequence of steps on both servers at once and compares what they send, step by step.

Steps: ["connect", slot, options], ["send", slot, operations, ending], ["drop", slot], ["raw", slot, hex]. A slot is the place
of a connection. `ending` says what comes behind the replies: "" nothing, "maybe" asks with a ping whether the connection still
lives, "ends" waits until the server closes it. What a session reads of another's writes it reads behind a sync, which is sent
in front of its next operations; on a standalone ZooKeeper that changes nothing.
"""

from collections import Counter

from differential import explained, mapping, operations
from differential.wire import Wire, connect_frame

SYNC = ["sync", "/"]
# The first of the slots in which sessions without a connection come back to be closed.
LAST_SLOTS = 1000


class Side:
    """One server: its connections by slot, its sessions by slot, and the names of what it numbers."""

    def __init__(self, server):
        self.kind, self.address = server.kind, server.address
        self.names = mapping.Names()
        self.reset()

    def reset(self):
        self.wires, self.sessions, self.seen, self.closings = {}, {}, {}, set()
        # Every session of the sequence, in the order they were opened.
        self.opened = []


class Difference(Exception):
    """The servers sent different things and nothing explains it."""

    def __init__(self, step, what, zookeeper, corral):
        super().__init__(what)
        self.step, self.what, self.zookeeper, self.corral = step, what, zookeeper, corral


class Parted(Exception):
    """The servers differ on purpose, and what follows cannot be compared any more."""


class Driver:
    """Runs one sequence. After it `transcript` holds what each step brought, the same on both sides up to the last."""

    def __init__(self, sides, lone_writes=False):
        """With `lone_writes` each write waits for the one before: ZooKeeper's quotas do not count what is not applied yet."""
        self.sides, self.lone_writes = sides, lone_writes
        self.transcript, self.counts, self.operations = [], Counter(), 0
        # `stale` are the slots whose next operations go behind a sync; `ended` the sessions that were closed.
        self.next_xid, self.stale, self.ended = {}, set(), set()

    def run(self, steps):
        for side in self.sides:
            side.reset()
        try:
            for step in steps:
                getattr(self, step[0])(step, *step[1:])
            self.end_sessions()
        except (Difference, Parted):
            for side in self.sides:
                end_quietly(side)
            raise
        finally:
            for side in self.sides:
                for wire in side.wires.values():
                    wire.close()

    def is_open(self, slot):
        return all(slot in side.wires for side in self.sides)

    # --- the kinds of steps

    def connect(self, step, slot, options):
        source = options.get("session")
        if self.is_open(slot) or (source is not None and source not in self.sides[0].sessions):
            return
        rivals = [other for other in self.sides[0].wires if source is not None and self.same_session(other, source)]
        for other in rivals:
            self.send(step, other, [], "")
        outcomes = [self.connect_side(side, slot, options, source) for side in self.sides]
        self.settle(step, slot, [["connect"]], outcomes, options=options, rivals=rivals)
        self.next_xid[slot] = 1
        for other in rivals:
            if options.get("password", "right") == "right":
                self.expect_end(step, other)
            else:
                self.send(step, other, [], "maybe")
        self.stale = set(self.sides[0].wires)

    def connect_side(self, side, slot, options, source):
        session = side.sessions[source] if isinstance(source, int) and source >= 0 else None
        seen = side.seen.get(source, 0)
        last = {"none": 0, "seen": side.names.real_zxid(seen), "ahead": operations.FAR_ZXID}[options.get("zxid", "none")]
        if options.get("unknown"):
            session = (options["unknown"], b"\1" * 16)
        wire = Wire(side.address)
        wire.send(connect_frame(options, session, last))
        frames = wire.frames(1)
        messages = []
        if frames:
            message, opened = mapping.connect_response(frames[0], side.names)
            messages.append(message)
            if opened:
                side.wires[slot], side.sessions[slot], side.seen[slot] = wire, opened, seen
                side.opened += [opened] if opened not in side.opened else []
                return messages
            wire.frames(0, to_the_end=True)
        messages.append((wire.state,))
        wire.close()
        return messages

    def same_session(self, slot, other):
        return slot in self.sides[0].sessions and all(side.sessions[slot] == side.sessions[other] for side in self.sides)

    def send(self, step, slot, ops, ending):
        """Sends a burst. What is behind a setACL goes when that is answered: before, ZooKeeper may use the old ACL or the new."""
        lone = operations.is_write if self.lone_writes else is_set_acl
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
        shared = [None if operations.needs_zxid(op) else operations.frame(op, xid) for op, xid in zip(ops, xids)]
        for side in self.sides:
            own = zip(ops, xids, shared)
            side.wires[slot].send(b"".join(frame or self.own_frame(side, slot, op, xid) for op, xid, frame in own))
        outcomes = [self.read(side, slot, ops, ending) for side in self.sides]
        if ending == "maybe":
            outcomes = self.ask_alive(slot, outcomes)
            ops = [*ops, ["ping"]]
        self.operations += len(ops)
        if any(map(operations.is_write, ops)):
            self.stale.update(other for other in self.sides[0].wires if other != slot)
        if ["close"] in map(operations.plain, ops):
            self.ended.add(self.sides[0].sessions[slot][0])
        self.settle(step, slot, ops, outcomes)

    def xid(self, slot, op):
        given = operations.xid_of(op)
        if given is not None:
            return given
        self.next_xid[slot] += 1
        return self.next_xid[slot] - 1

    @staticmethod
    def own_frame(side, slot, op, xid):
        seen = side.seen.get(slot, 0)
        return operations.frame(op, xid, lambda zxid: side.names.real_zxid(seen if zxid == "seen" else zxid))

    def read(self, side, slot, ops, ending):
        wire = side.wires[slot]
        frames = wire.frames(len(ops))
        messages = self.messages(side, slot, ops, frames)
        if ending == "ends" and wire.state == "open":
            messages += self.messages(side, slot, [], wire.frames(0, to_the_end=True))
            wire.state = "still open" if wire.state == "silent" else wire.state
        if wire.state != "open":
            messages.append((wire.state,))
        return messages

    def ask_alive(self, slot, outcomes):
        """Whether a connection still lives shows in the answer to a ping."""
        result = []
        for side, outcome in zip(self.sides, outcomes):
            wire = side.wires[slot]
            if wire.state == "open":
                wire.send(operations.frame(["ping"], -2))
                outcome = outcome + self.messages(side, slot, [["ping"]], wire.frames(1))
                outcome += [] if wire.state == "open" else [(wire.state,)]
            result.append(outcome)
        return result

    def messages(self, side, slot, ops, frames):
        """The frames as comparable values; the n-th reply belongs to the n-th operation."""
        result, at = [], 0
        for frame in frames:
            if frame[:4] == b"\xff\xff\xff\xff":
                result.append(mapping.event(frame, side.names))
                continue
            op = ops[at] if at < len(ops) else ["nothing was asked"]
            at += 1
            code = operations.op_code(op) if at <= len(ops) else None
            message = mapping.reply(frame, code, side.names)
            if isinstance(message[1], int) and len(message) > 3:
                side.seen[slot] = max(side.seen.get(slot, 0), message[1])
                if code == -11:
                    side.closings.add(message[1])
            result.append(message)
        return result

    def drop(self, step, slot):
        if self.is_open(slot):
            self.send(step, slot, [], "")
            for side in self.sides:
                if wire := side.wires.pop(slot, None):
                    wire.close()

    def raw(self, step, slot, data):
        """Bytes that are no request; the server has to close."""
        if not self.is_open(slot):
            return
        self.send(step, slot, [], "")
        for side in self.sides:
            if slot in side.wires:
                side.wires[slot].send(bytes.fromhex(data))
        self.expect_end(step, slot)

    def expect_end(self, step, slot):
        """Reads whatever comes until the servers close the connection."""
        if self.is_open(slot):
            outcomes = [self.read(side, slot, [], "ends") for side in self.sides]
            self.settle(step, slot, [], outcomes)

    def end_sessions(self):
        """Closes all sessions in good order, so that nothing of this sequence happens later."""
        for number, session in enumerate(self.sides[0].opened):
            if session[0] in self.ended:
                continue
            holders = [slot for slot in self.sides[0].wires if self.sides[0].sessions[slot] == session]
            slot = holders[0] if holders else LAST_SLOTS + number
            if not holders:
                for side in self.sides:
                    side.sessions[slot] = side.opened[number]
                self.connect(["connect", slot, {"session": slot}], slot, {"session": slot})
            self.send(["send", slot, [["close"]], "ends"], slot, [["close"]], "ends")

    # --- comparing

    def settle(self, step, slot, ops, outcomes, **more):
        """Compares the outcomes of a step and forgets connections that are closed."""
        left, right = (
            mapping.order_closing(outcome, side.closings) if side.closings else outcome
            for side, outcome in zip(self.sides, outcomes)
        )
        self.transcript.append((step, slot, left, right))
        self.count(ops, left)
        verdict = explained.SAME if left == right else self.explain(step, slot, ops, left, right, more)
        for side in self.sides:
            wire = side.wires.get(slot)
            if wire and (wire.state != "open" or verdict != explained.SAME):
                wire.close()
                del side.wires[slot]
        if verdict == explained.PARTED:
            raise Parted

    def explain(self, step, slot, ops, left, right, more):
        """Looks for the explanation of each message that differs; raises Difference if there is none."""
        for at in range(max(len(left), len(right))):
            pair = tuple(side[at] if at < len(side) else None for side in (left, right))
            if pair[0] == pair[1]:
                continue
            replies = sum(not mapping.is_event(message) for message in left[:at])
            case = explained.Case(step, slot, ops, ops[replies] if replies < len(ops) else None, *pair, left, right, more)
            entry = explained.find(case)
            if not entry:
                raise Difference(step, f"message {at + 1}", left, right)
            self.counts[("explained", entry.row)] += 1
            if entry.verdict != explained.SAME:
                return entry.verdict
        return explained.SAME

    def count(self, ops, messages):
        replies = [message for message in messages if not mapping.is_event(message)]
        for op, message in zip(ops, replies):
            name, error = operations.plain(op)[0], message[2] if len(message) > 3 else message[0]
            if name == "multi" and error == 0 and message[3][:-1] and message[3][0][0] == -1:
                error = "the first " + str(next((code for _, code, _ in message[3] if code), 0))
            self.counts[(name, error)] += 1
        for message in messages:
            if mapping.is_event(message):
                self.counts[("event", message[3])] += 1


def is_set_acl(op):
    return operations.plain(op)[0] == "setACL"


def end_quietly(side):
    """Closes a server's sessions after a difference, so that none expires during a later sequence."""
    for session in side.opened:
        wire = Wire(side.address)
        wire.send(connect_frame({}, session, 0) + operations.frame(["close"], 1))
        wire.frames(0, to_the_end=True)
        wire.close()
