"""Ordinary events need no operator: they log no WARN and no ERROR."""

from ensemble.cluster import CALM, FOLLOWING, LEADING, OBSERVING, Ensemble, share_secret
from ensemble.config import ask, serves_as, shows_list_of
from support.expect import equal
from support.wait import wait_until


def keep_private(member):
    """Gives the member the secret of the ensemble, and a data directory of its own user."""
    share_secret(member, "quiet" * 8)
    (member.directory / "data").chmod(0o700)


def warnings(ensemble):
    """The WARN and ERROR lines of all servers, each with the number of its server."""
    lines = ((ensemble.number(member), line) for member in ensemble.members for line in member.log().splitlines())
    return [(number, line) for number, line in lines if " WARN " in line or " ERROR " in line]


def test_starts_a_rolling_restart_and_a_join_log_no_warning(only_corral, run_ensemble, shards):
    """Three servers are bootstrapped and restarted in turn, each with a client that writes. A fourth one waits, and joins by reconfig."""
    ensemble = Ensemble("corral", shards=shards, settings=CALM)
    for member in ensemble.members:
        keep_private(member)
    run_ensemble(ensemble)
    with ensemble.members[0].client() as client:
        client.create("/quiet", b"")
    for member in ensemble.members:
        with member.client() as client:
            client.set("/quiet", b"before")
            equal(member.stop(), 0, "the exit code of an orderly stop")
        member.start()
        serves_as(member, (LEADING, FOLLOWING))
        shows_list_of(member, ensemble.specs)
    old = list(ensemble.members)
    joiner = ensemble.joiner("observer")
    keep_private(joiner)
    joiner.launch()
    wait_until(lambda: "waits to be added to the ensemble" in joiner.log(), "it waits for the reconfig")
    ask(old, joining=f"server.4={ensemble.specs[4]}")
    serves_as(joiner, (OBSERVING,))
    equal(warnings(ensemble), [], "warnings of ordinary starts and stops")
