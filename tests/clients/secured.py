"""Keys, stores and users of a secured ZooKeeper, and servers that are started with the same files: corral, and ZooKeeper itself."""

import shutil
import ssl
import subprocess

import pytest
from puresasl.client import SASLClient

from ensemble.authority import NEW_KEY, openssl
from support.server import Corral, ZooKeeper, binary, java_class_path
from support.wait import free_port

PASSWORD = "storesecret"
USERS = {"bob": "bobsecret", "super": "adminsecret"}
JAAS_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
# Sections of the clients' JAAS file, with user and password.
LOGINS = {"Bob": ("bob", USERS["bob"]), "Super": ("super", USERS["super"]), "Wrong": ("bob", "no"), "Eve": ("eve", "x")}
ALICE, ROOT = "CN=alice,O=Example,C=DE", "CN=root,O=Example,C=DE"


class Files:
    """Two authorities, certificates of the server and of clients in all formats, and JAAS files, in a directory."""

    def __init__(self, directory):
        self.directory = directory
        for name in ("ca", "other-ca"):
            openssl(directory, "req", "-x509", *NEW_KEY, "-days", 90, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        self.sign("server", "/CN=localhost")
        self.sign("alice", "/C=DE/O=Example/CN=alice")
        self.sign("root", "/C=DE/O=Example/CN=root")
        self.sign("revoked", "/CN=revoked")
        self.sign("stranger", "/CN=stranger", authority="other-ca")
        self.sign("expired", "/CN=expired", dates=("-not_before", "20200101000000Z", "-not_after", "20200201000000Z"))
        for name in ("server", "alice"):
            self.keytool("-importkeystore", "-srckeystore", f"{name}.p12", "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD,
                         "-destkeystore", f"{name}.jks", "-deststoretype", "JKS", "-deststorepass", PASSWORD)  # fmt: skip
        for kind, name in (("JKS", "trust.jks"), ("PKCS12", "trust.p12")):
            self.keytool("-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", name, "-storetype", kind,
                         "-storepass", PASSWORD)  # fmt: skip
        users = "\n".join(f'  user_{name}="{password}"' for name, password in USERS.items())
        self.write("server.jaas", f"Server {{\n  {JAAS_MODULE} required\n{users};\n}};\n")
        sections = [f'{name} {{ {JAAS_MODULE} required username="{user}" password="{word}"; }};' for name, (user, word) in LOGINS.items()]
        self.write("client.jaas", "\n".join(sections))
        self.revoke("revoked")

    def write(self, name, text):
        (self.directory / name).write_text(text)

    def path(self, name):
        return str(self.directory / name)

    def context(self, name="alice"):
        """TLS of a client with the certificate of this name; without one if the name is None."""
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        if name:
            context.load_cert_chain(self.path(f"{name}.crt"), self.path(f"{name}.key"))
        return context

    def keytool(self, *words):
        subprocess.run(["keytool", *words], cwd=self.directory, capture_output=True, text=True, check=True)

    def authority(self, name):
        """The settings with which `openssl ca` signs."""
        self.write(f"{name}.index", "")
        self.write(f"{name}.crlnumber", "01\n")
        self.write(f"{name}.cnf", f"""
[ca]
default_ca = one
[one]
database = {name}.index
new_certs_dir = .
rand_serial = yes
crlnumber = {name}.crlnumber
default_md = sha256
default_crl_days = 30
policy = any
unique_subject = no
copy_extensions = none
[any]
countryName = optional
organizationName = optional
commonName = supplied
[ext]
basicConstraints = CA:FALSE
subjectAltName = DNS:localhost,IP:127.0.0.1
extendedKeyUsage = serverAuth,clientAuth
""")

    def sign(self, name, subject, authority="ca", dates=("-days", "90")):
        if not (self.directory / f"{authority}.cnf").exists():
            self.authority(authority)
        openssl(self.directory, "req", *NEW_KEY, "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        dates = [word.replace("-not_before", "-startdate").replace("-not_after", "-enddate") for word in dates]
        openssl(self.directory, "ca", "-batch", "-notext", "-config", f"{authority}.cnf", "-extensions", "ext", "-in", f"{name}.csr",
                "-cert", f"{authority}.pem", "-keyfile", f"{authority}.key", "-out", f"{name}.crt", *dates)  # fmt: skip
        parts = [(self.directory / f"{name}.{kind}").read_text() for kind in ("key", "crt")]
        self.write(f"{name}.pem", "".join(parts))
        openssl(self.directory, "pkcs12", "-export", "-in", f"{name}.pem", "-name", name, "-passout", f"pass:{PASSWORD}", "-out", f"{name}.p12")

    def revoke(self, name):
        words = ("-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key")
        openssl(self.directory, "ca", *words, "-gencrl", "-out", "older.crl")
        openssl(self.directory, "ca", *words, "-gencrl", "-out", "expired.crl", "-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z")
        openssl(self.directory, "ca", *words, "-revoke", f"{name}.crt")
        openssl(self.directory, "ca", *words, "-gencrl", "-out", "ca.crl")

    def settings(self, store="jks", **more):
        """The zoo.cfg of a server with these stores, but for its ports and its directory."""
        trust = "ca.pem" if store == "pem" else f"trust.{store}"
        password = {} if store == "pem" else {"ssl.keyStore.password": PASSWORD, "ssl.trustStore.password": PASSWORD}
        return {
            "tickTime": 500,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "X509AuthenticationProvider.superUser": ROOT,
            "superUser": "super",
            "fips-mode": "false",
            # Without it ZooKeeper serves one version.
            "ssl.enabledProtocols": "TLSv1.2,TLSv1.3",
            "ssl.keyStore.location": self.path(f"server.{store}"),
            "ssl.trustStore.location": self.path(trust),
            **password,
            **more,
        }


def secured(kind, files, settings, flags=()):
    """A server of a kind, from a zoo.cfg with these settings and ports of its own. `flags` are corral's."""
    base = {"corral": Corral, "zookeeper": ZooKeeper}[kind]

    class Secured(base):
        """Both kinds read the same file."""

        def __init__(self):
            super().__init__()
            self.secure = ("127.0.0.1", free_port())

        def command(self):
            ports = {"dataDir": self.directory / "data", "clientPortAddress": "127.0.0.1", "clientPort": self.address[1],
                     "secureClientPort": self.secure[1], "secureClientPortAddress": "127.0.0.1"}  # fmt: skip
            config = self.directory / "zoo.cfg"
            config.write_text("".join(f"{key}={value}\n" for key, value in {**settings, **ports}.items()))
            if kind == "corral":
                jaas = f"security.sasl_jaas_file={files.path('server.jaas')}"
                return [str(binary()), "serve", "--config", str(config), "--shards", "2", "--set", jaas, *flags]
            options = [f"-Djava.security.auth.login.config={files.path('server.jaas')}", "-Dzookeeper.fips-mode=false"]
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            return ["java", "-Xmx256m", *options, "-cp", java_class_path(), main, str(config)]

    return Secured()


def java_tls(files, name="alice", kind="pem", trust=None):
    """Keys of a Java client with the certificate of this name; without one if the name is None."""
    keys = {
        "zookeeper.client.secure": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.sasl.client": "false",
        "zookeeper.ssl.trustStore.location": files.path(trust or ("ca.pem" if kind == "pem" else f"trust.{kind}")),
        "zookeeper.ssl.trustStore.password": "" if kind == "pem" else PASSWORD,
    }
    if name:
        keys["zookeeper.ssl.keyStore.location"] = files.path(f"{name}.{kind}")
        keys["zookeeper.ssl.keyStore.password"] = "" if kind == "pem" else PASSWORD
    return keys


def java_login(section):
    """Keys of a Java client that logs in by this section of its JAAS file."""
    return {"zookeeper.sasl.client": "true", "zookeeper.sasl.clientconfig": section}


def digest_md5(user, password):
    """A client's side of a SASL exchange."""
    return SASLClient("zk-sasl-md5", "zookeeper", mechanism="DIGEST-MD5", username=user, password=password)


def need_files(directory):
    """The files, in this directory. Skips the test where the tools that make them are missing."""
    if not all(shutil.which(name) for name in ("openssl", "keytool", "java", "javac")):
        pytest.skip("needs openssl, keytool and javac (Debian: openssl, default-jdk-headless)")
    return Files(directory)
