"""The membership in /zookeeper/config, read and changed."""

from ensemble.cluster import SUPER
from ensemble.sessions import connect
from support import jute

CONFIG = "/zookeeper/config"


def admin(member):
    """A session that may change the list."""
    client = connect(member)
    client.auth("digest", SUPER)
    return client


def reconfig(client, **asked):
    """The new list and its Stat."""
    body = client.call(jute.RECONFIG, jute.reconfig_body(**asked))
    return body.buffer().decode(), body.stat()


def lines_and_version(text):
    *lines, version = text.split("\n")
    assert version.startswith("version="), text
    return lines, int(version.removeprefix("version="), 16)


def read(client, **options):
    data, stat = client.get(CONFIG, **options)
    return data.decode(), stat
