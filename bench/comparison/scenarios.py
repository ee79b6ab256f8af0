"""What a load against a running server does not show: idle servers, a million znodes, restarts, snapshots.

A scenario takes a Lab (loads.py) and runs its servers in turn; it keeps one record a server, cell and round. The functions'
names are the groups' in targets.toml; groups that only run sub-commands of the load generator are data there.
"""

import itertools
import json
import subprocess
import time
from functools import partial, reduce

from comparison import BENCH, servers
from support.client import Client, Closed
from support.jute import GET_DATA, read_body

IDLE_SETTLE_S, IDLE_LOOK_S = 3.0, 10.0
# At rest: memory that has not changed for so long, for each million znodes; waited for at most so long.
LOOK_S, REST_S, QUIET_LIMIT_S = 0.5, 4.0, 120
MEGABYTE, RESTARTS, SNAPSHOT_RATE, SNAPSHOT_S, ETCD_S = 1_000_000, 3, 5000, 10, 5
# A reply that waits longer while a snapshot is written was held up by it.
STALL_MS = 1000
FIRST_ZNODE = "/m/n/00000/000000000"
# Without: no snapshot is written while the load lasts. With: the next one begins as soon as the last is written.
SNAPSHOT_SETTINGS = {
    "without": {"snapshot.log_bytes_max": 0, "snapshot.floor_bytes": 1 << 40},
    "with": {"snapshot.txns_max": 1, "snapshot.interval_min_ms": 0},
}


def sub_commands(lab, contestants, runs):
    """Sub-commands of the load generator against every server in turn, freshly started for each."""
    for number, order in lab.turns(contestants):
        for one, run in itertools.product(order, runs):
            lab.visit(number, one, partial(sub_command, lab, one, number, run), f"{one.name}, {run['cell']}")


def sub_command(lab, one, number, run):
    scenario, *flags = run["command"].split()
    report = lab.generate(scenario, *one.target(), *flags)
    # A figure is a field of the report, by its dotted path, times a factor.
    field = lambda path: reduce(lambda of, name: of[name], path.split("."), report)  # noqa: E731
    lab.figures(one, run["cell"], number, {name: field(path) * factor for name, (path, factor) in run["figures"].items()}, [report])


def idle(lab, contestants, options):
    """CPU time and resident memory of a server without clients, after one session has come and gone."""

    def look(one, number):
        time.sleep(IDLE_SETTLE_S)
        before, begun = servers.cpu_s(one.server), time.monotonic()
        time.sleep(IDLE_LOOK_S)
        share = (servers.cpu_s(one.server) - before) / (time.monotonic() - begun)
        memory = {f"{name}_mb": size / MEGABYTE for name, size in servers.resident(one.server).items()}
        lab.figures(one, "idle", number, {"cpu_percent": share * 100, **memory})

    for number, order in lab.turns(contestants):
        for one in order:
            lab.visit(number, one, partial(look, one, number), f"{one.name}, idle")


def million(lab, contestants, options):
    """Loads a million znodes (and five with --five-million): memory, restarts after kill -9, replies during snapshots. Each server
    is loaded twice: once it is left to settle before its memory counts and it is killed, once it is killed at once."""
    for one in contestants:
        for label, count in [("1M", 1_000_000)] + [("5M", 5_000_000)] * options.five_million:
            extra = one.name in (servers.NIO, servers.CORRAL_TWO)
            if extra and (options.quick or count > 1_000_000):
                continue
            # The target is one of a million; a snapshot of five takes longer than that load lasts.
            with_snapshots = not extra and count == 1_000_000
            for body in (partial(settled, lab, one, label, count, with_snapshots), partial(at_once, lab, one, label, count)):
                lab.visit(1, one, body, f"{one.name}, {label}")


def settled(lab, one, label, count, with_snapshots):
    empty = load_many(lab, one, label, count)
    begun = time.monotonic()
    memory = at_rest(one.server, count)
    after_s = time.monotonic() - begun - rest_s(count)
    lab.figures(one, f"{label} settled", 1, {**of_each(memory, empty, count), "settled_after_s": after_s})
    restarts(lab, one, f"{label} restarted", count, empty)
    if with_snapshots:
        snapshots(lab, one, label)


def at_once(lab, one, label, count):
    empty = load_many(lab, one, None, count)
    restarts(lab, one, f"{label} restarted at once", count, empty, settles=False)


def load_many(lab, one, label, count):
    """Creates the znodes, keeps what they take the moment they exist; memory before them."""
    empty = servers.resident(one.server)
    flags = ["--op", "create", "--connections", 16, "--depth", 64, "--ops", count, "--warmup", 0, "--chroot", "/m", "--reply-timeout", 60]
    report = lab.generate("load", *one.target(), *flags)
    if label:
        figures = {"creates_per_s": report["throughput"], "largest_ms": report["latency_us"]["max"] / 1000}
        lab.figures(one, f"{label} loaded", 1, {**of_each(servers.resident(one.server), empty, count), **figures}, [report])
    return empty


