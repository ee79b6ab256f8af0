"""Four-letter commands."""

import re
import socket
import struct
import time
from datetime import datetime, timezone

import pytest

from support import jute
from support.client import Connection, exists_or_none, four_letter_command, words_table
from support.expect import equal
from support.wait import wait_until

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
    equal(four_letter_command(context.address, "ruok"), "imok")
    equal(four_letter_command(context.address, "isro"), "rw")


def test_srvr(context):
    client = context.client()
    context.root(client)
    text = four_letter_command(context.address, "srvr")
    assert text.endswith("\n"), repr(text)
    check_lines(text.splitlines(), SRVR_LINES)
    table = words_table(text, ":")
    equal(int(table["Zxid"], 16), client.zxid, "zxid")
    client.create(f"{context.path}/more")
    equal(int(words_table(four_letter_command(context.address, "srvr"), ":")["Node count"]), int(table["Node count"]) + 1)


def test_stat_lists_the_connections(context):
    client = context.client()
    port = client.socket.getsockname()[1]
    lines = four_letter_command(context.address, "stat").splitlines()
    equal(lines[1], "Clients:")
    blank = lines.index("")
    for line in lines[2:blank]:
        assert re.fullmatch(r" /127\.0\.0\.1:\d+\[[0-9a-f]+\]\(queued=\d+,recved=\d+,sent=\d+\)", line), line
    assert any(f":{port}[" in line for line in lines[2:blank]), f"own connection {port} is not in {lines}"
    check_lines([lines[0], *lines[blank + 1 :]], SRVR_LINES)


def test_mntr(context):
    client = context.client()
    before = words_table(four_letter_command(context.address, "mntr"), "\t")
    missing = [key for key in MNTR_KEYS if key not in before]
    equal(missing, [], "missing keys")
    equal(before["zk_server_state"], "standalone")
    root = context.root(client)
    client.create(f"{root}/e", flags=1)
    client.get(root, watch=True)
    after = words_table(four_letter_command(context.address, "mntr"), "\t")
    for key, grown in (("zk_znode_count", 2), ("zk_ephemerals_count", 1), ("zk_watch_count", 1)):
        equal(int(after[key]), int(before[key]) + grown, key)


def test_trailing_bytes_are_ignored(context):
    equal(four_letter_command(context.address, "ruok\n"), "imok")


def test_unknown_words_close_without_an_answer(context):
    for word in ("abcd", "GET ", "RUOK", "quit"):
        equal(four_letter_command(context.address, word), "", word)


CONF_KEYS = (
    "clientPort secureClientPort dataDir dataDirSize dataLogDir dataLogSize tickTime maxClientCnxns minSessionTimeout "
    "maxSessionTimeout clientPortListenBacklog serverId"
).split()
ENVI_KEYS = (
    "zookeeper.version host.name java.version java.vendor java.home java.class.path java.library.path java.io.tmpdir "
    "java.compiler os.name os.arch os.version user.name user.home user.dir os.memory.free os.memory.max os.memory.total"
).split()
CONS_LINE = (
    r" /127\.0\.0\.1:(?P<port>\d+)\[(?P<interest>[0-9a-f]+)\]\(queued=(?P<queued>\d+),recved=(?P<recved>\d+),sent=(?P<sent>\d+)"
    r"(,sid=(?P<sid>0x[0-9a-f]+),lop=(?P<lop>\w+),est=(?P<est>\d+),to=(?P<to>\d+)(,lcxid=(?P<lcxid>0x[0-9a-f]+))?"
    r",lzxid=(?P<lzxid>0x[0-9a-f]+),lresp=(?P<lresp>\d+),llat=\d+,minlat=\d+,avglat=\d+,maxlat=\d+)?\)"
)
DATE = "%a %b %d %H:%M:%S %Z %Y"


def connection_lines(context):
    """The lines of `cons` as dictionaries, by port."""
    text = four_letter_command(context.address, "cons")
    assert text.endswith(")\n\n"), repr(text)
    lines = [re.fullmatch(CONS_LINE, line) for line in text[:-2].split("\n")]
    assert all(lines), text
    return {int(line["port"]): line.groupdict() for line in lines}


