"""One corral for tests of a single server: alone, or, with CORRAL_ENSEMBLE=3, a follower of three (differential, test_transports.py).

The test talks to one member, kills it, starts it again and looks into its files and its log; the others only make up the ensemble.
It stays the same member from the first start on, so that its address does.
"""

import os

from ensemble.cluster import CALM, Ensemble
from support.client import four_letter_command
from support.server import Corral, Server
from support.wait import wait_until


def ensemble_size():
    return int(os.environ.get("CORRAL_ENSEMBLE", "1"))


def corral(shards=2, tick_ms=500, settings=None):
    """The server under test, not started."""
    size = ensemble_size()
    return Follower(size, shards, tick_ms, settings) if size > 1 else Corral(shards, tick_ms, settings)


class Follower(Server):
    """A member that follows when the ensemble has formed; another member leads then."""

    kind = "corral"
    # Before the first start there is none.
    member = None

    def __init__(self, size, shards, tick_ms, settings):
        # What a single server begins with, so that the suites ask the same of both.
        lines = {"reconfigEnabled": "false", "extendedTypesEnabled": "true"}
        self.ensemble = Ensemble("corral", size, shards, tick_ms, settings={**CALM, **(settings or {})}, lines=lines)
        self.tick_ms, self.shards = tick_ms, shards

    def __getattr__(self, name):
        """Address, process, files and log are the member's."""
        if name in ("member", "ensemble"):
            raise AttributeError(name)
        return getattr(self.member or self.ensemble.members[-1], name)

    def start(self, limit_s=60):
        self.ensemble.start(limit_s)
        self.member = self.member or self.ensemble.followers()[0]
        # Clients may be served a moment before the status that srvr shows is.
        wait_until(lambda: "Serving: no" not in four_letter_command(self.member.address, "srvr"), "srvr shows that it serves")
        return self

    def log(self):
        """The logs of all members, that of the follower last."""
        others = [member for member in self.ensemble.members if member is not self.member]
        return "\n".join(member.log() for member in [*others, *([self.member] if self.member else [])])

    def dispose(self, keep=False):
        self.ensemble.dispose(keep)
