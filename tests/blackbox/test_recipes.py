"""Recipes as commands: what they run, how they end, and that kazoo takes part in each."""

import json
import os
import signal
import subprocess
from contextlib import ExitStack, contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

from support.cli import CONFLICT, NO_ZNODE, USAGE, at
from support.client import exists_or_none
from support.expect import equal
from support.recipes import ABORTED, INTERRUPTED, NOT_EXECUTABLE, NOT_FOUND, SESSION_LOST, TIMED_OUT, arguments, done, refused, run, started
from support.server import binary
from support.wait import wait_until

LIMIT_S = 60
# Shows its process and its token, and then waits for standard input, which does not end.
SHOW = ("--", "sh", "-c", 'echo "$$ $CORRAL_FENCING_TOKEN"; exec sleep 3600')
LONG = ("--session-timeout", "60000")
# For sessions that are to expire.
SHORT = ("--session-timeout", "2000")
KILLED = 128 + signal.SIGKILL


@contextmanager
def kazoo(server):
    client = KazooClient(hosts=at(server), timeout=LIMIT_S)
    client.start(timeout=LIMIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def shown(process):
    """Process and fencing token of a running command."""
    return [int(word) for word in process.stdout.readline().split()]


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def children(server, path):
    with server.client() as client:
        return client.children(path) if exists_or_none(client, path) else []


def test_a_command_gets_lock_and_token_and_gives_its_code(server):
    tokens = []
    for _ in range(2):
        path, znode, token, *names = done(
            server, "lock", "/run/lock", "--", "sh", "-c", 'echo "$CORRAL_PATH $CORRAL_ZNODE $CORRAL_FENCING_TOKEN"'
        ).split()
        equal((path, znode.rpartition("/")[0], names), ("/run/lock", "/run/lock", []))
        tokens.append(int(token))
    assert tokens[0] < tokens[1]
    equal(children(server, "/run/lock"), [])
    for code, command in (
        (7, ("sh", "-c", "exit 7")),
        (KILLED, ("sh", "-c", "kill -9 $$")),
        (NOT_FOUND, ("/none",)),
        (NOT_EXECUTABLE, ("/",)),
    ):
        refused(server, code, "lock", "/run/lock", "--", *command)
    for words in (
        ("lock", "/", "--", "true"),
        ("lock", "run", "--", "true"),
        ("lock", "/run"),
        ("lock", "/run", "--timeout", "x", "--", "true"),
    ):
        refused(server, USAGE, *words)


def test_a_chroot_must_exist(server):
    for words in (("lock", "/x", "--", "true"), ("counter", "/x", "--add", "1"), ("kv", "set", "/x", "1")):
        result = subprocess.run([binary(), *words[:2], "--server", f"{at(server)}/none", *words[2:]], capture_output=True, text=True)
        equal(result.returncode, NO_ZNODE, result.stderr)
    assert "none" not in children(server, "/")


def test_only_one_holds_a_lock_and_readers_share_it(server):
    with started(server, "lock", "/one", "--id", "first", *LONG, *SHOW) as holder:
        shown(holder)
        assert 'held by "first"' in refused(server, TIMED_OUT, "lock", "/one", "--timeout", "0", "--", "true")
        refused(server, TIMED_OUT, "lock", "/one", "--shared", "--timeout", "0", "--", "true")
        with started(server, "lock", "/one", *LONG, *SHOW) as second:
            wait_until(lambda: len(children(server, "/one")) == 6, "two contenders")
            holder.send_signal(signal.SIGTERM)
            equal(holder.wait(LIMIT_S), 128 + signal.SIGTERM)
            shown(second)
    with started(server, "lock", "/shared", "--shared", *LONG, *SHOW) as reader:
        shown(reader)
        equal(done(server, "lock", "/shared", "--shared", "--timeout", "0", "--", "echo", "in"), "in\n")
        refused(server, TIMED_OUT, "lock", "/shared", "--timeout", "0", "--", "true")


def test_a_signal_ends_the_wait_and_leaves_nothing(server):
    with started(server, "lock", "/wait", *LONG, *SHOW) as holder:
        shown(holder)
        with started(server, "lock", "/wait", *LONG, "--", "true") as waiting:
            wait_until(lambda: len(children(server, "/wait")) == 6, "two contenders")
            waiting.send_signal(signal.SIGINT)
            equal(waiting.wait(LIMIT_S), INTERRUPTED)
        equal(len(children(server, "/wait")), 3)


def test_a_signal_ends_a_stopped_command(server):
    with started(server, "lock", "/stopped", *LONG, "--", "sh", "-c", 'echo "$$ 0"; kill -STOP $$') as holder:
        shown(holder)
        holder.terminate()
        equal(holder.wait(LIMIT_S), 128 + signal.SIGTERM)


def test_a_command_does_not_outlive_its_holder(server):
    with started(server, "lock", "/killed", *SHORT, *SHOW) as holder:
        pid, token = shown(holder)
        holder.kill()
        wait_until(lambda: not lives(pid), "the command ends")
    with started(server, "lock", "/killed", *SHOW) as following:
        assert shown(following)[1] > token


@pytest.mark.parametrize("on_lost, code", [("kill", "killed"), ("signal", "got SIGTERM")])
def test_a_command_ends_with_the_session(own_server, on_lost, code):
    with started(own_server, "lock", "/lost", "--on-lost", on_lost, *SHORT, *SHOW) as holder:
        pid, _ = shown(holder)
        os.kill(own_server.process.pid, signal.SIGSTOP)
        try:
            equal(holder.wait(LIMIT_S), SESSION_LOST)
            assert code in holder.stderr.read()
            assert not lives(pid)
        finally:
            os.kill(own_server.process.pid, signal.SIGCONT)


def test_a_command_ends_with_any_of_its_znodes(server):
    with started(server, "lock", "/gone", *LONG, *SHOW) as holder:
        shown(holder)
        with server.client() as client:
            (kazoo_name,) = (name for name in client.children("/gone") if "__lock__" in name)
            client.delete(f"/gone/{kazoo_name}")
        equal(holder.wait(LIMIT_S), SESSION_LOST)


def test_a_lock_outlives_the_server_process(own_server):
    with started(own_server, "lock", "/kept", *LONG, *SHOW) as holder:
        shown(holder)
        with started(own_server, "lock", "/kept", *LONG, *SHOW) as waiting:
            wait_until(lambda: len(children(own_server, "/kept")) == 6, "two contenders")
            own_server.kill()
            own_server.start()
            holder.send_signal(signal.SIGTERM)
            equal(holder.wait(LIMIT_S), 128 + signal.SIGTERM)
            shown(waiting)


def test_kazoo_and_corral_hold_the_same_lock(server):
    with kazoo(server) as client:
        with started(server, "lock", "/k/lock", *LONG, *SHOW) as holder:
            shown(holder)
            with pytest.raises(LockTimeout):
                client.Lock("/k/lock").acquire(timeout=0.1)
            with pytest.raises(LockTimeout):
                client.ReadLock("/k/lock").acquire(timeout=0.1)
        with client.WriteLock("/k/lock"):
            refused(server, TIMED_OUT, "lock", "/k/lock", "--timeout", "0", "--", "true")
            refused(server, TIMED_OUT, "lock", "/k/lock", "--shared", "--timeout", "0", "--", "true")
        with client.ReadLock("/k/lock"):
            refused(server, TIMED_OUT, "lock", "/k/lock", "--timeout", "0", "--", "true")
            done(server, "lock", "/k/lock", "--shared", "--timeout", "0", "--", "true")
        with client.Lock("/k/elect"):
            refused(server, TIMED_OUT, "elect", "/k/elect", "--timeout", "0", "--", "true")
        with started(server, "elect", "/k/elect", "--id", "me", *LONG, *SHOW) as leader:
            shown(leader)
            with pytest.raises(LockTimeout):
                client.Lock("/k/elect").acquire(timeout=0.1)
            assert client.Election("/k/elect").contenders()[0] == "me"


def test_observers_see_each_leader(server):
    with started(server, "elect", "/leader", "--observe") as text, started(server, "elect", "/leader", "--observe", "--json") as lines:
        equal(text.stdout.readline(), "no leader\n")
        equal(json.loads(lines.stdout.readline()), {"leader": None})
        for name in ("one", "two"):
            with started(server, "elect", "/leader", "--id", name, *LONG, *SHOW) as leader:
                _, token = shown(leader)
                equal(text.stdout.readline(), f"leader {name} token {token}\n")
                equal(json.loads(lines.stdout.readline()), {"leader": name, "token": token})
                equal(done(server, "elect", "/leader", "--observe", "--once"), f"leader {name} token {token}\n")
                leader.terminate()
                leader.wait(LIMIT_S)
            equal(text.stdout.readline(), "no leader\n")
            lines.stdout.readline()
        text.terminate()
        equal(text.wait(LIMIT_S), 0)


@pytest.mark.parametrize("layout", ["curator", "kazoo"])
def test_a_semaphore_has_its_leases(server, layout):
    path, words = f"/semaphore/{layout}", ("--leases", "2", "--layout", layout)
    with (
        started(server, "semaphore", path, *words, *LONG, *SHOW) as first,
        started(server, "semaphore", path, *words, *LONG, *SHOW) as second,
    ):
        assert shown(first)[1] != shown(second)[1]
        refused(server, TIMED_OUT, "semaphore", path, *words, "--timeout", "0", "--", "true")
        with started(server, "semaphore", path, *words, *LONG, *SHOW) as third:
            first.terminate()
            shown(third)
            if layout == "kazoo":
                assert "--leases 2" in refused(server, CONFLICT, "semaphore", path, "--leases", "3", "--layout", "kazoo", "--", "true")
                with kazoo(server) as client:
                    assert not client.Semaphore(path, max_leases=2).acquire(blocking=False)


def test_a_lease_needs_the_lock(server):
    words = ("semaphore", "/unlocked", "--leases", "1", *LONG, *SHOW)
    with started(server, *words) as first:
        shown(first)
        with started(server, *words) as second, server.client() as client:
            locks = "/unlocked/locks"
            wait_until(lambda: client.exists(locks) and client.children(locks), "the second one has the lock")
            client.delete(f"{locks}/{client.children(locks)[0]}")
            first.terminate()
            equal(second.wait(LIMIT_S), SESSION_LOST)


def test_members_of_a_barrier_begin_and_end_together(server):
    words = ("barrier", "enter", "/barrier", "--members", "3", *LONG)
    for _ in range(2):
        with ExitStack() as stack:
            members = [stack.enter_context(started(server, *words, *SHOW))]
            wait_until(lambda: len(children(server, "/barrier")) == 1, "a member")
            refused(server, TIMED_OUT, *words[:5], "--timeout", "0", "--", "true")
            members += [stack.enter_context(started(server, *words, *SHOW)) for _ in range(2)]
            pids = [shown(member)[0] for member in members]
            os.kill(pids[0], signal.SIGKILL)
            refused(server, TIMED_OUT, "barrier", "leave", "/barrier", "--timeout", "0")
            for pid in pids[1:]:
                os.kill(pid, signal.SIGKILL)
            equal([member.wait(LIMIT_S) for member in members], [KILLED] * 3)
        done(server, "barrier", "leave", "/barrier", "--timeout", "0")
    with kazoo(server) as client, started(server, "barrier", "enter", "/two", "--members", "2", *LONG) as member:
        barrier = client.DoubleBarrier("/two", 2)
        barrier.enter()
        barrier.leave()
        equal(member.wait(LIMIT_S), 0)


def test_the_limit_of_a_barrier_is_for_the_beginning(server):
    words = ("barrier", "enter", "/limit", "--members", "2", *LONG)
    with started(server, *words, *SHOW) as first:
        wait_until(lambda: children(server, "/limit"), "a member")
        with started(server, *words, "--timeout", "0", "--", "sh", "-c", "exit 3") as second:
            os.kill(shown(first)[0], signal.SIGKILL)
            equal((first.wait(LIMIT_S), second.wait(LIMIT_S)), (KILLED, 3))


def test_a_single_barrier(server):
    done(server, "barrier", "set", "/deep/barrier")
    refused(server, TIMED_OUT, "barrier", "wait", "/deep/barrier", "--timeout", "0")
    with started(server, "barrier", "wait", "/deep/barrier") as waiting:
        done(server, "barrier", "remove", "/deep/barrier")
        equal(waiting.wait(LIMIT_S), 0)
    done(server, "barrier", "wait", "/deep/barrier")


def test_an_item_is_removed_when_its_command_has_ended_well(server):
    done(server, "queue", "put", "/queue", "last", "--priority", "900")
    done(server, "queue", "put", "/queue", text="with\nlines")
    done(server, "queue", "put", "/queue", "--lines", text="".join(f"{number}\n" for number in range(250)))
    equal(done(server, "queue", "len", "/queue"), "252\n")
    equal(done(server, "queue", "peek", "/queue"), "with\nlines\n")
    refused(server, 3, "queue", "take", "/queue", "--", "sh", "-c", "exit 3")
    equal(done(server, "queue", "take", "/queue", "--", "cat"), "with\nlines")
    with started(server, "queue", "take", "/queue", *SHORT, *SHOW) as taker:
        shown(taker)
        equal(done(server, "queue", "take", "/queue"), "1\n")
        taker.kill()
        wait_until(lambda: not children(server, "/queue/taken"), "the item is free")
    equal([done(server, "queue", "take", "/queue") for _ in range(2)], ["0\n", "2\n"])
    equal(done(server, "queue", "len", "/queue"), "248\n")
    with kazoo(server) as client:
        queue = client.LockingQueue("/queue")
        equal(queue.get(), b"3")
        equal(done(server, "queue", "take", "/queue"), "4\n")
        assert queue.consume()
        queue.put(b"of kazoo", priority=1)
        equal(done(server, "queue", "take", "/queue"), "of kazoo\n")


def test_no_item_is_taken_by_a_closed_output(server):
    done(server, "queue", "put", "/closed", "item")
    words = arguments(server, ("queue", "take", "/closed"))
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], stderr=subprocess.PIPE, check=False)
    assert closed.returncode == 1 and b"closed" in closed.stderr, closed
    equal(done(server, "queue", "len", "/closed"), "1\n")


