"""The membership in /zookeeper/config: what it says, who may change it, and each refusal of a change."""

from ensemble.cluster import SUPER
from ensemble.config import CONFIG, admin, lines_and_version, read, reconfig
from ensemble.sessions import connect
from support import jute
from support.client import Refused
from support.expect import equal, refuses

BAD_ARGUMENTS, MARSHALLING, NO_AUTH, BAD_VERSION = -8, -5, -102, -103
# What a client asks for, and its error.
REFUSED = [
    ({"joining": "x"}, BAD_ARGUMENTS),
    ({"joining": "server.9=h:1:2"}, BAD_ARGUMENTS),
    ({"joining": "server.9=h:1:1;3"}, BAD_ARGUMENTS),
    ({"joining": "server.9=h:1:2:boss;3"}, BAD_ARGUMENTS),
    ({"joining": "server.9=h:1:2;3;4"}, BAD_ARGUMENTS),
    ({"joining": "server.9=h:1:2|h:3:4:observer;3"}, BAD_ARGUMENTS),
    ({"joining": "server.8=10.9.8.7:1:2;3,server.9=10.9.8.7:1:5;6"}, BAD_ARGUMENTS),
    ({"joining": "server.x=h:1:2;3"}, MARSHALLING),
    ({"joining": "server.9=h:99999:2;3"}, MARSHALLING),
    ({"leaving": "x"}, MARSHALLING),
    ({"leaving": "1,2,3"}, BAD_ARGUMENTS),
    ({"members": "x=y"}, BAD_ARGUMENTS),
    ({"members": "server.1"}, BAD_ARGUMENTS),
    ({"members": "server.9=h:1:2:observer;3"}, MARSHALLING),
    ({"members": "server.9=h:1:2;3,version=zz"}, MARSHALLING),
    ({"version": 5}, BAD_VERSION),
    ({"version": 0}, BAD_VERSION),
    ({"version": -2}, BAD_VERSION),
]


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


def test_a_version_belongs_to_each_change(ensemble):
    with admin(ensemble.leader()) as client:
        before, _ = read(client)
        text, stat = reconfig(client)
        lines, version = lines_and_version(text)
        equal(lines, lines_and_version(before)[0], "nothing was asked for")
        equal((stat.mzxid, stat.version), (version, -1))
        assert version > lines_and_version(before)[1]
        equal(version, client.zxid, "the version is the zxid")
        reconfig(client, version=version)
        refuses(BAD_VERSION, reconfig, client, version=version)


def test_only_an_authorised_client_changes_it(ensemble):
    for member in (ensemble.leader(), ensemble.followers()[0]):
        with connect(member) as client:
            refuses(NO_AUTH, reconfig, client)
            refuses(BAD_VERSION, reconfig, client, version=5)
            refuses(BAD_ARGUMENTS, reconfig, client, joining="x")
            refuses(NO_AUTH, client.set, CONFIG, b"x")
            client.auth("digest", SUPER)
            reconfig(client)


def test_each_refusal_has_its_code(ensemble):
    for member in (ensemble.leader(), ensemble.followers()[0]):
        with admin(member) as client:
            before, _ = read(client)
            for asked, code in REFUSED:
                try:
                    reconfig(client, **asked)
                except Refused as refused:
                    equal(refused.code, code, str(asked))
                else:
                    raise AssertionError(f"{asked} is taken")
            equal(read(client)[0], before)


def test_an_address_changes_and_watches_fire(ensemble):
    watchers = [connect(member) for member in ensemble.members]
    for watcher in watchers:
        watcher.sync()
        read(watcher, watch=True)
    number, spec = max(ensemble.specs.items())
    other = spec.rsplit(";", 1)[0] + ";127.0.0.1:9"
    with admin(ensemble.followers()[0]) as client:
        text, _ = reconfig(client, joining=f"server.{number}={other}")
        equal(lines_and_version(text)[0][-1], f"server.{number}={other}")
        for watcher in watchers:
            watcher.sync()
            equal(watcher.take_events(), [(3, CONFIG)])
            equal(read(watcher)[0], text)
            watcher.close()
        whole = ",".join(f"server.{number}={spec}" for number, spec in ensemble.specs.items())
        reconfig(client, members=whole)


def test_the_list_outlives_the_leader(ensemble):
    with admin(ensemble.leader()) as client:
        text, _ = reconfig(client)
    ensemble.leader().kill()
    ensemble.start()
    for member in ensemble.members:
        with connect(member) as client:
            client.sync()
            equal(read(client)[0], text)
