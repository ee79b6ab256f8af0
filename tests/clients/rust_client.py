#!/usr/bin/env python3
"""The Rust crate zookeeper-client, see rust/src/main.rs; cargo builds it in tests/.cache/rust."""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from clients.programs import run_with_server  # noqa: E402
from support import packages, suite  # noqa: E402

HERE = Path(__file__).resolve().parent / "rust"
TARGET = Path(__file__).resolve().parents[1] / ".cache" / "rust"
BUILD_LIMIT_S = 900
# How cargo says that it cannot get the packages.
UNREACHABLE = ("failed to download", "failed to get", "Could not resolve host", "no matching package")


def prepare(_directory):
    cargo = packages.need_command("cargo", "Rust (https://rustup.rs)")
    command = [cargo, "build", "--quiet", "--locked", "--manifest-path", str(HERE / "Cargo.toml"), "--target-dir", str(TARGET)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    if done.returncode != 0 and any(sign in done.stderr for sign in UNREACHABLE):
        raise suite.Skip(f"cargo cannot get the crates: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    yield "rust", [str(TARGET / "debug" / "corral-rust-client-test")], {}


if __name__ == "__main__":
    run_with_server(suite.parser(__doc__).parse_args(), prepare)
