"""Seeded random cases on a real ZooKeeper 3.9 and on corral side by side. Every answer is compared, byte for byte. After them the
four-letter commands of both in the same situation.

    tests/.venv/bin/pytest tests/campaigns/test_differential.py --seed N --minutes M

N is the first sequence, and the next ones follow it. A case whose answers differ is shrunk and printed with what both
servers sent, and as a line to be added to the recordings (tests/differential/record.py).
"""

import re
import time

import pytest

from differential import record, servers
from differential.driver import describe
from differential.generator import Generator
from differential.security import Security, secured_files
from differential.shrink import shrink
from support import REPOSITORY, jute
from support.client import Connection, exists_or_none, four_letter_command, words_table
from support.expect import equal
from support.server import Corral, zookeeper_version

FOUND_MAX = 5
PROGRESS_S = 30
# One sequence of so many runs in the strict configuration.
STRICT_SHARE = 5
WORDS = "conf cons dirs dump envi gtmk isro ruok srvr stat wchs wchc wchp crst cons srst srvr".split()
LISTS = ("cons", "stat", "dump", "wchc", "wchp")
# Of mntr; docs/metrics.md explains them.
OWN_KEYS = (
    "zk_apply_lag zk_clock_ahead zk_slow_syncs zk_watchdog_freezes zk_slow_disk_handovers zk_log_entries_kept zk_reconfig_step zk_disk_full zk_log_dir_free_bytes zk_data_dir_free_bytes zk_disk_space_low zk_growth_refusing zk_growth_refused zk_rate_limited zk_serving zk_not_serving_reason "
    "zk_scrub_last_complete zk_scrub_bytes zk_scrub_damage_found zk_state_distrusted zk_process_cpu_seconds_total zk_anonymous_memory_bytes "
    "zk_process_resident_memory_bytes zk_process_start_time_seconds"
).split()
# They are there once something was counted, or for each shard, thread and server.
OFTEN = r"zk_(shard|thread|peer|busiest)_|zk_(?!anonymous|process).*_memory_bytes$|zk_.*_(request_ms|write_stage_ms)$|zk_p\d+_\w+latency$"
GAUGES = (
    "ephemerals_count num_alive_connections outstanding_requests znode_count global_sessions watch_count "
    "approximate_data_size auth_failed_count connection_request_count bytes_received_count packets_received "
    "cnt_readlatency cnt_updatelatency local_sessions sessionless_connections_expired stale_sessions_expired"
).split()
# What depends on the server, the clock or the weather, and what stands for it.
MASKS = (
    (r"(Zookeeper version: |zookeeper.version=).*", r"\1V"),
    (r"\b(dataDir|dataLogDir)=.*", r"\1=DIR"),
    (r"(dataDirSize=|dataLogSize=|datadir_size: |logdir_size: )\d+", r"\1N"),
    (r"(clientPort|clientPortListenBacklog|serverId)=.*", r"\1=N"),
    (r"\b(est|lresp|llat|minlat|avglat|maxlat)=\d+", r"\1=N"),
    (r"Latency min/avg/max: [\d./]+", "Latency min/avg/max: N"),
    (r"Sent: \d+", "Sent: N"),
    # The epoch, which counts elections, and here each start.
    (r"(Zxid: |lzxid=)0x(?!f{16})[0-9a-f]*?0*([0-9a-f]{1,8})\b", r"\1\2"),
    # How many end at the same time is a matter of a millisecond.
    (r"^\d+ expire at \w{3} \w{3} \d\d \d\d:\d\d:\d\d \w+ \d{4}:\n", ""),
    (r"Sets \(\d+\)/", "Sets (N)/"),
    (r"^((?:java|os|user|host)\.[a-z.]+)=.*", r"\1=V"),
)


