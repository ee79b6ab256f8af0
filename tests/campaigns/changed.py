"""Handshakes, records, tokens and files of a secured server, changed at random."""

import errno
import random
import socket
import ssl
import subprocess
from collections import Counter

from clients.secured import PASSWORD, USERS, digest_md5
from support import jute
from support.client import Client, Closed, Connection
from support.server import binary

GROWTH_MAX_KIB = 64 << 10
CLOSE_LIMIT_S = 60
STORES = ("jks", "p12", "pem")


def half_close(connected):
    """Nothing more is sent. The server may have closed before."""
    try:
        connected.shutdown(socket.SHUT_WR)
    except OSError as fault:
        if fault.errno != errno.ENOTCONN:
            raise


class Changed:
    """Bytes that a real client or a real tool made, changed at random, in front of a server and of `check-config`."""

    def __init__(self, files, server, seed):
        self.files, self.server, self.seed = files, server, seed
        self.count, self.random = 0, random.Random(seed)
        self.kinds = Counter()

    def change(self, data):
        data = bytearray(data)
        for _ in range(self.random.choice((1, 1, 1, 2, 4, 16))):
            at = self.random.randrange(len(data) + 1)
            kind = self.random.randrange(6)
            if kind == 0:
                data[at : at + 1] = bytes([self.random.randrange(256)])
            elif kind == 1:
                del data[at : at + self.random.choice((1, 2, 4, 100))]
            elif kind == 2:
                data[at:at] = self.random.randbytes(self.random.choice((1, 2, 4, 100)))
            elif kind == 3:
                data[at : at + 4] = self.random.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1"))
            elif kind == 4:
                data[at:at] = data[at : at + self.random.randrange(1, 200)]
            else:
                data = data[:at]
            data = data or bytearray(b"\0")
        return bytes(data)

    def tls(self):
        """A client's side of TLS, without a socket."""
        context = self.files.context()
        if self.random.random() < 0.5:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        return context.wrap_bio(incoming, outgoing, server_hostname="localhost"), incoming, outgoing

    def flights(self, changed):
        """A handshake and a request, of which one flight is changed: the number `changed`."""
        side, incoming, outgoing = self.tls()
        with Connection(self.server.secure, limit_s=CLOSE_LIMIT_S) as connection:
            for flight in range(4):
                try:
                    side.do_handshake()
                    side.write(jute.frame(jute.connect_request(10_000, 0, b"\0" * 16, 0)))
                except ssl.SSLWantReadError:
                    pass
                sent = outgoing.read()
                connection.send_bytes(self.change(sent) if flight == changed else sent)
                if flight == changed:
                    half_close(connection.socket)
                    assert connection.is_closed(CLOSE_LIMIT_S), "the connection stays open"
                    return
                incoming.write(connection.socket.recv(65536))

    def sasl(self):
        with Client(self.server.address) as client:
            challenge = client.call(jute.SASL, jute.buffer(b"")).buffer()
            mechanism = digest_md5("bob", USERS["bob"])
            client.send(jute.SASL, jute.buffer(self.change(mechanism.process(challenge))))
            try:
                client.reply()
            except Closed:
                pass

    def judged(self, name, settings):
        """A changed file is used or refused, and nothing else."""
        path = self.files.directory / f"changed-{name}"
        path.write_bytes(self.change((self.files.directory / name).read_bytes()))
        path.chmod(0o600)
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [str(binary()), "check-config", "--data-dir", str(self.files.directory / "data"), *flags]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
        assert done.returncode in (0, 3), f"{done.returncode}: {done.stderr}"
        assert PASSWORD not in done.stderr, done.stderr

    def store(self):
        kind = self.random.choice(STORES)
        changed = self.files.path(f"changed-server.{kind}")
        self.judged(f"server.{kind}", {"tls.client_addr": "127.0.0.1:2281", "tls.trust_store": self.files.path("ca.pem"),
                                       "tls.key_store": changed, "tls.key_store_password": PASSWORD})  # fmt: skip

    def jaas(self):
        self.judged("server.jaas", {"security.sasl_jaas_file": self.files.path("changed-server.jaas")})

    def step(self):
        # What a step does follows from its number alone, so that it can be repeated.
        self.random.seed(f"{self.seed}-{self.count}")
        kind = self.random.choice(("first", "second", "records", "records", "sasl", "store", "jaas"))
        steps = {"first": lambda: self.flights(0), "second": lambda: self.flights(1), "records": lambda: self.flights(2)}
        try:
            steps.get(kind, getattr(self, kind, None))()
        except (ConnectionError, ssl.SSLError):
            # A server may end a connection at any time.
            pass
        except Exception as fault:
            fault.add_note(f"in step {self.count}: {kind}")
            raise
        self.kinds[kind] += 1
        self.count += 1

    def look(self, first_kib):
        side, incoming, outgoing = self.tls()
        with Connection(self.server.secure) as connection:
            for _ in range(3):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    connection.send_bytes(outgoing.read())
                    incoming.write(connection.socket.recv(65536))
        assert "panicked" not in self.server.log(), self.server.log_tail()
        grown = self.server.memory().own_kib - first_kib
        assert grown < GROWTH_MAX_KIB, f"{grown} KiB more memory"
        return grown
