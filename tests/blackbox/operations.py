"""Operations of a multi, and the clients of a test about watches."""

from support import jute


def create(path, data=b"", flags=jute.PERSISTENT):
    return jute.CREATE, jute.create_body(path, data, flags)


def create2(path):
    return jute.CREATE2, jute.create_body(path)


def delete(path, version=-1):
    return jute.DELETE, jute.delete_body(path, version)


def set_data(path, data=b"", version=-1):
    return jute.SET_DATA, jute.set_body(path, data, version)


def check(path, version=-1):
    return jute.CHECK, jute.check_body(path, version)


def two_clients(context):
    """A watching client, a changing one, and this test's node."""
    watcher, other = context.client(), context.client()
    root = context.root(other)
    watcher.sync()
    return watcher, other, root
