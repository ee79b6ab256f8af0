"""Files of recorded cases: their steps, and what a real ZooKeeper answered.

A file is JSON lines. The first is the header: the exact version of ZooKeeper and the command that makes the file. A case is one
line {"from": name, "steps": [...]}, then a line for each exchange, a list of messages, and a line for each znode that the case
leaves behind, a list that begins with its path. Bytes are strings. Words of the mapping begin with a colon.

A file whose name has `strict` in it is of the strict configuration, one with `membership` holds the cases that no follower can run.
The cases of a file run in order on one server, because the versions and zxids of the root count on.
"""

import json
from collections import namedtuple
from pathlib import Path

from differential import words

FOLDER = Path(__file__).resolve().parent / "recordings"
COMMAND = "cd tests && .venv/bin/python -m differential.record"
Recording = namedtuple("Recording", "zookeeper strict cases")
# `answers` are the lists of messages, `tree` the znodes by path. Both are empty until the case is recorded.
Case = namedtuple("Case", "name steps answers tree")
FILL, FILL_MIN = b"x", 100


def load(path):
    """The Recording in a file."""
    zookeeper, cases = None, []
    for line in map(json.loads, path.read_text(encoding="ascii").splitlines()):
        if isinstance(line, dict) and "zookeeper" in line:
            zookeeper = line["zookeeper"]
        elif isinstance(line, dict):
            cases.append(Case(line["from"], line["steps"], [], {}))
        elif line and isinstance(line[0], str):
            znode, *values = decoded(line)
            cases[-1].tree[znode.decode()] = tuple(values)
        else:
            cases[-1].answers.append(decoded(line))
    return Recording(zookeeper, "strict" in path.stem, cases)


def found_file(steps, strict):
    """The file for a case that was found or written by hand."""
    return FOLDER / f"found{'_strict' * strict}{'_membership' * words.about_membership(steps)}.jsonl"


def save(path, recording):
    """Writes a file."""
    lines = [json.dumps({"zookeeper": recording.zookeeper, "made by": COMMAND})]
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
