"""Servers of an ensemble in network namespaces of their own, joined by a bridge, whose packets can be dropped one way.

Needs root and `ip`. Everything stays inside this host: the addresses are of the range for benchmarks (198.18.0.0/15), and the
bridge has no port to the outside. A cut drops what arrives at one server from another, by a routing rule at the receiver; the
sender notices nothing. It knows nothing of what the servers do about it.
"""

import os
import shutil
import subprocess

from ensemble.cluster import CorralMember, Ensemble, configure, share_secret

CLIENT_PORT, PEER_PORT, ELECTION_PORT = 2181, 2888, 3888
# The rules of the kernel look into the table of local addresses first; a cut has to come before that.
LOCAL_PREFERENCE, CUT_PREFERENCE = 100, 10


def why_not():
    """Why there can be no namespaces here, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "the command ip is missing (Debian: iproute2)"
    try:
        ip("netns", "add", f"corral-probe-{os.getpid()}")
        ip("netns", "del", f"corral-probe-{os.getpid()}")
    except RuntimeError as error:
        return f"no network namespace can be made: {error}"
    return None


def ip(*words):
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


class Network:
    """A bridge and a namespace for each server, numbered from 1."""

    def __init__(self, size):
        self.name = f"cor{os.getpid() % 100_000}"
        self.subnet = f"198.18.{os.getpid() % 250 + 1}"
        self.size, self.cuts = size, set()
        ip("link", "add", self.name, "type", "bridge")
        ip("addr", "add", f"{self.subnet}.254/24", "dev", self.name)
        ip("link", "set", self.name, "up")
        for number in range(1, size + 1):
            self.add(number)

    def namespace(self, number):
        return f"{self.name}-{number}"

    def address(self, number):
        return f"{self.subnet}.{number}"

    def inside(self, number, *words):
        """`ip` in the namespace of a server."""
        ip("-n", self.namespace(number), *words)

    def add(self, number):
        outer, inner = f"{self.name}o{number}", f"{self.name}i{number}"
        ip("netns", "add", self.namespace(number))
        ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.namespace(number))
        ip("link", "set", outer, "master", self.name, "up")
        self.inside(number, "addr", "add", f"{self.address(number)}/24", "dev", inner)
        for link in (inner, "lo"):
            self.inside(number, "link", "set", link, "up")
        self.inside(number, "rule", "add", "pref", LOCAL_PREFERENCE, "lookup", "local")
        self.inside(number, "rule", "del", "pref", 0)
        # Otherwise packets of known connections are taken to their sockets past all rules.
        for key in ("ip_early_demux", "tcp_early_demux"):
            ip("netns", "exec", self.namespace(number), "sysctl", "-qw", f"net.ipv4.{key}=0")

    def rule(self, word, sender, receiver):
        self.inside(receiver, "rule", word, "pref", CUT_PREFERENCE, "from", self.address(sender), "blackhole")

    def cut(self, sender, receiver):
        """What the sender sends no longer arrives at the receiver."""
        if (sender, receiver) not in self.cuts:
            self.rule("add", sender, receiver)
            self.cuts.add((sender, receiver))

    def heal(self):
        while self.cuts:
            self.rule("del", *self.cuts.pop())

    def remove(self):
        # The kernel clears a deleted namespace later; a link in it keeps its name until then.
        links = [["link", "del", f"{self.name}o{number}"] for number in range(1, self.size + 1)]
        spaces = [["netns", "del", self.namespace(number)] for number in range(1, self.size + 1)]
        for words in (*links, *spaces, ["link", "del", self.name]):
            subprocess.run(["ip", *words], capture_output=True, check=False)


class Member(CorralMember):
    def __init__(self, network, number, shards, tick_ms, settings):
        super().__init__(shards, tick_ms, settings={"ensemble.allow_plaintext": "true", **settings})
        share_secret(self, "namespaces" * 4)
        self.network, self.number = network, number
        self.address = (network.address(number), CLIENT_PORT)

    def command(self):
        return ["ip", "netns", "exec", self.network.namespace(self.number), *super().command()]


class Apart(Ensemble):
    """An ensemble whose servers are in namespaces; not started."""

    def __init__(self, size=3, shards=1, tick_ms=500, settings=None):
        self.kind, self.network = "corral", Network(size)
        self.members = [Member(self.network, number, shards, tick_ms, settings or {}) for number in range(1, size + 1)]
        self.specs = {}
        for member in self.members:
            host, port = member.address
            self.specs[member.number] = f"{host}:{PEER_PORT}:{ELECTION_PORT}:participant;{host}:{port}"
        for member in self.members:
            configure(member, member.number, {f"server.{number}": spec for number, spec in self.specs.items()})

    def cut(self, sender, receiver):
        self.network.cut(sender.number, receiver.number)

    def dispose(self, keep=False):
        try:
            super().dispose(keep)
        finally:
            self.network.remove()
