"""Writes that cost the server far more than the client: bounded before they are stored, or refused before they are logged."""

from support import jute
from support.expect import equal, refuses
from support.wait import wait_until

THROTTLED_OP = -127
ENTRIES_MAX = 256
CHECKS = 30_000
NAME_BYTES_MAX, PATH_LEVELS_MAX = 16 << 10, 1000
# The usage of a larger subtree is not counted at once.
COUNTED_AT_ONCE_MAX = 1000
OPS_A_MULTI = 500


def check(path):
    return jute.CHECK, jute.check_body(path)


def create(path):
    return jute.CREATE, jute.create_body(path)


def delete(path):
    return jute.DELETE, jute.delete_body(path)


def addresses(count):
    return tuple((jute.READ, "ip", f"10.9.{number // 250}.{number % 250}") for number in range(count))


def errors(results):
    return {error for _, error, _ in results if error}


def test_an_address_pattern_is_not_padded_without_limit(context):
    client = context.client()
    padded = f"10.0.0.1/{'0' * 3900}32"
    refuses(jute.INVALID_ACL, client.create, context.path, acl=((jute.ALL, "ip", padded), *jute.OPEN_ACL))
    client.create(context.path, acl=((jute.ALL, "ip", "10.0.0.1/032"), *jute.OPEN_ACL))


def test_checks_against_a_long_acl_are_refused_beyond_their_budget(context):
    client = context.client()
    for user in ("bob", "eve"):
        client.auth("digest", f"{user}:pw".encode())
    path = f"/{context.path[-12:]}"
    client.create(path, acl=(*addresses(ENTRIES_MAX - 1), *jute.OPEN_ACL))
    few = client.multi(*[check(path)] * 1000)
    equal(errors(few), set(), "a thousand are within it")
    refuses(THROTTLED_OP, client.multi, *[check(path)] * CHECKS)
    client.set(path, b"the server goes on")


def test_entries_for_auth_are_limited_by_what_they_stand_for(context):
    client = context.client()
    client.auth("digest", b"u" * 1500 + b":pw")
    wishes = tuple((perms, "auth", "") for perms in range(1, 12))
    refuses(jute.INVALID_ACL, client.create, context.path, acl=wishes)
    client.create(context.path, acl=wishes[:2])
    equal(len(client.get_acl(context.path)[0]), 2)


def test_names_and_paths_have_limits(context):
    client = context.client()
    root = context.root(client)
    client.create(f"{root}/{'n' * NAME_BYTES_MAX}")
    refuses(jute.BAD_ARGUMENTS, client.create, f"{root}/{'n' * (NAME_BYTES_MAX + 1)}")
    path, ops = root, []
    for _ in range(PATH_LEVELS_MAX - root.count("/")):
        path += "/a"
        ops.append(create(path))
    for first in range(0, len(ops), 100):
        equal(errors(client.multi(*ops[first : first + 100])), set())
    refuses(jute.BAD_ARGUMENTS, client.create, f"{path}/a")


def fill(client, parent, count):
    for first in range(0, count, OPS_A_MULTI):
        results = client.multi(*[create(f"{parent}/{number:05}") for number in range(first, first + OPS_A_MULTI)])
        equal(errors(results), set())


def test_a_large_subtree_is_counted_in_pieces(context):
    """A quota on it is set at once; its usage is right in the end, with what was written meanwhile."""
    client = context.client()
    root = context.root(client)
    fill(client, root, 20_000)
    quota = f"/zookeeper/quota{root}"
    client.multi(create(quota), create(f"{quota}/zookeeper_limits"))
    usage = client.create(f"{quota}/zookeeper_stats")
    equal(client.get(usage)[0], b"count=0,bytes=0=;counting=1", "nothing is counted at once")
    client.create(f"{root}/during", b"12345")
    client.delete(f"{root}/00007")
    wait_until(lambda: client.get(usage)[0] == b"count=20001,bytes=5", "the usage is counted")


def test_usage_znodes_created_again_and_again_are_refused_beyond_their_budget(context):
    client = context.client()
    root = context.root(client)
    fill(client, root, 2 * COUNTED_AT_ONCE_MAX)
    quota = f"/zookeeper/quota{root}"
    client.create(quota)
    usage = f"{quota}/zookeeper_stats"
    refuses(THROTTLED_OP, client.multi, *[create(usage), delete(usage)] * 200)


def test_the_path_of_a_quota_has_limits(context):
    client = context.client()
    path = "/zookeeper/quota"
    for _ in range(33):
        path += context.path
        client.create(path)
    refuses(jute.BAD_ARGUMENTS, client.create, f"{path}/zookeeper_limits")
