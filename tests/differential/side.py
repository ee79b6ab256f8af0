"""One server of a comparison, with its connections and sessions by slot. A slot is the place of a connection in a case."""

from types import SimpleNamespace

from differential import mapping, operations
from differential.control import Control, Wire, connect_frame
from support import jute

# The first of the slots in which sessions without a connection are resumed and closed.
LAST_SLOTS = 1000
# The messages that stand for the end of what a connection sent. A connection that should have been closed is "still open".
ENDS = (("closed",), ("silent",), ("still open",))


class Slots:
    """The connections and sessions of one case: `open` and `sessions` by slot, `opened` all sessions in order."""

    security = None

    def begin(self):
        self.open, self.sessions, self.opened = {}, {}, []

    def add(self, slot, wire, session):
        self.open[slot], self.sessions[slot] = wire, session
        self.opened += [session] if session not in self.opened else []

    def release(self, slot):
        if slot in self.open:
            self.open.pop(slot).drop()


class Side(Slots):
    """A running server. What it answers is mapped, see mapping.py."""

    def __init__(self, server, limit_s, security=None):
        """`security` proves who connects (security.py)."""
        self.kind, self.address, self.limit_s, self.security = server.kind, server.address, limit_s, security
        self.names = mapping.Names()
        self.control = Control(self.address, self.names, limit_s)

    def begin(self):
        super().begin()
        # The newest zxid that each slot received, and the zxids of the closeSessions.
        self.seen, self.closings = {}, set()
        self.control.begin()

    def tree(self):
        """What the case leaves behind, which is removed."""
        tree = self.control.tree()
        self.control.clean(tree)
        return tree

    def connect(self, slot, options):
        source = options.get("session")
        session, seen = self.sessions.get(source), self.seen.get(source, 0)
        last = {"none": 0, "seen": self.names.real_zxid(seen), "ahead": operations.FAR_ZXID}[options.get("zxid", "none")]
        if options.get("unknown"):
            session = (options["unknown"], b"\1" * 16)
        wire = self.dial(slot)
        wire.send(connect_frame(options, session, last))
        messages = []
        if frames := wire.frames(1):
            message, opened = mapping.connect_response(frames[0], self.names)
            messages.append(message)
            if opened:
                if self.security:
                    self.security.log_in(wire, slot)
                self.add(slot, wire, opened)
                self.seen[slot] = seen
                return messages
            wire.frames(0, to_the_end=True)
        wire.drop()
        return [*messages, (wire.state,)]

    def dial(self, slot):
        return self.security.dial(self, slot) if self.security else Wire(self.address, self.limit_s)

    def send(self, slot, ops, xids):
        seen = self.seen.get(slot, 0)

        def zxid_of(zxid):
            return self.names.real_zxid(seen if zxid == "seen" else zxid)

        self.open[slot].send(b"".join(operations.frame(op, xid, zxid_of) for op, xid in zip(ops, xids)))

    def send_raw(self, slot, data):
        self.open[slot].send(data)

    def read(self, slot, ops, ending):
        """The messages up to the replies to all operations, and what follows them, which `ending` tells (driver.py)."""
        wire = self.open[slot]
        messages = self.messages(slot, ops, wire.frames(len(ops)))
        if ending == "maybe" and wire.state == "open":
            wire.send(operations.frame(["ping"], -2))
            messages += self.messages(slot, [["ping"]], wire.frames(1))
        if ending == "ends" and wire.state == "open":
            messages += self.messages(slot, [], wire.frames(0, to_the_end=True))
            wire.state = "still open" if wire.state == "silent" else wire.state
        if wire.state != "open":
            messages.append((wire.state,))
            self.release(slot)
        return mapping.order_closing(messages, self.closings) if self.closings else messages

    def messages(self, slot, ops, frames):
        """The frames as comparable values. The n-th reply belongs to the n-th operation."""
        result, at = [], 0
        for frame in frames:
            if frame[:4] == b"\xff\xff\xff\xff":
                result.append(mapping.event(frame, self.names))
                continue
            code = operations.op_code(ops[at]) if at < len(ops) else None
            at += 1
            message = mapping.reply(frame, code, self.names)
            if isinstance(message[1], int) and len(message) > 3:
                self.seen[slot] = max(self.seen.get(slot, 0), message[1])
                if code == jute.CLOSE:
                    self.closings.add(message[1])
            result.append(message)
        return result

    def end_quietly(self):
        """Closes all sessions after a difference, so that none of them expires during a later case."""
        for slot in list(self.open):
            self.release(slot)
        for session in self.opened:
            wire = Wire(self.address, self.limit_s)
            wire.send(connect_frame({}, session, 0))
            if wire.frames(1) and self.security:
                self.security.log_in(wire, LAST_SLOTS)
            wire.send(operations.frame(["close"], 1))
            wire.frames(0, to_the_end=True)
            wire.drop()


class Recorded(Slots):
    """The recorded answers of a real ZooKeeper, in the place of the server."""

    kind = "zookeeper, recorded"

    def play(self, case):
        """The case whose answers come next."""
        self.answers, self.left_behind = iter(case.answers), case.tree

    def tree(self):
        return self.left_behind

    def connect(self, slot, options):
        messages = self.next_messages()
        if messages and messages[-1] not in ENDS:
            # The name of a session stands for its id and password.
            self.add(slot, SimpleNamespace(drop=lambda: None), (messages[0][3], None))
        return messages

    def send(self, *_):
        pass

    send_raw = send

    def read(self, slot, ops, ending):
        messages = self.next_messages()
        if messages and messages[-1] in ENDS:
            self.release(slot)
        return messages

    def next_messages(self):
        return list(next(self.answers, ()))

    def end_quietly(self):
        pass
