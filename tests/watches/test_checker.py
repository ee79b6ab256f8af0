"""Proves that the checker notices: a recorded run is spoilt in one place, and must be refused for that reason."""

import copy

import pytest

from support import jute
from watches.checker import EVENT, REPLY, Checker, Violation
from watches.player import CONNECTIONS, ROUND_REQUESTS, Player

RECORDED_ROUNDS = 12
pytestmark = pytest.mark.usefixtures("seed")


@pytest.fixture(scope="module")
def recorded(server, drawn_seed):
    """A short run."""
    player = Player(server, CONNECTIONS, f"{drawn_seed}-recorded", server.kind == "corral")
    for _ in range(RECORDED_ROUNDS):
        player.round(ROUND_REQUESTS[1])
    player.expire()
    player.end()
    return player.entries


def places(entries, wanted):
    """All (round's messages, position) whose message is as wanted."""
    for entry in entries:
        if entry[0] == "round":
            for messages in entry[1].values():
                for position in range(len(messages)):
                    if wanted(messages, position):
                        yield messages, position


def is_live(messages, position):
    return messages[position][0] == EVENT and messages[position][1] > 0


def spoil(recorded, wanted, change, number=20):
    """A copy with the change made at the so-many-th place, or the last before it."""
    entries = copy.deepcopy(recorded)
    found = None
    for index, place in enumerate(places(entries, wanted)):
        found = place
        if index == number:
            break
    assert found, "the recording has no such place"
    change(*found)
    return entries


def caught(entries, *reasons):
    """Fails unless the checker refuses the entries with one of the reasons."""
    try:
        Checker().judge(entries)
    except Violation as violation:
        assert any(reason in str(violation) for reason in reasons), violation
        return str(violation).splitlines()[0][:160]
    raise AssertionError("the checker noticed nothing")


def test_the_recording_is_what_the_model_foresees(context, recorded, seed, note):
    note(f"seed {seed}, {sum(Checker().judge(recorded).values())} things judged")


def test_an_event_dropped(recorded, note):
    note(caught(spoil(recorded, is_live, lambda messages, at: messages.pop(at)), "are due", "lost"))


def test_an_event_doubled(recorded, note):
    note(caught(spoil(recorded, is_live, lambda messages, at: messages.insert(at, messages[at])), "are due"))


def test_two_events_swapped(recorded, note):
    def pair(messages, at):
        following = at + 1 < len(messages) and is_live(messages, at + 1)
        return is_live(messages, at) and following and messages[at] != messages[at + 1]

    def swap(messages, at):
        messages[at], messages[at + 1] = messages[at + 1], messages[at]

    note(caught(spoil(recorded, pair, swap), "are due"))


def test_an_event_behind_the_data(recorded, note):
    def before_reply(messages, at):
        return is_live(messages, at) and at + 1 < len(messages) and messages[at + 1][0] == REPLY

    def swap(messages, at):
        messages[at], messages[at + 1] = messages[at + 1], messages[at]

    note(caught(spoil(recorded, before_reply, swap), "lost"))


def test_an_event_with_another_zxid(recorded, note):
    def change(messages, at):
        message = messages[at]
        messages[at] = (EVENT, message[1] - 1, *message[2:])

    note(caught(spoil(recorded, is_live, change), "are due"))


def test_an_event_that_names_an_unreadable_node(recorded, note):
    """Leaks what the model withholds: every connection is told of everything below the root."""

    class Leaky(Checker):
        def fire(self, zxid, kind, path, acl, parent, parent_acl):
            withheld = self.counts["withheld"]
            super().fire(zxid, kind, path, acl, parent, parent_acl)
            if self.counts["withheld"] > withheld:
                self.leaks.append((zxid, kind, path))

    checker = Leaky()
    checker.leaks = []
    checker.judge(recorded)
    assert checker.leaks, "the recording withholds nothing"
    zxid, kind, path = checker.leaks[0]

    def just_behind(messages, at):
        return messages[at][0] == REPLY and messages[at][2] >= zxid and messages[at][1][0] not in ("auth", "set_watches")

    def insert(messages, at):
        messages.insert(at, (EVENT, zxid, kind, 3, path))

    note(caught(spoil(recorded, just_behind, insert, 0), "are due"))


def test_a_catch_up_event_dropped(recorded, note):
    def made_up(messages, at):
        return messages[at][0] == EVENT and messages[at][1] == -1

    note(caught(spoil(recorded, made_up, lambda messages, at: messages.pop(at)), "setWatches shows"))


def test_a_read_of_old_data(recorded, note):
    def a_read(messages, at):
        return messages[at][0] == REPLY and messages[at][1][0] == "get" and messages[at][3] == jute.OK

    def change(messages, at):
        kind, request, zxid, error, body = messages[at]
        messages[at] = (kind, request, zxid, error, jute.buffer(b"0") + body[-68:])

    note(caught(spoil(recorded, a_read, change), "shows"))
