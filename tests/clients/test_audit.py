"""The audit log. Its lines are those of ZooKeeper 3.9: run the first test with `--server zookeeper` and ZOOKEEPER_JARS."""

import json
import signal

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from support.client import four_letter_command, words_table
from support.expect import equal
from support.server import SMALL_LOG, Corral, ZooKeeper, jar_folders
from support.wait import wait_until

LIMIT_S = 60
LOG4J = """
appender.a.type=File
appender.a.name=A
appender.a.fileName=audit.log
appender.a.layout.type=PatternLayout
appender.a.layout.pattern=%d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{2}: %m%n
logger.a.name=org.apache.zookeeper.audit.Slf4jAuditLogger
logger.a.level=info
logger.a.additivity=false
logger.a.appenderRef.a.ref=A
rootLogger.level=warn
"""
# Operation, path, type and result of what `drive` does, by whom: ANN, or BOB, who proves nothing but his address.
ANN, BOB, SERVER = "ann", "bob", "server"
EXPECTED = [
    (SERVER, "serverStart", None, None, "success"),
    (ANN, "create", "/a", "persistent", "success"),
    (ANN, "create", "/a", "persistent", "failure"),
    (ANN, "create", "/a/s-0000000000", "persistent_sequential", "success"),
    (ANN, "create", "/a/e", "ephemeral", "success"),
    (ANN, "create", "/a/c", "persistent", "success"),
    (ANN, "setData", "/a", None, "success"),
    (ANN, "setData", "/a", None, "failure"),
    (ANN, "setAcl", "/a/c", None, "success"),
    (ANN, "setAcl", "/a/c", None, "failure"),
    (ANN, "delete", "/a", None, "failure"),
    (ANN, "delete", "/missing", None, "failure"),
    (ANN, "create", "/m", "persistent", "success"),
    (ANN, "setData", "/m", None, "success"),
    (ANN, "delete", "/a/c", None, "success"),
    (ANN, "multiOperation", None, None, "failure"),
    (ANN, "create", "/closed", "persistent", "success"),
    (BOB, "setData", "/closed", None, "failure"),
    (BOB, "create", "/closed/x", "persistent", "failure"),
    (SERVER, "ephemeralZNodeDeletionOnSessionCloseOrExpire", "/a/e", None, "success"),
    (SERVER, "serverStop", None, None, "invoked"),
]


def connect(server):
    client = KazooClient(f"{server.address[0]}:{server.address[1]}", timeout=30)
    client.start(LIMIT_S)
    return client


def refused(why, call, *arguments, **named):
    with pytest.raises(why):
        call(*arguments, **named)


def drive(server):
    """Writes of all kinds, some of them refused; gives the sessions of ANN and BOB."""
    ann, bob = connect(server), connect(server)
    ann.add_auth("digest", "ann:secret")
    sessions = {f"0x{client.client_id[0]:x}": name for client, name in ((ann, ANN), (bob, BOB))}
    ann.create("/a")
    refused(NodeExistsError, ann.create, "/a")
    ann.create("/a/s-", sequence=True)
    ann.create("/a/e", ephemeral=True)
    ann.create("/a/c")
    ann.set("/a", b"x")
    refused(BadVersionError, ann.set, "/a", b"x", version=9)
    ann.set_acls("/a/c", OPEN_ACL_UNSAFE)
    refused(BadVersionError, ann.set_acls, "/a/c", OPEN_ACL_UNSAFE, version=9)
    refused(NotEmptyError, ann.delete, "/a")
    refused(NoNodeError, ann.delete, "/missing")
    for paths in (("/m", "/a/c"), ("/m2", "/missing")):
        multi = ann.transaction()
        multi.create(paths[0])
        multi.set_data(paths[0], b"x")
        multi.check(paths[0], -1)
        multi.delete(paths[1])
        multi.commit()
    ann.create("/closed", acl=[make_digest_acl("ann", "secret", all=True)])
    refused(NoAuthError, bob.set, "/closed", b"x")
    refused(NoAuthError, bob.create, "/closed/x")
    for client in (ann, bob):
        client.stop()
        client.close()
    return sessions


def fields(line):
    """The fields of a line, without time, level and logger."""
    head, text = line.split(": ", 1)
    time, level, logger = head.rsplit(" ", 2)
    found = dict(field.split("=", 1) for field in text.split("\t"))
    equal(level, "ERROR" if found["result"] == "failure" else "INFO")
    equal(logger, "audit.Slf4jAuditLogger")
    return found


def told(found, sessions):
    """As in EXPECTED, after a look at who it was."""
    name = sessions[found["session"]] if "ip" in found else SERVER
    users = {SERVER: None, ANN: {"127.0.0.1", "ann"}, BOB: {"127.0.0.1"}}[name]
    if users:
        equal((set(found["user"].split(",")), found["ip"]), (users, "127.0.0.1"))
    if found["operation"] == "setAcl":
        equal(found["acl"], "world:anyone:cdrwa")
    return name, found["operation"], found.get("znode"), found.get("znode_type"), found["result"]


