"""Runs many sequences on one pair of servers: between two of them both are compared and cleaned, after a difference renewed."""

import json
import time
from collections import Counter
from pathlib import Path

from differential import control, explained, pair, words
from differential.driver import Difference, Driver, Parted, Side
from differential.generator import Generator
from differential.shrink import shrink

CASES = Path(__file__).resolve().parent / "cases"
PROGRESS_S = 30
# How the name of a sequence that comes from a file begins; it is not made smaller.
KEPT = "case"
SHOWN_MESSAGES = 12


class Session:
    """One configuration: its servers, its counts. `say` prints a line while it runs."""

    def __init__(self, chosen, strict, say):
        self.chosen, self.strict, self.say = chosen, strict, say
        # The names of the sequences whose answers differ, and why others were left out.
        self.failures = []
        self.pair, self.sides, self.controls = None, (), ()
        self.counts, self.operations, self.sequences = Counter(), 0, 0

    def all(self, seeds):
        begin = self.shown = time.monotonic()
        try:
            for name, steps in self.sequences_of(seeds):
                if len(self.failures) >= self.chosen.failures_max:
                    self.failures.append(f"too many failures: {name} and what follows is left out")
                    break
                self.one(name, steps)
                self.progress(begin)
        finally:
            self.stop()
        if self.sequences:
            self.summary(time.monotonic() - begin)

    def sequences_of(self, seeds):
        for path in [self.chosen.replay] if self.chosen.replay else sorted(CASES.glob("*.jsonl")):
            for line in path.read_text().splitlines():
                case = json.loads(line)
                about_list = words.CONFIG_PATH in line or '"reconfig"' in line
                if case.get("strict", False) == self.strict and not (words.HAS_LIST and about_list):
                    yield f"{KEPT} {case['from']}", case["steps"]
        if self.chosen.replay:
            return
        without = self.chosen.without + ["reconfig"] * words.HAS_LIST
        for seed in seeds:
            yield f"seed {seed}", Generator(seed, self.chosen.ops, without).sequence()

    def start(self):
        settings = dict(setting.split("=", 1) for setting in self.chosen.set)
        self.pair = pair.Pair(self.chosen.shards, self.strict, settings).start()
        self.sides = tuple(map(Side, self.pair.servers))
        self.controls = tuple(map(control.Control, self.sides))

    def stop(self):
        if self.pair:
            self.pair.dispose()
        self.pair = None

    def one(self, name, steps):
        difference, driver = self.attempt(steps)
        self.sequences += 1
        self.operations += driver.operations
        self.counts += driver.counts
        if not difference:
            return
        self.failures.append(name)
        print(f"{name}{' (strict)' if self.strict else ''}: the servers differ")
        if name.startswith(KEPT):
            show(difference, driver)
            return
        again = self.attempt(steps)
        if not again[0]:
            print("it did not differ again; the whole step:")
            show(difference, driver)
            return
        shown = again

        def differs(candidate):
            nonlocal shown
            found = self.attempt(candidate)
            shown = found if found[0] else shown
            return found[0] is not None

        smallest = shrink(steps, differs)
        difference, driver = shown
        text = json.dumps({"strict": self.strict, "from": name, "steps": smallest}, ensure_ascii=True)
        show(difference, driver)
        print(text, flush=True)
        if self.chosen.keep:
            self.chosen.keep.mkdir(parents=True, exist_ok=True)
            with open(self.chosen.keep / "found.jsonl", "a", encoding="ascii") as kept:
                kept.write(text + "\n")

    def attempt(self, steps):
        """Runs a sequence; returns the Difference or None, and the driver. Leaves both servers in the same state."""
        if self.pair is None:
            self.start()
        for side in self.controls:
            side.begin()
        driver = Driver(self.sides, lone_writes=self.strict and "zookeeper_limits" in str(steps))
        difference, parted = None, False
        try:
            driver.run(steps)
        except Difference as found:
            difference = found
        except Parted:
            parted = True
        trees = [side.tree() for side in self.controls]
        if not difference and not parted:
            difference = self.tree_difference(*trees, driver)
        self.clean(trees, difference or parted)
        return difference, driver

    @staticmethod
    def tree_difference(zookeeper, corral, driver):
        """The first unexplained difference of what the sequence left behind, or None."""
        for path, left, right in control.compare(zookeeper, corral):
            case = explained.Case([explained.TREES, path], None, [], None, left or (), right or (), left, right, {})
            entry = explained.find(case)
            if not entry:
                return Difference([explained.TREES], path, [left], [right])
            driver.counts[("explained", entry.row)] += 1
        return None

    def clean(self, trees, parted):
        for side, tree in zip(self.controls, trees):
            side.clean(tree)
        if parted:
            for side in self.controls:
                side.level()
            trees = [side.tree() for side in self.controls]
            if control.compare(*trees) or len(trees[0]) != len(control.SYSTEM):
                self.stop()

    def progress(self, begin):
        now = time.monotonic()
        if now - self.shown > PROGRESS_S:
            self.shown = now
            pace = self.operations / (now - begin)
            self.say(f"{self.sequences} sequences, {self.operations} operations, {pace:.0f}/s")

    def summary(self, took):
        which = "second" if self.strict else "first"
        pace = f"{self.operations / took:.0f} operations/s on both servers"
        self.say(f"--- {which} configuration: {self.sequences} sequences, {self.operations} operations, {pace}")
        outcomes = {}
        for (what, error), count in sorted(self.counts.items(), key=str):
            if what != "explained":
                outcomes.setdefault(what, []).append(f"{error}: {count}")
        for what, counted in outcomes.items():
            self.say(f"{what}: {', '.join(counted)}")
        for (what, row), count in sorted(self.counts.items(), key=str):
            if what == "explained":
                self.say(f"explained: {row}: {count}")


def show(difference, driver):
    """Prints the steps of a sequence, and what both servers sent at the one that differs."""
    for step, slot, messages, _ in driver.transcript[:-1]:
        print(f"  {json.dumps(step)[:400]}\n      slot {slot}, both: {str(messages)[:600]}")
    print(f"  {json.dumps(difference.step)[:2000]}: {difference.what}")
    for kind, messages in (("zookeeper", difference.zookeeper), ("corral", difference.corral)):
        for message in messages[:SHOWN_MESSAGES]:
            print(f"      {kind}: {str(message)[:1500]}")
        if not messages:
            print(f"      {kind}: nothing")
