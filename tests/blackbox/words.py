"""Four-letter words."""

import re

from support.client import Connection, four_letter_word, words_table
from support.suite import equal

SRVR_LINES = (
    r"Zookeeper version: .+",
    r"Latency min/avg/max: \d+/\d+(\.\d+)?/\d+",
    r"Received: \d+",
    r"Sent: \d+",
    r"Connections: \d+",
    r"Outstanding: \d+",
    r"Zxid: 0x[0-9a-f]+",
    r"Mode: standalone",
    r"Node count: \d+",
)
MNTR_KEYS = (
    "zk_version zk_server_state zk_ephemerals_count zk_num_alive_connections zk_avg_latency zk_min_latency zk_max_latency "
    "zk_outstanding_requests zk_znode_count zk_watch_count zk_global_sessions zk_packets_sent zk_packets_received "
    "zk_approximate_data_size zk_open_file_descriptor_count zk_max_file_descriptor_count"
).split()


def check_lines(lines, patterns):
    equal(len(lines), len(patterns), str(lines))
    for line, pattern in zip(lines, patterns):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"


def test_ruok_and_isro(context):
    equal(four_letter_word(context.address, "ruok"), "imok")
    equal(four_letter_word(context.address, "isro"), "rw")


def test_srvr(context):
    client = context.client()
    context.root(client)
    text = four_letter_word(context.address, "srvr")
    assert text.endswith("\n"), repr(text)
    check_lines(text.splitlines(), SRVR_LINES)
    table = words_table(text, ":")
    equal(int(table["Zxid"], 16), client.zxid, "zxid")
    client.create(f"{context.path}/more")
    equal(int(words_table(four_letter_word(context.address, "srvr"), ":")["Node count"]), int(table["Node count"]) + 1)


def test_stat_lists_the_connections(context):
    client = context.client()
    port = client.socket.getsockname()[1]
    lines = four_letter_word(context.address, "stat").splitlines()
    equal(lines[1], "Clients:")
    blank = lines.index("")
    for line in lines[2:blank]:
        assert re.fullmatch(r" /127\.0\.0\.1:\d+\[[0-9a-f]+\]\(queued=\d+,recved=\d+,sent=\d+\)", line), line
    assert any(f":{port}[" in line for line in lines[2:blank]), f"own connection {port} is not in {lines}"
    check_lines([lines[0], *lines[blank + 1 :]], SRVR_LINES)


def test_mntr(context):
    client = context.client()
    before = words_table(four_letter_word(context.address, "mntr"), "\t")
    missing = [key for key in MNTR_KEYS if key not in before]
    equal(missing, [], "missing keys")
    equal(before["zk_server_state"], "standalone")
    root = context.root(client)
    client.create(f"{root}/e", flags=1)
    client.get(root, watch=True)
    after = words_table(four_letter_word(context.address, "mntr"), "\t")
    for key, grown in (("zk_znode_count", 2), ("zk_ephemerals_count", 1), ("zk_watch_count", 1)):
        equal(int(after[key]), int(before[key]) + grown, key)


def test_trailing_bytes_are_ignored(context):
    equal(four_letter_word(context.address, "ruok\n"), "imok")


def test_words_byte_by_byte(context):
    with Connection(context.address) as connection:
        for byte in b"ruok":
            connection.send_bytes(bytes([byte]))
        equal(connection.take(4), b"imok")
        assert connection.is_closed()


def test_unknown_words_close_without_an_answer(context):
    for word in ("abcd", "GET ", "RUOK", "quit"):
        equal(four_letter_word(context.address, word), "", word)
