"""Patroni with two PostgreSQL servers: the primary dies, the replica takes over, the old primary comes back as a replica.

Patroni keeps the leader's key and the members as ephemerals through kazoo. The same story runs on a real ZooKeeper and on corral:
a killed primary, a switch on request, a service that is killed and back at once, and one that stays away. The notes have to be the
same on both, the times are printed. PostgreSQL refuses to run as root: as root the suite puts it into a user namespace.
"""

import difflib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from clients.secured import ALICE, secured
from support import packages
from support.server import Corral, ZooKeeper
from support.wait import free_port, wait_until

# Patroni's shortest times; the session lives as long as the leader's key.
TTL_S, LOOP_S, RETRY_S = 20, 1, 3
TICK_MS = 1000
LIMIT_S = 120
PROBE_LIMIT_S = 5
LOG_TAIL = 40
# What the story is to tell.
NOTES = [
    'before: ["primary", "replica", "1000"]',
    'the primary is killed: rows and timeline of the new one: ["2000", 2]',
    'the killed one is back: ["replica", "2000"]',
    'a switch on request: rows and timeline: ["3000", 3]',
    "the service is killed and back at once: the primary: [true, 3]",
    'the service is back: ["replica", 1]',
]
NAMESPACE = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


class Story:
    """What was observed on one server."""

    def __init__(self, kind):
        self.kind, self.notes, self.times = kind, [], {}

    def note(self, what, value):
        self.notes.append(f"{what}: {json.dumps(value, sort_keys=True)}")

    def time(self, what, begin):
        self.times[what] = time.monotonic() - begin


class Node:
    """One Patroni and the PostgreSQL it runs."""

    def __init__(self, postgres, server, number, files=None):
        self.name, self.postgres = f"node{number}", postgres
        self.directory = server.directory / self.name
        self.directory.mkdir()
        self.data, self.log_path = self.directory / "data", self.directory / "log"
        self.port, self.page = free_port(), f"127.0.0.1:{free_port()}"
        self.process = None
        (self.directory / "patroni.json").write_text(json.dumps(self.settings(secured_by(server, files))))

    def settings(self, zookeeper):
        """Patroni's configuration; JSON is YAML."""
        trusted = ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
        shared = {"use_pg_rewind": True, "parameters": {"max_connections": 20, "shared_buffers": "16MB", "wal_keep_size": "64MB"}}
        times = {"ttl": TTL_S, "loop_wait": LOOP_S, "retry_timeout": RETRY_S}
        return {
            "scope": "test",
            "name": self.name,
            "restapi": {"listen": self.page, "connect_address": self.page},
            "zookeeper": zookeeper,
            "bootstrap": {"dcs": {**times, "postgresql": shared}, "initdb": [{"auth": "trust"}, {"encoding": "UTF8"}]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.data),
                "bin_dir": str(self.postgres),
                "pgpass": str(self.directory / "pgpass"),
                "pg_hba": trusted,
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}},
                "parameters": {"unix_socket_directories": str(self.directory)},
            },
        }

    def start(self):
        command = [sys.executable, "-m", "patroni", "patroni.json"]
        if os.geteuid() == 0:
            command = NAMESPACE + command
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self):
        """kill -9 of Patroni and of PostgreSQL."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        try:
            os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            pass

    def log_lines(self):
        return self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []

    def state(self):
        """What Patroni says about its PostgreSQL, empty if it says nothing."""
        try:
            with urllib.request.urlopen(f"http://{self.page}/patroni", timeout=PROBE_LIMIT_S) as page:
                return json.load(page)
        except urllib.error.HTTPError as error:
            return json.load(error)
        except (OSError, ValueError):
            return {}

    def role(self):
        state = self.state()
        return f"{state.get('role')} {state.get('state')}"

    def is_primary(self):
        return self.role() == "primary running" and self.sql("select pg_is_in_recovery()") == "f"

    def is_replica(self):
        return self.role() in ("replica streaming", "replica running") and self.sql("select pg_is_in_recovery()") == "t"

    def sql(self, statement):
        """The answer of PostgreSQL, None if it refuses."""
        command = [str(self.postgres / "psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", "postgres"]
        done = subprocess.run(
            [*command, "-X", "-q", "-A", "-t", "-c", statement], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    def rows(self):
        return self.sql("select count(*) from entries")

    def insert(self, count):
        answer = self.sql(f"insert into entries select generate_series(1, {count})")
        assert answer is not None, f"{self.name} refuses to write"


def catch_up(node, other):
    """Waits until the replica has all rows of the primary."""
    wait_until(lambda: other.is_replica() and other.rows() == node.rows(), f"{other.name} follows {node.name}", LIMIT_S)


def await_primary(story, what, node, begin):
    wait_until(node.is_primary, f"{what}: {node.name} is the primary, last seen {node.role()}", LIMIT_S)
    story.time(f"{what}: there is a primary", begin)


def secured_by(server, files):
    """How Patroni connects: with `files` by TLS, with a certificate, and with znodes for the holder of that certificate alone."""
    host, port = server.secure if files else server.address
    settings = {"hosts": [f"{host}:{port}"]}
    if files:
        paths = {"cacert": files.path("ca.pem"), "cert": files.path("alice.crt"), "key": files.path("alice.key")}
        settings.update(use_ssl=True, verify=True, set_acls={ALICE: ["ALL"]}, **paths)
    return settings


def told_on(server, postgres, files=None):
    """The whole story on one server."""
    story, nodes = Story(server.kind), []
    try:
        server.start()
        first, second = nodes = [Node(postgres, server, number, files) for number in range(2)]
        begin_cluster(story, first, second)
        kill_primary(story, first, second)
        switch_over(story, first, second)
        restart_service(server, story, first)
        lose_service(server, story, nodes)
        return story
    except Exception:
        for node in nodes:
            print(f"--- {node.name}", *node.log_lines()[-LOG_TAIL:], sep="\n")
        print(f"--- {server.kind}\n{server.log_tail(LOG_TAIL)}")
        raise
    finally:
        print(f"--- told on {server.kind}", *story.notes, sep="\n")
        for node in nodes:
            node.kill()
        server.dispose()


def told_by_tls(options, files):
    """The times of the story on the server under test, with TLS and client certificates. A ZooKeeper with TLS starts too slowly for the
    part in which it is back at once."""
    story = told_on(server_of(options.server, options, files), postgres_programs(), files)
    assert story.notes == NOTES
    return "; ".join(f"{what} after {seconds:.2f} s" for what, seconds in story.times.items())


def told_alike(options):
    """The times of the story on the server under test and, beside a corral, on a ZooKeeper, if there is one. The notes must be the same."""
    postgres, makers = postgres_programs(), []
    if packages.zookeeper():
        makers.append(lambda: server_of("zookeeper", options))
    if options.server == "corral":
        makers.append(lambda: server_of("corral", options))
    if not makers:
        pytest.skip("no ZooKeeper: install Debian's package zookeeper, or set ZOOKEEPER_JARS")
    stories = [told_on(make(), postgres) for make in makers]
    first, last = stories[0], stories[-1]
    different = list(difflib.unified_diff(first.notes, last.notes, first.kind, last.kind, lineterm=""))
    assert not different, "\n".join(different)
    return "; ".join(
        f"{what} after " + ", ".join(f"{story.times[what]:.2f} s ({story.kind})" for story in stories)
        for what in first.times
    )


def server_of(kind, options, files=None):
    if files:
        return secured(kind, files, files.settings("pem", tickTime=TICK_MS))
    return ZooKeeper(tick_ms=TICK_MS) if kind == "zookeeper" else Corral(shards=options.shards, tick_ms=TICK_MS)


def begin_cluster(story, first, second):
    first.start()
    wait_until(first.is_primary, "the first node is the primary", LIMIT_S)
    second.start()
    wait_until(second.is_replica, "the second node is a replica", LIMIT_S)
    first.sql("create table entries (number integer)")
    first.insert(1000)
    catch_up(first, second)
    story.note("before", [first.role().split()[0], second.role().split()[0], second.rows()])


def kill_primary(story, first, second):
    begin = time.monotonic()
    first.kill()
    await_primary(story, "the primary is killed", second, begin)
    second.insert(1000)
    story.note("the primary is killed: rows and timeline of the new one", [second.rows(), second.state()["timeline"]])
    begin = time.monotonic()
    first.start()
    catch_up(second, first)
    story.time("the killed one is back as a replica", begin)
    story.note("the killed one is back", [first.role().split()[0], first.rows()])


def switch_over(story, first, second):
    body = json.dumps({"leader": second.name, "candidate": first.name}).encode()
    begin = time.monotonic()
    wait_until(lambda: ask_to_switch(second.page, body), "the switch is accepted", LIMIT_S)
    await_primary(story, "a switch on request", first, begin)
    catch_up(first, second)
    first.insert(1000)
    catch_up(first, second)
    story.note("a switch on request: rows and timeline", [second.rows(), first.state()["timeline"]])


def ask_to_switch(page, body):
    """Asks Patroni for a switch; it refuses while it does not know the candidate's state yet."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://{page}/switchover", body), timeout=LIMIT_S) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:
        return False


