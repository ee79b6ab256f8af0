"""The values that the generator draws from: paths, data, versions, flags, ACLs, credentials, good and bad."""

from ensemble import follower

ROOT = "/d"
OPEN, CONFIG_ACL = [[31, "world", "anyone"]], [[1, "world", "anyone"]]
NAMES = ("a", "b", "c", "a/x", "a/y", "b/x", "a/x/1", "e", "s", "é", "日本")
WATCHED = (ROOT, "/d/a", "/d/b", "/d/a/x", "/d/c", "/d/e", "/", "/zookeeper", "/d/b/x", "/none")
CONFIG_PATH = "/zookeeper/config"
# The membership of an ensemble cannot be compared with a standalone ZooKeeper.
IS_ENSEMBLE = follower.ensemble_size() > 1
SYSTEM_PATHS = ("/", "/zookeeper", *(() if IS_ENSEMBLE else (CONFIG_PATH,)), "/zookeeper/quota")
BAD_PATHS = (
    None, "", "d", "d/a", "//", "//d", "/d/", "/d//a", "/d/.", "/d/..", "/d/./a", "/d/../a", "/d/\0", "/d/\x01", "/d/a\x1f",
    "/d/\x7f", "/d/\x9f", "/d/\ue000", "/d/\uf8ff", "/d/\ufff0", "/d/\uffff", "/d/\U0001f600", "/.", "/..", "/d/a/", ".", "..",
)  # fmt: skip
ODD_PATHS = ("/d/...", "/d/.a", "/d/a..b", "/d/ ", "/d/\xa0", "/d/\ufdd0", "/d/" + "n" * 300, "/dd", "/d/é/ö", "/e", "/d2")
QUOTA_PATHS = (
    "/zookeeper/quota/d", "/zookeeper/quota/d", "/zookeeper/quota/d/a", "/zookeeper/quota/d/zookeeper_limits",
    "/zookeeper/quota/d/zookeeper_stats", "/zookeeper/quota/d/a/zookeeper_limits", "/zookeeper/quota/d/a/zookeeper_stats",
)  # fmt: skip
# Only texts that both servers can read.
QUOTA_TEXTS = (
    "count=3,bytes=-1", "count=-1,bytes=10", "count=5,bytes=100=;byteHardLimit=20;countHardLimit=4", "count=2,bytes=2",
    "count=2,bytes=2=;byteHardLimit=-1;countHardLimit=2", "count=-1,bytes=-1=;byteHardLimit=5", "count=100,bytes=-1",
    "count=-1,bytes=-1=;countHardLimit=3", "count=-1,bytes=-1=;byteHardLimit=1500;countHardLimit=10",
)  # fmt: skip
USAGE_TEXTS = ("count=0,bytes=0", "count=2,bytes=7", "count=1,bytes=0")
DATA = ("", "x", "data", "\0\1\2\xff", None, 100, 1000)
TTLS = (1, 1000, 60_000, 2**40 - 1, 10_000_000)
BAD_TTLS = (0, -1, 2**40, 2**63 - 1, -(2**63))
BAD_FLAGS = (5, 6, 7, 8, -1, 100, 2**31 - 1, -(2**31))
VERSIONS = (-1, 0, 1, 2, 3, -2, 7, 2**31 - 1, -(2**31))
ACLS = (
    [[31, "world", "anyone"]], [[1, "world", "anyone"]], [[0, "world", "anyone"]], [[63, "world", "anyone"]],
    [[1, "world", "anyone"], [30, "digest", "ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM="]],
    [[31, "digest", "ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM="]], [[31, "auth", ""]], [[31, "auth", "ignored"]],
    [[31, "ip", "127.0.0.1"]], [[31, "ip", "10.0.0.0/8"]], [[31, "ip", "127.0.0.0/8"]], [[31, "ip", "::1"]],
    [[3, "world", "anyone"], [12, "ip", "127.0.0.1"]], [[31, "world", "anyone"], [31, "world", "anyone"]],
    [[1, "world", "anyone"], [16, "auth", ""]], [[4, "world", "anyone"]], [[27, "world", "anyone"]], [[-1, "world", "anyone"]],
    [[31, "digest", "a:b:"]], [[31, "digest", ":x"]], [[8, "world", "anyone"], [21, "world", "anyone"]],
    [[1, "world", "anyone"], [2, "digest", "eve:abcdefgh"], [16, "digest", "ann:7RJfAeIvrl4zdj6sS2fXrQHDvHM="]],
)  # fmt: skip
BAD_ACLS = (
    None, [], -1, [[31, "world", "someone"]], [[31, "digest", "nocolon"]], [[31, "digest", "a:"]], [[31, "nosuch", "x"]],
    [[31, None, "anyone"]], [[31, "world", None]], [[31, "", ""]], [[31, "ip", "not an ip"]], [[31, "ip", "127.0.0.1/33"]],
    [[31, "x509", "CN=a"]], [[31, "sasl", "ann"]], [[31, "super", ""]], [[31, "digest", "a:b:c"]], [[31, "digest", ""]],
    [[31, "ip", "::1/129"]], [[31, "ip", "1.2.3"]], [[31, "ip", ""]], [[31, "world", "anyone"], [31, "nosuch", "x"]],
)  # fmt: skip
AUTHS = (
    (0, "digest", "ann:secret"), (0, "digest", "ann:secret"), (0, "digest", "bob:secret"), (0, "ip", ""), (0, "ip", None),
    (0, "digest", "nocolon"), (7, "digest", "ann:secret"), (0, "digest", "super:superpw"), (0, "digest", "super:wrong"),
    (0, "digest", ""), (0, "digest", ":"),
)  # fmt: skip
FATAL_AUTHS = ((0, "world", "anyone"), (0, "nosuch", "x"), (0, None, "x"), (0, "", ""), (0, "sasl", "x"), (0, "digest", None))
UNKNOWN_OPS = (0, 10, 13, 23, 99, 108, 499, 999, -1, -2, 2**31 - 1)
PREFIXES = ("/", "/d", "/d/a", "", None, "/x", " ", "/d/e")
RAW = (
    "fffffffe", "00100000", "7fffffff", "80000000", "00000000", "0000000400000001", "00000007" + "00" * 7, "ffffffff",
)  # fmt: skip
# What corral does unlike ZooKeeper. These are the last step of a sequence, because the servers part there.
LAST_BURSTS = (
    (["deleteContainer", "/d/c"],), (["createSession", 30_000],), tuple(["auth", 0, "digest", f"user{i}:secret"] for i in range(16)),
    (["create", "/d/\ud800", "", OPEN, 0],), (["getData", "/d/\udfff", False],), (["sync", "\ud800"],),
    (["setACL", ROOT, [[31, "digest", "a:\udc00"]], -1],), (["create", "/d/negative", "", -2, 0],),
    (["create", "/d/long", "", [[31, "ip", f"10.0.{i >> 8}.{i & 255}"] for i in range(257)], 0],),
    (["multiRead", [["getData", ROOT, False], ["delete", "/d/a", -1]]],), (["sasl", ""],), (["sasl", None],), (["sasl", "token"],),
    (["sasl", "\0ann\0secret"],), (["sasl", 1000],),
)  # fmt: skip
# What no multi may hold.
NO_PARTS = (["getData", ROOT, False], ["setACL", ROOT, OPEN, -1], ["sync", ROOT], ["multi", []])
RECONFIGS = ((None, None, None, -1), ("", "", "", -1), (None, "1", None, 0), ("server.2=a:1:2;3", None, None, -1))


def about_membership(steps):
    return CONFIG_PATH in str(steps) or "reconfig" in str(steps)
