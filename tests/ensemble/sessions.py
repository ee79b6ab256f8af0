"""Sessions at the servers of an ensemble, which may have no leader just now."""

import time

from ensemble.cluster import LEADING, mode_of, pause, resume
from support import jute
from support.client import Client, Closed, Refused
from support.expect import equal
from support.wait import wait_until

# Longer than any test is held up.
TIMEOUT_MS = 60_000


def connect(member, limit_s=60, **options):
    """A session at this member, tried until it gives one."""
    return wait_until(lambda: session_at(member, **options), "a server gives a session", limit_s)


def session_at(member, **options):
    """A session at this member, or None."""
    try:
        client = Client(member.address, **{"timeout_ms": TIMEOUT_MS, **options})
    except (OSError, Closed):
        return None
    return client if client.session_id else None


def reconnect(client, member):
    """The client's session at another member."""
    client.drop()
    moved = connect(member, resume=client)
    equal(moved.session_id, client.session_id, "the session goes on")
    return moved


def seen(member, path):
    """Whether a client of the member sees the znode after a sync; its data, or None."""
    with connect(member) as client:
        client.sync()
        try:
            return client.get(path)[0]
        except Refused as refused:
            equal(refused.code, jute.NO_NODE, path)
            return None


def root(ensemble, name):
    """Creates a znode of the test's own and returns its path."""
    path = f"/{name}-{time.time_ns():x}"
    with connect(ensemble.leader()) as client:
        return client.create(path)


def write_behind(leader, followers, path, data):
    """The others write while their leader is paused, and one of them leads. Then it goes on."""
    pause(leader)
    try:
        with connect_to_new_leader(followers) as writer:
            writer.set(path, data)
    finally:
        resume(leader)


def connect_to_new_leader(members):
    """A session at whichever of the members leads now. One that led a moment ago, until a change of the list was complete, may
    never serve again."""

    def tried():
        leader = one_that_leads(members)
        return leader and session_at(leader)

    return wait_until(tried, "another server leads and gives a session")


def leader_of(members):
    """Whichever of the members leads, once one does."""
    return wait_until(lambda: one_that_leads(members), "another server leads")


def one_that_leads(members):
    return next((member for member in members if mode_of(member) == LEADING), None)
