"""Certificates of the links are renewed while the servers run: at SIGHUP, or when the files change.

An ensemble of three has certificates that openssl makes here, one a server.
"""

import signal
import ssl
import time

import pytest

from ensemble.authority import Authority
from ensemble.cluster import CALM, Ensemble
from ensemble.sessions import connect, connect_to_new_leader, seen
from support.client import four_letter_command, words_table
from support.expect import equal
from support.wait import wait_until

DAYS_FIRST, DAYS_SECOND = 30, 60
BAD_CONFIGURATION = 3


class Encrypted(Ensemble):
    """Three servers with a certificate each."""

    def __init__(self, shards, authority):
        super().__init__("corral", shards=shards, settings=CALM)
        self.authority = authority
        for member in self.members:
            for name in ("cert", "key", "ca"):
                member.settings[f"ensemble.tls_{name}"] = f"{name}.pem"
            put(member, self.authority.sign(DAYS_FIRST), self.authority.pem())

    def shown(self, member):
        """The certificate that the server shows to a client."""
        port = int(self.specs[self.number(member)].split(":")[1])
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)

    def links(self, member):
        """Whether all links stand, and how often they have been made anew."""
        facts = figures(member)
        peers = [self.number(other) for other in self.members if other is not member]
        stand = all(facts[f"zk_peer_{peer}_connected"] == "1" for peer in peers)
        return stand, sum(int(facts[f"zk_peer_{peer}_reconnects"]) for peer in peers)


@pytest.fixture(scope="module")
def new_ensemble(shards, authority, only_corral):
    return Encrypted(shards, authority)


def put(member, pair=None, authorities=None):
    """Moves files into their places."""
    texts = dict(zip(("cert.pem", "key.pem"), pair or ()))
    if authorities:
        texts["ca.pem"] = authorities
    for name, text in texts.items():
        (member.directory / f"{name}.new").write_text(text)
        (member.directory / f"{name}.new").rename(member.directory / name)


def figures(member):
    return words_table(four_letter_command(member.address, "mntr", 5), "\t")


def expires_in_days(member):
    return round((int(figures(member)["zk_tls_certificate_expires"]) - time.time()) / 86_400)


def hang_up(member):
    """SIGHUP; waits until the files were read; whether they were taken."""
    told = ("certificates reloaded; new connections use them", "certificates not reloaded, those in use stay")
    before = [member.log().count(text) for text in told]
    member.process.send_signal(signal.SIGHUP)
    wait_until(lambda: [member.log().count(text) for text in told] != before, "the files are read again")
    return member.log().count(told[0]) > before[0]


def test_a_renewed_certificate_is_shown(ensemble):
    member = ensemble.followers()[0]
    first, links = ensemble.shown(member), ensemble.links(member)
    assert links[0], "all links stand"
    equal(expires_in_days(member), DAYS_FIRST)
    renewed = ensemble.authority.sign(DAYS_SECOND)
    put(member, renewed)
    equal(ensemble.shown(member), first, "no signal told it of the new files")
    assert hang_up(member)
    equal(ensemble.shown(member).split(), renewed[0].split())
    equal(expires_in_days(member), DAYS_SECOND)
    equal(ensemble.links(member), links, "the links that stood go on")


def test_the_authority_is_replaced_while_all_serve(ensemble):
    with connect(ensemble.members[0]) as client:
        client.create("/before")
        second = Authority(ensemble.members[0].directory, "second")
        both = ensemble.authority.pem() + second.pem()
        links = {member: ensemble.links(member) for member in ensemble.members}
        for step in ({"authorities": both}, {"pair": second}, {"authorities": second.pem()}):
            for member in ensemble.members:
                put(member, **{key: value.sign(DAYS_FIRST) if key == "pair" else value for key, value in step.items()})
                assert hang_up(member)
        equal({member: ensemble.links(member) for member in ensemble.members}, links, "the links that stood go on")
        client.create("/meanwhile")
    ensemble.authority = second
    # One that starts anew, with the new files alone, finds the others and is found by them.
    leader = ensemble.leader()
    leader.kill()
    with connect_to_new_leader([member for member in ensemble.members if member is not leader]) as client:
        client.create("/without-it")
    ensemble.start()
    for member in ensemble.members:
        wait_until(lambda member=member: ensemble.links(member)[0], "all links stand")
        equal(seen(member, "/without-it"), b"")


def test_a_certificate_that_cannot_be_used_is_not_taken(ensemble):
    """Neither while the server runs, nor at its start if the other servers would refuse it."""
    member = ensemble.followers()[0]
    number, sign = ensemble.number(member), ensemble.authority.sign
    own, links = sign(DAYS_SECOND, f"DNS:server-{number}"), ensemble.links(member)
    put(member, own)
    assert hang_up(member), member.log_tail(5)
    refused = "cert.pem: the other servers would refuse this one: its certificate is "
    bad = (
        (("no certificate", own[1]), "cert.pem: no certificate is in it"),
        ((own[0], sign(DAYS_FIRST)[1]), "cert.pem and key.pem cannot be used"),
        ((own[0], "no key"), "key.pem: no private key is in it"),
        (sign(0), "cert.pem: the certificate expired 0 days ago"),
        (
            sign(DAYS_FIRST, f"DNS:server-{number % 3 + 1}"),
            f'{refused}neither for "127.0.0.1", the host that server {number} is configured with',
        ),
        (Authority(member.directory, "stranger").sign(DAYS_FIRST), f"{refused}not signed by an authority this server trusts"),
    )
    for pair, why in bad:
        put(member, pair)
        assert not hang_up(member), why
        assert why in member.log_tail(5), member.log_tail(5)
        equal(ensemble.shown(member).split(), own[0].split(), why)
    equal(ensemble.links(member), links, "the links that stood go on")
    member.kill()
    for pair, why in bad[-2:]:
        put(member, pair)
        member.launch()
        equal(member.process.wait(60), BAD_CONFIGURATION, member.log_tail())
        assert why in member.log_tail(5), member.log_tail(5)
    put(member, own)
    ensemble.start()
    wait_until(lambda: ensemble.links(member)[0], "all links stand")


def test_files_that_change_are_read(ensemble):
    member = ensemble.members[0]
    with open(member.directory / "zoo.cfg", "a", encoding="ascii") as config:
        config.write("sslQuorumReloadCertFiles=true\n")
    member.restart()
    first = ensemble.shown(member)
    renewed = ensemble.authority.sign(DAYS_SECOND)
    put(member, renewed)
    wait_until(lambda: ensemble.shown(member) != first, "the new certificate is shown")
    equal(ensemble.shown(member).split(), renewed[0].split())
