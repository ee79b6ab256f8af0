"""The polite client and the attacker, each a process of its own: `python -m campaigns.polite polite|attack ...` in tests/."""

import json
import sys
import threading
import time

from campaigns.attacks import ATTACKS
from support import jute
from support.client import Client

EVERY_S = {"reads": 0.005, "writes": 0.05}
LIMIT_S = 120
READY = "ready"


def polite(host, port, kind):
    """A polite client, a process of its own: asks every few ms until it is told to stop, prints its latencies in ms.

    Kind: `reads` or `writes`.
    """
    client = Client((host, int(port)), timeout_ms=40_000)
    client.socket.settimeout(LIMIT_S)
    path = f"/zookeeper/quota/polite-{client.session_id:x}"
    client.create(path, flags=jute.EPHEMERAL)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    print(READY, flush=True)
    latencies, due = [], time.monotonic()
    while not stop.is_set():
        time.sleep(max(0, due - time.monotonic()))
        begun = time.monotonic()
        if kind == "reads":
            client.call(jute.GET_DATA, jute.read_body(path))
        else:
            client.call(jute.SET_DATA, jute.set_body(path, b"x"))
        latencies.append((time.monotonic() - begun) * 1000)
        due = max(due + EVERY_S[kind], time.monotonic())
    print(json.dumps(sorted(latencies)))


def attack(name, host, port, seconds):
    """The attacker, a process of its own: prepares, says so, attacks when told to, prints what it sent.

    An attack that has begun is ended, however long it takes.
    """
    load = ATTACKS[name]((host, int(port)))
    load.prepare()
    print(READY, flush=True)
    sys.stdin.readline()
    load.sent, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end and load.again():
        pass
    time.sleep(load.wait_s)
    print(json.dumps(load.sent), flush=True)
    # What is open stays open until the polite clients have seen the end.
    sys.stdin.readline()


if __name__ == "__main__":
    {"polite": polite, "attack": attack}[sys.argv[1]](*sys.argv[2:])
