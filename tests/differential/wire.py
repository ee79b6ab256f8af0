"""A connection that moves frames and knows nothing of their content."""

from support import jute
from support.client import Closed, Connection

EVENT_HEAD = b"\xff\xff\xff\xff"


class Wire(Connection):
    """One TCP connection. `state` is open, closed (by the server) or silent (nothing came within the limit)."""

    state = "open"

    def send(self, data):
        try:
            self.send_bytes(data)
        except OSError:
            self.state = "closed"

    def frames(self, replies, to_the_end=False):
        """The frames up to the given number of replies, events not counted, or up to the end of the connection."""
        found = []
        try:
            while replies > 0 or to_the_end:
                found.append(self.frame())
                replies -= found[-1][:4] != EVENT_HEAD
        except Closed:
            self.state = "closed"
        except TimeoutError:
            self.state = "silent"
        return found


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
