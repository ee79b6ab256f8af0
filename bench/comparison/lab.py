"""Where loads and scenarios run: the peers, the load generator, CPUs, directories, and where records go."""

import json
import subprocess

from comparison import page, peers, processes, say


class Lab:
    """What one group runs with, and what failed in it."""

    def __init__(self, peers_by_name, bench, server_cpus, client_cpus, work, port, results, rounds, label):
        self.peers, self.bench, self.results, self.rounds, self.label = peers_by_name, bench, results, rounds, label
        self.server_cpus, self.client_cpus, self.work, self.port = server_cpus, client_cpus, work, port
        self.failures = []

    def server(self, peer, name, data_dir=None, port=None):
        """A process for a peer, not started yet, in a directory of its own."""
        cpus = sorted({*self.server_cpus, *self.client_cpus}) if peer.shards > 1 else self.server_cpus
        return processes.Process(peer, port or self.port, self.work / name, cpus, data_dir)

    def generate(self, *words):
        """Runs the load generator with these words; its report. Interrupted, it is given the time to remove its znodes."""
        command = [str(word) for word in (*self.bench, *words, "--json", "--quiet")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            told, errors = process.communicate()
        except KeyboardInterrupt:
            process.terminate()
            process.communicate()
            raise
        if process.returncode:
            raise RuntimeError(errors.strip()[-1000:].removeprefix("corral-bench: "))
        return json.loads(told)

    def load(self, server, *flags, scenario=()):
        """Puts a load, or a sub-command of the load generator, on a process; its report."""
        where = ["--server", f"127.0.0.1:{server.port}", "--pid", server.pid, "--cpu", ",".join(map(str, self.client_cpus))]
        try:
            return self.generate(*scenario, *where, *flags)
        except RuntimeError as error:
            raise RuntimeError(f"{' '.join(map(str, flags))}: {error}\n{server.log_tail()}") from None

    def record(self, server, cell, number, figures, reports=()):
        """Writes one record of a scenario: the figures, and the load generator's reports they come from."""
        self.keep({"server": server.name, "cell": cell, "round": number, "server_command": self.shown(server.command),
                   "server_cpus": sorted(server.cpus), "label": self.label, "figures": figures, "reports": list(reports)})  # fmt: skip
        say(f"  {server.name}, {cell}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))

    def keep(self, record):
        """Appends a record to the group's results.jsonl, without the directories of this machine."""
        with open(self.results, "a", encoding="utf-8") as file:
            file.write(page.without_directories(json.dumps(record)) + "\n")

    def shown(self, command):
        """The command without the directories of this machine."""
        return command.replace(str(self.work), "WORK").replace(f"{peers.REPOSITORY}/", "")

    def failed(self, what, error):
        say(f"  FAILED {what}: {error}")
        self.failures.append(self.shown(f"{what}: {error}"))
