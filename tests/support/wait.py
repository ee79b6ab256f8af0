"""Waiting for a condition instead of sleeping, and free ports."""

import os
import socket
import time

POLL_S = 0.01


class TooLate(Exception):
    """A condition did not come true within its limit."""


def wait_until(condition, what, limit_s=10):
    """Polls until `condition()` is true and returns its value; raises TooLate with `what` was waited for."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TooLate(f"{what}: not within {limit_s} s")
        time.sleep(POLL_S)


def free_port():
    """A port of the loopback nobody listens on, from CORRAL_TEST_PORTS (first-last) if that is set."""
    first, _, last = os.environ.get("CORRAL_TEST_PORTS", "").partition("-")
    if not first:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]
    # Different processes begin at different ports, so that they rarely choose the same one.
    count = int(last) - int(first) + 1
    for step in range(count):
        port = int(first) + (os.getpid() * 13 + step) % count
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in _given:
                _given.add(port)
                return port
    raise TooLate(f"no free port in {first}-{last}")


_given = set()
