"""What is off by default and switched on here: reconfig on a server that is alone, and ACLs that name the schemes sasl and x509."""

from support import jute
from support.expect import equal, refuses

PROVIDER = "org.apache.zookeeper.server.auth."
SETTINGS = {
    "corral": {
        "features.reconfig": "true",
        "security.sasl_acls": "true",
        "security.x509_acls": "true",
    },
    "zookeeper": {
        "reconfigEnabled": "true",
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
    good = [("sasl", "bob"), ("sasl", "bob/host@REALM"), ("sasl", ""), ("sasl", "a/b/c"), ("x509", "CN=bob,O=corral"),
            ("x509", "1.2.3=a"), ("x509", 'CN="a, b"+O=x;C=DE'), ("x509", "CN=#0401ff"), ("x509", "")]  # fmt: skip
    bad = [("sasl", "a@b@c"), ("sasl", "a/b/c@D"), ("x509", "bob"), ("x509", "CN=a,"), ("x509", "FOO=a"),
           ("x509", 'CN="a'), ("x509", "CN=#04"), ("super", "x")]  # fmt: skip
    for at, (scheme, ident) in enumerate(good):
        entries = [(31, scheme, ident)]
        path = client.create(f"{root}/{at}", acl=(*entries, (1, "world", "anyone")))
        equal(client.get_acl(path)[0], [*entries, (1, "world", "anyone")])
        refuses(jute.NO_AUTH, client.set, path, b"")
    for scheme, ident in bad:
        refuses(jute.INVALID_ACL, client.create, f"{root}/x", acl=((31, scheme, ident),))


def test_optional_schemes_give_no_identity_by_a_packet(context):
    for scheme in ("sasl", "x509"):
        client = context.client()
        refuses(jute.AUTH_FAILED, client.auth, scheme, b"bob")
        assert client.is_closed(), scheme
