"""The servers that are compared, with the same settings: a real ZooKeeper, and corral."""

from differential import control
from differential.driver import run_case
from differential.side import Side
from ensemble import follower
from support.server import ZooKeeper, java_class_path, zookeeper_version

# No session ends by time, no container is looked at and no snapshot is written while a case runs.
TICK_MS = 3000
NEVER_MS = 2_000_000_000
SESSION_MIN_MS, SESSION_MAX_MS = 40_000, 400_000
# A case is stuck after so long without a reply. A busy machine needs the larger limit, a search that shrinks cases the smaller.
LIMIT_S, SEARCH_LIMIT_S = 60, 10

ZOOKEEPER_SETTINGS = {
    "forceSync": "no",
    "preAllocSize": 16384,
    "snapCount": NEVER_MS,
    "minSessionTimeout": SESSION_MIN_MS,
    "maxSessionTimeout": SESSION_MAX_MS,
    "extendedTypesEnabled": "true",
    "DigestAuthenticationProvider.superDigest": control.SUPER_DIGEST,
}
CORRAL_SETTINGS = {
    "features.extended_types": "true",
    "sessions.timeout_min_ms": SESSION_MIN_MS,
    "sessions.timeout_max_ms": SESSION_MAX_MS,
    "containers.check_interval_ms": NEVER_MS,
    "security.super_digest": f'"{control.SUPER_DIGEST}"',
}
# The strict configuration: quotas are enforced and reconfig is switched on.
ZOOKEEPER_STRICT = {"enforceQuota": "true", "reconfigEnabled": "true"}
CORRAL_STRICT = {"features.enforce_quota": "true", "features.reconfig": "true"}
JAVA_OPTIONS = (f"-Dznode.container.checkIntervalMs={NEVER_MS}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def zookeeper(strict, security=None):
    """A real ZooKeeper, not started."""
    settings, options = security.zookeeper() if security else ({}, ())
    return ZooKeeper(TICK_MS, ZOOKEEPER_SETTINGS | (ZOOKEEPER_STRICT if strict else {}) | settings, JAVA_OPTIONS + options)


def corral(shards, strict, security=None):
    """The server under test, not started."""
    settings = security.corral() if security else {}
    return follower.corral(shards, TICK_MS, CORRAL_SETTINGS | (CORRAL_STRICT if strict else {}) | settings)


def why_not():
    """Why there is no ZooKeeper to compare with, or None."""
    advice = "install pyspark (tests/clients/requirements-pyspark.txt), or set ZOOKEEPER_JARS to a folder of jars"
    if not java_class_path():
        return f"Java or ZooKeeper is not installed: {advice}"
    if not zookeeper_version().startswith("3.9."):
        return f"the ZooKeeper found is {zookeeper_version()}, 3.9 is needed: {advice}"
    return None


class Pair:
    """A real ZooKeeper and corral, on which cases run side by side. Both are started when the first case needs them."""

    def __init__(self, strict, shards=2, security=None):
        self.shards, self.strict, self.security = shards, strict, security
        self.servers, self.sides = (), ()

    def run(self, steps):
        """Runs a case and returns its Outcome. After it both servers hold the same, or they are replaced before the next."""
        if not self.sides:
            self.servers = (zookeeper(self.strict, self.security), corral(self.shards, self.strict, self.security))
            self.sides = tuple(Side(server.start(), SEARCH_LIMIT_S, self.security) for server in self.servers)
        outcome = run_case(self.sides, steps, self.strict)
        if outcome.difference or outcome.parted:
            trees = [side.control.tree() for side in self.sides]
            if control.compare(*trees):
                self.stop()
        return outcome

    def stop(self):
        """Ends both servers. The next case runs on new ones."""
        for server in self.servers:
            server.dispose()
        self.servers, self.sides = (), ()
