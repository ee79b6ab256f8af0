"""kill -9 under pipelined load, again and again (`--cycles N`); after every restart the whole tree is compared with a linear oracle.

Every acknowledged write is there with the same zxid and Stat, of the others a prefix per session, multis all or nothing;
sequence numbers and zxids never repeat; ephemerals of dead sessions go after their timeout, those of resumed ones stay.
"""

import os
import random
import time

import pytest

from durability.history import History, read
from durability.oracle import Mismatch
from support import jute
from support.cpu_waits import CpuWaits
from support.pipeline import Fleet, Pipelined

# Snapshots are written often enough to fall between the kills, so that recovery meets snapshot and log together.
SETTINGS = {
    "corral": {
        "snapshot.floor_bytes": 1 << 20,
        "snapshot.txns_max": 2_000,
        "snapshot.interval_min_ms": 100,
        "log.segment_bytes": 4 << 20,
        "limits.frame_bytes_max": 1_000_000,
    },
    "zookeeper": {"snapCount": 2000},
}
TICK_MS = 100
SESSION_MS = 5000
CYCLES, CYCLES_QUICK = 200, 10
# Sessions that write.
WORKERS = 4
# In every so many cycles the load goes on until the ephemerals of all dead sessions are gone.
SETTLE_EVERY = 5
SETTLE_LIMIT_S = SESSION_MS / 1000 + 5


class Run:
    """The state of the test over all cycles."""

    def __init__(self, server, workers, seed):
        self.server, self.random = server, random.Random(seed)
        client = server.client(timeout_ms=SESSION_MS)
        self.history = History(client, server.address, workers, SESSION_MS, seed)
        self.workers = self.history.workers
        client.close()
        self.dead = set()
        self.resumed = self.left = 0
        self.slowest_start_s, self.resume_share = 0, 0.5
        self.connect(time.monotonic())

    def cycle(self, number, tamper=None):
        """Loads, kills, restarts, resumes some sessions and compares; `tamper` may change the tree before that."""
        settle = number % SETTLE_EVERY == SETTLE_EVERY - 1
        self.load(self.random.uniform(0.02, 0.4), settle)
        self.server.kill()
        for worker in self.workers:
            for operation in worker.crashed():
                self.history.record(operation)
        begin = time.monotonic()
        self.server.start()
        self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - begin)
        left = self.connect(begin)
        if tamper:
            with self.server.client(timeout_ms=SESSION_MS) as client:
                tamper(client, self.workers[0])
        self.compare(left, begin)
        self.dead |= left

    def connect(self, started):
        """Gives each worker a session, its last one or a new one. Returns the sessions that nobody keeps alive now."""
        left = set()
        for worker in self.workers:
            before, resume = worker.session, worker.session is not None and self.random.random() < self.resume_share
            if resume and worker.connect(resume=True):
                self.resumed += 1
                continue
            # A machine too busy to restart and resume in time is no fault of the server.
            if resume and time.monotonic() - started < SESSION_MS / 1000:
                raise Mismatch(f"worker {worker.number}: its session was alive and cannot be resumed")
            worker.connect(resume=False)
            if before:
                left.add(before.session_id)
        self.left += len(left)
        return left

    def load(self, seconds, settle):
        """Keeps all pipelines full for a while, and if `settle` until the ephemerals of dead sessions are gone."""
        fleet = Fleet(worker.session for worker in self.workers)
        of_session = {worker.session: worker for worker in self.workers}
        begin, next_look, waits = time.monotonic(), 0, CpuWaits(self.server.process.pid, os.getpid())
        watcher = self.server.client(timeout_ms=SESSION_MS) if settle else None
        while True:
            now = time.monotonic() - begin
            waits.look()
            if settle and now > next_look:
                next_look = now + 0.05
                if self.dead_are_gone(watcher):
                    settle = False
                elif now > SETTLE_LIMIT_S:
                    raise Mismatch(f"ephemerals of dead sessions are still there after {now:.1f} s")
            if now > seconds and not settle:
                break
            for worker in self.workers:
                worker.fill()
            for session, answers in fleet.turn():
                for answer in answers:
                    self.history.record(of_session[session].answered(answer))
                if session.closed and waits.last_s(SESSION_MS / 1000) > SESSION_MS / 2000:
                    pytest.skip(f"the host had no CPU for the server or its clients for {SESSION_MS / 2000} s and more")
                if session.closed:
                    raise Mismatch(f"the server closed the connection of worker {of_session[session].number}")
        fleet.close()
        if watcher:
            watcher.drop()

    def dead_are_gone(self, client):
        if self.history.has_ephemerals_of(client, self.dead):
            return False
        self.history.forget_ephemerals(self.dead)
        self.dead.clear()
        return True

    def compare(self, left, started):
        """Reads everything back and compares it with every worker's model."""
        reader = Pipelined(self.server.address, depth=64, timeout_ms=SESSION_MS)
        found = read(reader, self.history.roots())
        reader.drop()
        # A restart gives every session its whole timeout again, so that until then no ephemeral may go.
        dead = self.dead | left if time.monotonic() - started > SESSION_MS / 1000 else self.dead
        self.history.judge(found, reader.zxid, dead)

    def summary(self):
        return (
            f"{self.history.summary()}; {self.resumed} sessions resumed, {self.left} left to expire; slowest start "
            f"{self.slowest_start_s:.2f} s"
        )


