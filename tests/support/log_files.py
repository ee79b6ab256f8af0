"""The log's files as `corral log dump` shows them, and damage to them."""

import re
import subprocess
from collections import namedtuple

from support.server import binary

HEADER_BYTES = 64
LINE = re.compile(
    r"(?P<file>\S+) (?:segment .*, log position (?P<base>\d+)(?:, durable to (?P<slots>\d+))?"
    r"| *(?P<offset>\d+) (?P<kind>\w+): (?:term .*, )?durable to (?P<durable>\d+)(?:, (?P<payload>\d+) bytes)?)"
)
# A record in its file; `position` is where it begins in the log.
Record = namedtuple("Record", "path offset size kind position")


def records(data):
    """The records of a server that does not run, and up to where the log says that it was durable."""
    dump = subprocess.run([binary(), "log", "dump", str(data)], capture_output=True, text=True, check=False).stdout
    found, durable, base = [], 0, 0
    for match in filter(None, map(LINE.fullmatch, dump.splitlines())):
        base = int(match["base"] or base)
        durable = max(durable, int(match["slots"] or match["durable"] or 0))
        if match["payload"]:
            offset, size = int(match["offset"]), HEADER_BYTES + int(match["payload"])
            found.append(Record(data / match["file"], offset, size, match["kind"], base + offset))
    assert found, f"no record in\n{dump[-500:]}"
    return found, durable


def last_durable_record(data):
    """What lies behind it was never synced, and no client was told of it."""
    found, durable = records(data)
    return [record for record in found if record.position < durable][-1]


def flip_a_bit_of_the_last_durable_record(data, pick):
    """Flips one bit of the header or the payload; `pick` says which. Returns that record."""
    record = last_durable_record(data)
    content = bytearray(record.path.read_bytes())
    content[record.offset + pick * 7919 % record.size] ^= 1 << pick % 8
    record.path.write_bytes(content)
    return record


PAGE_BYTES = 4096


def lose_page(path, offset, pick):
    """Zeroes the page at that offset of a file, fills it with ones or with noise, or flips one of its bits; `pick` says which."""
    start = offset // PAGE_BYTES * PAGE_BYTES
    with open(path, "r+b") as file:
        file.seek(start)
        page = bytearray(file.read(PAGE_BYTES))
        if pick % 4 == 3:
            page[pick * 7919 % len(page)] ^= 1 << pick % 8
        else:
            noise = bytes((number * 131 + pick) % 251 for number in range(len(page)))
            page = [bytes(len(page)), b"\xff" * len(page), noise][pick % 4]
        file.seek(start)
        file.write(page)


def lose_the_last_durable_page(data, pick):
    """The page in which the last durable record begins; returns that record."""
    last = last_durable_record(data)
    lose_page(last.path, last.offset, pick)
    return last


def contents(data):
    """The content of each file by name, but of the lock and of what was never finished, which a start removes."""
    return {path.name: path.read_bytes() for path in data.iterdir() if path.is_file() and path.name != "LOCK" and path.suffix != ".tmp"}