def restart_service(server, story, first):
    """A service that is back at once has kept the sessions: no node loses the leadership."""
    server.restart()
    deadline = time.monotonic() + TTL_S
    while time.monotonic() < deadline:
        first.insert(1)
        time.sleep(LOOP_S)
    story.note("the service is killed and back at once: the primary", [first.is_primary(), first.state()["timeline"]])


def lose_service(server, story, nodes):
    """Without the service a primary may not write for long; with it there is one primary again, and nothing is lost."""
    begin = time.monotonic()
    rows = nodes[0].rows()
    server.kill()
    wait_until(lambda: not any(node.is_primary() for node in nodes), "the primary steps down", LIMIT_S)
    story.time("the service is lost: no node writes", begin)
    begin = time.monotonic()
    server.start()
    wait_until(lambda: any(node.is_primary() for node in nodes), "there is a primary again", LIMIT_S)
    story.time("the service is back: there is a primary", begin)
    primary, replica = sorted(nodes, key=lambda node: not node.is_primary())
    primary.insert(1)
    catch_up(primary, replica)
    story.note("the service is back", [replica.role().split()[0], int(primary.rows()) - int(rows)])


def postgres_programs():
    """The folder of PostgreSQL's programs."""
    packages.need_modules("patroni", "psycopg", "kazoo")
    found = [Path(os.path.realpath(path)).parent for path in (shutil.which("postgres"),) if path]
    found += [Path(path) for path in sorted(glob.glob("/usr/lib/postgresql/*/bin"))]
    folders = [folder for folder in found if (folder / "initdb").exists() and (folder / "psql").exists()]
    if not folders:
        pytest.skip("no PostgreSQL: install Debian's package postgresql")
    if os.geteuid() == 0:
        packages.need_command("unshare", "util-linux, because PostgreSQL does not run as root")
        if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("PostgreSQL does not run as root, and user namespaces are not allowed here")
    return folders[-1]