def port_of(connection):
    return connection.socket.getsockname()[1]


def dump_sets(lines):
    """The buckets of one part of `dump`: the time each is due, and its elements."""
    buckets, elements = re.fullmatch(r"\w+ Sets \((\d+)\)/\((\d+)\):", lines[0]).groups()
    found = []
    for line in lines[1:]:
        if line.startswith("\t"):
            found[-1][2].append(line[1:])
        else:
            count, date = re.fullmatch(r"(\d+) expire at (.*):", line).groups()
            due = datetime.strptime(date, DATE).replace(tzinfo=timezone.utc).timestamp()
            found.append((int(count), due, []))
    # ZooKeeper also lists buckets that have become empty.
    equal((len(found), sum(len(own) for _, _, own in found)), (int(buckets), int(elements)))
    for count, _, own in found:
        equal(count, len(own))
    return [(due, own) for _, due, own in found]


def test_conf(context):
    text = four_letter_command(context.address, "conf")
    table = dict(line.split("=", 1) for line in text.splitlines())
    equal(list(table), CONF_KEYS)
    expect = {"clientPort": context.address[1], "secureClientPort": -1, "tickTime": 500, "maxClientCnxns": 0}
    expect |= {"minSessionTimeout": 1000, "maxSessionTimeout": 10_000}
    equal({key: int(table[key]) for key in expect}, expect)
    assert table["dataDir"].startswith("/") and int(table["dataDirSize"]) > 0, text


def test_dirs(context):
    client = context.client()
    context.root(client)

    def told():
        text = four_letter_command(context.address, "dirs")
        equal(re.fullmatch(r"datadir_size: (\d+)\nlogdir_size: (\d+)\n", text) is not None, True, text)
        sizes = words_table(text, ":")
        assert int(sizes["datadir_size"]) > 0, text
        conf = dict(line.split("=", 1) for line in four_letter_command(context.address, "conf").splitlines())
        return (sizes["datadir_size"], sizes["logdir_size"]) == (conf["dataDirSize"], conf["dataLogSize"])

    # The log makes files ahead by itself, so the two words may be answered on either side of that.
    wait_until(told, "dirs and conf tell the same sizes")


def test_envi(context):
    head, *lines = four_letter_command(context.address, "envi").splitlines()
    equal(head, "Environment:")
    table = dict(line.split("=", 1) for line in lines)
    equal(list(table), ENVI_KEYS)
    equal(table["os.name"], "Linux")
    for key in ENVI_KEYS[-3:]:
        assert re.fullmatch(r"\d+MB", table[key]), f"{key}={table[key]}"


def test_hash(context):
    lines = four_letter_command(context.address, "hash").splitlines()
    assert all(re.fullmatch(r"[0-9a-f]+: \d+", line) for line in lines), lines
    assert all(int(line.split(":")[0], 16) % 128 == 0 for line in lines), lines


def test_the_trace_mask(context):
    before = four_letter_command(context.address, "gtmk")
    assert re.fullmatch(r"-?\d+", before), before

    def set_mask(value):
        with socket.create_connection(context.address, timeout=60) as connection:
            connection.sendall(b"stmk" + struct.pack(">q", value))
            return connection.recv(100).decode()

    for mask in (274, -1, int(before)):
        equal((set_mask(mask), four_letter_command(context.address, "gtmk")), (str(mask), str(mask)))


def test_the_trace_mask_byte_by_byte(context):
    if not context.is_corral:
        pytest.skip("ZooKeeper wants all eight bytes at once")
    with Connection(context.address) as connection:
        for byte in b"stmk" + struct.pack(">q", 306):
            connection.send_bytes(bytes([byte]))
        equal(connection.take(3), b"306")
        assert connection.is_closed()


