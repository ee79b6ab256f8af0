"""A connection that moves frames and knows nothing of their content."""

import socket

from support import jute

RECEIVE_BYTES = 1 << 17
EVENT_HEAD = b"\xff\xff\xff\xff"


class Wire:
    """One TCP connection. `state` is open, closed (by the server) or silent (nothing came within the limit)."""

    def __init__(self, address, limit_s):
        self.socket = socket.create_connection(address, timeout=limit_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received, self.state = bytearray(), "open"

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.state = "closed"

    def more(self):
        """Receives something. False if nothing more will come."""
        try:
            piece = self.socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            self.state = "silent"
            return False
        except OSError:
            piece = b""
        if not piece:
            self.state = "closed"
            return False
        self.received += piece
        return True

    def frames(self, replies, to_the_end=False):
        """The frames up to the given number of replies, events not counted, or up to the end of the connection."""
        found, position = [], 0
        while replies > 0 or to_the_end:
            size = int.from_bytes(self.received[position : position + 4], "big")
            if len(self.received) < position + 4 or len(self.received) < position + 4 + size:
                if not self.more():
                    break
                continue
            frame = bytes(self.received[position + 4 : position + 4 + size])
            position += 4 + size
            found.append(frame)
            replies -= frame[:4] != EVENT_HEAD
        del self.received[:position]
        return found

    def close(self):
        self.socket.close()


def connect_frame(options, session, last_zxid):
    """The connect request that the options of a step describe. `session` is (id, password) or None."""
    session_id, password = session or (0, b"\0" * 16)
    kind = options.get("password", "right")
    if kind == "wrong":
        password = bytes(byte ^ 0x5A for byte in password)
    elif kind != "right":
        password = {"zeros": b"\0" * 16, "short": password[:8], "empty": b"", "null": None}[kind]
    body = jute.connect_request(
        options.get("timeout", 30_000), session_id, password, last_zxid, read_only=options.get("read_only", False)
    )
    return jute.frame(body[: len(body) - options.get("cut", 0)])
