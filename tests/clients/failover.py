"""Tells the same story of a system that fails over on a real ZooKeeper and on corral, and compares what can be seen.

A story is a function (server, story, prepared) that notes observations, which have to be the same on both servers, and times,
which are only printed. It knows nothing of the systems, each of which has a suite of its own.
"""

import difflib
import json

import pytest

from support import packages
from support.server import Corral, ZooKeeper

LOG_TAIL = 40


class Story:
    """What was observed on one server."""

    def __init__(self, kind):
        self.kind, self.notes, self.times, self.logs = kind, [], {}, []

    def note(self, what, value):
        self.notes.append(f"{what}: {json.dumps(value, sort_keys=True)}")

    def time(self, what, seconds):
        self.times[what] = seconds

    def keep_logs(self, processes):
        """Remembers the ends of the processes' logs, for the case that the story ends badly."""
        for process in processes:
            if process.log_path.exists():
                tail = process.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL:]
                self.logs.append("\n".join([f"--- {process.name} on {self.kind}", *tail]))

    def __str__(self):
        return "\n".join(self.notes + [f"{what} after {seconds:.2f} s" for what, seconds in self.times.items()])


def tell(options, say, tick_ms, function, prepare):
    """Tells the story on the servers the options ask for; returns the times, or raises with the differences. `say` prints a line."""
    prepared = prepare()
    kinds = ["zookeeper"] if options.server == "zookeeper" else ["corral"]
    if options.server == "corral":
        if packages.zookeeper():
            kinds.insert(0, "zookeeper")
        else:
            say("no ZooKeeper to compare with: install Debian's package zookeeper, or set ZOOKEEPER_JARS")
    stories = [tell_on(kind, options, tick_ms, function, prepared) for kind in kinds]
    if len(stories) == 2 and stories[0].notes != stories[1].notes:
        different = difflib.unified_diff(stories[0].notes, stories[1].notes, *kinds, lineterm="")
        raise AssertionError("\n".join(different))
    return "; ".join(
        f"{what} after " + ", ".join(f"{story.times[what]:.2f} s ({story.kind})" for story in stories) for what in stories[-1].times
    )


def tell_on(kind, options, tick_ms, function, prepared):
    if kind == "zookeeper" and not packages.zookeeper():
        pytest.skip("no ZooKeeper: install Debian's package zookeeper, or set ZOOKEEPER_JARS")
    server = ZooKeeper(tick_ms=tick_ms) if kind == "zookeeper" else Corral(shards=options.shards, tick_ms=tick_ms)
    story = Story(kind)
    try:
        server.start()
        function(server, story, prepared)
    except Exception:
        print(story, *story.logs, f"--- {kind}\n{server.log_tail(LOG_TAIL)}", sep="\n")
        raise
    finally:
        server.dispose()
    print(f"--- on {kind}\n{story}", flush=True)
    return story
