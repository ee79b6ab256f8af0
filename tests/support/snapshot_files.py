"""Writes wrong data into a snapshot file so that its checksums still match: what a bug of the writer, or memory that flips bits,
would leave behind. Only digests of the tree can find that.

It knows the container (src/storage/src/snapshot.rs) and where the digest stands (src/core/src/tree/digest.rs).
"""

import struct
import zlib

HEAD = struct.Struct("<8sII4QQQI")
ROW = struct.Struct("<QQII")
STAT = struct.Struct(">5q3iq")
DIGEST_MAGIC = b"\xffDIGEST\x02"
POLYNOMIAL = 0x82F63B78
TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (POLYNOMIAL if number & 1 else 0)
    TABLE.append(number)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def digest_of(path, data, stat):
    """ZooKeeper's digest of one znode, version 2; `stat` is as a client sees it."""
    if path.startswith("/zookeeper/"):
        return 0
    # Stored: how often children came. Clients see how often they came and went.
    stored = (stat.cversion + stat.num_children) // 2
    numbers = stat.czxid, stat.mzxid, stat.pzxid, stat.ctime, stat.mtime, stat.version, stored, stat.aversion
    return zlib.crc32((path if path != "/" else "").encode() + (data or b"") + STAT.pack(*numbers, stat.ephemeral_owner))


def newest(member):
    return max((member.directory / "data").glob("image-*.img"), key=lambda path: path.name)


def stored_digest(path):
    content = path.read_bytes()
    return struct.unpack_from("<Q", content, content.index(DIGEST_MAGIC) + 8)[0]


def forge(path, old, new, moved=0):
    """Replaces the only place with these bytes by others of the same length, and all checksums. The stored digest moves by so
    much: with 0 it is wrong then.
    """
    before = path.read_bytes()
    content = bytearray(before)
    assert len(old) == len(new) and content.count(old) == 1, content.count(old)
    at = content.index(old)
    content[at : at + len(old)] = new
    if moved:
        place = content.index(DIGEST_MAGIC)
        digest = struct.unpack_from("<Q", content, place + 8)[0] + moved
        struct.pack_into("<Q", content, place + 8, digest % (1 << 64))
        struct.pack_into("<I", content, place + 16, zlib.crc32(content[place : place + 16]))
    head = list(HEAD.unpack_from(content))
    sections, table = head[2], head[8]
    for row in range(table, table + sections * ROW.size, ROW.size):
        offset, length, kind, _ = ROW.unpack_from(content, row)
        section = content[offset : offset + length]
        if section != before[offset : offset + length]:
            ROW.pack_into(content, row, offset, length, kind, crc32c(section))
    head[9] = crc32c(content[table : table + sections * ROW.size])
    HEAD.pack_into(content, 0, *head)
    struct.pack_into("<I", content, HEAD.size, crc32c(content[: HEAD.size]))
    path.write_bytes(content)