@pytest.fixture
def start():
    started = []

    def begin(server):
        started.append(server.start())
        return server

    yield begin
    for server in started:
        server.dispose()


def audited(start, **more):
    settings = {"audit.enabled": "true", **{f"audit.{key}": value for key, value in more.items()}}
    return start(Corral(settings={**SMALL_LOG, **settings}))


def audit_log(server):
    return server.directory / "data" / "audit.log"


def zookeeper():
    if not jar_folders():
        pytest.skip("the audit log needs Log4j beside ZooKeeper: set ZOOKEEPER_JARS to the jars of pyspark")
    server = ZooKeeper(settings={"audit.enable": "true", "extendedTypesEnabled": "true"})
    (server.directory / "log4j2.properties").write_text(LOG4J)
    server.java_options = (f"-Dlog4j2.configurationFile={server.directory}/log4j2.properties",)
    return server


def test_lines_are_those_of_zookeeper(options, start):
    if options.server == "zookeeper":
        server = start(zookeeper())
        path = server.directory / "audit.log"
    else:
        server = audited(start)
        path = audit_log(server)
    sessions = drive(server)
    server.stop()
    lines = [told(fields(line), sessions) for line in path.read_text().splitlines()]
    equal(lines, EXPECTED)


def test_lines_of_json_in_files_that_are_full(start):
    server = audited(start, format="json", file_bytes_max=1000, files_retained=2)
    sessions = drive(server)
    server.stop()
    log = audit_log(server)
    names = sorted(path.name for path in log.parent.glob("audit.log*"))
    equal(names, ["audit.log", "audit.log.1", "audit.log.2"])
    texts = [(log.parent / name).read_text() for name in reversed(names)]
    assert all(len(text) <= 1000 for text in texts)
    lines = [told(json.loads(line), sessions) for text in texts for line in text.splitlines()]
    equal(lines, EXPECTED[-len(lines) :])


def test_a_file_that_was_moved_away_begins_anew_at_sighup(start):
    server = audited(start)
    log = audit_log(server)
    moved = log.with_suffix(".moved")
    with server.client() as client:
        client.create("/before")
        wait_until(lambda: "/before" in log.read_text(), "the first line is written")
        log.rename(moved)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: client.set("/before", b"") and log.exists() and "setData" in log.read_text(), "it begins anew")
    assert "create" not in log.read_text()


def metric(server, name):
    return int(words_table(four_letter_command(server.address, "mntr"), "\t")[f"zk_audit_{name}"])


class NoDirectory:
    """A server whose audit log cannot be written, because its directory is gone, until it comes back."""

    def __init__(self, start, when_full):
        self.server = audited(start, file="logs/audit.log", queue_bytes_max=65536, when_full=when_full)
        self.logs, self.away = self.server.directory / "logs", self.server.directory / "away"
        self.logs.rename(self.away)
        self.logs.write_text("a file in its place")
        self.server.process.send_signal(signal.SIGHUP)

    def mend(self):
        self.logs.unlink()
        self.away.rename(self.logs)

    def lines(self):
        return (self.logs / "audit.log").read_text().count("operation=create")


# More than fit into the queue.
WRITES = 3000


def test_writes_wait_for_the_audit_log_and_none_is_missing(start):
    broken = NoDirectory(start, "hold")
    server = broken.server
    writer, reader = connect(server), connect(server)
    answers = [writer.create_async(f"/n{number}") for number in range(WRITES)]
    wait_until(lambda: metric(server, "queued_bytes") > 65536, "the queue is full")
    with pytest.raises(writer.handler.timeout_exception):
        answers[-1].get(timeout=1)
    assert reader.exists("/n0"), "reads are served"
    broken.mend()
    for answer in answers:
        answer.get(timeout=LIMIT_S)
    wait_until(lambda: broken.lines() == WRITES, "every write is in the audit log")
    equal(metric(server, "dropped"), 0)
    assert "the audit log is written again" in server.log()


def test_records_are_dropped_and_counted_where_writes_must_not_wait(start):
    broken = NoDirectory(start, "drop")
    writer = connect(broken.server)
    for answer in [writer.create_async(f"/n{number}") for number in range(WRITES)]:
        answer.get(timeout=LIMIT_S)
    wait_until(lambda: "records of the audit log are dropped" in broken.server.log(), "the log tells of it")
    broken.mend()
    writer.create("/after")
    wait_until(lambda: broken.lines() + metric(broken.server, "dropped") == WRITES + 1, "every write is written or counted")
    assert broken.lines() and metric(broken.server, "dropped")
