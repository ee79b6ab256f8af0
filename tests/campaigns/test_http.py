"""Mutated HTTP requests to the ports for administration and metrics, beside polite clients that must always be answered.

One loop has several connections to each port and sends the requests of `mutations.py`. A thread looks at the server at the same time.
`mutations.case(seed, number)` gives the bytes of a request again.
"""

import heapq
import os
import re
import select
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress

import pytest
from kazoo.client import KazooClient

from blackbox.test_admin import SUPER_DIGEST, TOKEN, served
from campaigns.mutations import CHANGES, case
from conftest import check_server
from support import http
from support.client import four_letter_command, words_table
from support.expect import equal
from support.server import Corral
from support.wait import free_port, wait_until

# Of a port. The server closes the oldest connection when there are more than 32.
CONNECTIONS_MAX = 14
# After WAIT_S without an answer the client shuts its direction. Then the server must close within LIMIT_S.
WAIT_S, RETRY_S, LIMIT_S = 0.02, 0.001, 60
LOOK_S, SAY_S, SHOWN_MAX = 0.1, 10, 2000
WARM_UP, GROWTH_MAX_KIB = 20_000, 32 << 10
# In the log, of a changing command.
CARRIED_OUT = "INFO admin command "
RESET = struct.pack("ii", 1, 0)
CHANGED = re.compile(rb'"command" ?: ?"(%s)",\s*"error" ?: ?null' % "|".join(CHANGES).encode())


class Sending:
    """A connection that sends the pieces of a case."""

    def __init__(self, case, address):
        self.case, self.answer, self.steps = case, b"", self.run()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.socket.connect(address)
        self.socket.setblocking(False)

    def run(self):
        """Gives the seconds until the next step."""
        for piece in self.case.pieces:
            limit = time.monotonic() + LIMIT_S
            while piece and time.monotonic() < limit:
                try:
                    piece = piece[self.socket.send(piece) :]
                except BlockingIOError:
                    yield RETRY_S
                except OSError:
                    break
            if self.case.pause_s:
                yield self.case.pause_s
        if self.case.end == "close":
            return
        if self.case.end == "wait":
            yield WAIT_S
        if self.case.end != "linger":
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_WR)
        yield LIMIT_S
        raise AssertionError(f"the server does not close within {LIMIT_S} s: {self.told()}")

    def read(self):
        """Reads what there is. Returns whether the connection stays open."""
        try:
            data = self.socket.recv(1 << 18)
        except OSError:
            return False
        self.answer += data
        return bool(data)

    def told(self):
        pieces = str(self.case.pieces)[:SHOWN_MAX]
        return f"request {self.case.number} to the {self.case.port} port, end {self.case.end}: {pieces}"


class Loop:
    """All connections of the campaign, in one thread."""

    def __init__(self, seed, addresses):
        self.seed, self.addresses, self.poll = seed, addresses, select.epoll()
        self.open, self.steps, self.answers, self.number = {}, [], Counter(), 0
        self.free, self.next = dict.fromkeys(addresses, CONNECTIONS_MAX), case(seed, 0)

    def turn(self, begins=True):
        while begins and self.free[self.next.port]:
            one = Sending(self.next, self.addresses[self.next.port])
            self.free[self.next.port] -= 1
            self.open[one.socket.fileno()] = one
            self.poll.register(one.socket, select.EPOLLIN)
            self.step(one)
            self.number += 1
            self.next = case(self.seed, self.number)
        wait_s = self.steps[0][0] - time.monotonic() if self.steps else WAIT_S
        for descriptor, _ in self.poll.poll(max(0, min(wait_s, WAIT_S))):
            if not self.open[descriptor].read():
                self.end(self.open[descriptor])
        while self.steps and self.steps[0][0] <= time.monotonic():
            self.step(heapq.heappop(self.steps)[2])

    def step(self, one):
        if one.socket.fileno() < 0:
            return
        delay_s = next(one.steps, None)
        if delay_s is None:
            self.end(one)
        else:
            heapq.heappush(self.steps, (time.monotonic() + delay_s, one.case.number, one))

    def end(self, one):
        self.free[one.case.port] += 1
        del self.open[one.socket.fileno()]
        one.socket.close()
        answer = one.answer
        assert answer.startswith(b"HTTP/1."[: len(answer)]), f"an answer that is not HTTP: {answer[:200]}; {one.told()}"
        assert b"HTTP/1.1 500 " not in answer, f"status 500: {answer[:500]}; {one.told()}"
        assert not CHANGED.search(answer), f"a change without a proof: {answer[:500]}; {one.told()}"
        self.answers[answer[9:12].decode("ascii", "replace") or "none"] += 1


