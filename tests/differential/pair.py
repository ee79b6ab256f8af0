"""Starts the two servers that are compared, with the same settings: a real ZooKeeper, and corral."""


from ensemble import follower
from support.server import ZooKeeper, java_class_path, zookeeper_version

# No session ends by time, no container is looked at and no snapshot written while a sequence runs.
TICK_MS = 3000
NEVER_MS = 2_000_000_000
SUPER_PASSWORD = "superpw"
SUPER_DIGEST = "super:g9oN2HttPfn8MMWJZ2r45Np/LIA="

ZOOKEEPER_SETTINGS = {
    "forceSync": "no",
    "preAllocSize": 16384,
    "snapCount": NEVER_MS,
    "extendedTypesEnabled": "true",
    "DigestAuthenticationProvider.superDigest": SUPER_DIGEST,
}
CORRAL_SETTINGS = {
    "features.extended_types": "true",
    "containers.check_interval_ms": NEVER_MS,
    "security.super_digest": f'"{SUPER_DIGEST}"',
}
# The second configuration: quotas are enforced and reconfig is switched on.
ZOOKEEPER_STRICT = {"enforceQuota": "true", "reconfigEnabled": "true"}
CORRAL_STRICT = {"features.enforce_quota": "true", "features.reconfig": "true"}


class Oracle(ZooKeeper):
    """ZooKeeper that leaves containers and TTL nodes alone, for a time no sequence takes."""

    def command(self):
        java, *rest = super().command()
        return [java, f"-Dznode.container.checkIntervalMs={NEVER_MS}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *rest]


class Pair:
    """Both servers, zookeeper first."""

    def __init__(self, shards, strict=False, corral_settings=None):
        oracle = Oracle(tick_ms=TICK_MS, settings=ZOOKEEPER_SETTINGS | (ZOOKEEPER_STRICT if strict else {}))
        corral = CORRAL_SETTINGS | (CORRAL_STRICT if strict else {}) | (corral_settings or {})
        self.servers = (oracle, follower.corral(shards, TICK_MS, corral))

    def start(self):
        try:
            for server in self.servers:
                server.start()
        except BaseException:
            self.dispose()
            raise
        return self

    def dispose(self, keep=False):
        for server in self.servers:
            server.dispose(keep)


def why_not():
    """Why there is no ZooKeeper to compare with, or None."""
    if not java_class_path():
        return "no Java, or no ZooKeeper: install pyspark (tests/run clients does), or name a folder of jars in ZOOKEEPER_JARS"
    if not zookeeper_version().startswith("3.9"):
        found = f"the ZooKeeper found is {zookeeper_version()}, the measure is 3.9"
        return f"{found}: install pyspark (tests/run clients does), or name a folder of jars in ZOOKEEPER_JARS"
    return None


