"""What a load against a running server does not show: idle servers, a million znodes, restarts, snapshots.

A scenario takes a Lab (lab.py) and runs all its servers in turn; it writes one record a server, cell and round. The functions'
names are the groups' in targets.toml; groups that only run sub-commands of the load generator are data there.
"""

import json
import shutil
import subprocess
import time

from comparison import peers, processes, say

IDLE_SETTLE_S, IDLE_LOOK_S = 3.0, 10.0
MEGABYTE = 1_000_000
# Creating: so many connections with so many requests each.
LOAD_CONNECTIONS, LOAD_DEPTH = 16, 64
# At rest: memory that has not changed for so long, for each million znodes; waited for at most so long.
LOOK_S, REST_S, QUIET_LIMIT_S = 0.5, 4.0, 120
RESTARTS = 3
SNAPSHOT_RATE, SNAPSHOT_S = 5000, 10
FIRST_ZNODE = "/m/n/00000/000000000"


def sub_commands(lab, names, runs):
    """Sub-commands of the load generator against every server in turn, freshly started for each round."""
    for number in range(1, lab.rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            for at, run in enumerate(runs):
                server = lab.server(lab.peers[name], f"{number}-{at}-{name.replace(' ', '-')}")
                try:
                    server.start()
                    scenario, *flags = run["command"].split()
                    report = lab.load(server, *flags, scenario=[scenario])
                    figures = {figure: field(report, path) * factor for figure, (path, factor) in run["figures"].items()}
                    lab.record(server, run["cell"], number, figures, [report])
                except (RuntimeError, OSError, LookupError, TypeError) as error:
                    lab.failed(f"{name}, {run['cell']}", error)
                finally:
                    server.stop()
                    shutil.rmtree(server.directory, ignore_errors=True)


def field(report, path):
    """A field of a report by its dotted path."""
    for name in path.split("."):
        report = report[name]
    return report


def idle(lab, names, options):
    """CPU time and resident memory of a server nobody talks to, after one session has come and gone."""
    for number in range(1, lab.rounds + 1):
        for name in names:
            server = lab.server(lab.peers[name], f"idle-{number}-{name.replace(' ', '-')}")
            try:
                server.start()
                time.sleep(IDLE_SETTLE_S)
                before, begun = server.cpu_s(), time.monotonic()
                time.sleep(IDLE_LOOK_S)
                share = (server.cpu_s() - before) / (time.monotonic() - begun)
                memory = server.memory()
                figures = {"cpu_percent": share * 100, "resident_mb": memory["all"] / MEGABYTE}
                lab.record(server, "idle", number, {**figures, "own_mb": memory["own"] / MEGABYTE})
            except (RuntimeError, OSError) as error:
                lab.failed(f"{name}, idle", error)
            finally:
                server.stop()
                shutil.rmtree(server.directory, ignore_errors=True)


def million(lab, names, options):
    """Loads a million znodes (and five with --five-million): memory, restarts after kill -9, replies during snapshots."""
    sizes = [("1M", 1_000_000)] + ([("5M", 5_000_000)] if options.five_million else [])
    for name in names:
        for label, count in sizes:
            if name in (peers.NIO, peers.CORRAL_TWO) and (options.quick or count > 1_000_000):
                continue
            try:
                one_million(lab, lab.peers[name], label, count)
            except (RuntimeError, OSError, LookupError) as error:
                lab.failed(f"{name}, {label}", error)


def one_million(lab, peer, label, count):
    """Two loads of a fresh server: one is left to settle before its memory counts and it is killed, one is killed at once."""
    server = lab.server(peer, f"million-{label}-{peer.name.replace(' ', '-')}")
    try:
        say(f"{peer.name}: {count} znodes")
        empty = load_many(lab, server, label, count)
        begun = time.monotonic()
        memory = at_rest(server, count)
        settled_after_s = time.monotonic() - begun - rest_s(count)
        figures = {**of_each(memory, empty, count), "settled_after_s": settled_after_s}
        lab.record(server, f"{label} settled", 1, figures)
        restarts(lab, server, f"{label} restarted", count, empty)
        # The target is one of a million; a snapshot of five takes longer than that load lasts.
        if peer.name not in (peers.NIO, peers.CORRAL_TWO) and count <= 1_000_000:
            server.stop()
            snapshots(lab, peer, server, label)
    finally:
        server.kill()
        shutil.rmtree(server.directory, ignore_errors=True)
    server = lab.server(peer, f"million-{label}-at-once-{peer.name.replace(' ', '-')}")
    try:
        empty = load_many(lab, server, None, count)
        restarts(lab, server, f"{label} restarted at once", count, empty, settles=False)
    finally:
        server.kill()
        shutil.rmtree(server.directory, ignore_errors=True)


def load_many(lab, server, label, count):
    """Starts the server, creates the znodes, records what they take the moment they are there; memory before them."""
    server.start()
    empty = server.memory()
    flags = ["--op", "create", "--connections", LOAD_CONNECTIONS, "--depth", LOAD_DEPTH, "--ops", count]
    report = lab.load(server, *flags, "--keep", "--warmup", 0, "--chroot", "/m", "--reply-timeout", 60)
    if label:
        figures = {**of_each(server.memory(), empty, count),
                   "creates_per_s": report["throughput"], "largest_ms": report["latency_us"]["max"] / 1000}  # fmt: skip
        lab.record(server, f"{label} loaded", 1, figures, [report])
    return empty


def of_each(memory, empty, count):
    return {f"{name}_bytes_per_znode": (memory[kind] - empty[kind]) / count
            for name, kind in (("resident", "all"), ("own", "own"))}  # fmt: skip


def rest_s(count):
    return REST_S * max(1, count / 1_000_000)


def at_rest(server, count=0):
    """Resident memory once it has stopped to change for `rest_s`, QUIET_LIMIT_S at most: snapshots are written, garbage is what
    it is. A snapshot of corral's is begun within less than REST_S after a burst of writes, but while one is checked or the
    delta below it is dropped the memory may not change, the longer the larger they are."""
    until, same, last = time.monotonic() + QUIET_LIMIT_S, 0, None
    while same * LOOK_S < rest_s(count) and time.monotonic() < until:
        time.sleep(LOOK_S)
        memory, writing = server.memory(), any(server.data_dir.glob("*.tmp"))
        near = last and abs(memory["all"] - last["all"]) < MEGABYTE
        same = same + 1 if near and not writing else 0
        last = memory
    return last


def restarts(lab, server, cell, count, empty, settles=True):
    """kill -9, start, first read, several times; the files stay in the page cache. Memory is that at rest or, if the server
    is not to settle, that at the first read: then each start finds the same files, for none has written a snapshot yet."""
    for number in range(1, RESTARTS + 1):
        server.kill()
        begun = server.spawn()
        unanswered = first_read(server)
        seconds, cpu_s = time.monotonic() - begun, server.cpu_s()
        memory = at_rest(server) if settles else server.memory()
        figures = {"first_read_s": seconds, "cpu_s": cpu_s, "connections_unanswered": unanswered,
                   **of_each(memory, empty, count)}  # fmt: skip
        lab.record(server, cell, number, figures)


def first_read(server):
    """Waits for the first read; how many connections the server took before it and did not serve. A killed one's listener may
    take some for a moment longer, as the kernel ends rings after their process; those come before the first refused one."""
    unanswered, refused, until = 0, False, time.monotonic() + processes.START_LIMIT_S
    while time.monotonic() < until:
        try:
            processes.read_once(server.port, FIRST_ZNODE)
            return unanswered
        except ConnectionRefusedError:
            refused = True
            time.sleep(0.002)
        except (ConnectionError, TimeoutError):
            unanswered += refused
        server.check_alive()
    raise RuntimeError(f"{server.name} served no read in {processes.START_LIMIT_S} s:\n{server.log_tail()}")


# Without: no snapshot is written while the load lasts. With: the next one begins as soon as the last is written.
SNAPSHOT_SETTINGS = {
    "without": ["snapshot.log_bytes_max=0", "snapshot.floor_bytes=1099511627776"],
    "with": ["snapshot.txns_max=1", "snapshot.interval_min_ms=0"],
}


def snapshots(lab, peer, server, label):
    """The same open loop on the same data with snapshots written all the time, and with none."""
    for number in range(1, lab.rounds + 1):
        largest, reports, snapshots = {}, [], {}
        for kind, settings in SNAPSHOT_SETTINGS.items():
            more = "".join(f" --set {setting}" for setting in settings)
            again = lab.server(peers.Peer(peer.name, peer.command + more), f"snapshot-{number}-{kind}", server.data_dir)
            try:
                again.start()
                before = newest_snapshot(server.data_dir)
                report = lab.load(again, "--op", "mix", "--read-percent", 90, "--connections", 16, "--depth", 16,
                                  "--keep", "--rate", SNAPSHOT_RATE, "--warmup", 1, "--duration", SNAPSHOT_S)  # fmt: skip
                snapshots[kind] = newest_snapshot(server.data_dir) != before
                largest[kind] = report["latency_us"]["max"] / 1000
                reports.append({"snapshots": kind, **report})
            finally:
                again.stop()
                shutil.rmtree(again.directory, ignore_errors=True)
        if not snapshots["with"]:
            raise RuntimeError("no snapshot was written although one was due after every transaction")
        figures = {"largest_ms_with": largest["with"], "largest_ms_without": largest["without"],
                   "largest_ms_added": largest["with"] - largest["without"]}  # fmt: skip
        lab.record(again, f"{label} snapshot", number, figures, reports)


def newest_snapshot(data_dir):
    return max((path.name for path in data_dir.glob("image-*.img")), default="")


ETCD_ROUNDS_S = 5


def etcd(lab, names, options):
    """Reads and durable writes through etcd's own API. The client is slow: only its CPU time per operation means much."""
    python = peers.VENV / "bin" / "python"
    for number in range(1, lab.rounds + 1):
        server = lab.server(lab.peers[peers.ETCD], f"etcd-{number}")
        try:
            server.spawn()
            for op in ("get", "put"):
                command = [str(python), str(peers.BENCH / "comparison" / "etcd_load.py"), op, str(server.port), str(server.pid),
                           ",".join(map(str, lab.client_cpus)), str(ETCD_ROUNDS_S)]  # fmt: skip
                ended = subprocess.run(command, capture_output=True, text=True)
                if ended.returncode:
                    raise RuntimeError(f"{ended.stderr.strip()[-1000:]}\n{server.log_tail()}")
                lab.record(server, f"etcd {op}", number, json.loads(ended.stdout))
        except (RuntimeError, OSError, ValueError) as error:
            lab.failed("etcd", error)
        finally:
            server.stop()
            shutil.rmtree(server.directory, ignore_errors=True)
