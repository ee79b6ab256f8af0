"""kazoo's recipes with contenders as separate processes, and leaders that are killed."""

import time

from clients import elections
from clients.contenders import Contenders
from support.expect import equal
from support.wait import wait_until

CONTENDERS = 6
TICK_MS = 500
ELECTION_TIMEOUT_S = 2.0


def lock_role(client, pipe, name, path, rounds):
    """Under the lock, reads a number and writes it back increased, without looking at versions."""
    lock = client.Lock(f"{path}/lock", name)
    for _ in range(rounds):
        with lock:
            value = int(client.get(path)[0])
            client.set(path, b"%d" % (value + 1))
    pipe.send(name)


def test_lock(context, note):
    client, rounds = context.client(), 5
    client.create(context.path, b"0")
    with Contenders(context.address, lock_role, arguments=(context.path, rounds)) as contenders:
        contenders.told_by_each()
    equal(client.get(context.path)[0], b"%d" % (CONTENDERS * rounds), "increments that the lock protected")
    equal(client.children(f"{context.path}/lock"), [])
    note(f"{CONTENDERS * rounds} increments, none lost")


def killed_holder_role(client, pipe, name, path):
    with client.Lock(path, name):
        pipe.send(name)
        pipe.recv()


def test_lock_of_a_killed_holder(context):
    with Contenders(context.address, killed_holder_role, timeout_s=2.0, arguments=(context.path,)) as contenders:
        holders = []
        for _ in range(3):
            holders.append(contenders.told_by_any())
            contenders.named(holders[-1]).kill()
        holders.append(contenders.told_by_any())
        equal(len(set(holders)), 4, "each holder is another")


def counter_role(client, pipe, name, path, rounds):
    counter = client.Counter(path)
    for _ in range(rounds):
        counter += 1
    pipe.send(name)


def test_counter(context, note):
    client, rounds = context.client(), 20
    with Contenders(context.address, counter_role, arguments=(context.path, rounds)) as contenders:
        contenders.told_by_each()
    equal(client.get(context.path)[0], b"%d" % (CONTENDERS * rounds))
    # Every increment that was refused for its version changed nothing.
    equal(client.exists(context.path).version, CONTENDERS * rounds)
    note(f"{CONTENDERS * rounds} increments, none lost")


def locking_queue_role(client, pipe, name, path, count):
    line = client.LockingQueue(path)
    line.put_all([f"{name}-{number}".encode() for number in range(count)])
    pipe.send("put")
    pipe.recv()
    taken = []
    while (entry := line.get(timeout=2)) is not None:
        taken.append(entry.decode())
        assert line.consume()
    pipe.send(taken)


def test_locking_queue(context, note):
    count = 10
    with Contenders(context.address, locking_queue_role, arguments=(context.path, count)) as contenders:
        contenders.told_by_each()
        for contender in contenders.all:
            contender.tell("take")
        taken = [entry for entries in contenders.told_by_each() for entry in entries]
    equal(sorted(taken), sorted(f"c{who}-{number}" for who in range(CONTENDERS) for number in range(count)))
    note(f"{len(taken)} entries, each taken once")


def party_role(client, pipe, name, path):
    party = client.Party(path, name)
    party.join()
    pipe.send("joined")
    pipe.recv()
    pipe.send(sorted(party))
    pipe.recv()
    party.leave()
    pipe.send("left")


def test_party(context):
    client = context.client()
    with Contenders(context.address, party_role, timeout_s=2.0, arguments=(context.path,)) as contenders:
        contenders.told_by_each()
        names = sorted(contender.name for contender in contenders.all)
        contenders.all[3].kill()
        contenders.all[5].kill()
        wait_until(lambda: len(client.children(context.path)) == CONTENDERS - 2, "the killed contenders are gone")
        for contender in contenders.alive():
            contender.tell("look")
        equal(contenders.told_by_each(), [[name for name in names if name not in ("c3", "c5")]] * (CONTENDERS - 2))
        for contender in contenders.alive():
            contender.tell("leave")
        contenders.told_by_each()
    equal(client.children(context.path), [])


def test_election_watching_the_predecessor(context, note):
    note(check_election(context, elections.contend, elections.WatchPredecessor))


def test_election_of_kazoo(context, note):
    note(check_election(context, elections.contend_with_kazoo))


def check_election(context, role, *algorithm, kills=1):
    """Kills leader after leader; each time exactly one other takes over, and not before the session has timed out."""
    context.client().create(context.path)
    with Contenders(context.address, role, CONTENDERS, ELECTION_TIMEOUT_S, (*algorithm, context.path)) as contenders:
        messages = [contenders.told_by_any() for _ in range(CONTENDERS + 1)]
        leaders = [name for what, name in messages if what == "leader"]
        equal(len(leaders), 1, "leaders at the start")
        took = []
        for _ in range(kills):
            contenders.named(leaders[-1]).kill()
            begin = time.monotonic()
            what, name = contenders.told_by_any()
            took.append(time.monotonic() - begin)
            equal(what, "leader")
            leaders.append(name)
            # kazoo pings a third of the timeout after it last sent something.
            assert took[-1] >= ELECTION_TIMEOUT_S * 0.6, f"a leader was replaced {took[-1]:.2f} s after its death"
            for contender in contenders.alive():
                contender.tell("report")
            equal(sorted(contenders.told_by_each()), [("report", False)] * (len(contenders.alive()) - 1) + [("report", True)])
        equal(len(set(leaders)), kills + 1, "each leader is another")
    return "took over after " + ", ".join(f"{seconds:.2f} s" for seconds in took)