class Polite(threading.Thread):
    """Clients that must always be answered, and what must not change."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.over, self.fault, self.looks, self.slowest_s = server, threading.Event(), None, 0, 0
        self.states, self.counts = [], (0, 0)
        self.kazoo = KazooClient("{}:{}".format(*server.address), timeout=LIMIT_S)
        self.kazoo.start(LIMIT_S)
        self.kazoo.add_listener(self.states.append)
        self.session, self.mask = self.kazoo.client_id[0], four_letter_command(server.address, "gtmk")

    def run(self):
        try:
            while not self.over.wait(LOOK_S):
                begin = time.monotonic()
                self.look()
                self.slowest_s, self.looks = max(self.slowest_s, time.monotonic() - begin), self.looks + 1
        except Exception as fault:  # The main thread raises it.
            self.fault = fault

    def stop(self):
        self.over.set()
        if self.is_alive():
            self.join()

    def look(self):
        assert self.kazoo.get_async("/").get(timeout=LIMIT_S)
        for name, (host, port) in self.server.http.items():
            equal(http.ask(f"http://{host}:{port}/readyz").status, 200, f"/readyz of {name}")
        metrics, connections, mask = (four_letter_command(self.server.address, word) for word in ("mntr", "cons", "gtmk"))
        own = re.search(rf"recved=(\d+),sent=\d+,sid=0x{self.session:x}\b", connections)
        before, self.counts = self.counts, (int(words_table(metrics, "\t")["zk_packets_received"]), int(own[1]))
        assert all(now > count for now, count in zip(self.counts, before)), f"a counter was reset: {before} -> {self.counts}"
        equal(mask, self.mask, "trace mask")
        assert not self.states and self.kazoo.client_id[0] == self.session, f"the connection of kazoo was lost: {self.states}"


@pytest.fixture
def server(shards, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN + "\n")
    tokens.chmod(0o600)
    server, admin, metrics = Corral(shards, 2000), free_port(), free_port()
    server.http = {"admin": ("127.0.0.1", admin), "metrics": ("127.0.0.1", metrics)}
    allowed = {"admin__allow_changes": "true", "admin__token_file": f'"{tokens}"', "security__super_digest": f'"{SUPER_DIGEST}"'}
    yield served(server, admin, metrics__http_addr=f"127.0.0.1:{metrics}", **allowed)
    server.dispose()


@pytest.fixture
def polite(server):
    polite = Polite(server)
    yield polite
    polite.over.set()
    polite.kazoo.stop()
    polite.stop()
    polite.kazoo.close()


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def search(loop, polite, server, is_over, say):
    """Sends requests until the time is over or a fault shows. Returns the memory after the first requests, and figures."""
    began = shown = time.monotonic()
    first_kib = None
    polite.start()
    while not (is_over() or polite.fault or server.process.poll() is not None):
        loop.turn()
        if first_kib is None and loop.number >= WARM_UP:
            first_kib = server.memory().own_kib
        if time.monotonic() - shown > SAY_S:
            shown = time.monotonic()
            say(f"{loop.number} requests, {loop.number / (shown - began):.0f}/s, {polite.looks} looks, {server.memory()}")
    rate = loop.number / (time.monotonic() - began)
    return first_kib, f"seed {loop.seed}: {loop.number} requests, {rate:.0f}/s, answers {dict(sorted(loop.answers.items()))}"


def test_mutated_requests_change_nothing(server, polite, is_over, seed, say, note):
    say(f"seed {seed}")
    loop, first = Loop(seed, server.http), descriptors(server)
    try:
        first_kib, figures = search(loop, polite, server, is_over, say)
        check_server(server)
        assert not polite.fault, polite.fault
        while loop.open:
            loop.turn(begins=False)
    except (AssertionError, OSError) as fault:
        code, still_open = server.process.poll(), [one.told() for one in loop.open.values()]
        fault.add_note("\n".join([f"seed {seed}, at request {loop.number}, exit code {code}. Open connections:", *still_open]))
        raise
    polite.stop()
    assert not polite.fault, polite.fault
    wait_until(lambda: descriptors(server) <= first, "descriptors are closed")
    last_kib = server.memory().own_kib
    assert last_kib - (first_kib or last_kib) <= GROWTH_MAX_KIB, f"{first_kib} -> {last_kib} KiB resident; {figures}"
    looks = f"{polite.looks} looks, the slowest {polite.slowest_s:.2f} s"
    note(f"{figures}; {first_kib} -> {last_kib} KiB resident; {first} descriptors; {looks}")
    # The checks see a change that has a proof.
    proof = {"Authorization": f"Bearer {TOKEN}"}
    for name in ("crst", "srst", "stmk?traceMask=7"):
        assert CHANGED.search(http.ask(f"{server.url}/commands/{name}", "POST", proof).text.encode()), name
    wait_until(lambda: server.log().count(CARRIED_OUT) >= 3, "the log shows the changes")
    equal(server.log().count(CARRIED_OUT), 3, "changes in the log")
    with pytest.raises(AssertionError, match="reset"):
        polite.look()
