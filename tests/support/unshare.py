"""Namespaces of the kernel that this thread enters, and what it starts from then on, and leaves again."""

import ctypes
import os
from contextlib import contextmanager

import pytest

# Flag of unshare(2), and the name of the namespace in /proc.
MOUNTS, NETWORK = (0x00020000, "mnt"), (0x40000000, "net")


@contextmanager
def own(kind):
    """A namespace of its own; skips the test where none can be made."""
    flag, name = kind
    libc, back = ctypes.CDLL(None, use_errno=True), os.open(f"/proc/thread-self/ns/{name}", os.O_RDONLY)
    try:
        if libc.unshare(flag) != 0:
            pytest.skip(f"no {name} namespace can be made: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            assert libc.setns(back, flag) == 0, f"cannot leave the {name} namespace: {os.strerror(ctypes.get_errno())}"
    finally:
        os.close(back)