class Campaign:
    """Both configurations, and the differences found. `security` makes a Security for each."""

    def __init__(self, shards, say, security=lambda: None):
        self.pairs = {strict: servers.Pair(strict, shards, security()) for strict in (False, True)}
        self.say, self.found = say, []
        self.sequences, self.operations = 0, 0

    def run(self, first, is_over):
        begin = shown = time.monotonic()
        try:
            while len(self.found) < FOUND_MAX and not is_over():
                self.sequence(first + self.sequences)
                if time.monotonic() - shown > PROGRESS_S:
                    shown = time.monotonic()
                    self.say(f"seed {first + self.sequences}: {self.figures()}, {self.operations / (shown - begin):.0f}/s")
        finally:
            for pair in self.pairs.values():
                pair.stop()

    def judge(self, seed, is_over, note):
        """Runs from this seed on. The test fails if the servers differ."""
        self.run(seed, is_over)
        note(f"{self.figures()} from seed {seed}, beside ZooKeeper {zookeeper_version()}")
        if self.found:
            pytest.fail(f"the servers differ; repeat: {'; '.join(self.found)}", pytrace=False)

    def figures(self):
        return f"{self.sequences} sequences, {self.operations} operations"

    def sequence(self, seed):
        pair, steps = self.pairs[seed % STRICT_SHARE == 0], Generator(seed).sequence()
        try:
            outcome = pair.run(steps)
        except (OSError, RuntimeError) as broken:
            broken.add_note(f"in the sequence of seed {seed}")
            raise
        self.sequences += 1
        self.operations += outcome.driver.operations
        if outcome.difference:
            self.found.append(f"tests/campaign differential --for 1s --seed {seed}")
            self.report(pair, seed, steps, outcome)

    def report(self, pair, seed, steps, outcome):
        """Prints a difference, shrunk. A recording runs on new servers, so that the last run does too."""
        self.say(f"seed {seed}: the servers differ; the case is shrunk")
        smallest = shrink(steps, lambda candidate: pair.run(candidate).difference)
        pair.stop()
        last = pair.run(smallest)
        shown = last if last.difference else outcome
        self.say(f"seed {seed}: {describe(shown.difference, shown.driver)}")
        if not last.difference:
            self.say("the shrunk case does not differ on new servers: it depends on the sequences before it, or on timing")
        path = record.found_file(smallest, pair.strict).relative_to(REPOSITORY)
        self.say(f"to keep it: add this line to {path}, then run cd tests && .venv/bin/python -m differential.record {path.relative_to('tests')}")
        self.say(record.case_line(record.Case(f"seed {seed}", smallest, (), {})))


def test_both_servers_answer_the_same(seed, shards, is_over, say, note):
    if reason := servers.why_not():
        pytest.skip(reason)
    say(f"seed {seed}")
    Campaign(shards, say).judge(seed, is_over, note)


@pytest.mark.parametrize("enforced", [False, True])
def test_both_servers_answer_alike_to_users(seed, shards, is_over, say, note, enforced, tmp_path):
    """As above, with SASL users, client certificates and super users, and with authentication that is enforced."""
    if reason := servers.why_not():
        pytest.skip(reason)
    files = secured_files(tmp_path)
    Campaign(shards, say, lambda: Security(files, enforced)).judge(seed, is_over, note)


def situation(server):
    """Brings the server into the situation; returns everything it tells, masked, and its gauges."""
    four_letter_command(server.address, "srst")
    first, second, third = (server.client(timeout_ms=timeout_ms) for timeout_ms in (6000, 8000, 10_000))
    idle = Connection(server.address)
    for name in "abcd":
        first.create(f"/{name}", name.encode())
    for client, path in ((first, "/a/x"), (first, "/a/y"), (second, "/b/z")):
        client.create(path, flags=jute.EPHEMERAL)
    for client, path in ((first, "/a"), (first, "/b"), (second, "/a")):
        client.sync()
        client.get(path, watch=True)
    exists_or_none(second, "/none", watch=True)
    second.children("/c", watch=True)
    third.add_watch("/c", 0)
    third.add_watch("/d", 1)
    exists_or_none(third, "/none/either")
    third.ping()
    clients = [first, second, third]
    ports = {str(one.socket.getsockname()[1]): f"P{number}" for number, one in enumerate([*clients, idle])}
    sessions = {hex(client.session_id): f"S{number}" for number, client in enumerate(clients)}
    table = words_table(four_letter_command(server.address, "mntr"), "\t")
    texts = [(word, masked(word, four_letter_command(server.address, word), ports, sessions)) for word in WORDS]
    for one in (*clients, idle):
        one.drop()
    return texts, table


def masked(word, text, ports, sessions):
    """The text with names for what differs, as lines and those indented below each. What is a list to one server may come
    in any order from the other."""
    text = re.sub(r"(127\.0\.0\.1:)(\d+)", lambda found: found[1] + ports.get(found[2], "OWN"), text)
    text = re.sub(r"0x[0-9a-f]+", lambda found: sessions.get(found[0], found[0]), text)
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    groups = [("", [])]
    for line in text.splitlines(keepends=True):
        if line.startswith("\t"):
            groups[-1][1].append(line)
        else:
            groups.append((line, []))
    if word not in LISTS:
        return groups
    return sorted((head, sorted(below)) for head, below in groups)


def test_words_beside_zookeeper(zookeeper):
    if reason := servers.why_not():
        pytest.skip(reason)
    server = Corral()
    try:
        (ours, our_table), (theirs, their_table) = situation(server.start()), situation(zookeeper)
    finally:
        server.dispose()
    for (word, own), (_, other) in zip(ours, theirs, strict=True):
        equal(own, other, word)
    gauges = {f"zk_{key}": their_table[f"zk_{key}"] for key in GAUGES}
    # ZooKeeper counts it down once too often now and then: nothing is outstanding.
    gauges["zk_outstanding_requests"] = gauges["zk_outstanding_requests"].replace("-1", "0")
    equal({key: our_table.get(key) for key in gauges}, gauges)
    own = [key for key in our_table if key not in their_table and not re.match(OFTEN, key)]
    equal(own, OWN_KEYS, "keys ZooKeeper does not have")
