"""What corral does unlike ZooKeeper on purpose. Each entry names its row in docs/compatibility.md, or how that begins.

The predicates are as narrow as they can be, because what they let pass is not compared.
"""

import json
from collections import namedtuple
from pathlib import Path

from differential import operations
from support.jute import INVALID_ACL, MARSHALLING_ERROR, UNIMPLEMENTED

# What an explanation means for the rest of the case: it goes on, the connection is closed on both sides, or the case ends because
# the servers hold different things.
SAME, CLOSE, PARTED = "same", "close", "parted"

Case = namedtuple("Case", "step ops op zookeeper corral")
Entry = namedtuple("Entry", "row applies verdict")
# The name of the step that compares the znodes after a case.
TREES = "the trees afterwards"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
ACL_ENTRIES_MAX, IDENTITIES_MAX = 256, 15


def error_of(message):
    return message[2] if message and len(message) > 3 else None


def sub_operations(case):
    """The operation itself and those inside it."""
    op = operations.plain(case.op) if case.op else ["none"]
    return [op, *op[1]] if op[0] in ("multi", "multiRead") else [op]


def wrong_password(case):
    options = case.step[2] if case.step[0] == "connect" else {}
    return options.get("password", "right") != "right" and case.zookeeper == ("closed",)


def rejected(name, error):
    return lambda case: case.op and operations.plain(case.op)[0] == name and error_of(case.corral) == error


def long_acl(case):
    longest = max((len(entry) for op in sub_operations(case) for entry in op if isinstance(entry, list)), default=0)
    return longest > ACL_ENTRIES_MAX and error_of(case.corral) == INVALID_ACL and error_of(case.zookeeper) != INVALID_ACL


def negative_count(case):
    writers = [op for op in sub_operations(case) if op[0] in ("create", "create2", "createContainer", "setACL")]
    counts = [part for op in writers for part in op[2:4]]
    return any(isinstance(count, int) and count < -1 for count in counts) and error_of(case.corral) == MARSHALLING_ERROR


def order_of_identities(case):
    """The ACLs are the same but for the order of what `auth` was replaced by: one entry for each identity, in no order."""
    messages = (case.zookeeper, case.corral)
    if case.step[0] == TREES:
        parts = [(message[:2], message[2], message[3:]) for message in messages if len(message) == 4]
    elif case.op and operations.plain(case.op)[0] == "getACL":
        parts = [((*message[:3], message[4]), *message[3]) for message in messages if error_of(message) == 0 and message[3]]
    else:
        return False
    return len(parts) == 2 and parts[0][::2] == parts[1][::2] and same_entries(parts[0][1], parts[1][1])


def same_entries(mine, theirs):
    """Whether two ACLs have the same entries, at least two of them proven identities of one mask."""
    masks = [entry[0] for entry in mine or () if entry[1] in (b"digest", b"sasl", b"x509")]
    return len(masks) > len(set(masks)) and sorted(mine) == sorted(theirs or ())


def beyond_the_plane(case):
    """A path echoed by sync or in an event: Java writes a character above U+FFFF as two halves of three bytes each."""
    return case.zookeeper != whole(case.zookeeper) == case.corral


def whole(message):
    """The message with such halves joined, and the lengths of the strings set right."""
    if not message or message[0] not in ("event",) and len(message) != 5:
        return message
    if message[0] == "event":
        return (*message[:5], joined(message[5]), message[6])
    path = joined(message[4][4:])
    return (*message[:4], len(path).to_bytes(4, "big") + path)


def joined(text):
    try:
        return text.decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16").encode()
    except UnicodeError:
        return text


def no_utf8(case):
    """The generator writes such strings only as half of a surrogate pair."""
    halves = any("\ud800" <= letter <= "\udfff" for letter in json.dumps(case.op, ensure_ascii=False))
    return halves and error_of(case.corral) == MARSHALLING_ERROR


def many_auths(case):
    return case.op and operations.plain(case.op)[0] == "auth" and len(case.ops) > IDENTITIES_MAX and case.corral == ("closed",)


def frame_without_bytes(case):
    """Netty takes it for a request and ignores it. ZooKeeper's other sockets close the connection as well."""
    return case.step[0] == "raw" and case.step[2][:8] == "00000000" and case.zookeeper == ("still open",) and case.corral == ("closed",)


def read_in_multi(case):
    """Both reject the request as undecodable. ZooKeeper sends a body behind the error."""
    same_head = case.zookeeper and case.corral and case.zookeeper[:3] == case.corral[:3]
    return sub_operations(case)[0][0] == "multiRead" and same_head and error_of(case.corral) == MARSHALLING_ERROR


ENTRIES = (
    Entry("resuming with a wrong password", wrong_password, CLOSE),
    Entry("deleteContainer (20) from a client", rejected("deleteContainer", UNIMPLEMENTED), PARTED),
    Entry("createSession (-10) from a client", rejected("createSession", UNIMPLEMENTED), PARTED),
    Entry("ACLs of more than 256 entries or 32 KiB,", long_acl, PARTED),
    Entry("vector counts below -1", negative_count, PARTED),
    Entry("strings that are no UTF-8", no_utf8, PARTED),
    Entry("a frame of 0 bytes", frame_without_bytes, PARTED),
    Entry("auth packets on one connection", many_auths, PARTED),
    Entry("order of the entries that `auth` stands for", order_of_identities, SAME),
    Entry("characters above U+FFFF in replies", beyond_the_plane, SAME),
    Entry("multiRead with a write in it", read_in_multi, SAME),
)


def find(case):
    """The entry that explains this difference, or None."""
    return next((entry for entry in ENTRIES if entry.applies(case)), None)


def undocumented():
    """Rows that the table of differences does not have."""
    rows = {line.split("|")[1].strip() for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")}
    return [entry.row for entry in ENTRIES if not any(row.startswith(entry.row) for row in rows)]
