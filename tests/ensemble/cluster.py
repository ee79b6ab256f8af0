"""An ensemble of server processes on the loopback, made from a zoo.cfg and a myid file each, the same for both kinds.

It knows the processes and who leads; what they should answer is the tests' business.
"""

import os
import signal

from support.client import four_letter_command, words_table
from support.server import SMALL_LOG, Corral, ZooKeeper, binary
from support.wait import free_port, wait_until

FORM_LIMIT_S = 60
SUPER, SUPER_DIGEST = b"super:secret", "super:lK75jTNcA+U9vtVEw5vB51mj/w4="
PROBE_LIMIT_S = 5
# No election is held because a server got no CPU for a moment, and starts are quick. A leader whose process ends is replaced at once
# all the same.
CALM = {**SMALL_LOG, "ensemble.election_ms": 1000, "ensemble.heartbeat_ms": 100, "ensemble.hold_ms": 4000}
LEADING, FOLLOWING, OBSERVING = "leader", "follower", "observer"
# What a server says when its state is that of another one.
REPLACED = "is replaced by another server's snapshot"


class CorralMember(Corral):
    """One server of a corral ensemble."""

    def command(self):
        command = [str(self.program or binary()), "serve", "--config", str(self.directory / "zoo.cfg"), "--shards", str(self.shards)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return command


def share_secret(member, text):
    """Gives the member, which does not run, this secret."""
    path = member.directory / "secret"
    path.write_text(text + "\n")
    path.chmod(0o600)
    member.settings["ensemble.secret_file"] = str(path)


def configure(member, number, lines, read_only=False):
    """Writes the member's zoo.cfg and myid. With `read_only` it serves readers when it has no leader."""
    data = member.directory / "data"
    data.mkdir(exist_ok=True)
    (data / "myid").write_text(f"{number}\n")
    settings = {
        "tickTime": member.tick_ms,
        "initLimit": 20,
        "syncLimit": 10,
        "dataDir": data,
        "maxClientCnxns": 0,
        "maxSessionTimeout": 60_000,
        "4lw.commands.whitelist": "*",
        "reconfigEnabled": "true",
        "standaloneEnabled": "false",
        "DigestAuthenticationProvider.superDigest": SUPER_DIGEST,
        "admin.enableServer": str(bool(member.admin_port)).lower(),
        **({"admin.serverAddress": "127.0.0.1", "admin.serverPort": member.admin_port} if member.admin_port else {}),
        **lines,
    }
    if member.kind == "zookeeper":
        local = str(read_only).lower()
        settings |= {"localSessionsEnabled": local, "localSessionsUpgradingEnabled": local}
        member.java_options = (*member.java_options, f"-Dreadonlymode.enabled={local}")
        member.settings = settings
    else:
        # The file says it.
        member.settings.pop("admin.enabled", None)
        settings["readonlymode.enabled"] = str(read_only).lower()
        (member.directory / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def spec_of(member, role):
    """What stands behind `server.N=`, with free ports for the other servers."""
    host, port = member.address
    return f"{host}:{free_port()}:{free_port()}:{role};{host}:{port}"


class Ensemble:
    """Some servers that know each other; not started."""

    def __init__(self, kind, size=3, shards=2, tick_ms=500, observers=(), settings=None, lines=None, read_only=False, admin=False):
        """`settings` are corral's, on the command line of each; `lines` go into every zoo.cfg.

        With `read_only` a server without a leader serves readers. With `admin` each serves HTTP for administration.
        """
        self.kind = kind
        self.make = lambda: CorralMember(shards, tick_ms, settings) if kind == "corral" else ZooKeeper(tick_ms)
        self.lines = dict(lines or {})
        self.members = [self.make() for _ in range(size)]
        # What stands behind `server.N=`, by N.
        self.specs = {}
        for number, member in enumerate(self.members, 1):
            member.admin_port = free_port() if admin else None
            self.specs[number] = spec_of(member, "observer" if number in observers else "participant")
        lines = self.lines | {f"server.{number}": spec for number, spec in self.specs.items()}
        for number, member in enumerate(self.members, 1):
            configure(member, number, lines, read_only)

    def joiner(self, role):
        """A server that is not one of them yet, configured with them and itself; not started."""
        member, number = self.make(), len(self.members) + 1
        self.members.append(member)
        self.specs[number] = spec_of(member, role)
        alive = {self.number(one) for one in self.running} | {number}
        lines = {f"server.{one}": spec for one, spec in self.specs.items() if one in alive}
        configure(member, number, self.lines | lines)
        return member

    def number(self, member):
        return self.members.index(member) + 1

    @property
    def is_corral(self):
        return self.kind == "corral"

    @property
    def running(self):
        return [member for member in self.members if member.process and member.process.poll() is None]

    def start(self, limit_s=FORM_LIMIT_S):
        """Starts every member that does not run and waits until each serves."""
        for member in self.members:
            if member not in self.running:
                member.launch()
        for member in self.members:
            wait_until(member.is_serving, f"{self.kind} serves", limit_s)
        return self

    def modes(self):
        """The mode each running member tells, None for one that does not serve."""
        return {member: mode_of(member) for member in self.running}

    def leader(self, limit_s=FORM_LIMIT_S):
        """The member that leads; waits until exactly one does."""

        def found():
            leaders = [member for member, mode in self.modes().items() if mode == LEADING]
            return leaders[0] if len(leaders) == 1 else None

        return wait_until(found, "one server leads", limit_s)

    def followers(self):
        """The running members that follow; waits until all but one do."""
        leader = self.leader()
        others = [member for member in self.running if member is not leader]
        wait_until(lambda: all(mode_of(member) in (FOLLOWING, OBSERVING) for member in others), "the others follow")
        return others

    def addresses(self):
        """Of all members, as a client's list of hosts."""
        return ",".join(f"{host}:{port}" for host, port in (member.address for member in self.members))

    def dispose(self, keep=False):
        for member in self.members:
            if member.process and member.process.poll() is None:
                member.process.send_signal(signal.SIGCONT)
            member.dispose(keep)

    def log_tails(self):
        return "\n".join(f"--- {member.address[1]} in {member.directory}:\n{member.log_tail()}" for member in self.members)


def mode_of(member):
    """What the member says it is, None when it does not serve."""
    try:
        return words_table(four_letter_command(member.address, "srvr", PROBE_LIMIT_S), ":").get("Mode")
    except OSError:
        return None


def pause(member):
    os.kill(member.process.pid, signal.SIGSTOP)


def resume(member):
    os.kill(member.process.pid, signal.SIGCONT)


def says(member, words, times=1):
    wait_until(lambda: member.log().count(words) >= times, f"it says {words!r}")


def voters(member):
    """How many servers vote, as a leader says it."""
    return words_table(four_letter_command(member.address, "mntr"), "\t").get("zk_quorum_size")


def mark_of(member):
    """The file that tells the next process not to trust the state."""
    return member.directory / "data" / "DISTRUSTED"


def empty(member):
    """Removes whatever the member keeps, as a new disk would."""
    for path in (member.directory / "data").rglob("*"):
        if path.is_file() and path.name != "myid" and ".dynamic" not in path.name:
            path.unlink()
