"""Whether a shared host had CPUs to spare: what tells a stall of the server from one of the machine."""

import os
import time
from collections import deque


class CpuWaits:
    """How long the threads of some processes were ready to run and got no CPU, sampled all along."""

    EVERY_S, KEPT = 0.1, 600

    def __init__(self, *pids):
        self.pids, self.samples = pids, deque(maxlen=self.KEPT)
        self.look()

    def look(self):
        if not self.samples or time.monotonic() - self.samples[-1][0] > self.EVERY_S:
            self.samples.append((time.monotonic(), self.now_s()))

    def now_s(self):
        total = 0
        for pid in self.pids:
            for thread in os.listdir(f"/proc/{pid}/task"):
                try:
                    with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as counters:
                        total += int(counters.read().split()[1])
                except OSError:
                    pass
        return total / 1e9

    def last_s(self, seconds):
        """The waits of the last so many seconds, all threads together."""
        begin = time.monotonic() - seconds
        before = [waited for moment, waited in self.samples if moment <= begin] or [self.samples[0][1]]
        return self.now_s() - before[-1]
