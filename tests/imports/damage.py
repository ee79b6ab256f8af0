"""Random damage to copies of ZooKeeper's files, and the judgement of the import that reads them."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import namedtuple

from support.server import binary

PAGE, HEAD_BYTES, LOG_HEAD_BYTES = 4096, 200, 16
LIMIT_S, MEMORY_MAX_KIB = 30, 1 << 20
CODES = (0, 6, 7)
# Damages behind which the rest may be whole, and end earlier.
ENDS_EARLIER = {"truncate", "cut", "delete", "swap"}

Done = namedtuple("Done", "code out err seconds memory_kib")


def run(*arguments):
    """`corral import zookeeper`, and the memory that it took at most. It is killed at the limit."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        process = subprocess.Popen([binary(), "import", "zookeeper", *map(str, arguments)], stdout=out, stderr=err)
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Done(process.returncode, out.read(), err.read(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)


def figures(done):
    """The last zxid, the number of znodes and the bytes of their data."""
    zxid = int(re.search(r"last zxid +0x([0-9a-f]+)", done.out)[1], 16)
    znodes, data_bytes = re.search(r"znodes +(\d+), with (\d+) bytes", done.out).groups()
    return zxid, int(znodes), int(data_bytes)


def records(content):
    """Offsets of the records of a log, and of the end behind them."""
    offset, found = LOG_HEAD_BYTES, []
    while length := int.from_bytes(content[offset + 8 : offset + 12], "big"):
        found.append(offset)
        offset += 12 + length + 1
    return [*found, offset]


class Damage:
    """Damages the files of one directory, whose files are links to those of the whole one."""

    def __init__(self, chance, whole):
        self.chance, self.whole, self.told = chance, whole, []
        self.kinds = set()

    def link(self, target):
        shutil.copytree(self.whole, target, copy_function=os.link)
        self.target = target
        for _ in range(self.chance.choices((1, 2, 3), (8, 2, 1))[0]):
            kinds = (self.flip, self.overwrite, self.truncate, self.zero, self.swap, self.delete, self.cut, self.lose)
            self.chance.choices(kinds, (10, 6, 5, 4, 2, 2, 1, 1))[0]()
        return self

    def files(self, prefix):
        return sorted(self.target.glob(f"{prefix}.*"), key=lambda path: int(path.name.split(".")[1], 16))

    def pick(self, kinds=("snapshot", "log")):
        """Mostly a file that the import reads: the newest snapshot, or a log behind it."""
        files = self.files(self.chance.choice(kinds)) or self.files("log") or self.files("snapshot")
        if not files:
            return None
        return files[-1] if self.chance.random() < 0.6 else self.chance.choice(files)

    def change(self, name, function, kinds=("snapshot", "log")):
        """Writes the changed content into a new file in place of the link."""
        if not (path := self.pick(kinds)):
            return
        content = bytearray(path.read_bytes())
        size = len(content.rstrip(b"\0"))
        if size < LOG_HEAD_BYTES:
            return
        changed, place = function(content, size)
        path.unlink()
        path.write_bytes(changed)
        self.note(name, f"{path.name} at {place}")

    def note(self, name, place):
        self.kinds.add(name)
        self.told.append(f"{name} {place}")

    def offset(self, size):
        return self.chance.randrange(min(size, HEAD_BYTES) if self.chance.random() < 0.2 else size)

    def flip(self):
        def function(content, size):
            offset, bit = self.offset(size), self.chance.randrange(8)
            content[offset] ^= 1 << bit
            return content, f"{offset} bit {bit}"

        self.change("flip", function)

    def overwrite(self):
        def function(content, size):
            offset = self.offset(size)
            content[offset : offset + 16] = self.chance.randbytes(len(content[offset : offset + 16]))
            return content, offset

        self.change("overwrite", function)

    def truncate(self):
        def function(content, size):
            offset = self.offset(size)
            return content[:offset], offset

        self.change("truncate", function)

    def zero(self):
        def function(content, size):
            offset = self.offset(size) // PAGE * PAGE
            page = len(content[offset : offset + PAGE])
            content[offset : offset + page] = bytes(page)
            return content, offset

        self.change("zero", function)

    def cut(self):
        """Between two records, as if the last ones were never written."""

        def function(content, _):
            offset = self.chance.choice(records(content))
            return content[:offset], offset

        self.change("cut", function, ("log",))

    def lose(self):
        """Whole records become zeros, and more follow."""

        def function(content, _):
            first, last = sorted(self.chance.sample(offsets, 2)) if len(offsets := records(content)[:-1]) > 1 else (0, 0)
            content[first:last] = bytes(last - first)
            return content, f"{first} to {last}"

        self.change("lose", function, ("log",))

    def swap(self):
        one, other = self.pick(), self.pick()
        if one and other and one != other:
            spare = self.target / "spare"
            one.rename(spare)
            other.rename(one)
            spare.rename(other)
            self.note("swap", f"{one.name} and {other.name}")

    def delete(self):
        if path := self.pick():
            path.unlink()
            self.note("delete", path.name)


def complaint(done, whole, kinds):
    """The fault that an import shows, or None. `whole` are the figures of the directory without damage."""
    if done.code not in CODES or "panicked" in done.err:
        return f"exit code {done.code}"
    if done.memory_kib > MEMORY_MAX_KIB:
        return f"{done.memory_kib} KiB of memory"
    if done.code:
        return None
    zxid, *counts = figures(done)
    if zxid == whole[0]:
        return None if tuple(counts) == whole[1:] else f"another state at the same zxid: {counts} in place of {whole[1:]}"
    if zxid > whole[0]:
        return f"a zxid of the future, {zxid:#x}"
    named = "torn end" in done.out or "damaged snapshot" in done.out
    return None if named or kinds & ENDS_EARLIER else f"it ends at {zxid:#x} in place of {whole[0]:#x} without a word"
