"""kazoo when a server or a lock's holder is killed, and those of its own tests that are about the protocol and quick.

The campaign `clients` runs all of kazoo's tests, on a ZooKeeper as well.
"""

import logging
import multiprocessing
import multiprocessing.connection
import queue
import signal

import pytest
from kazoo.client import KazooClient, KazooState

from clients import kazoo_suite
from support.expect import equal
from support.wait import wait_until

# Other ways of waiting, what is not the server's, the lock, which is below, and tests that wait for seconds.
LEFT_OUT = (
    "eventlet gevent selectors threading_handler sasl utils retry interrupt partitioner test_lock test_cache lease "
    "remove_session_watcher session_loss listener_only_called_on_real_state_change"
)
FORK = multiprocessing.get_context("fork")
CONTENDERS, ROUNDS, KILLS = 6, 5, 3
TICK_MS = 500
LIMIT_S = 60


def test_kazoos_own_tests(options, subtests):
    kazoo_suite.run(options, subtests, f"not ({' or '.join(LEFT_OUT.split())})", compare=False)


def test_a_session_outlives_a_killed_server(context):
    client = KazooClient(hosts="{}:{}".format(*context.address), timeout=LIMIT_S)
    client.start(timeout=LIMIT_S)
    states, seen = queue.Queue(), queue.Queue()
    client.create(context.path, b"before")
    client.create(f"{context.path}/e", ephemeral=True)
    client.DataWatch(context.path, lambda value, stat: seen.put(value))
    equal(seen.get(timeout=LIMIT_S), b"before")
    session = client.client_id[0]
    client.add_listener(states.put)
    context.server.restart()
    equal((states.get(timeout=LIMIT_S), states.get(timeout=LIMIT_S)), (KazooState.SUSPENDED, KazooState.CONNECTED))
    equal((client.client_id[0], client.exists(f"{context.path}/e").ephemeralOwner), (session, session))
    context.client().set(context.path, b"after")
    wait_until(lambda: seen.get(timeout=LIMIT_S) == b"after", "the watch survives the restart")
    client.stop()
    client.close()


def run_contender(pipe, address, role, path, timeout_s):
    logging.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    client = KazooClient(hosts="{}:{}".format(*address), timeout=timeout_s)
    client.start(timeout=LIMIT_S)
    role(client, pipe, path)


@pytest.fixture
def contend(context):
    """A function that starts contenders, each a process with a kazoo client. It returns their processes, by the pipes to them.

    The threads of kazoo do not survive a fork, so a test that forks runs no kazoo client itself.
    """
    started = []

    def start(role, timeout_s):
        contenders = {}
        for _ in range(CONTENDERS):
            pipe, far_end = FORK.Pipe()
            arguments = (far_end, context.address, role, context.path, timeout_s)
            contenders[pipe] = FORK.Process(target=run_contender, args=arguments, daemon=True)
            contenders[pipe].start()
            far_end.close()
        started.extend(contenders.values())
        return contenders

    yield start
    for process in started:
        process.kill()
        process.join()


def next_of(contenders):
    """The contender that reports first; it is a contender no more."""
    ready = multiprocessing.connection.wait(contenders, LIMIT_S)
    assert ready, f"no contender reported for {LIMIT_S} s"
    ready[0].recv()
    return contenders.pop(ready[0])


def increase(client, pipe, path):
    """Under the lock, reads a number and writes it back increased, without looking at versions."""
    for _ in range(ROUNDS):
        with client.Lock(f"{path}/lock"):
            client.set(path, b"%d" % (int(client.get(path)[0]) + 1))
    pipe.send("done")


def hold(client, pipe, path):
    with client.Lock(path):
        pipe.send("holds")
        pipe.recv()


def test_a_lock_loses_no_increment(context, contend):
    client = context.client()
    client.create(context.path, b"0")
    # A session that expires on a busy machine would give up the lock.
    contenders = contend(increase, timeout_s=10)
    while contenders:
        next_of(contenders)
    equal(client.get(context.path)[0], b"%d" % (CONTENDERS * ROUNDS), "increments that the lock protected")
    equal(client.children(f"{context.path}/lock"), [])


def test_the_lock_of_a_killed_holder_goes_to_the_next(contend):
    contenders = contend(hold, timeout_s=2)
    for _ in range(KILLS):
        next_of(contenders).kill()
    next_of(contenders)