def test_lines_are_added_as_they_come(server):
    words = arguments(server, ["queue", "put", "/lines", "--lines"])
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as putter:
        for number in range(3):
            print(number, file=putter.stdin, flush=True)
            equal(done(server, "queue", "take", "/lines"), f"{number}\n")
        putter.send_signal(signal.SIGINT)
        equal(putter.wait(LIMIT_S), INTERRUPTED)
        assert "items added: 3" in putter.stderr.read()
    assert "longer than" in refused(server, USAGE, "queue", "put", "/lines", text="x" * 2_000_000)


def test_takers_wait_for_an_item(server):
    refused(server, TIMED_OUT, "queue", "take", "/empty", "--timeout", "0")
    refused(server, NO_ZNODE, "queue", "peek", "/empty")
    with ExitStack() as stack:
        takers = [stack.enter_context(started(server, "queue", "take", "/empty")) for _ in range(3)]
        wait_until(lambda: len(children(server, "/empty/waiting")) == 9, "three takers")
        done(server, "queue", "put", "/empty", "--lines", text="a\nb\nc")
        equal(sorted(taker.communicate(timeout=LIMIT_S)[0] for taker in takers), ["a\n", "b\n", "c\n"])


def test_each_addition_counts_once(server):
    with ExitStack() as stack:
        adding = [stack.enter_context(started(server, "counter", "/counter", "--add", "3")) for _ in range(8)]
        equal(sorted(int(process.communicate(timeout=LIMIT_S)[0]) for process in adding), [3 * number for number in range(1, 9)])
    equal(done(server, "counter", "/counter", "--add", "-25"), "-1\n")
    with kazoo(server) as client:
        counter = client.Counter("/counter")
        counter += 43
        equal(done(server, "counter", "/counter"), "42\n")
        done(server, "counter", "/four", "--set", "258", "--format", "int32")
        equal(client.Counter("/four", support_curator=True).value, 258)
    refused(server, CONFLICT, "counter", "/four")
    refused(server, CONFLICT, "counter", "/four", "--add", str(2**31 - 1), "--format", "int32")
    done(server, "counter", "/eight", "--set", str(2**63 - 1), "--format", "int64")
    refused(server, CONFLICT, "counter", "/eight", "--add", "1", "--format", "int64")


