"""Both servers with the same users and certificates, and connections that prove them.

The slot of a connection decides: none, the SASL user `ann`, a SASL super user, the certificate `CN=a`, the certificate of a super user.
Digests are among the operations of the cases.
"""

from clients.secured import JAAS_MODULE, digest_md5, need_files
from differential.control import Wire
from differential.side import LAST_SLOTS
from support import jute
from support.wait import free_port

USERS = {"ann": "annsecret", "boss": "bosssecret"}
# Proof by slot: a SASL user, or the name of a certificate.
PROOFS = (None, "ann", "boss", "a", "root")
SUPER_CERTIFICATE = "CN=root"


def secured_files(directory):
    """Certificates and users for all pairs of servers."""
    files = need_files(directory)
    for name in ("a", "root"):
        files.sign(name, f"/CN={name}")
    users = "\n".join(f'  user_{name}="{password}"' for name, password in USERS.items())
    files.write("differential.jaas", f"Server {{\n  {JAAS_MODULE} required\n{users};\n}};\n")
    return files


class Security:
    """Of one pair of servers. `enforced`: every connection must have proven something before it asks for anything."""

    def __init__(self, files, enforced):
        self.files, self.enforced, self.jaas = files, enforced, files.path("differential.jaas")
        self.ports = {"zookeeper": free_port(), "corral": free_port()}

    def zookeeper(self):
        """Settings and options of the JVM."""
        enforce = {"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest,sasl,x509"} if self.enforced else {}
        settings = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "secureClientPort": self.ports["zookeeper"],
            "ssl.keyStore.location": self.files.path("server.pem"),
            "ssl.trustStore.location": self.files.path("ca.pem"),
            "X509AuthenticationProvider.superUser": SUPER_CERTIFICATE,
            "superUser": "boss",
            "fips-mode": "false",
            **enforce,
        }
        return settings, (f"-Djava.security.auth.login.config={self.jaas}", "-Dzookeeper.fips-mode=false")

    def corral(self):
        return {
            "tls.client_addr": f"127.0.0.1:{self.ports['corral']}",
            "tls.key_store": self.files.path("server.pem"),
            "tls.trust_store": self.files.path("ca.pem"),
            "security.x509_super_user": SUPER_CERTIFICATE,
            "security.sasl_jaas_file": self.jaas,
            "security.sasl_super_users": '["boss"]',
            **({"security.enforce_schemes": '["digest", "sasl", "x509"]'} if self.enforced else {}),
        }

    def dial(self, side, slot):
        """A connection to a side, for this slot."""
        proof = self.proof(slot)
        if proof not in ("a", "root"):
            return Wire(side.address, side.limit_s)
        wire = Wire(("127.0.0.1", self.ports[side.kind]), side.limit_s)
        wire.socket = self.files.context(proof).wrap_socket(wire.socket, server_hostname="localhost")
        return wire

    def log_in(self, wire, slot):
        """Proves the SASL user of the slot, if it has one. The exchange is not compared: nonces are drawn."""
        user = self.proof(slot)
        if user not in USERS:
            return
        mechanism = digest_md5(user, USERS[user])
        token = b""
        for _ in range(2):
            wire.send(jute.frame(jute.int32(0) + jute.int32(jute.SASL) + jute.buffer(token)))
            frames = wire.frames(1)
            if not frames:
                # The session is over.
                return
            assert frames[0][12:16] == b"\0\0\0\0", f"{user} is refused"
            token = mechanism.process(jute.Reader(frames[0][16:]).buffer())
        assert mechanism.complete

    def refuses(self, slot):
        """Whether the servers serve a connection of this slot nothing, not even the end of its session."""
        return self.enforced and self.proof(slot) is None

    def proof(self, slot):
        return "boss" if slot >= LAST_SLOTS else PROOFS[slot % len(PROOFS)]
