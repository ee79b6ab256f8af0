"""The largest things: whatever can be created can be listed, read and deleted."""

import pytest

from support import jute
from support.client import Closed
from support.expect import equal, refuses

HEADER_BYTES = 8
BAD_ARGUMENTS = -8
# The longest name that corral creates.
CORRAL_NAME_BYTES_MAX = 16 << 10


def largest_create(path, data):
    """The frame of a create whose path or data was sized to fill it exactly."""
    body = jute.int32(1) + jute.int32(jute.CREATE) + jute.create_body(path, data)
    equal(len(body), jute.FRAME_BYTES_MAX)
    return body


def room(path=""):
    """Bytes that a largest create leaves for more path or data."""
    return jute.FRAME_BYTES_MAX - HEADER_BYTES - len(jute.create_body(path, b""))


def test_the_largest_data(context):
    client = context.client()
    path = f"{context.root(client)}/data"
    data = b"d" * room(path)
    client.send_frame(largest_create(path, data))
    equal(client.reply().error, 0)
    equal(client.get(path)[0], data)
    equal(client.children(path.rpartition("/")[0]), ["data"])
    client.set(path, data[:100])
    client.delete(path)


def test_the_longest_name(context):
    client = context.client()
    root = context.root(client)
    name = "n" * (CORRAL_NAME_BYTES_MAX if context.is_corral else room(f"{root}/"))
    if context.is_corral:
        refuses(BAD_ARGUMENTS, client.create, f"{root}/{name}n")
        client.create(f"{root}/{name}")
    else:
        client.send_frame(largest_create(f"{root}/{name}", b""))
        equal(client.reply().error, 0)
    equal(client.children(root), [name])
    equal(client.get(f"{root}/{name}", watch=True)[0], b"")
    other = context.client()
    other.delete(f"{root}/{name}")
    client.sync()
    equal(client.take_events(), [(jute.DELETED, f"{root}/{name}")])
    equal(client.children(root), [])


def test_a_list_longer_than_any_limit_on_replies(context):
    if not context.is_corral:
        pytest.skip("a ZooKeeper needs more heap than it has by default")
    client = context.client()
    root = context.root(client)
    count, together = 4500, 50
    names = [f"{number:04}" + "n" * (CORRAL_NAME_BYTES_MAX - 4) for number in range(count)]
    for first in range(0, count, together):
        some = names[first:first + together]
        client.multi(*[(jute.CREATE, jute.create_body(f"{root}/{name}", b"")) for name in some])
    equal(client.children(root), names)
    equal(client.exists(root).num_children, count)
    for first in range(0, count, together):
        some = names[first:first + together]
        client.multi(*[(jute.DELETE, jute.delete_body(f"{root}/{name}")) for name in some])
    equal(client.children(root), [])


def test_one_byte_more_closes(context):
    client = context.client()
    path = f"{context.root(client)}/data"
    try:
        client.send_frame(largest_create(path, b"d" * room(path)) + b"\0")
        client.reply()
    except (Closed, ConnectionError):
        pass
    else:
        raise AssertionError("a frame beyond the limit was answered")
    other = context.client()
    other.sync()
    equal(other.children(path.rpartition("/")[0]), [])
