"""Waiting for a condition instead of sleeping, and free ports."""

import os
import random
import socket
import time

# Between two looks at a condition, at first and later on.
POLL_S, POLL_MAX_S = 0.005, 0.1
# Below those that the kernel gives to connecting clients.
PORTS = "12000-32000"
PORT_TRIES = 1000
# Sockets that keep other processes of the tests from the ports of this one.
_claims = []


class TooLate(Exception):
    """A condition did not come true within its limit."""


def wait_until(condition, what, limit_s=60):
    """Polls until `condition()` is true and returns its value; raises TooLate with `what` was waited for."""
    deadline, pause_s = time.monotonic() + limit_s, POLL_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TooLate(f"{what}: not within {limit_s} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.2, POLL_MAX_S)


def is_free(port):
    """Whether a server can listen on the port of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port():
    """A free port of the loopback, from CORRAL_TEST_PORTS (first-last) if that is set.

    It belongs to this process until that ends, also while no server listens: others that call this do not get it.
    """
    first, _, last = os.environ.get("CORRAL_TEST_PORTS", PORTS).partition("-")
    for _ in range(PORT_TRIES):
        port, claim = random.SystemRandom().randint(int(first), int(last)), socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0corral-test-port-{port}")
        except OSError:
            continue
        if is_free(port):
            _claims.append(claim)
            return port
    raise TooLate(f"no free port found in {first}-{last}")