def test_members_join_and_leave(own_server):
    with started(own_server, "group", "watch", "/group") as watch:
        with started(own_server, "group", "join", "/group", "--id", "a", "--data", "10.0.0.1:80", *SHOW) as member:
            shown(member)
            equal(watch.stdout.readline(), "joined a 10.0.0.1:80\n")
            (record,) = map(json.loads, done(own_server, "group", "list", "/group", "--json").splitlines())
            equal((record["id"], record["data"]), ("a", "10.0.0.1:80"))
            with started(own_server, "group", "join", "/group", "--id", "a", *LONG) as double:
                assert "there is such a member" in double.stderr.readline()
                member.terminate()
                equal(watch.stdout.readline(), "left a 10.0.0.1:80\n")
                equal(watch.stdout.readline(), "joined a\n")
                double.terminate()
                equal(double.wait(LIMIT_S), 0)
        equal(watch.stdout.readline(), "left a\n")
    with kazoo(own_server) as client, started(own_server, "group", "join", "/party", "--layout", "kazoo", "--id", "me", *SHOW) as member:
        shown(member)
        equal(list(client.Party("/party")), ["me"])
        client.Party("/party", "you").join()
        equal(done(own_server, "group", "list", "/party").split(), ["me", "you"])


def test_values(server):
    refused(server, NO_ZNODE, "kv", "get", "/kv/a")
    command = ("--", "sh", "-c", 'echo "value $(cat)"')
    with started(server, "kv", "watch", "/kv/a", "--json") as watch, started(server, "kv", "watch", "/kv/a", *command) as run_each:
        equal(json.loads(watch.stdout.readline())["value"], None)
        assert "no such znode" in run_each.stderr.readline()
        done(server, "kv", "set", "/kv/a", "one")
        record = json.loads(watch.stdout.readline())
        equal((record["value"], record["version"]), ("one", 0))
        equal(run_each.stdout.readline(), "value one\n")
        done(server, "kv", "set", "/kv/a", "two", "--version", "0")
        refused(server, CONFLICT, "kv", "set", "/kv/a", "three", "--version", "0")
        equal((done(server, "kv", "get", "/kv/a"), done(server, "kv", "get", "/kv/a", "--raw")), ("two\n", "two"))
        equal(json.loads(watch.stdout.readline())["value"], "two")
    done(server, "kv", "set", "/kv/a", text="of a pipe\n")
    equal(done(server, "kv", "get", "/kv/a", "--raw"), "of a pipe\n")
    refused(server, NO_ZNODE, "kv", "set", "/kv/none", "x", "--version", "0")


