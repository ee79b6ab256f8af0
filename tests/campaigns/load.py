"""Many writes, as fast as a server takes them."""

import time

from support.pipeline import Fleet, Pipelined

DATA_BYTES = 100
# Znodes below one directory.
DIRECTORY_NODES = 10_000
SESSIONS, DEPTH = 4, 256


def pipelined(server, requests, look):
    """Sends all requests over a few sessions, each as deep as it goes, and checks that all succeed. Returns the seconds it took."""
    sessions = [Pipelined(server.address, DEPTH) for _ in range(SESSIONS)]
    fleet, requests, more, begin = Fleet(sessions), iter(requests), True, time.monotonic()
    while more or any(session.waiting for session in sessions):
        look()
        for session in sessions:
            while more and session.has_room:
                if (request := next(requests, None)) is None:
                    more = False
                    break
                session.submit(*request)
        for session, answers in fleet.turn():
            assert not session.closed, "the server closed a connection"
            bad = [answer.error for answer in answers if answer.error]
            assert not bad, f"errors {bad[:5]}"
    for session in sessions:
        session.drop()
    return time.monotonic() - begin