@pytest.fixture
def workers(options):
    return options.sized("workers", WORKERS, WORKERS)


def test_nothing_is_lost(own_server, options, workers, seed, say, note):
    cycles = options.sized("cycles", CYCLES_QUICK, CYCLES)
    run = Run(own_server, workers, seed)
    for number in range(cycles):
        try:
            run.cycle(number)
        except pytest.skip.Exception as skip:
            pytest.skip(f"cycle {number}: {skip}; so far {run.summary()}")
        except Exception as error:
            raise AssertionError(f"cycle {number} of seed {seed}: {error}") from error
        if number % 20 == 19:
            say(f"{number + 1} cycles: {run.summary()}")
    note(f"{cycles} cycles of kill -9, {run.summary()}")


def lose_a_write(client, worker):
    client.delete(f"{worker.root}/{client.children(worker.root)[0]}")


def do_a_write_twice(client, worker):
    path = f"{worker.root}/{client.children(worker.root)[0]}"
    client.set(path, client.get(path)[0])


def give_back_another_zxid(client, worker):
    name = client.children(worker.root)[-1]
    data, _ = client.get(f"{worker.root}/{name}")
    client.multi(
        (jute.DELETE, jute.delete_body(f"{worker.root}/{name}")),
        (jute.CREATE, jute.create_body(f"{worker.root}/{name}", data)),
    )


def lose_an_ephemeral(client, worker):
    mine = [path for path, node in worker.model.ephemerals.items() if node.owner == worker.session.session_id]
    if not mine:
        pytest.skip("the machine is too busy to restart within the session timeout")
    client.delete(mine[0])


def repeat_a_sequence_number(client, worker):
    name = next(path for path, _ in worker.model.shared.values()).value
    data, _ = client.get(name)
    client.delete(name)
    client.create(name, data)


TAMPERINGS = (lose_a_write, do_a_write_twice, give_back_another_zxid, lose_an_ephemeral, repeat_a_sequence_number)


@pytest.mark.parametrize("tampering", TAMPERINGS, ids=lambda tampering: tampering.__name__)
def test_the_oracle_sees(tampering, own_server, workers, seed, note):
    """A changed tree must not pass, or the test above shows nothing."""
    run = Run(own_server, workers, seed)
    run.resume_share = 1
    run.cycle(0)
    with pytest.raises(Mismatch) as mismatch:
        run.cycle(1, tampering)
    note(str(mismatch.value).splitlines()[-1].strip()[:120])
