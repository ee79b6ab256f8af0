"""An S3-compatible store on the loopback, with the bucket `backups`."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.expect import equal
from support.http import ask, reaches
from support.wait import free_port, wait_until


@contextmanager
def object_store(monkeypatch):
    """The environment names it."""
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        pytest.skip("moto[server] is not installed")
    port = free_port()
    store = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    names = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "us-east-1", "ENDPOINT": endpoint, "ALLOW_HTTP": "true"}
    for name, value in names.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    try:
        wait_until(lambda: reaches(endpoint), "it listens")
        equal(ask(f"{endpoint}/backups", "PUT").status, 200)
        yield
    finally:
        store.terminate()
        store.wait()
