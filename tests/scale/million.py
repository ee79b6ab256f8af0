#!/usr/bin/env python3
"""One million znodes of 100 bytes: pipelined creation with images written meanwhile, SIGTERM, restart, kill -9, restart.

Prints resident memory per znode, image size over payload, restart time to the first read, and the largest reply latency that
a client saw while an image was written.
"""

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import jute, suite  # noqa: E402
from support.pipeline import Fleet, Pipelined  # noqa: E402
from support.probe import Probe  # noqa: E402
from support.suite import equal  # noqa: E402
from support.wait import wait_until  # noqa: E402

DATA_BYTES = 100
DIRECTORY_NODES = 10_000
SESSIONS, DEPTH = 4, 256
SAMPLES = 500
LOOK_EVERY_S = 0.02
# A request that waits longer than this while an image is written was held up by it.
STALL_S = 1.0


def path_of(number):
    return f"/m/d{number // DIRECTORY_NODES}/n{number}"


def data_of(number, generation=0):
    return f"{number}-{generation}-".encode().ljust(DATA_BYTES, b".")


class Snapshots:
    """Watches for images being written and laps the probe when that begins and ends."""

    def __init__(self, server, probe):
        self.server, self.probe = server, probe
        self.writing, self.next_look, self.during, self.between = False, 0, [], []

    def look(self):
        now = time.monotonic()
        if now < self.next_look:
            return
        self.next_look = now + LOOK_EVERY_S
        writing = any((self.server.directory / "data").glob("image-*.tmp"))
        if writing != self.writing:
            self.lap()
            self.writing = writing

    def lap(self):
        (self.during if self.writing else self.between).append(self.probe.lap())

    def largest_ms(self, laps):
        return max((lap.largest for lap in laps), default=0) * 1000


def pipelined(server, requests, look):
    """Sends all requests over a few sessions, each as deep as it goes, and checks that all succeed."""
    sessions = [Pipelined(server.address, DEPTH) for _ in range(SESSIONS)]
    fleet, requests, done = Fleet(sessions), iter(requests), 0
    begin, more = time.monotonic(), True
    while more or any(session.waiting for session in sessions):
        look()
        for session in sessions:
            while more and session.has_room:
                request = next(requests, None)
                if request is None:
                    more = False
                    break
                session.submit(*request)
        for session, answers in fleet.turn():
            assert not session.closed, "the server closed a connection"
            bad = [answer.error for answer in answers if answer.error]
            assert not bad, f"errors {bad[:5]}"
            done += len(answers)
    for session in sessions:
        session.drop()
    return done, time.monotonic() - begin


