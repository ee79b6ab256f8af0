"""Contenders of kazoo in one process: kazoo_contender.py HOSTS SOCKET SESSION_MS

A line `NUMBER ACTION PATH LIMIT SECONDS ITEM` of the input is answered with `done NUMBER CODE`. Each has a session of its own meanwhile.
"""

import queue
import sys
import threading
import traceback

import section
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, LockTimeout

HOSTS, SOCKET, SESSION_S = sys.argv[1], sys.argv[2], int(sys.argv[3]) / 1000
LOST, TIMED_OUT = 15, 19
RETRY = {"max_tries": -1, "delay": 0.05, "max_delay": 0.3}
# After the limit and a long section the client is stopped, because a double barrier of kazoo has no limit.
MORE_S = 10
idle, lock = queue.SimpleQueue(), threading.Lock()


def client():
    try:
        return idle.get_nowait()
    except queue.Empty:
        made = KazooClient(HOSTS, timeout=SESSION_S, connection_retry=RETRY, command_retry=RETRY)
        made.start(60)
        return made


def use(kazoo, number, path, item=""):
    """A section with the token of this znode."""
    stat = kazoo.exists(path)
    return section.run(SOCKET, number, stat.czxid, item) if stat else LOST


def hold(kazoo, number, action, path, limit, limit_s, item):
    if action in ("lock", "read", "write"):
        made = {"lock": kazoo.Lock, "read": kazoo.ReadLock, "write": kazoo.WriteLock}[action](path)
        if not made.acquire(timeout=limit_s):
            return TIMED_OUT
        try:
            return use(kazoo, number, f"{path}/{made.node}")
        finally:
            made.release()
    if action == "elect":
        election, codes = kazoo.Election(path), [TIMED_OUT]
        timer = threading.Timer(limit_s, election.cancel)
        timer.start()
        election.run(lambda: codes.append(use(kazoo, number, f"{path}/{election.lock.node}")))
        timer.cancel()
        return codes[-1]
    if action == "semaphore":
        made = kazoo.Semaphore(path, max_leases=limit)
        if not made.acquire(timeout=limit_s):
            return TIMED_OUT
        try:
            return use(kazoo, number, made.create_path)
        finally:
            made.release()
    if action == "barrier":
        made = kazoo.DoubleBarrier(path, limit)
        made.enter()
        code = use(kazoo, number, made.create_path) if made.participating else LOST
        made.leave()
        return code
    made = kazoo.LockingQueue(path)
    if action == "put":
        made.put(item.encode(), priority=limit)
        return 0
    if (item := made.get(limit_s)) is None:
        return TIMED_OUT
    code = section.run(SOCKET, number, 0, item.decode())
    done = made.consume() if code == 0 else made.release()
    return code if done else LOST


def answer(number, code):
    with lock:
        print("done", number, code, flush=True)


def contend(number, action, path, limit, limit_s, item=""):
    kazoo, code = client(), LOST
    watchdog = threading.Timer(float(limit_s) + MORE_S, lambda: (kazoo.stop(), answer(number, TIMED_OUT)))
    watchdog.start()
    try:
        code = hold(kazoo, number, action, path, int(limit), float(limit_s), item)
    except LockTimeout:
        code = TIMED_OUT
    except KazooException:
        traceback.print_exc()
    watchdog.cancel()
    if code == 0:
        idle.put(kazoo)
    else:
        kazoo.stop()
        kazoo.close()
    answer(number, code)


for line in sys.stdin:
    threading.Thread(target=contend, args=line.split(), daemon=True).start()
