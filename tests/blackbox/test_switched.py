"""What is off by default and switched on here: reconfig on a server that is alone, ACLs of the schemes sasl and x509, and quotas."""

from support import jute
from support.expect import equal, refuses

PROVIDER = "org.apache.zookeeper.server.auth."
SETTINGS = {
    "corral": {
        "features.reconfig": "true",
        "features.enforce_quota": "true",
        "security.sasl_acls": "true",
        "security.x509_acls": "true",
    },
    "zookeeper": {
        "reconfigEnabled": "true",
        "enforceQuota": "true",
        "authProvider.1": f"{PROVIDER}SASLAuthenticationProvider",
        "authProvider.2": f"{PROVIDER}X509AuthenticationProvider",
    },
}


def test_reconfig_is_refused_and_the_connection_lives(context):
    client = context.client()
    root = context.root(client)
    refuses(jute.UNIMPLEMENTED, client.call, jute.RECONFIG, jute.reconfig_body(joining="server.5=h:1:2;3"))
    refuses(jute.UNIMPLEMENTED, client.call, jute.RECONFIG, jute.reconfig_body())
    refuses(jute.MARSHALLING_ERROR, client.call, jute.RECONFIG, b"\0")
    client.set(root, b"")


def test_acls_of_optional_schemes(context):
    client = context.client()
    root = context.root(client)
    # All forms of the ids are in src/core/src/tree/acl/ids.rs.
    for at, (scheme, ident) in enumerate((("sasl", "bob/host@REALM"), ("x509", "CN=bob,O=corral"))):
        entries = [(31, scheme, ident)]
        path = client.create(f"{root}/{at}", acl=(*entries, (1, "world", "anyone")))
        equal(client.get_acl(path)[0], [*entries, (1, "world", "anyone")])
        refuses(jute.NO_AUTH, client.set, path, b"")
    for scheme, ident in (("sasl", "a@b@c"), ("x509", "bob"), ("super", "x")):
        refuses(jute.INVALID_ACL, client.create, f"{root}/x", acl=((31, scheme, ident),))


def test_optional_schemes_give_no_identity_by_a_packet(context):
    for scheme in ("sasl", "x509"):
        client = context.client()
        refuses(jute.AUTH_FAILED, client.auth, scheme, b"bob")
        assert client.is_closed(), scheme


def test_usage_of_a_quota_follows_the_tree(context):
    """What is refused is in the recordings and in src/core/src/quota/usage.rs."""
    client = context.client()
    root = context.root(client)
    client.create(f"{root}/b", b"12345")
    client.create(f"/zookeeper/quota{root}")
    client.create(f"/zookeeper/quota{root}/zookeeper_limits", b"count=1,bytes=1=;countHardLimit=3")
    usage = client.create(f"/zookeeper/quota{root}/zookeeper_stats", b"anything")
    text, before = client.get(usage, watch=True)
    equal(text, b"count=2,bytes=5")
    client.create(f"{root}/c", b"1", jute.EPHEMERAL)
    text, after = client.get(usage)
    equal(text, b"count=3,bytes=6")
    equal(after._replace(data_length=0), before._replace(data_length=0), "no Stat field moves but the length")
    refuses(jute.QUOTA_EXCEEDED, client.create, f"{root}/d")
    equal(client.take_events(), [], "usage is kept without events")
    client.close()
    other = context.client()
    other.sync()
    equal(other.get(usage)[0], b"count=2,bytes=5", "the ephemeral went with its session")
