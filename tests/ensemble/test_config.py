"""The membership in /zookeeper/config: what it says, who may change it, and what a change and a refusal do."""

from ensemble.cluster import SUPER
from ensemble.config import CONFIG, lines_and_version, read, reconfig
from ensemble.sessions import connect
from support import jute
from support.expect import equal, refuses

BAD_ARGUMENTS, MARSHALLING, NO_AUTH, BAD_VERSION = -8, -5, -102, -103


def test_every_server_shows_the_list(ensemble):
    texts = set()
    for member in ensemble.members:
        with connect(member) as client:
            client.sync()
            text, stat = read(client)
            lines, version = lines_and_version(text)
            equal(lines, [f"server.{number}={spec}" for number, spec in sorted(ensemble.specs.items())])
            equal((stat.version, stat.mzxid, stat.czxid, stat.ctime), (-1, version, 0, 0))
            equal((stat.data_length, stat.aversion), (len(text), -1))
            equal(client.get_acl(CONFIG)[0], [(jute.READ, "world", "anyone")])
            texts.add(text)
    equal(len(texts), 1, "all show the same")


def test_only_an_authorised_client_changes_it(ensemble):
    for member in (ensemble.leader(), ensemble.followers()[0]):
        with connect(member) as client:
            before, _ = read(client)
            refuses(NO_AUTH, reconfig, client)
            refuses(NO_AUTH, client.set, CONFIG, b"x")
            refuses(BAD_VERSION, reconfig, client, version=5)
            refuses(BAD_ARGUMENTS, reconfig, client, joining="x")
            refuses(MARSHALLING, reconfig, client, leaving="x")
            equal(read(client)[0], before)
            client.auth("digest", SUPER)
            text, stat = reconfig(client)
            version = lines_and_version(text)[1]
            equal((version, version), (stat.mzxid, client.zxid), "the version is the zxid")
            reconfig(client, version=version)
            refuses(BAD_VERSION, reconfig, client, version=version)


def test_an_address_changes_and_watches_fire(ensemble):
    watchers = [connect(member) for member in ensemble.members]
    for watcher in watchers:
        watcher.sync()
        read(watcher, watch=True)
    number, spec = max(ensemble.specs.items())
    other = spec.rsplit(";", 1)[0] + ";127.0.0.1:9"
    with connect(ensemble.followers()[0]) as client:
        client.auth("digest", SUPER)
        text, _ = reconfig(client, joining=f"server.{number}={other}")
        equal(lines_and_version(text)[0][-1], f"server.{number}={other}")
        for watcher in watchers:
            watcher.sync()
            equal(watcher.take_events(), [(3, CONFIG)])
            equal(read(watcher)[0], text)
            watcher.close()
        whole = ",".join(f"server.{number}={spec}" for number, spec in ensemble.specs.items())
        reconfig(client, members=whole)
