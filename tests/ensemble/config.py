"""The membership in /zookeeper/config, read and changed."""

from ensemble.cluster import SUPER, mode_of
from ensemble.sessions import connect, connect_to_new_leader
from support import jute
from support.client import Closed, Refused
from support.expect import equal
from support.wait import wait_until

CONFIG = "/zookeeper/config"


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


def ask(members, **asked):
    """Sends a reconfig to whichever of the members leads; gives the lines of the new list."""
    with connect_to_new_leader(members) as client:
        client.auth("digest", SUPER)
        text, stat = reconfig(client, **asked)
        equal(stat.mzxid, lines_and_version(text)[1])
        return lines_and_version(text)[0]


def serves_as(member, modes):
    wait_until(lambda: mode_of(member) in modes, f"the server is {' or '.join(modes)}")


def shows_list_of(member, numbers):
    """Waits until the member shows a list of these servers."""

    def shown():
        try:
            with connect(member) as client:
                client.sync()
                return {int(line.split("=")[0].removeprefix("server.")) for line in lines_and_version(read(client)[0])[0]}
        except (Closed, Refused, OSError):
            # Its leader went meanwhile.
            return None

    wait_until(lambda: shown() == set(numbers), f"the list is of {numbers}")
