"""Recipes of `corral` beside those of kazoo or of Curator, on three servers, under faults of contenders and of servers.

A round is a path with a few contenders. Many rounds run at once. `resource.py` records and judges their sections. Kazoo and Curator do
not exclude each other, so a round has contenders of one of them. A round is drawn from the seed and its number. The times of the
faults of servers are drawn too, but which rounds they meet is not. Servers are cut off where there can be network namespaces.
"""

import contextlib
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from campaigns import namespaces, section
from campaigns.gate import Gate
from campaigns.resource import KILLED, LOST, STUCK, Contender, Resource, Section, Space
from clients import programs
from ensemble.cluster import CALM, Ensemble, pause, resume
from support import packages
from support.server import binary
from support.wait import TooLate, wait_until

HERE = Path(__file__).resolve().parent
SESSION_MS, ROUNDS_MAX, IN_FLIGHT, FINDINGS_MAX, SAY_S = 3000, 10_000, 16, 5, 10
# A contender of another project waits HOLD_LIMIT_S at most. After LIMIT_S a contender is stuck.
HOLD_LIMIT_S, LIMIT_S, POLL_S = 40, 90, 0.01
# The last number of the address that clients have.
CLIENTS = 254
STALL_S = SESSION_MS / 1000 / 3
# From a pause that a session outlives to one that it does not.
PAUSE_MIN_S, PAUSE_MAX_S = SESSION_MS / 1000 * 0.7, SESSION_MS / 1000 * 1.5
RECIPES = {"lock": 4, "rwlock": 4, "elect": 3, "semaphore": 3, "barrier": 2, "queue": 2}
# Faults of a contender. A long section is met by faults of servers.
FAULTS = {"none": 10, "long": 1, "kill": 4, "pause": 2, "interrupt": 2, "cut": 2}
FAULT_NAMES = {"kill": "killed", "pause": "paused", "interrupt": "interrupted", "cut": "disturbed"}
LONG_MIN_S, LONG_MAX_S = 2, 6
SERVER_FAULTS = ("kill one", "kill leader", "pause leader", "cut leader", "cut clients of one", "cut all clients")


