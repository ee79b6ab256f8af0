"""What the machine takes away by itself: times at which a CPU that has one thing to do does not do it; and what its disk takes.

A loop on each CPU looks at the clock; where it has not for a while, the kernel or the host of a virtual machine had that CPU. No
server can answer then. So this is the least a tail can be in the same minutes, and is printed beside it.
"""

import json
import os
import subprocess
import sys
import time

SECONDS = 5.0
# Appends whose fdatasync is timed.
SYNC_PROBES = 400
# Shorter gaps are what a loop in Python does itself.
LOOP = """
import gc, json, os, sys, time
gc.disable()
os.sched_setaffinity(0, {int(sys.argv[1])})
now, gaps = time.perf_counter_ns, []
last = now()
end = last + int(float(sys.argv[2]) * 1e9)
while last < end:
    this = now()
    if this - last > 100_000:
        gaps.append((this - last) / 1000)
    last = this
print(json.dumps(gaps))
"""


def wait(found, quantile, seconds=SECONDS):
    """Microseconds that a request which comes at any time and needs every CPU once waits at least, at that quantile.

    One that comes within a gap waits for the rest of it: the share of all times at which more than t of a gap is left is the
    sum of what each gap has beyond t, over the time looked at.
    """
    low, high = 0.0, max(found, default=0.0)
    while high - low > 1:
        middle = (low + high) / 2
        beyond = sum(gap - middle for gap in found if gap > middle)
        low, high = (middle, high) if beyond / (seconds * 1e6) > 1 - quantile else (low, middle)
    return high


def facts(cpus, seconds=SECONDS):
    """What is kept of a look at these CPUs, side by side."""
    commands = [[sys.executable, "-c", LOOP, str(cpu), str(seconds)] for cpu in sorted(set(cpus))]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    found = [gap for loop in loops for gap in json.loads(loop.communicate()[0] or "[]")]
    waits = {"p99_us": wait(found, 0.99, seconds), "p99_9_us": wait(found, 0.999, seconds)}
    return {**waits, "longest_us": max(found, default=0.0)}


def sync_probe(folder):
    """Microseconds of fdatasync after an append of 512 bytes on this disk: what a durable write costs in this minute."""
    path, taken = folder / "fdatasync", []
    with open(path, "wb", buffering=0) as file:
        for _ in range(SYNC_PROBES):
            file.write(b"x" * 512)
            begun = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter_ns() - begun) / 1000)
    path.unlink()
    taken.sort()
    return {"p50_us": taken[SYNC_PROBES // 2], "p99_us": taken[SYNC_PROBES * 99 // 100]}
