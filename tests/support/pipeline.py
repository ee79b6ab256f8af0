"""Sessions with many requests in flight, all driven by one thread.

A Pipelined session hands out each reply with the tag its request was submitted with and the time it took. A Fleet waits for
whichever session has something to read or room to write.
"""

import selectors
import time
from collections import deque, namedtuple

from support import jute
from support.client import Client

Answer = namedtuple("Answer", "tag zxid error body seconds")
RECEIVE_BYTES = 1 << 18


def send_some(socket, outgoing):
    """Takes off the bytearray what a socket that does not block takes; all of it when the connection is gone."""
    try:
        while outgoing:
            sent = socket.send(memoryview(outgoing)[:RECEIVE_BYTES])
            del outgoing[:sent]
    except BlockingIOError:
        pass
    except OSError:
        outgoing.clear()


class Pipelined:
    """A session that keeps up to `depth` requests in flight."""

    def __init__(self, address, depth=16, timeout_ms=10_000, resume=None):
        self.client = Client(address, timeout_ms=timeout_ms, resume=resume)
        self.depth, self.closed, self.events = depth, False, 0
        self.session_id, self.password = self.client.session_id, self.client.password
        self.waiting, self.last_xid, self.zxid = deque(), 0, 0
        self.outgoing, self.incoming = bytearray(), bytearray()
        self.client.socket.setblocking(False)

    @property
    def has_room(self):
        return len(self.waiting) < self.depth and not self.closed

    def submit(self, op, body, tag=None):
        """Queues a request; it leaves with the next flush."""
        self.last_xid += 1
        self.outgoing += jute.frame(jute.int32(self.last_xid) + jute.int32(op) + body)
        self.waiting.append((self.last_xid, tag, time.monotonic()))

    def flush(self):
        send_some(self.client.socket, self.outgoing)

    def receive(self):
        """The answers that have arrived. Sets `closed` at the end of the connection."""
        try:
            while piece := self.client.socket.recv(RECEIVE_BYTES):
                self.incoming += piece
            self.closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True
        return list(self._answers())

    def _answers(self):
        position, now, data = 0, time.monotonic(), bytes(self.incoming)
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            body = jute.Reader(data[:end], position + 4)
            xid, zxid, error = body.int32(), body.int64(), body.int32()
            position = end
            if xid == jute.EVENT_XID:
                self.events += 1
                continue
            expected, tag, sent = self.waiting.popleft()
            assert xid == expected, f"reply to xid {xid}, expected {expected}"
            self.zxid = max(self.zxid, zxid)
            yield Answer(tag, zxid, error, body, now - sent)
        del self.incoming[:position]

    def drop(self):
        self.closed = True
        self.client.drop()

    def ask_all(self, requests):
        """Sends the requests of the (tag, op, body), as deep as it goes, and returns the answers in their order."""
        requests, answers = list(requests), []
        fleet, sent = Fleet([self]), 0
        while len(answers) < len(requests):
            while self.has_room and sent < len(requests):
                tag, op, body = requests[sent]
                self.submit(op, body, tag)
                sent += 1
            for _, received in fleet.turn():
                answers += received
            assert not self.closed, "the server closed the connection"
        fleet.close()
        return answers


class Fleet:
    """Waits on many Pipelined sessions at once."""

    def __init__(self, members):
        self.members = list(members)
        self.selector = selectors.DefaultSelector()
        for member in self.members:
            self.selector.register(member.client.socket, selectors.EVENT_READ, member)

    def turn(self, limit_s=0.05):
        """Flushes all, waits for at most `limit_s`, and returns (member, answers) of those that received anything."""
        blocked = False
        for member in self.members:
            if member.outgoing and not member.closed:
                member.flush()
                blocked |= bool(member.outgoing)
        ready = self.selector.select(0.001 if blocked else limit_s)
        received = []
        for key, _ in ready:
            member = key.data
            answers = member.receive()
            if member.closed:
                self.selector.unregister(member.client.socket)
            received.append((member, answers))
        return received

    def close(self):
        self.selector.close()