def create_all(server, count, snapshots):
    with server.client() as client:
        client.create("/m")
        for directory in range((count + DIRECTORY_NODES - 1) // DIRECTORY_NODES):
            client.create(f"/m/d{directory}")
    requests = ((jute.CREATE, jute.create_body(path_of(number), data_of(number))) for number in range(count))
    return pipelined(server, requests, snapshots.look)


def first_read(server, count):
    """Starts the server; seconds from the start of the process to the first answer from the tree."""
    begin = time.monotonic()
    server.start()
    with server.client() as client:
        equal(client.get(path_of(count - 1))[1].data_length, DATA_BYTES)
        return time.monotonic() - begin


def check_samples(server, count, generation_of):
    """Looks at the counts of all directories and at some nodes."""
    generator = random.Random(count)
    with server.client() as client:
        total = sum(client.exists(f"/m/{name}").num_children for name in client.children("/m"))
        equal(total, count)
        for number in generator.sample(range(count), min(count, SAMPLES)):
            generation = generation_of(number)
            data, stat = client.get(path_of(number))
            equal((data, stat.version), (data_of(number, generation), generation), path_of(number))


def a_million(server, options):
    count = 50_000 if options.quick else options.nodes
    server.start()
    empty_kib, probe = server.resident_kib(), Probe(server.address)
    snapshots = Snapshots(server, probe)
    _, seconds = create_all(server, count, snapshots)
    snapshots.lap()
    full_kib = server.resident_kib()
    print(f"     {count} znodes created in {seconds:.1f} s, {count / seconds:.0f}/s", flush=True)
    per_node = (full_kib - empty_kib) * 1024 / count
    print(f"     resident {full_kib // 1024} MiB, {per_node:.0f} bytes per znode of {DATA_BYTES} bytes", flush=True)
    images = len(list((server.directory / "data").glob("image-*.img")))
    during, between = snapshots.largest_ms(snapshots.during), snapshots.largest_ms(snapshots.between)
    print(f"     {images} images kept; largest reply latency {during:.0f} ms while an image was written, "
          f"{between:.0f} ms otherwise, under full load", flush=True)  # fmt: skip
    assert during < STALL_S * 1000, f"a reply took {during:.0f} ms while an image was written"
    probe.stop()

    begin = time.monotonic()
    equal(server.stop(), 0, "exit code after SIGTERM")
    stopped = time.monotonic() - begin
    newest = max((server.directory / "data").glob("image-*.img"), key=lambda path: path.name)
    payload = sum(len(path_of(number)) for number in range(0, count, 100)) * 100 + count * DATA_BYTES
    size = newest.stat().st_size
    print(f"     SIGTERM took {stopped:.1f} s; image {size >> 20} MiB, {size / payload:.2f} x the payload of paths and data, "
          f"{size / (count * DATA_BYTES):.2f} x the data", flush=True)  # fmt: skip

    from_image = first_read(server, count)
    check_samples(server, count, lambda number: 0)
    changed = count // 10
    requests = ((jute.SET_DATA, jute.set_body(path_of(number), data_of(number, 1))) for number in range(changed))
    pipelined(server, requests, lambda: None)
    server.kill()
    from_log = first_read(server, count)
    check_samples(server, count, lambda number: int(number < changed))
    resident = server.resident_kib()
    print(f"     first read {from_image:.2f} s after a start from the image, {from_log:.2f} s after kill -9 with {changed} more "
          f"writes in the log; resident then {resident // 1024} MiB, {resident * 1024 / count:.0f} bytes per znode", flush=True)  # fmt: skip
    quiet_snapshot(server, count)


def quiet_snapshot(server, count):
    """Without load, changes enough nodes for the next image and looks at the probe while it is written."""
    probe = Probe(server.address, "/probe-quiet")
    snapshots = Snapshots(server, probe)
    generations = 0

    def an_image_was_written():
        nonlocal generations
        generations += 1
        body = data_of(0, generations)
        numbers = range(0, count, 7)
        pipelined(server, ((jute.SET_DATA, jute.set_body(path_of(number), body)) for number in numbers), snapshots.look)
        snapshots.look()
        return snapshots.during

    wait_until(an_image_was_written, "another image is written", 300)
    probe.stop()
    during = snapshots.largest_ms(snapshots.during)
    print(f"     largest reply latency {during:.0f} ms while an image of {count} znodes was written again", flush=True)
    assert during < STALL_S * 1000, f"a reply took {during:.0f} ms while an image was written"


def settings(quick):
    """The quick size has so few changes that the policy needs smaller steps."""
    small = {"snapshot.floor_bytes": 1 << 20, "snapshot.interval_min_ms": 500}
    return {"corral": small if quick else {"snapshot.interval_min_ms": 2000}}


def main():
    parser = suite.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    options = parser.parse_args()
    assert options.server == "corral", "images are corral's"
    server = suite.make_server(options, tick_ms=2000, settings=settings(options.quick))
    tally = suite.Tally()
    try:
        tally.run("million.survives_and_is_small", a_million, server, options)
        tally.run("server is alive and did not panic", suite.check_server, server)
        if tally.failed:
            print(f"--- log of {server.kind}:\n{server.log_tail()}\n---")
    finally:
        server.dispose()
    suite.leave(tally)


if __name__ == "__main__":
    main()
