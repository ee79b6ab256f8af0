"""The Rust crate zookeeper-client, see rust/src/main.rs; cargo builds it in tests/.cache/rust."""

import subprocess
from pathlib import Path

import pytest

from clients import programs
from support import packages

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS
HERE = Path(__file__).resolve().parent / "rust"
TARGET = Path(__file__).resolve().parents[1] / ".cache" / "rust"
BUILD_LIMIT_S = 900
# How cargo says that it cannot get the packages.
UNREACHABLE = ("failed to download", "failed to get", "Could not resolve host", "no matching package")


@pytest.fixture(scope="module")
def program():
    cargo = packages.need_command("cargo", "Rust (https://rustup.rs)")
    command = [cargo, "build", "--quiet", "--locked", "--manifest-path", str(HERE / "Cargo.toml"), "--target-dir", str(TARGET)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    if done.returncode != 0 and any(sign in done.stderr for sign in UNREACHABLE):
        pytest.skip(f"cargo cannot get the crates: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    return TARGET / "debug" / "corral-rust-client-test"


def test_rust_client(program, run_program):
    run_program("rust", [str(program)])
