"""What a supervisor sees and does: readiness, signs of life, a reload, and the log."""

import json
import os
import shutil
import signal
import socket
import subprocess

import pytest

from support import REPOSITORY
from support.expect import equal
from support.server import Corral
from support.wait import free_port, wait_until

LIMIT_S = 60
SUPER_DIGEST = "super:lK75jTNcA+U9vtVEw5vB51mj/w4="


@pytest.fixture
def notified(tmp_path, monkeypatch):
    """The socket of a supervisor."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(str(path))
        own.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield own


def told(own, until):
    """The messages up to this one."""
    messages = []
    while until not in messages:
        messages += own.recv(4096).decode().splitlines()
    return messages


def test_a_server_alone_is_ready_and_alive_and_says_that_it_stops(notified, shards):
    server = Corral(shards)
    try:
        server.launch()
        messages = told(notified, "READY=1")
        assert "STATUS=serves as standalone" in messages, messages
        told(notified, "WATCHDOG=1")
        server.terminate()
        told(notified, "STOPPING=1")
        equal(server.process.wait(LIMIT_S), 0)
    finally:
        server.dispose()


def test_a_member_without_the_others_is_not_ready(notified, shards):
    servers = ", ".join(f'"{number}=127.0.0.1:{free_port()}"' for number in (1, 2, 3))
    server = Corral(shards, settings={"server.server_id": 1, "ensemble.servers": f"[{servers}]"})
    try:
        server.launch()
        messages = told(notified, "WATCHDOG=1") + told(notified, "WATCHDOG=1")
        assert "READY=1" not in messages and any(line.startswith("STATUS=does not serve: ") for line in messages), messages
    finally:
        server.dispose()


def test_a_supervisor_that_does_not_read_stops_nothing(notified, shards):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                other.sendto(b"X=1", notified.getsockname())
    server = Corral(shards)
    try:
        server.start()
        equal(server.stop(), 0)
    finally:
        server.dispose()


def test_the_unit_is_one(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    unit = tmp_path / "corral.service"
    # The program is installed on the host of an operator.
    unit.write_text((REPOSITORY / "configs/corral.service").read_text().replace("/usr/local/bin/corral", "/bin/true"))
    run = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    equal((run.returncode, run.stdout + run.stderr), (0, ""))


class Configured(Corral):
    """Started from a file that is written anew."""

    def write(self, text):
        (self.directory / "corral.toml").write_text(text)

    def command(self):
        return [*super().command(), "--config", str(self.directory / "corral.toml")]

    def hang_up(self):
        self.process.send_signal(signal.SIGHUP)


@pytest.fixture
def configured(shards):
    server = Configured(shards)
    yield server
    server.dispose()


def test_levels_change_at_sighup_and_other_keys_are_named(configured):
    server = configured
    server.write('[server]\nlog_level = "warn"\n')
    server.start()
    server.write('[server]\nlog_level = "info"\n[limits]\nconnections_max = 7\n')
    server.hang_up()
    wait_until(lambda: 'these keys count from now on keys="server.log_level"' in server.log(), "the level is told")
    wait_until(lambda: 'these keys count after a restart keys="limits.connections_max"' in server.log(), "the other key is told")
    refused = "the configuration is not read again, the one in use stays: "
    server.write("[server]\nlog_level = 3\n")
    server.hang_up()
    wait_until(lambda: server.log().count(refused) == 1, "the fault is told")
    path = server.directory / "corral.toml"
    path.unlink()
    os.mkfifo(path)
    server.hang_up()
    wait_until(lambda: server.log().count(refused) == 2, "a pipe is no configuration")
    path.unlink()
    server.write(f'[security]\nsuper_digest = "{SUPER_DIGEST}"\n')
    server.hang_up()
    wait_until(lambda: 'keys="security.super_digest"' in server.log(), "the key is named")
    assert SUPER_DIGEST not in server.log() and server.answers()


def test_the_log_is_json_in_files_that_are_numbered(configured):
    server = configured
    path = server.directory / "logs/corral.log"
    server.write(f'[server]\nlog_level = "debug"\n[logging]\nformat = "json"\nfile = "{path}"\nfile_bytes_max = 500\nfiles_retained = 3\n')
    server.start()
    wait_until(lambda: path.with_name("corral.log.3").exists(), "files are numbered")
    equal(server.stop(), 0)
    lines = [json.loads(line) for file in path.parent.iterdir() for line in file.read_text().splitlines()]
    assert all({"timestamp", "level", "message"} <= set(line) for line in lines), lines
    equal(sorted(file.name for file in path.parent.iterdir()), ["corral.log", "corral.log.1", "corral.log.2", "corral.log.3"])
    equal(server.log(), "", "standard error")


def test_a_log_that_is_moved_away_is_begun_anew(configured):
    server = configured
    path = server.directory / "corral.log"
    server.write(f'[logging]\nfile = "{path}"\n')
    server.start()
    path.rename(path.with_name("moved"))
    server.write(f'[server]\nlog_level = "debug"\n[logging]\nfile = "{path}"\n')
    server.hang_up()
    wait_until(lambda: path.exists() and "these keys count from now on" in path.read_text(), "the next line is in the new file")


def test_a_slow_request_is_logged_with_its_client(shards):
    server = Corral(shards, settings={"logging.slow_request_ms": 1})
    try:
        server.start()
        with server.client() as client:

            def is_logged():
                client.set("/zookeeper", b"")
                lines = [line for line in server.log().splitlines() if "slow request" in line and 'operation="SETD"' in line]
                return lines and lines[0]

            line = wait_until(is_logged, "a write takes a millisecond")
            assert 'path="/zookeeper"' in line and " apply_ms=" in line, line
            assert f"session=0x{client.session_id:x} address=127.0.0.1:{client.socket.getsockname()[1]} " in line, line
    finally:
        server.dispose()
