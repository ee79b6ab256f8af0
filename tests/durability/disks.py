"""Small disks: tmpfs in a mount namespace of a module's own, see the fixture `own_mounts`."""

import os
import subprocess

import pytest

from support import unshare

MIB = 1 << 20
DISK_BYTES, FILLER_BYTES, VALUE = 32 * MIB, 12 * MIB, b"x" * 200_000
NO_SPACE_CODE = 7
SETTINGS = {
    "log.segment_bytes": 4 * MIB,
    "limits.frame_bytes_max": 1_000_000,
    # No snapshot but those the tests ask for.
    "snapshot.floor_bytes": 1 << 40,
    "snapshot.log_bytes_max": 0,
    "snapshot.interval_max_ms": 0,
    "snapshot.snapshots_retained": 1,
}


def mount(place, size=DISK_BYTES):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "corral-test", place], check=True)


@pytest.fixture(scope="module", autouse=True)
def own_mounts():
    """This thread, and what it starts, has mounts of its own for as long as the module runs.

    That needs root, or its like in a user namespace, which only a process of one thread can enter: run it under `unshare` then.
    """
    if os.geteuid() != 0:
        pytest.skip("mounts need root: run it under unshare --mount --map-root-user")
    with unshare.own(unshare.MOUNTS):
        made = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"no mounts of its own can be made: {made.stderr.strip()}")
        yield
