"""kill -9 of an import while it writes, the start of a server on what it left, and another import."""

import shutil
import subprocess
import time

from imports import damage, load
from support.client import four_letter_command, words_table
from support.server import Corral, binary

# Files of a directory in which an import has not begun: a server that starts there is an empty one.
NOTHING = {"FORMAT", "FORMAT.tmp", "LOCK", "OWNER.tmp"}
# A kill follows the first of such files.
SIGNS = ("FORMAT", "OWNER", "OWNER", "*.img.tmp", "*.img", "*")
# System calls before which strace kills, each with about as many as an import does, and the share of such kills.
CALLS, CALL_SHARE = {"rename": 14, "fsync": 34, "msync": 5, "pwrite64": 14}, 0.6
FOREIGN, REFUSAL = 5, "did not finish: run the same command again"
LIMIT_S, READ_SHARE = 60, 0.2


class Target:
    """A data directory of a server that has not started; the log may be in a directory of its own."""

    def __init__(self, source, expect, shards, settings, chance):
        """`expect` is the tree of an import that nothing killed."""
        self.source, self.expect, self.chance = source, expect, chance
        self.server = Corral(shards, settings=settings)
        self.data, self.told = self.server.directory / "data", ""
        if chance.random() < 0.4:
            self.server.settings["server.log_dir"] = self.server.directory / "log-dir"

    def arguments(self):
        settings = [f"--set={key}={value}" for key, value in self.server.settings.items() if key.startswith(("log.", "server.log_dir"))]
        return [self.source, "--data-dir", self.data, *settings]

    def kill(self):
        """Starts an import and kills it. Returns the exit code."""
        command = [binary(), "import", "zookeeper", *map(str, self.arguments())]
        if shutil.which("strace") and self.chance.random() < CALL_SHARE:
            call = self.chance.choice(list(CALLS))
            at = f"{call}:signal=SIGKILL:when={self.chance.randint(1, CALLS[call])}"
            self.told = f"at {at}"
            command = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={at}", *command]
            return subprocess.run(command, capture_output=True, timeout=LIMIT_S).returncode
        begin, sign, pause_s = time.monotonic(), self.chance.choice(SIGNS), self.chance.choice((0, self.chance.uniform(0, 0.2)))
        self.told = f"{pause_s:.3f} s behind {sign}"
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(self.data.glob(sign)) and time.monotonic() - begin < LIMIT_S:
            time.sleep(0.0005)
        time.sleep(pause_s)
        process.kill()
        return process.wait()

    def round(self):
        """What the kill left, and the fault or None."""
        code = self.kill()
        names = {path.name for path in self.data.iterdir()} if self.data.exists() else set()
        outcome, fault = ("not begun", None) if names <= NOTHING else self.serve()
        fault = fault or self.again(outcome)
        told = fault and f"an import killed {self.told} left {sorted(names)}: {fault}"
        return f"{outcome}{' after its end' if code == 0 else ''}", told

    def serve(self):
        """A server starts on it: it refuses, or has the whole state."""
        self.server.launch()
        process = self.server.process
        while process.poll() is None:
            try:
                if self.server.answers():
                    fault = self.state()
                    self.server.kill()
                    return "served", fault
            except OSError:
                pass
            time.sleep(0.01)
        refused = process.returncode == FOREIGN and REFUSAL in self.server.log()
        return "refused", None if refused else f"the server ended with {process.returncode}: {self.server.log_tail()}"

    def state(self):
        """The fault of a state that is not the whole one. Not each time all of it is read, which takes long."""
        metrics = words_table(four_letter_command(self.server.address, "mntr"), "\t")
        # The root counts twice, as in ZooKeeper.
        found = int(metrics["zk_znode_count"]) - 1
        if found != len(self.expect):
            return f"{found} znodes are served in place of {len(self.expect)}"
        if self.chance.random() > READ_SHARE:
            return None
        differ = load.differences(self.expect, load.read_tree(self.server))
        return f"{len(differ)} znodes differ: {differ[0]}" if differ else None

    def again(self, outcome):
        """Another import into the same directory is refused if the data are whole. Else it makes them whole."""
        done = damage.run(*self.arguments())
        if done.code != (FOREIGN if outcome == "served" else 0):
            return f"the next import ended with {done.code}: {done.err}"
        if outcome == "served":
            return None
        outcome, fault = self.serve()
        return fault or (None if outcome == "served" else f"refused after another import: {self.server.log_tail()}")

    def whole(self):
        """The tree of an import that is not killed."""
        assert damage.run(*self.arguments()).code == 0, "the import succeeds"
        self.server.start()
        found = load.read_tree(self.server)
        self.server.kill()
        return found

    def dispose(self):
        self.server.dispose()
