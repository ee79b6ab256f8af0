"""ACLs: world, digest and auth; what is checked where."""

import base64
import hashlib

from support import jute
from support.expect import equal, refuses


def digest(user, password):
    hashed = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(hashed).decode()}"


BOB = digest("bob", "pw")
AUTH_ACL = ((jute.ALL, "auth", ""),)


def with_bob(context):
    client = context.client()
    client.auth("digest", b"bob:pw")
    return client


def test_invalid_acls(context):
    client = context.client()
    root = context.root(client)
    invalid = [(), None, ((31, "foo", "x"),), AUTH_ACL, ((31, "world", "x"),), ((31, "digest", "nocolon"),),
               ((31, "super", ""),), ((31, None, "anyone"),), ((31, "ip", "999.1.1.1"),), ((31, "sasl", "bob"),), ((31, "x509", "CN=bob"),)]  # fmt: skip
    for acl in invalid:
        refuses(jute.INVALID_ACL, client.create, f"{root}/x", acl=acl)
        refuses(jute.INVALID_ACL, client.set_acl, root, acl)
    equal(client.children(root), [])


def test_addresses(context):
    client = context.client()
    root = context.root(client)
    good = ["1.2.3.4", "+1.2.3.4", "001.2.3.4", "10.0.0.0/08", "10.0.0.0/+8", "::1", "::", "::1/0", "1:2:3:4:5:6:7::",
            "::-1", "::ffff:0102:0304"]  # fmt: skip
    bad = ["1.2.3", "1.2.3.4.", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/8/8", "::1/", "::1/129", ":::", "1::2::3", "::12345",
           "::ffff:1.2.3.4", "fe80::1%1", "fe80::1%lo", " 1.2.3.4", "localhost", "/8", ""]  # fmt: skip
    for at, ident in enumerate(good):
        acl = [(1, "ip", ident), (16, "world", "anyone")]
        equal(client.get_acl(client.create(f"{root}/{at}", acl=acl))[0], acl)
    for ident in bad:
        refuses(jute.INVALID_ACL, client.create, f"{root}/x", acl=((31, "ip", ident),))


def test_address_patterns_grant_and_refuse(context):
    client = context.client()
    root = context.root(client)
    for at, (pattern, granted) in enumerate((("127.0.0.1", True), ("127.0.0.1/32", True), ("127.9.9.9/8", True),
                                             ("0.0.0.0/0", True), ("127.0.0.0/31", True), ("127.0.0.2/31", False),
                                             ("10.0.0.0/8", False), ("::/0", False))):  # fmt: skip
        path = client.create(f"{root}/{at}", acl=((31, "ip", pattern),))
        if granted:
            client.get(path)
        else:
            refuses(jute.NO_AUTH, client.get, path)


def test_acls_are_stored_as_sent_without_duplicates(context):
    client = context.client()
    root = context.root(client)
    acl = [(31, "world", "anyone"), (1, "digest", BOB), (0, "world", "anyone")]
    client.create(f"{root}/x", acl=[*acl, *acl])
    equal(client.get_acl(f"{root}/x")[0], acl)


def test_the_id_of_auth_may_be_null(context):
    bob = with_bob(context)
    path = bob.create(f"{context.root(bob)}/x", acl=((jute.ALL, "auth", None),))
    equal(bob.get_acl(path)[0], [(jute.ALL, "digest", BOB)])


def test_auth_expands_to_the_identities_of_the_connection(context):
    bob = with_bob(context)
    root = context.root(bob)
    bob.create(f"{root}/x", acl=((5, "auth", "ignored"), (1, "world", "anyone")))
    equal(bob.get_acl(f"{root}/x")[0][0], (5, "digest", "bob:x"), "without ADMIN the hash is hidden")
    bob.create(f"{root}/y", acl=AUTH_ACL)
    equal(bob.get_acl(f"{root}/y")[0], [(31, "digest", BOB)])


def test_what_needs_which_permission(context):
    bob, other = with_bob(context), context.client()
    root = context.root(bob)
    bob.create(f"{root}/x", b"d", acl=AUTH_ACL)
    bob.create(f"{root}/x/child")
    other.sync()
    path = f"{root}/x"
    for call, arguments in ((other.get, ()), (other.children, ()), (other.exists, ()), (other.get_acl, ()),
                            (other.set, (b"",)), (other.set_acl, (jute.OPEN_ACL,))):  # fmt: skip
        refuses(jute.NO_AUTH, call, path, *arguments)
    refuses(jute.NO_AUTH, other.create, f"{path}/y")
    refuses(jute.NO_AUTH, other.create, f"{path}/child")
    refuses(jute.NO_AUTH, other.delete, f"{path}/child")
    refuses(jute.NO_AUTH, other.delete, f"{path}/none")
    refuses(jute.NO_NODE, other.create, f"{root}/none/y")
    bob.delete(f"{path}/child")
    other.delete(path)


def test_permissions_one_by_one(context):
    bob, other = with_bob(context), context.client()
    root = context.root(bob)
    calls = {
        jute.READ: lambda path: other.get(path),
        jute.WRITE: lambda path: other.set(path, b"1"),
        jute.CREATE_PERM: lambda path: other.create(f"{path}/new"),
        jute.DELETE_PERM: lambda path: other.delete(f"{path}/old"),
        jute.ADMIN: lambda path: other.set_acl(path, jute.OPEN_ACL),
    }
    for granted in calls:
        for needed, call in calls.items():
            path = bob.create(f"{root}/{granted}-{needed}", acl=AUTH_ACL)
            bob.create(f"{path}/old")
            bob.set_acl(path, (*AUTH_ACL, (granted, "world", "anyone")))
            other.sync()
            if granted == needed:
                call(path)
            else:
                refuses(jute.NO_AUTH, call, path)


def test_set_acl_compares_the_acl_version(context):
    client = context.client()
    root = context.root(client)
    client.set(root, b"")
    refuses(jute.BAD_VERSION, client.set_acl, root, jute.OPEN_ACL, 1)
    equal(client.set_acl(root, jute.OPEN_ACL, 0).aversion, 1)
    refuses(jute.BAD_VERSION, client.set_acl, root, jute.OPEN_ACL, 0)
    refuses(jute.INVALID_ACL, client.set_acl, f"{root}/none", ())
    refuses(jute.NO_NODE, client.set_acl, f"{root}/none", jute.OPEN_ACL, 9)


def test_identities_belong_to_the_connection(context):
    bob = with_bob(context)
    root = context.root(bob)
    bob.create(f"{root}/x", acl=AUTH_ACL)
    again = context.client(resume=bob)
    refuses(jute.NO_AUTH, again.get, f"{root}/x")
    again.auth("digest", b"bob:pw")
    again.get(f"{root}/x")


def test_auth_replies(context):
    client = context.client()
    client.auth("digest", b"alice:secret")
    client.auth("digest", b"nocolon")
    client.auth("ip", b"")
    for scheme in ("nope", "world", ""):
        refused = context.client()
        sent = jute.int32(0) + jute.string(scheme) + jute.buffer(b"x")
        refused.send(jute.AUTH, sent, jute.AUTH_XID)
        reply = refused.reply()
        equal((reply.xid, reply.zxid, reply.error), (jute.AUTH_XID, 0, jute.AUTH_FAILED), scheme)
        assert refused.is_closed(), scheme