def votes(server, path, **sites):
    """What each site and the coordinator print, and their exit codes."""
    with ExitStack() as stack:
        both = [("coordinate", path, "--sites", ",".join(sites), "--data", "move")]
        both += [("vote", path, "--site", site, *words) for site, words in sites.items()]
        processes = [stack.enter_context(started(server, "2pc", *words)) for words in both]
        return {(process.communicate(timeout=LIMIT_S)[0], process.returncode) for process in processes}


def test_sites_decide_together(server):
    equal(votes(server, "/tx/1", a=("--commit",), b=("--", "grep", "-q", "move")), {("commit\n", 0)})
    equal(votes(server, "/tx/2", a=("--commit",), b=("--", "false")), {("abort\n", ABORTED)})
    equal(votes(server, "/tx/3", a=("--abort",), b=("--commit",)), {("abort\n", ABORTED)})
    # A site that begins again finds the decision, and one that comes late does not change it.
    equal(done(server, "2pc", "vote", "/tx/1", "--site", "b", "--abort"), "commit\n")
    refused(server, ABORTED, "2pc", "coordinate", "/tx/4", "--sites", "a,b", "--timeout", "0")
    refused(server, ABORTED, "2pc", "vote", "/tx/4", "--site", "a", "--commit")
    refused(server, CONFLICT, "2pc", "coordinate", "/tx/4", "--sites", "a,c")
    refused(server, TIMED_OUT, "2pc", "vote", "/tx/none", "--site", "a", "--commit", "--timeout", "0")
    refused(server, CONFLICT, "2pc", "coordinate", "/tx/4", "--sites", "a,b", "--data", "other")
    refused(server, CONFLICT, "2pc", "vote", "/tx/4", "--site", "c", "--commit")
    refused(server, USAGE, "2pc", "coordinate", "/tx/5", "--sites", "a,decision")
    refused(server, USAGE, "2pc", "coordinate", "/tx/5", "--sites", "a,a")


def test_a_site_that_is_late_aborts_for_all(server):
    with started(server, "2pc", "coordinate", "/tx/late", "--sites", "a,b") as coordinator:
        refused(server, ABORTED, "2pc", "vote", "/tx/late", "--site", "a", "--timeout", "0.1", "--", "sleep", "3600")
        equal((coordinator.communicate(timeout=LIMIT_S)[0], coordinator.returncode), ("abort\n", ABORTED))


def test_sites_do_not_depend_on_their_coordinator(server):
    with started(server, "2pc", "coordinate", "/tx/6", "--sites", "a,b") as coordinator:
        wait_until(lambda: "6" in children(server, "/tx"), "the transaction")
        coordinator.kill()
    with started(server, "2pc", "vote", "/tx/6", "--site", "a", "--commit") as early:
        with server.client() as client:
            wait_until(lambda: client.get("/tx/6/a")[0] == b"commit", "the vote")
        assert run(server, "2pc", "vote", "/tx/6", "--site", "b", "--commit", "--timeout", "0").returncode == ABORTED
        equal((early.communicate(timeout=LIMIT_S)[0], early.returncode), ("abort\n", ABORTED))
