"""The digest of the tree, on a server whose whole tree one client may read."""

from support.client import four_letter_command, words_table
from support.expect import equal
from support.snapshot_files import digest_of
from support.wait import wait_until

SETTINGS = {"corral": {}, "zookeeper": {}}


def test_digests_are_those_of_the_tree(context):
    """Of ZooKeeper's definition, on a ZooKeeper, too."""
    client = context.client()
    client.create(context.path, b"top")
    for number in range(5):
        client.create(f"{context.path}/{number}", bytes(range(number * 50)))
    client.create(f"{context.path}/large", bytes(100_000))
    client.create(f"{context.path}/large/child", None)
    client.create(f"{context.path}/ephemeral", b"", flags=1)
    client.delete(f"{context.path}/3")
    while client.set(context.path, b"to a multiple of 128").mzxid % 128:
        pass
    zxid = client.exists(context.path).mzxid

    def walk(path):
        data, stat = client.get(path)
        children = client.children(path)
        below = (walk(f"{path.rstrip('/')}/{name}") for name in children if path != "/zookeeper")
        return digest_of(path, data, stat) + sum(below)

    digest = walk("/") % (1 << 64)
    equal(client.exists(context.path).mzxid, zxid)

    def logged():
        lines = four_letter_command(context.address, "hash").splitlines()
        return dict(line.split(": ") for line in lines).get(f"{zxid:x}")

    equal(wait_until(logged, "the digest of this zxid"), str(digest))
    equal(words_table(four_letter_command(context.address, "mntr"), "\t")["zk_digest_mismatches_count"], "0")
