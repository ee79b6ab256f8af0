"""A well-behaved client in a process of its own that measures how long its requests take while others misbehave."""

import multiprocessing
import time
from collections import namedtuple

from support.client import Client, Closed

FORK = multiprocessing.get_context("fork")
PAUSE_S = 0.002

# Latencies of the requests since the last lap, in seconds.
Lap = namedtuple("Lap", "count median p99 largest")


class Probe:
    """Reads and writes a node of its own in turn, one request at a time, until it is stopped."""

    def __init__(self, address, path="/probe"):
        self.pipe, far_end = FORK.Pipe()
        self.process = FORK.Process(target=_run, args=(far_end, address, path), daemon=True)
        self.process.start()
        far_end.close()
        self.lap()

    def lap(self):
        """The latencies since the last call. Fails if the probe lost its session or saw a wrong answer."""
        try:
            self.pipe.send("lap")
            assert self.pipe.poll(60), "the probe's request is not answered within 60 s"
            told = self.pipe.recv()
        except (EOFError, BrokenPipeError) as error:
            raise AssertionError("the probe ended") from error
        if isinstance(told, str):
            raise AssertionError(f"the probe was disturbed: {told}")
        ordered = sorted(told)
        return Lap(len(ordered), ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1])

    def stop(self):
        self.process.kill()
        self.process.join()


def _run(pipe, address, path):
    problem, seconds = None, []
    try:
        client = Client(address)
        client.create(path, b"0")
        for number in range(10**9):
            begin = time.monotonic()
            if number % 2:
                client.set(path, b"%d" % number)
            else:
                value = client.get(path)[0]
                assert value == b"%d" % max(0, number - 1), f"read {value} after request {number}"
            seconds.append(time.monotonic() - begin)
            if pipe.poll(PAUSE_S):
                pipe.recv()
                pipe.send(seconds)
                seconds = []
    except Closed:
        problem = "its connection was closed"
    except (OSError, AssertionError) as error:
        problem = repr(error)
    except EOFError:
        return
    pipe.recv()
    pipe.send(problem)