class Driver:
    """A process with contenders of kazoo or Curator, which is started again when it was killed."""

    def __init__(self, command):
        self.command, self.lock, self.process, self.waiting, self.is_paused = command, threading.Lock(), None, {}, False

    def run(self, contender, path):
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen(
                    self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
                self.waiting = {}
                threading.Thread(target=self.read, args=(self.process, self.waiting), daemon=True).start()
            done = self.waiting[contender.number] = threading.Event()
            contender.process, waiting = self.process, self.waiting
            contender.faults |= {"paused"} if self.is_paused else set()
            words = (contender.number, contender.action, path, contender.space.limit, contender.limit_s or HOLD_LIMIT_S, contender.item)
            with contextlib.suppress(BrokenPipeError):
                print(*words, file=self.process.stdin, flush=True)
        if not done.wait(LIMIT_S):
            return STUCK
        if (code := waiting.pop(contender.number)) == KILLED:
            contender.faults.add("killed")
        return code

    def read(self, process, waiting):
        for line in process.stdout:
            # Loggers write to the same output.
            word, *numbers = line.split()
            number, code = map(int, numbers) if word == "done" else (None, None)
            if isinstance(done := waiting.get(number), threading.Event):
                waiting[number] = code
                done.set()
        process.wait()
        for number, done in list(waiting.items()):
            if isinstance(done, threading.Event):
                waiting[number] = KILLED
                done.set()

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Campaign:
    def __init__(self, ensemble, seed, say, directory, part=""):
        self.ensemble, self.seed, self.say, self.part = ensemble, seed, say, part
        self.resource, self.counts, self.findings = Resource(str(directory / "resource")), Counter(), []
        self.numbers, self.live, self.is_disturbed, self.lock = itertools.count(1), set(), False, threading.Lock()
        self.servers = self.ensemble.addresses()
        self.kazoo = KazooClient(
            self.servers, timeout=30, connection_retry={"max_tries": -1}, command_retry={"max_tries": -1, "max_delay": 1}
        )
        self.kazoo.start(LIMIT_S)
        last = [self.servers, self.resource.address, str(SESSION_MS)]
        jars = f"{packages.curator_jars()}/*"
        java = programs.java_program(directory, jars, "CuratorContender")
        self.drivers = {
            "kazoo": [Driver([sys.executable, str(HERE / "kazoo_contender.py"), *last]) for _ in range(3)],
            "curator": [Driver([*java, *last])],
        }

    def end(self):
        for driver in itertools.chain(*self.drivers.values()):
            driver.end()
        self.kazoo.stop()
        self.kazoo.close()
        self.resource.is_over = True

    def count(self, one):
        contenders = one.space.contenders
        counted = [f"{contender.kind} code {contender.code}" for contender in contenders]
        counted += [f"sections {section.how}" for contender in contenders for section in contender.sections]
        counted += ["rounds disturbed"] * any("disturbed" in contender.faults for contender in contenders)
        with self.lock:
            self.counts.update([*counted, "rounds", f"{one.recipe} with {one.other}"])

    def begin(self, contender):
        """A contender that runs during a fault of servers is marked."""
        with self.lock:
            self.live.add(contender)
            if self.is_disturbed:
                contender.faults.add("disturbed")
        contender.begun = time.monotonic()

    def ended(self, contender, code):
        contender.returned, contender.code = time.monotonic(), code
        with self.lock:
            self.live.discard(contender)

    def mark(self, fault, process=None):
        """Marks contenders that run: all, or those of a process."""
        with self.lock:
            self.is_disturbed = self.is_disturbed or process is None
            for contender in self.live:
                if process in (None, contender.process):
                    contender.faults.add(fault)

    def trouble(self, is_over):
        """Faults of servers one by one, with calm times between them."""
        chance, name = random.Random(f"{self.seed} servers"), "the start"
        names = [name for name in SERVER_FAULTS if "cut" not in name or isinstance(self.ensemble, namespaces.Apart)]
        try:
            while not is_over():
                time.sleep(chance.uniform(3, 12))
                name, member, leader = chance.choice(names), chance.choice(self.ensemble.members), self.ensemble.leader()
                self.mark("disturbed")
                self.fault(name, member, leader, chance.uniform(0.2, 3))
                self.ensemble.start()
                self.ensemble.followers()
                time.sleep(SESSION_MS / 1000)
                self.counts[name] += 1
                self.is_disturbed = False
        except (TooLate, RuntimeError) as error:
            self.findings.append(f"after {name}: {error}")

    def watch(self, is_over):
        """Marks contenders that run while the servers do not answer, which may be the machine's fault."""
        while not is_over():
            began = time.monotonic()
            self.kazoo.retry(self.kazoo.ensure_path, "/recipes")
            self.kazoo.retry(self.kazoo.set, "/recipes", b"")
            if time.monotonic() - began > STALL_S:
                self.counts["stalls"] += 1
                for contender in list(self.resource.contenders.values()):
                    if contender.returned > began:
                        contender.faults.add("disturbed")
            time.sleep(0.1)

    def fault(self, name, member, leader, time_s):
        if name.startswith("kill"):
            (leader if name == "kill leader" else member).kill()
            time.sleep(time_s)
        elif name == "pause leader":
            pause(leader)
            time.sleep(time_s)
            resume(leader)
        else:
            cut = {"cut leader": [leader], "cut clients of one": [member], "cut all clients": self.ensemble.members}[name]
            others = [one.number for one in self.ensemble.members if one is not leader] if name == "cut leader" else [CLIENTS]
            for one in cut:
                for other in others:
                    self.ensemble.network.cut(other, one.number)
                    if other != CLIENTS:
                        self.ensemble.network.cut(one.number, other)
            time.sleep(time_s + (SESSION_MS / 1000 if name == "cut all clients" else 0))
            self.ensemble.network.heal()


class Round:
    def __init__(self, campaign, number, kinds=None):
        """`kinds` are the contenders, otherwise drawn."""
        self.campaign, self.number, self.random = campaign, number, random.Random(f"{campaign.seed} {number}")
        self.recipe = self.drawn({name: weight for name, weight in RECIPES.items() if campaign.part in name})
        self.other, self.fault = self.random.choice(("kazoo", "curator")), self.drawn(FAULTS)
        if self.recipe == "queue":
            self.other = "kazoo"
        self.drivers = {kind: self.random.choice(drivers) for kind, drivers in campaign.drivers.items()}
        self.path = f"/recipes/{number}/path"
        size = self.random.randint(2, 5)
        # One member of a barrier may be missing.
        self.is_short = self.recipe == "barrier" and self.random.random() < 0.2
        limit = {"semaphore": self.random.randint(1, 3), "barrier": size + self.is_short}.get(self.recipe, 1)
        self.space = Space(self.recipe, limit)
        # Curator's latch and its selector do not exclude each other.
        self.elects = self.random.choice(("latch", "lock")) if self.other == "curator" else "elect"
        self.times = 1 if self.recipe == "barrier" else self.random.randint(1, 3)
        kinds = kinds or ["corral", *(self.random.choice(("corral", self.other)) for _ in range(size - 1))]
        self.chains = [[self.contender(kind) for _ in range(self.times)] for kind in kinds]
        self.victim = self.random.choice(self.random.choice(self.chains))
        if self.fault == "cut":
            # The first one is of corral.
            self.victim, self.gate = self.random.choice(self.chains[0]), Gate(campaign.servers)
        self.holds, self.is_over, self.findings = self.random.random() < 0.7, False, []
        if self.fault == "long":
            self.victim.hold_s = self.random.uniform(LONG_MIN_S, LONG_MAX_S)
        elif self.fault != "none" and self.holds:
            self.victim.hold_s = math.inf

    def drawn(self, weights):
        return self.random.choices(list(weights), list(weights.values()))[0]

    def contender(self, kind, **more):
        action = {"rwlock": self.random.choice(("read", "write")), "elect": self.elects, "queue": "take"}.get(self.recipe, self.recipe)
        made = Contender(next(self.campaign.numbers), kind, action, self.space, **more)
        made.hold_s, made.delay_s = self.random.uniform(0, 0.02), self.random.uniform(0, 0.05)
        made.on_lost = self.random.choice(("kill", "kill", "signal", "ignore"))
        if self.recipe == "semaphore":
            made.hold_s *= 5
        if self.recipe == "barrier":
            made.hold_s, made.delay_s, made.limit_s = 0.3, self.random.uniform(0, 0.2), 1 if self.is_short else 20
        elif self.recipe == "queue":
            made.limit_s, made.prints = 1, self.random.random() < 0.3
        elif self.random.random() < 0.1:
            made.limit_s = self.random.choice((0.05, 0.3))
        if made.limit_s and (self.is_short or self.recipe != "barrier"):
            made.faults.add("limited")
        self.space.contenders.append(made)
        self.campaign.resource.contenders[made.number] = made
        return made

    def command(self, contender):
        path, space = self.path, self.space
        words = {
            "lock": ["lock", path], "rwlock": ["lock", path, *["--shared"] * contender.is_shared], "elect": ["elect", path],
            "semaphore": ["semaphore", path, "--leases", space.limit, "--layout", self.other],
            "barrier": ["barrier", "enter", path, "--members", space.limit], "queue": ["queue", contender.action, path],
        }[self.recipe]  # fmt: skip
        servers = self.gate.address if self.fault == "cut" and contender is self.victim else self.campaign.servers
        words += ["--server", servers, "--session-timeout", SESSION_MS]
        if contender.action == "put":
            words += [contender.item, "--priority", self.random.randint(0, 999)]
        else:
            words += ["--timeout", contender.limit_s] if contender.limit_s else []
            words += ["--on-lost", contender.on_lost] if self.recipe not in ("barrier", "queue") else []
            command = ["--", sys.executable, "-IS", section.__file__, self.campaign.resource.address, contender.number]
            words += [] if contender.prints else [*command, *["take"] * (contender.action == "take")]
        return [str(binary()), *map(str, words)]

    def run(self, contender):
        time.sleep(contender.delay_s)
        self.campaign.begin(contender)
        if contender.kind == "corral":
            process = subprocess.Popen(
                self.command(contender), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            contender.process = process
            try:
                item, contender.errors = process.communicate(timeout=LIMIT_S)
                code, now = process.returncode, time.monotonic()
                if item:
                    contender.sections.append(Section(contender, 0, item.strip(), process.pid, now, now, "complete"))
            except subprocess.TimeoutExpired:
                process.kill()
                code = STUCK
        else:
            code = self.drivers[contender.kind].run(contender, self.path)
        self.campaign.ended(contender, code)

    def chain(self, contenders):
        for contender in contenders:
            self.run(contender)
        # A queue is taken from until it is empty.
        while self.recipe == "queue" and not self.is_over:
            self.run(self.contender(contenders[0].kind))

    def put(self):
        for item in range(self.random.randint(2, 6)):
            contender = self.contender(self.random.choice(("corral", "kazoo")), item=f"{self.number}.{item}")
            contender.action = "put"
            self.run(contender)

    def play(self):
        """Returns the findings."""
        with self.observer(), ThreadPoolExecutor(len(self.chains) + 1) as pool:
            runs = [pool.submit(self.chain, chain) for chain in self.chains]
            if self.recipe == "queue":
                runs.append(pool.submit(self.put))
            if self.fault not in ("none", "long"):
                self.harm(runs)
            if self.recipe == "queue":
                runs[-1].result()
                self.expect(lambda: not self.children(f"{self.path}/entries"), "the queue is empty")
                self.is_over = True
            for run in runs:
                run.result()
        if self.fault == "cut":
            self.gate.end()
        if self.recipe == "barrier" and any(contender.faults for contender in self.space.contenders):
            for contender in self.space.contenders:
                contender.faults.add("limited")
        self.findings += self.space.judge()
        self.expect(lambda: not self.ephemerals(), "no ephemeral is left")
        self.ask("delete", f"/recipes/{self.number}", recursive=True)
        for contender in self.space.contenders:
            del self.campaign.resource.contenders[contender.number]
        return self.findings

    @contextlib.contextmanager
    def observer(self):
        """Of an election: the tokens of the leaders that it reports grow."""
        if self.recipe != "elect":
            yield
            return
        words = ["elect", self.path, "--observe", "--json", "--server", self.campaign.servers]
        with subprocess.Popen([binary(), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            yield
            process.terminate()
            tokens = [told["token"] for told in map(json.loads, process.stdout) if told["leader"] is not None]
        self.campaign.counts["observed leaders"] += len(tokens)
        if tokens != sorted(set(tokens)):
            self.findings.append(f"an observer saw the tokens {tokens}")

    def expect(self, condition, what):
        try:
            wait_until(condition, what)
        except TooLate as late:
            self.findings.append(f"{late}, ephemerals {self.ephemerals()}")

    def harm(self, runs):
        """The fault of the victim, while it holds or at any time of it."""
        victim, name = self.victim, FAULT_NAMES[self.fault]
        while not (victim.process and (victim.holds() or not self.holds)):
            if victim.returned < math.inf or all(run.done() for run in runs):
                return
            time.sleep(POLL_S)
        if not self.holds:
            time.sleep(self.random.uniform(0, 0.1))
        # A process with many contenders is rarely harmed.
        if victim.kind == "corral" or (self.fault != "interrupt" and self.random.random() < 0.3):
            self.campaign.mark(name, victim.process)
            self.campaign.counts[f"{victim.kind} {self.fault}"] += 1
            if self.fault == "interrupt":
                self.expect(lambda: victim.process.poll() is not None or catches(victim.process.pid), "the process catches SIGTERM")
            if self.fault == "pause":
                self.pause()
            elif self.fault == "cut":
                self.gate.open.clear()
                time.sleep(PAUSE_MAX_S)
                self.gate.open.set()
            elif victim.process.poll() is None:
                victim.process.send_signal(signal.SIGKILL if self.fault == "kill" else signal.SIGTERM)
            if self.fault == "kill":
                self.expect(lambda: not victim.holds(), f"the command ends with {victim}")
            time.sleep(0.2)
            self.drivers[self.other].is_paused = False
        victim.hold_s = 0

    def pause(self):
        """The victim alone, or with its command."""
        victim, pids = self.victim, [self.victim.process.pid]
        if victim.kind != "corral":
            self.drivers[victim.kind].is_paused = True
        elif victim.sections and self.random.random() < 0.5:
            pids.append(victim.sections[-1].pid)
        for one in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    if victim.process.poll() is None:
                        os.kill(pid, one)
            time.sleep(self.random.uniform(PAUSE_MIN_S, PAUSE_MAX_S) if one == signal.SIGSTOP else 0)

    def ask(self, call, path, **more):
        """Of the newest state. The servers may have no leader just now. None if there is no such znode."""
        kazoo = self.campaign.kazoo
        with contextlib.suppress(NoNodeError):
            kazoo.retry(kazoo.sync, "/")
            return kazoo.retry(getattr(kazoo, call), path, **more)

    def children(self, path):
        return self.ask("get_children", path) or []

    def ephemerals(self, path=None):
        """The paths of the round's ephemerals, with their sessions."""
        path = path or f"/recipes/{self.number}"
        if not (stat := self.ask("exists", path)):
            return []
        below = [one for name in self.children(path) for one in self.ephemerals(f"{path}/{name}")]
        return below + [(path, f"{stat.ephemeralOwner:#x}")] * bool(stat.ephemeralOwner)

    def __str__(self):
        members = "\n  ".join(map(str, self.space.contenders))
        return f"round {self.number}: {self.recipe} {self.path} limit {self.space.limit} with {self.other}, fault {self.fault}\n  {members}"


def catches(pid):
    """Whether a process has its handler of SIGTERM yet."""
    with contextlib.suppress(OSError):
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1
    return True


@pytest.fixture
def campaign(only_corral, run_ensemble, shards, seed, say, tmp_path, options):
    if not packages.curator_jars():
        pytest.skip("no Curator: install pyspark, or put its jars into ZOOKEEPER_JARS")
    reason = namespaces.why_not()
    made = Ensemble("corral", 3, shards, settings=CALM) if reason else namespaces.Apart(3, shards, settings=CALM)
    say(f"seed {seed}" + (f"; no link is cut: {reason}" if reason else ""))
    made = Campaign(run_ensemble(made, keep=True), seed, say, tmp_path, options.part or "")
    yield made
    made.end()


def play(campaign, number):
    one = Round(campaign, number)
    try:
        findings = one.play()
    except Exception as error:  # noqa: BLE001 - a fault of the frame ends the search too
        findings = [f"{type(error).__name__}: {error}"]
    campaign.count(one)
    if findings:
        campaign.findings += findings
        campaign.say(f"{one}\n  " + "\n  ".join(f"finding: {text}" for text in findings))


def test_recipes_hold_what_they_promise(campaign, is_over, say, note):
    def ends():
        return is_over() or campaign.findings[FINDINGS_MAX:] or campaign.counts["rounds"] >= ROUNDS_MAX

    trouble = threading.Thread(target=campaign.trouble, args=(ends,), daemon=True)
    threading.Thread(target=campaign.watch, args=(ends,), daemon=True).start()
    trouble.start()
    number, running, shown = 0, set(), time.monotonic()
    pool = ThreadPoolExecutor(IN_FLIGHT)
    try:
        while running or not ends():
            running = {run for run in running if not run.done()}
            while len(running) < IN_FLIGHT and not ends() and number < ROUNDS_MAX:
                running.add(pool.submit(play, campaign, number))
                number += 1
            if time.monotonic() - shown > SAY_S:
                shown = time.monotonic()
                say(f"{campaign.counts['rounds']} rounds, {len(campaign.findings)} findings")
            time.sleep(POLL_S)
    finally:
        # An interrupted search does not wait for its rounds.
        pool.shutdown(wait=False)
    trouble.join()
    note(f"seed {campaign.seed}: {dict(sorted(campaign.counts.items()))}, {len(campaign.findings)} findings")
    findings = campaign.findings + campaign.resource.strays
    assert not findings, f"seed {campaign.seed}: {len(findings)} findings, such as {findings[0]}"


def test_a_planted_fault_is_found(campaign):
    """Kazoo and Curator do not exclude each other."""
    campaign.part = "lock"
    for number in range(100):
        one = Round(campaign, number, kinds=["kazoo", "curator"] * 2)
        one.fault = "none"
        for contender in one.space.contenders:
            contender.hold_s, contender.limit_s = 0.02, None
        if any("two holders at once" in finding for finding in one.play()):
            return
    raise AssertionError("no round had two holders")


# Recipe, limit, contenders as (action, code, begun, returned, faults, sections as (token, item, begin, end)), and the finding.
LOCKED, LATER = ("lock", 0, 0, 9, (), [(1, "", 1, 3)]), ("lock", 0, 0, 9, (), [(2, "", 2, 4)])
PLANTED = (
    ("lock", 1, (LOCKED, LATER), "two holders at once"),
    ("lock", 1, (LOCKED, ("lock", 0, 0, 9, (), [(1, "", 4, 5)])), "a token of 2 holders"),
    ("rwlock", 1, (("read", 0, 0, 9, (), [(1, "", 1, 3)]), ("write", 0, 0, 9, (), [(2, "", 2, 4)])), "two holders at once"),
    ("semaphore", 1, (LOCKED, LATER), "more than 1 leases"),
    ("barrier", 3, (LOCKED, LATER), "passed before 3 were in"),
    ("barrier", 2, (LOCKED, ("barrier", 0, 0, 2, (), [(2, "", 1, 2)])), "returned before"),
    ("queue", 1, (("put", 0, 0, 1, (), ()), LOCKED), "an item was lost"),
    ("queue", 1, (("take", 0, 0, 9, (), [(0, "i", 1, 2)]),) * 2, "was taken twice"),
    ("lock", 1, (("lock", LOST, 0, 9, (), ()),), "unexpected code"),
    ("lock", 1, (("lock", 0, 0, 9, ("paused",), [(1, "", 1, 3)]), LATER), None),
)


@pytest.mark.parametrize("recipe, limit, contenders, finding", PLANTED)
def test_the_judge_finds(recipe, limit, contenders, finding):
    space = Space(recipe, limit)
    for number, (action, code, begun, returned, faults, sections) in enumerate(contenders):
        one = Contender(number, "corral", action, space, item="i", faults=set(faults), code=code, begun=begun, returned=returned)
        one.sections = [Section(one, token, item, 0, begin, end, "complete") for token, item, begin, end in sections]
        space.contenders.append(one)
    findings = space.judge()
    assert any(finding in text for text in findings) if finding else not findings, findings
