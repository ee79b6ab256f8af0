"""Makes the recordings anew from a real ZooKeeper 3.9: cd tests && .venv/bin/python -m differential.record [FILE...]

Each file is recorded twice, on a new ZooKeeper each time. A case whose two recordings differ is dropped, and its name is
printed. To add a case that the campaign found (tests/campaigns/test_differential.py) or one written by hand:

1. Append its line {"from": name, "steps": [...]} to recordings/found.jsonl, or to the file that the campaign names. The file
   may be new. The name of a case is unique in its file.
2. Run this program with that file.
3. Run tests/run tests/differential, which compares corral with the recording, and commit the file.

A file is JSON lines. The first is the header: the exact version of ZooKeeper, the command that makes the file, and how many cases it holds. A case is one
line {"from": name, "steps": [...]}, then a line for each exchange, a list of messages, and a line for each znode that the case
leaves behind, a list that begins with its path. Bytes are strings. Words of the mapping begin with a colon.

A file whose name has `strict` in it is of the strict configuration, one with `membership` holds the cases that no follower can run.
The cases of a file run in order on one server, because the versions and zxids of the root count on.
"""

import json
import sys
from collections import namedtuple
from pathlib import Path

from differential import servers, words
from differential.driver import run_case
from differential.side import ENDS, Side
from support.server import zookeeper_version

FOLDER = Path(__file__).resolve().parent / "recordings"
COMMAND = "cd tests && .venv/bin/python -m differential.record"
# `count` is how many cases the header tells of.
Recording = namedtuple("Recording", "zookeeper strict cases count")
# `answers` are the lists of messages, `tree` the znodes by path. Both are empty until the case is recorded.
Case = namedtuple("Case", "name steps answers tree")
FILL, FILL_MIN = b"x", 100


def load(path):
    """The Recording in a file."""
    header, cases = {}, []
    for line in map(json.loads, path.read_text(encoding="ascii").splitlines()):
        if isinstance(line, dict) and "zookeeper" in line:
            header = line
        elif isinstance(line, dict):
            cases.append(Case(line["from"], line["steps"], [], {}))
        elif line and isinstance(line[0], str):
            znode, *values = decoded(line)
            cases[-1].tree[znode.decode()] = tuple(values)
        else:
            cases[-1].answers.append(decoded(line))
    return Recording(header.get("zookeeper"), "strict" in path.stem, cases, header.get("cases"))


def found_file(steps, strict):
    """The file for a case that was found or written by hand."""
    return FOLDER / f"found{'_strict' * strict}{'_membership' * words.about_membership(steps)}.jsonl"


def save(path, recording):
    lines = [json.dumps({"zookeeper": recording.zookeeper, "made by": COMMAND, "cases": recording.count})]
    for case in recording.cases:
        lines += [case_line(case), *map(compact, case.answers)]
        lines += [compact((znode.encode(), *values)) for znode, values in case.tree.items()]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def case_line(case):
    """The line that adds a case, not recorded yet, to a file."""
    return json.dumps({"from": case.name, "steps": case.steps}, separators=(",", ":"))


def compact(values):
    return json.dumps(encoded(values), separators=(",", ":"))


def encoded(value):
    """A mapped value as one of JSON."""
    if isinstance(value, (tuple, list)):
        return [encoded(item) for item in value]
    if isinstance(value, str):
        return f":{value}"
    if not isinstance(value, bytes):
        return value
    if len(value) >= FILL_MIN and value == FILL * len(value):
        return {"fill": len(value)}
    try:
        text = value.decode()
    except UnicodeError:
        return {"hex": value.hex()}
    return {"hex": value.hex()} if text.startswith(":") else text


def decoded(value):
    """The mapped value that `encoded` made a value of JSON."""
    if isinstance(value, list):
        return tuple(map(decoded, value))
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"]) if "hex" in value else FILL * value["fill"]
    if isinstance(value, str):
        return value[1:] if value.startswith(":") else value.encode()
    return value


def record(path):
    """Records the cases of a file until all of them are stable."""
    old = load(path)
    cases, unstable = old.cases, [None]
    while unstable:
        first, second = answers(cases, old.strict), answers(cases, old.strict)
        unstable = [left.name for left, right in zip(first, second) if left != right or is_stuck(left)]
        print(f"{path.name}: {len(cases)} cases recorded twice, not stable: {', '.join(unstable) or 'none'}", flush=True)
        cases = [case for case in first if case.name not in unstable]
    save(path, Recording(zookeeper_version(), old.strict, cases, len(cases)))


def answers(cases, strict):
    """The cases with what a new ZooKeeper answers."""
    server = servers.zookeeper(strict)
    try:
        side = Side(server.start(), servers.SEARCH_LIMIT_S)
        recorded = []
        for case in cases:
            outcome = run_case([side], case.steps, strict)
            messages = [tuple(messages) for _, _, messages in outcome.driver.transcript]
            recorded.append(Case(case.name, case.steps, messages, outcome.tree))
        return recorded
    finally:
        server.dispose()


def is_stuck(case):
    """Whether ZooKeeper did not answer: the test would wait for its limit."""
    return any(message in ENDS[1:] for messages in case.answers for message in messages)


def main():
    if reason := servers.why_not():
        sys.exit(f"cannot record: {reason}")
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.jsonl")):
        record(path)


if __name__ == "__main__":
    main()
