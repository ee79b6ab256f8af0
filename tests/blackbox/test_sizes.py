"""The largest data and the longest list: all that can be created can be listed, read and deleted."""

import pytest

from support import jute
from support.client import Closed
from support.expect import equal

# The longest name that corral creates.
NAME_BYTES_MAX = 16 << 10


def test_the_largest_data(context):
    client = context.client()
    root = context.root(client)
    # The header of a request has eight bytes.
    data = b"d" * (jute.FRAME_BYTES_MAX - 8 - len(jute.create_body(f"{root}/data")))
    path = client.create(f"{root}/data", data)
    equal(client.get(path)[0], data)
    equal(client.children(root), ["data"])
    client.set(path, data[:100])
    client.delete(path)
    refused = context.client()
    with pytest.raises((Closed, ConnectionError)):
        refused.create(path, data + b"d")


def test_a_list_longer_than_any_limit_on_replies(context):
    if not context.is_corral:
        pytest.skip("a ZooKeeper needs more heap than it has by default")
    client = context.client()
    root = context.root(client)
    count, together = 4500, 50
    names = [f"{number:04}" + "n" * (NAME_BYTES_MAX - 4) for number in range(count)]
    for first in range(0, count, together):
        some = names[first : first + together]
        client.multi(*[(jute.CREATE, jute.create_body(f"{root}/{name}", b"")) for name in some])
    equal(client.children(root), names)
    equal(client.exists(root).num_children, count)
    for first in range(0, count, together):
        some = names[first : first + together]
        client.multi(*[(jute.DELETE, jute.delete_body(f"{root}/{name}")) for name in some])
    equal(client.children(root), [])