def test_cons_counts_what_a_connection_does(context):
    client, idle = context.client(timeout_ms=7000), Connection(context.address)
    root = context.root(client)
    client.get(root)
    exists_or_none(client, f"{root}/none")
    client.ping()
    lines = connection_lines(context)
    own = lines[port_of(client)]
    expect = {"interest": "1", "queued": "0", "recved": "5", "sent": "5", "sid": hex(client.session_id), "lop": "PING"}
    expect |= {"to": "7000", "lcxid": "0x3", "lzxid": hex(client.zxid)}
    equal({key: own[key] for key in expect}, expect)
    assert abs(int(own["est"]) / 1000 - time.time()) < 60, own["est"]
    equal((lines[port_of(idle)]["recved"], lines[port_of(idle)]["sid"]), ("0", None))
    word = [line for line in lines.values() if line["interest"] == "0"]
    equal([(line["recved"], line["sent"], line["sid"]) for line in word], [("1", "0", None)], "the word's own connection")
    idle.drop()


def test_cons_names_the_last_operation(context):
    client = context.client()
    equal(connection_lines(context)[port_of(client)]["lop"], "SESS")
    root = context.root(client)
    calls = {
        "CREA": lambda: client.create(f"{root}/a"), "SETD": lambda: client.set(root, b""),
        "GETD": lambda: client.get(root), "EXIS": lambda: client.exists(root), "GETC": lambda: client.children(root),
        "GETA": lambda: client.get_acl(root), "SETA": lambda: client.set_acl(root, jute.OPEN_ACL),
        "SYNC": lambda: client.sync(root), "ADDW": lambda: client.add_watch(root, 0),
        "GETE": lambda: client.ephemerals(), "GETACN": lambda: client.count_descendants(root),
        "MULT": lambda: client.multi(), "DELE": lambda: client.delete(f"{root}/a"),
    }  # fmt: skip
    for code, call in calls.items():
        call()
        own = connection_lines(context)[port_of(client)]
        equal((own["lop"], own["lcxid"]), (code, hex(client.last_xid)))


def test_crst_resets_connections(context):
    client = context.client()
    context.root(client)
    equal(four_letter_command(context.address, "crst"), "Connection stats reset.\n")
    own = connection_lines(context)[port_of(client)]
    reset = {"recved": "0", "sent": "0", "lop": "NA", "lcxid": None, "lzxid": "0xffffffffffffffff", "lresp": "0"}
    equal({key: own[key] for key in reset}, reset)
    client.exists(context.path)
    own = connection_lines(context)[port_of(client)]
    equal((own["recved"], own["sent"], own["lop"], own["lcxid"]), ("1", "1", "EXIS", hex(client.last_xid)))


def test_srst_resets_the_server(context):
    client = context.client()
    context.root(client)
    equal(four_letter_command(context.address, "srst"), "Server stats reset.\n")
    table = words_table(four_letter_command(context.address, "srvr"), ":")
    equal((table["Received"], table["Sent"], table["Latency min/avg/max"]), ("1", "1", "0/0.0/0"))
    client.exists(context.path)
    table = words_table(four_letter_command(context.address, "mntr"), "\t")
    equal((table["zk_packets_received"], table["zk_cnt_readlatency"], table["zk_cnt_updatelatency"]), ("3", "1", "0"))