def of_each(memory, empty, count):
    return {f"{name}_bytes_per_znode": (memory[name] - empty[name]) / count for name in memory}


def rest_s(count):
    return REST_S * max(1, count / 1_000_000)


def at_rest(server, count=0):
    """Resident memory once it has stopped to change for `rest_s`, QUIET_LIMIT_S at most: snapshots are written, garbage is what
    it is. While a snapshot is checked or the delta below it is dropped the memory may not change, the longer the larger they are."""
    until, same, last = time.monotonic() + QUIET_LIMIT_S, 0, None
    while same * LOOK_S < rest_s(count) and time.monotonic() < until:
        time.sleep(LOOK_S)
        memory, writing = servers.resident(server), any((server.directory / "data").glob("*.tmp"))
        near = last and abs(memory["resident"] - last["resident"]) < MEGABYTE
        same = same + 1 if near and not writing else 0
        last = memory
    return last


def restarts(lab, one, cell, count, empty, settles=True):
    """kill -9, start, first read, several times; the files stay in the page cache. Memory is that at rest or, if the server
    is not to settle, that at the first read: then each start finds the same files, for none has written a snapshot yet."""
    for number in range(1, RESTARTS + 1):
        one.server.kill()
        begun = time.monotonic()
        servers.pinned(one.cpus, one.server.launch)
        unanswered = first_read(one.server)
        figures = {"first_read_s": time.monotonic() - begun, "cpu_s": servers.cpu_s(one.server), "connections_unanswered": unanswered}
        memory = at_rest(one.server) if settles else servers.resident(one.server)
        lab.figures(one, cell, number, {**figures, **of_each(memory, empty, count)})


def first_read(server):
    """Waits for the first read; how many connections the server took before it and did not serve. A killed one's listener may
    take some for a moment longer, as the kernel ends rings after their process; those come before the first refused one."""
    unanswered, refused, until = 0, False, time.monotonic() + servers.START_LIMIT_S
    while time.monotonic() < until:
        try:
            with Client(server.address) as client:
                client.call(GET_DATA, read_body(FIRST_ZNODE))
            return unanswered
        except ConnectionRefusedError:
            refused = True
            time.sleep(0.002)
        except (Closed, ConnectionError, TimeoutError):
            unanswered += refused
        if server.process.poll() is not None:
            break
    raise RuntimeError(f"{server.kind} served no read:\n{server.log_tail()}")


def snapshots(lab, one, label):
    """The same open loop on the same data with snapshots written all the time, and with none."""
    newest = lambda: max((path.name for path in (one.server.directory / "data").glob("image-*.img")), default="")  # noqa: E731
    usual, flags = one.server.settings, ["--op", "mix", "--connections", 16, "--depth", 16, "--rate", SNAPSHOT_RATE]
    for number in range(1, lab.rounds + 1):
        largest, reports = {}, []
        for kind, settings in SNAPSHOT_SETTINGS.items():
            one.server.stop()
            one.server.settings = usual | settings
            servers.pinned(one.cpus, lambda: one.server.start(servers.START_LIMIT_S))
            before = newest()
            report = lab.generate("load", *one.target(), *flags, "--warmup", 1, "--duration", SNAPSHOT_S)
            if kind == "with" and newest() == before:
                raise RuntimeError("no snapshot was written although one was due after every transaction")
            largest[kind] = report["latency_us"]["max"] / 1000
            reports.append({"snapshots": kind, **report})
        if largest["with"] > STALL_MS:
            raise RuntimeError(f"a reply took {largest['with']:.0f} ms while snapshots were written")
        figures = {f"largest_ms_{kind}": ms for kind, ms in largest.items()}
        lab.figures(one, f"{label} snapshot", number, {**figures, "largest_ms_added": largest["with"] - largest["without"]}, reports)


def etcd(lab, contestants, options):
    """Reads and durable writes through etcd's own API. The client is slow: only its CPU time per operation means much."""

    def load(one, number):
        for op in ("get", "put"):
            words = [op, one.server.address[1], one.server.process.pid, ",".join(map(str, lab.client_cpus)), ETCD_S]
            command = [str(servers.VENV / "bin" / "python"), str(BENCH / "comparison" / "etcd_load.py"), *map(str, words)]
            ended = subprocess.run(command, capture_output=True, text=True)
            if ended.returncode:
                raise RuntimeError(ended.stderr.strip()[-1000:])
            lab.figures(one, f"etcd {op}", number, json.loads(ended.stdout))

    for number, order in lab.turns(contestants):
        for one in order:
            lab.visit(number, one, partial(load, one, number))
