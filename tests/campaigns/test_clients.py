"""Foreign clients, and systems that use them, that need large packages or minutes: kazoo's whole suite beside a ZooKeeper, Curator, the
Java client of ZooKeeper 3.9, the npm client, the Rust crate and Patroni. `--part TEXT` chooses tests of the programs by name.

Java programs want pyspark, which brings the jars of ZooKeeper 3.9 and of Curator, or ZOOKEEPER_JARS.
"""

import os
import shutil
import subprocess

import pytest

from clients import kazoo_suite, patroni, programs
from clients.secured import need_files
from support import packages
from support.server import class_paths

SETTINGS, JAVA_OPTIONS, TICK_MS = programs.SETTINGS, programs.JAVA_OPTIONS, programs.TICK_MS
CLIENTS = programs.HERE
CACHE = CLIENTS.parent / ".cache"
LOCK = "package-lock.json"
INSTALL_LIMIT_S, BUILD_LIMIT_S = 180, 900
# How cargo says that it cannot get the packages.
UNREACHABLE = ("failed to download", "failed to get", "Could not resolve host", "no matching package")


def test_kazoo_suite(options, subtests, note):
    passed = kazoo_suite.run(options, subtests, options.part or "", compare=options.server == "corral")
    note(f"{passed} passed on ZooKeeper")


@pytest.mark.parametrize("version", class_paths() or ["any"])
def test_java_client(version, tmp_path, run_program):
    path = class_paths().get(version)
    if not path:
        pytest.skip("no ZooKeeper jars: install pyspark, or set ZOOKEEPER_JARS")
    run_program(f"java-{version}", programs.java_program(tmp_path, path, "JavaClient"))


def test_curator(tmp_path, run_program):
    folder = packages.curator_jars()
    if not folder:
        pytest.skip("no Curator: install pyspark, or put its jars into ZOOKEEPER_JARS")
    run_program("curator", programs.java_program(tmp_path, f"{folder}/*", "CuratorRecipes"))


def install_node_client(npm):
    """Installs what the lock file says into tests/.cache/node, unless that is there already."""
    here, cache = CLIENTS / "node", CACHE / "node"
    if (cache / "node_modules" / "node-zookeeper-client").exists() and (cache / LOCK).read_bytes() == (here / LOCK).read_bytes():
        return
    cache.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", LOCK):
        shutil.copy(here / name, cache / name)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=cache, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm cannot install node-zookeeper-client: {done.stderr.strip().splitlines()[-1:]}")


def test_node_client(run_program):
    node = packages.need_command("node", "Node.js 18 or newer (Debian: nodejs)")
    install_node_client(packages.need_command("npm", "Node.js's npm (Debian: npm)"))
    environment = {**os.environ, "NODE_PATH": str(CACHE / "node" / "node_modules")}
    run_program("node", [node, str(CLIENTS / "node" / "client.js")], env=environment)


def build_rust_client(program):
    """Builds the programs with the Rust crate; gives the path of one. Skips the test where the crates cannot be had."""
    cargo, target = packages.need_command("cargo", "Rust (https://rustup.rs)"), CACHE / "rust"
    manifest = CLIENTS / "rust" / "Cargo.toml"
    command = [cargo, "build", "--quiet", "--locked", "--manifest-path", str(manifest), "--target-dir", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    if done.returncode != 0 and any(sign in done.stderr for sign in UNREACHABLE):
        pytest.skip(f"cargo cannot get the crates: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    return str(target / "debug" / program)


def test_rust_client(run_program):
    run_program("rust", [build_rust_client("corral-rust-client-test")])


def test_patroni_fails_over_as_with_zookeeper(options, note):
    note(patroni.told_alike(options))


def test_patroni_fails_over_by_tls(options, note, tmp_path):
    note(patroni.told_by_tls(options, need_files(tmp_path)))
