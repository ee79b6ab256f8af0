"""Processes that compete through kazoo, and the parent's view of them.

Each contender is a forked process with a kazoo client of its own; it tells the parent through a pipe what it did, and can be
killed like any process. The parent itself never runs kazoo, whose threads do not survive a fork.
"""

import logging
import multiprocessing
import multiprocessing.connection
import signal
import time

from kazoo.client import KazooClient

FORK = multiprocessing.get_context("fork")
TOLD_LIMIT_S = 60


class Contender:
    """The parent's end of a contender."""

    def __init__(self, address, role, name, timeout_s, arguments):
        self.name = name
        self.pipe, far_end = FORK.Pipe()
        self.process = FORK.Process(target=_run, args=(far_end, address, role, name, timeout_s, arguments), daemon=True)
        self.process.start()
        far_end.close()

    def tell(self, message):
        self.pipe.send(message)

    def told(self, limit_s=TOLD_LIMIT_S):
        """The next message of the contender."""
        if not self.pipe.poll(limit_s):
            raise AssertionError(f"contender {self.name} said nothing for {limit_s} s")
        return self.pipe.recv()

    def kill(self):
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _run(pipe, address, role, name, timeout_s, arguments):
    """The life of a contender's process."""
    logging.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    client = KazooClient(hosts=f"{address[0]}:{address[1]}", timeout=timeout_s)
    client.start(timeout=60)
    try:
        role(client, pipe, name, *arguments)
    except (EOFError, BrokenPipeError):
        return
    client.stop()


class Contenders:
    """A group of contenders in one role; leaving the block kills those that are left."""

    def __init__(self, address, role, count=6, timeout_s=10.0, arguments=()):
        self.all = [Contender(address, role, f"c{number}", timeout_s, arguments) for number in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for contender in self.all:
            if not contender.pipe.closed:
                contender.kill()

    def named(self, name):
        return next(contender for contender in self.all if contender.name == name)

    def alive(self):
        return [contender for contender in self.all if not contender.pipe.closed]

    def told_by_each(self):
        """One message of every living contender."""
        return [contender.told() for contender in self.alive()]

    def told_by_any(self, limit_s=TOLD_LIMIT_S):
        """The next message of whichever contender speaks first."""
        deadline = time.monotonic() + limit_s
        pipes = {contender.pipe: contender for contender in self.alive()}
        while True:
            ready = multiprocessing.connection.wait(pipes, max(0, deadline - time.monotonic()))
            assert ready, f"no contender said anything for {limit_s} s"
            try:
                return ready[0].recv()
            except EOFError as error:
                raise AssertionError(f"contender {pipes[ready[0]].name} ended by itself") from error
