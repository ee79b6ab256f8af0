"""Ensembles of a test's own, and what is done to their files."""

from ensemble.cluster import CALM, Ensemble
from support.wait import wait_until


class Own:
    """An ensemble of the test's own, not started."""

    def __init__(self, settings=None):
        self.ensemble = Ensemble("corral", settings={**CALM, **(settings or {})})

    def __enter__(self):
        return self.ensemble

    def __exit__(self, kind, fault, trace):
        if kind:
            print(self.ensemble.log_tails())
        self.ensemble.dispose()


def says(member, words):
    wait_until(lambda: words in member.log(), f"it says {words!r}")


def empty(member):
    """Removes whatever the member keeps, as a new disk would."""
    for path in (member.directory / "data").rglob("*"):
        if path.is_file() and path.name != "myid" and ".dynamic" not in path.name:
            path.unlink()
