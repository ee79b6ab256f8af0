"""Records data directories of real ZooKeepers, with what the same ZooKeeper makes of them after a kill.

    ZOOKEEPER_JARS=DIR tests/.venv/bin/python tests/imports/record.py

Each recording is a directory below recordings/: files as ZooKeeper wrote them, without the zeros that it allocates ahead, and
expected.json.
"""

import json
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from imports import scenario  # noqa: E402
from support import server as servers  # noqa: E402
from support.server import ZooKeeper  # noqa: E402

RECORDINGS = Path(__file__).resolve().parent / "recordings"
SETTINGS = {"extendedTypesEnabled": "true", "preAllocSize": 64, "minSessionTimeout": 1000, "maxSessionTimeout": 60_000}
NEVER = "-Dznode.container.checkIntervalMs=2000000000"
# Version, compression of snapshots, transactions between two of them, other properties.
CASES = {
    "3.9.4": ("3.9.4", None, 100_000, ()),
    "3.9.4-snapshots": ("3.9.4", None, 8, ()),
    "3.9.4-gz": ("3.9.4", "gz", 8, ()),
    "3.9.4-snappy": ("3.9.4", "snappy", 8, ()),
    "3.9.4-last-zxid": ("3.9.4", None, 8, ("-Dzookeeper.serializeLastProcessedZxid.enabled=true",)),
    "3.9.4-plain-close": ("3.9.4", None, 8, ("-Dzookeeper.closeSessionTxn.enabled=false", "-Dzookeeper.digest.enabled=false")),
    "3.8.0": ("3.8.0", None, 8, ()),
}


class Recorded(ZooKeeper):
    def __init__(self, version, compression, count, options):
        options = (f"-Dzookeeper.snapshot.compression.method={compression or ''}", *options)
        super().__init__(2000, {**SETTINGS, "snapCount": count}, (NEVER, *options))
        self.version = version

    def command(self):
        command = super().command()
        command[command.index("-cp") + 1] = servers.class_paths()[self.version]
        return command


def record(name, case):
    server = Recorded(*case)
    try:
        server.start()
        client = server.client(timeout_ms=scenario.TIMEOUT_MS)
        scenario.play(client, server.client())
        server.kill()
        target = RECORDINGS / name
        shutil.rmtree(target, ignore_errors=True)
        files = sorted((server.directory / "data/version-2").iterdir())
        (target / "version-2").mkdir(parents=True)
        for file in files:
            content = file.read_bytes()
            if file.name.startswith("log."):
                content = content.rstrip(b"\0") + b"\0" * 64
            (target / "version-2" / file.name).write_bytes(content)
        server.start()
        # The session may go on only after this.
        with server.client() as reader:
            tree = scenario.tree(reader)
        expected = {
            "session": client.session_id,
            "password": client.password.hex(),
            "timeout_ms": client.timeout_ms,
            "zxid": client.zxid,
            "tree": tree,
        }
        (target / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")
        print(name, [(file.name, file.stat().st_size) for file in sorted((target / "version-2").iterdir())], flush=True)
    finally:
        server.dispose()


if __name__ == "__main__":
    os.environ.setdefault("ZOOKEEPER_JARS", "")
    for name in sys.argv[1:] or CASES:
        record(name, CASES[name])