def test_dump(context):
    first, second = context.client(timeout_ms=5000), context.client(timeout_ms=10_000)
    root = context.root(first)
    for client, name in ((first, "b"), (second, "c"), (first, "a")):
        client.create(f"{root}/{name}", flags=jute.EPHEMERAL)
    lines = four_letter_command(context.address, "dump").splitlines()
    now = time.time()
    equal(lines[0], "SessionTracker dump:")
    ephemerals, connections = lines.index("ephemeral nodes dump:"), lines.index("Connections dump:")
    due = {session: due for due, own in dump_sets(lines[1:ephemerals]) for session in own}
    for client in (first, second):
        left_ms = (due[hex(client.session_id)] - now) * 1000
        # A tick of 500 ms, and dates of whole seconds.
        assert left_ms <= client.timeout_ms + 1500, (left_ms, client.timeout_ms)
    table = {}
    equal(lines[ephemerals + 1], f"Sessions with Ephemerals ({sum(line[0] != chr(9) for line in lines[ephemerals + 2 : connections])}):")
    for line in lines[ephemerals + 2 : connections]:
        if line.startswith("\t"):
            owned.append(line[1:])
        else:
            owned = table.setdefault(line.removesuffix(":"), [])
    equal(sorted(table[hex(first.session_id)]), [f"{root}/a", f"{root}/b"])
    equal(table[hex(second.session_id)], [f"{root}/c"])
    listed = [element for _, own in dump_sets(lines[connections + 1 :]) for element in own]
    for client in (first, second):
        assert f"ip: /127.0.0.1:{port_of(client)} sessionId: {hex(client.session_id)}" in listed, listed
    assert any(element.endswith(" sessionId: 0x0") for element in listed), "the word's own connection is missing"


def watch_lists(context, word):
    """`wchc` or `wchp` as a dictionary."""
    text = four_letter_command(context.address, word)
    assert text.endswith("\n"), repr(text)
    table = {}
    for line in text[:-1].splitlines():
        if line.startswith("\t"):
            found.append(line[1:])
        else:
            assert line not in table, f"{line} comes twice"
            found = table.setdefault(line, [])
    return table


def test_watches_of_several_kinds(context):
    """Only what stands in the data table is told: data and exists watches, and those that persist."""
    context.finish()
    clients = [context.client() for _ in range(4)]
    root = context.root(clients[0])
    paths = {name: clients[0].create(f"{root}/{name}") for name in ("data", "kids", "stays", "deep")}
    for client in clients:
        client.sync()
        client.get(paths["data"], watch=True)
    clients[1].children(paths["kids"], watch=True)
    clients[2].add_watch(paths["stays"], 0)
    clients[2].add_watch(paths["deep"], 1)
    equal(exists_or_none(clients[3], f"{root}/none", watch=True), None)
    sessions = [hex(client.session_id) for client in clients]
    by_path = {paths["data"]: sessions, paths["stays"]: [sessions[2]], paths["deep"]: [sessions[2]]}
    by_path[f"{root}/none"] = [sessions[3]]
    by_session = {session: [paths["data"]] for session in sessions}
    by_session[sessions[2]] = sorted([paths["data"], paths["stays"], paths["deep"]])
    by_session[sessions[3]] = sorted([paths["data"], f"{root}/none"])
    listed = {path: sorted(found) for path, found in watch_lists(context, "wchp").items()}
    equal(listed, {path: sorted(found) for path, found in by_path.items()})
    listed = {session: sorted(found) for session, found in watch_lists(context, "wchc").items()}
    equal(listed, by_session)
    equal(four_letter_command(context.address, "wchs"), "4 connections watching 4 paths\nTotal watches:7\n")
    # The one-shot watches of what is written go.
    clients[3].set(paths["data"], b"")
    for client in clients:
        client.sync()
    watching = 2 if context.is_corral else 4
    equal(four_letter_command(context.address, "wchs"), f"{watching} connections watching 3 paths\nTotal watches:3\n")


def test_many_ask_at_once(context):
    """Long answers are made few at a time; those who left meanwhile must not keep others waiting."""
    clients = [context.client() for _ in range(20)]
    askers = [socket.create_connection(context.address, timeout=60) for _ in range(60)]
    for number, asker in enumerate(askers):
        asker.sendall(("cons", "dump", "stat", "wchp")[number % 4].encode())
        if number % 3 == 0:
            asker.close()
    for number, asker in enumerate(askers):
        if number % 3 == 0:
            continue
        text = b""
        while piece := asker.recv(65536):
            text += piece
        asker.close()
        if number % 4 < 3:
            assert all(f":{port_of(client)}".encode() in text for client in clients), text
    wait_until(lambda: len(connection_lines(context)) == len(clients) + 1, "all askers are gone")
