"""kill -9 of a single server under load, and damage to its files and to those of one of three, again and again."""

import random

from durability import flips
from oracle.model import Mismatch
from oracle.rounds import SETTINGS, Alone, Rounds
from support.server import Corral

SETTLE_EVERY, SAY_EVERY = 20, 5
PLACES = 20
# A new server after so many rounds of damage.
ROUNDS = 8


def test_nothing_acknowledged_is_lost(only_corral, shards, seed, is_over, say, note):
    say(f"seed {seed}")
    server = Corral(shards, tick_ms=250, settings=SETTINGS).start()
    try:
        rounds, number = Rounds(Alone(server), seed, session_ms=5000), 0
        while not is_over():
            try:
                rounds.kill([server])
                if number % SETTLE_EVERY == SETTLE_EVERY - 1:
                    rounds.settle()
            except Mismatch as error:
                raise AssertionError(f"kill {number} of seed {seed}: {error}") from error
            number += 1
            if number % SAY_EVERY == 0:
                say(f"{number} kills: {rounds.history.acknowledged} acknowledged writes")
        note(f"seed {seed}: {rounds.summary()}")
    finally:
        server.dispose()


def test_nothing_damaged_is_served(only_corral, shards, seed, is_over, say, note):
    say(f"seed {seed}")
    pick, damage, turn = random.Random(seed), flips.Damage(seed), 0
    while not is_over():
        world, turn = flips.WORLDS[turn % 2](shards, f"{seed}-{turn}"), turn + 1
        failed = True
        try:
            for _ in range(ROUNDS):
                when, kind, places = pick.choice(flips.WHEN), pick.choice(list(flips.FILES)), pick.randint(1, PLACES)
                say(f"{damage.places} places so far; {type(world).__name__}, {when.__name__}, {kind}, {places} places")
                when(world, kind, damage, places, merges=pick.random() < 0.5)
                if is_over():
                    break
            failed = False
        finally:
            world.dispose(keep=failed)
    note(f"seed {seed}: {damage.places} places")
