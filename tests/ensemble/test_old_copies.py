"""Servers started with an old copy of their data, which operators must not do: a server that serves no client says why."""

import re
import shutil

import pytest

from ensemble.cluster import CALM, Ensemble
from ensemble.sessions import connect, root
from support.client import four_letter_command, words_table
from support.wait import wait_until


@pytest.fixture(scope="module")
def new_ensemble(shards):
    """Some elections are held here, one after the other."""
    return Ensemble("corral", shards=shards, settings={**CALM, "ensemble.election_ms": 300})


pytestmark = pytest.mark.usefixtures("only_corral")


def last_term(member):
    return max(int(term) for term in re.findall(r"leadership changed .*term=(\d+)", member.log()))


def test_a_server_whose_leader_lacks_its_data_says_so(ensemble):
    top = root(ensemble, "before")
    for member in ensemble.members:
        member.stop()
    victims, third = ensemble.members[:2], ensemble.members[2]
    for member in victims:
        shutil.copytree(member.directory / "data", member.directory / "copy")
    ensemble.start()
    with connect(ensemble.leader()) as client:
        for number in range(200):
            client.create(f"{top}/{number}")
    for member in ensemble.members:
        member.stop()
    for member in victims:
        shutil.rmtree(member.directory / "data")
        shutil.move(member.directory / "copy", member.directory / "data")
    # The two elect until theirs is the later term: then the third must follow one of them.
    known = last_term(third)
    while True:
        for member in victims:
            member.launch()
        for member in victims:
            wait_until(member.is_serving, "two of three serve")
        with connect(victims[0]) as client:
            client.set("/", b"")
        if last_term(victims[0]) > known + 1:
            break
        for member in victims:
            member.kill()
    begin = len(third.log())
    third.launch()

    def told():
        try:
            return words_table(four_letter_command(third.address, "mntr"), "\t")
        except OSError:
            return {}

    wait_until(lambda: told().get("zk_not_serving_reason") == "log-contradicts", "mntr tells why")
    assert told()["zk_serving"] == "0"
    text = four_letter_command(third.address, "srvr")
    assert "\nMode: follower\n" in text and "\nServing: no, its log and the leader's contradict each other" in text, text
    wait_until(lambda: "accepts no sessions and no writes: its log and" in third.log()[begin:], "the log tells why")
    # What the line says: without its data it is given everything, and serves.
    third.kill()
    for path in (third.directory / "data").iterdir():
        if path.name != "myid":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    third.start()
    wait_until(lambda: told().get("zk_serving") == "1", "mntr tells that it serves")
