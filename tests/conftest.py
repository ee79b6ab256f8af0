"""The options and fixtures that the suites share.

The gate has one size. The campaigns (tests/campaigns) take `--minutes`, how long, and `--seed`, what follows from chance.

A test of a single server takes `context`. Constants of its module say what the server is like: SETTINGS holds the keys of each kind
of server, SHARDS and TICK_MS replace the usual numbers, JAVA_OPTIONS are those of a ZooKeeper. A test of an ensemble takes `ensemble`. Its
module overrides `new_ensemble` if its servers are special. After each test every server must live, and its log must show no panic.

A fixture ends the processes that it started, and at the end of each module those that a test left.
"""

import os
import time
import warnings
from contextlib import ExitStack, contextmanager

import pytest

pytest.register_assert_rewrite("support.expect")

from clients.programs import run_program  # noqa: E402, F401 - a fixture
from ensemble.authority import Authority  # noqa: E402
from ensemble.cluster import CALM, Ensemble  # noqa: E402
from support import packages, progress  # noqa: E402
from support.client import Client, Closed, Refused  # noqa: E402
from support.server import SMALL_LOG, Corral, Server, ZooKeeper  # noqa: E402

LOG_LINES_SHOWN = 40
FINISH_LIMIT_S = 2
# Of a campaign, unless --minutes is given.
MINUTES = 1.0
# The options of the suites, with what each is unless it is given.
OPTIONS = {}


def pytest_addoption(parser):
    def add(group, name, default=None, **more):
        OPTIONS[name] = False if more.get("action") == "store_true" else default
        group.addoption(f"--{name}", default=OPTIONS[name], **more)

    group = parser.getgroup("servers", "which servers are tested")
    add(group, "server", "corral", choices=("corral", "zookeeper"), help="kind of server")
    add(group, "shards", int(os.environ.get("SHARDS", "2")), type=int, help="shards of each corral")
    group = parser.getgroup("campaigns", "searches and measurements")
    add(group, "minutes", type=float, metavar="M", help=f"how long a campaign goes on [{MINUTES}]")
    add(group, "seed", type=int, metavar="N", help="what a campaign follows from; drawn if it is not given")
    group = parser.getgroup("suites", "options of single suites")
    add(group, "part", metavar="TEXT", help="clients, hostile loads and recipes: only those whose name contains this")


def pytest_configure(config):
    # A worker of pytest-xdist reports to its parent, which prints.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(progress.Progress(config, OPTIONS), "corral-progress")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the ends of the servers' logs to the report of a failure."""
    report = yield
    if report.failed:
        for server in Server.started:
            title = f"log of {server.kind} at {server.address[1]} in {server.directory}"
            report.sections.append((title, server.log_tail(LOG_LINES_SHOWN)))
    return report


@pytest.fixture(scope="session")
def options(pytestconfig):
    """The command line, as tests see it."""
    return pytestconfig.option


@pytest.fixture(scope="session")
def shards(options):
    return options.shards


@pytest.fixture
def seed(options, record_property):
    """What a campaign follows from: --seed, or a number drawn for the run, which the command to repeat it gives."""
    drawn = time.time_ns() % 1_000_000 if options.seed is None else options.seed
    record_property(progress.SEED, drawn)
    return drawn


@pytest.fixture
def is_over(options):
    """A function that tells whether the time of a campaign is over."""
    end = time.monotonic() + 60 * (MINUTES if options.minutes is None else options.minutes)
    return lambda: time.monotonic() >= end


@pytest.fixture
def note(record_property):
    """A function that leaves a text for the line of the test: figures, a seed."""
    return lambda text: record_property(progress.NOTE, text)


@pytest.fixture(scope="session")
def say(pytestconfig):
    """A function that prints a line while a long test runs."""
    shown = pytestconfig.pluginmanager.get_plugin("corral-progress")
    return (lambda text: shown.line(f"     {text}")) if shown else print


@pytest.fixture(scope="module", autouse=True)
def no_server_is_left():
    """Ends what a test of the module started and did not end."""
    before = set(Server.started)
    yield
    for left in [server for server in Server.started if server not in before]:
        warnings.warn(f"a test left the process {left.process.pid} of {left.kind}", stacklevel=1)
        left.dispose()


class Context:
    """A server and the clients of one test, whose sessions end with the test."""

    def __init__(self, server, name):
        self.server, self.address = server, server.address
        self.is_corral = server.kind == "corral"
        self.clients = []
        self.path = f"/{name}-{time.time_ns():x}"

    def client(self, **options):
        client = Client(self.address, **options)
        self.clients.append(client)
        return client

    def root(self, client):
        """Creates this test's own node and returns its path."""
        return client.create(self.path)

    def finish(self):
        """Ends all sessions, so that the next test finds no ephemeral of this one."""
        for client in self.clients:
            try:
                client.socket.settimeout(FINISH_LIMIT_S)
                client.close()
            except (AttributeError, OSError, AssertionError, Closed, Refused):
                client.drop()


@contextmanager
def kept_if_failed(request, servers, keep=False):
    """Disposes of the servers. Their files stay after a failure, if the test wants that or CORRAL_TEST_KEEP is set."""
    before, keep = request.session.testsfailed, keep or "CORRAL_TEST_KEEP" in os.environ
    try:
        yield servers
    finally:
        servers.dispose(keep=keep and request.session.testsfailed > before)


def check_server(server):
    """The server's process lives and did not panic."""
    assert server.process.poll() is None, f"the server ended with code {server.process.poll()}"
    assert "panicked" not in server.log(), "the server's log shows a panic"


@contextmanager
def running_server(request, kind):
    """A server of the kind as the module's constants want it."""

    def wanted(name, usual):
        return getattr(request.module, name, usual)

    tick_ms, settings = wanted("TICK_MS", 500), wanted("SETTINGS", {}).get(kind) or {}
    if kind == "corral":
        made = Corral(wanted("SHARDS", request.config.option.shards), tick_ms, {**SMALL_LOG, **settings})
    else:
        made = ZooKeeper(tick_ms, settings, wanted("JAVA_OPTIONS", ()))
    with kept_if_failed(request, made):
        yield made.start()


@pytest.fixture(scope="module")
def server(request, options):
    """The server that a module's tests share."""
    with running_server(request, options.server) as started:
        yield started


@pytest.fixture
def own_server(request, options):
    with running_server(request, options.server) as started:
        yield started


@pytest.fixture
def zookeeper(request):
    """A real ZooKeeper of the test's own."""
    if not packages.zookeeper():
        pytest.skip("no ZooKeeper: install Debian's package zookeeper, or set ZOOKEEPER_JARS to a folder of its jars")
    with running_server(request, "zookeeper") as started:
        yield started


@pytest.fixture
def context(request, server):
    """The server as one test sees it. A server that an earlier test lost is started again."""
    if server.process.poll() is not None:
        server.start()
    made = Context(server, request.node.originalname.removeprefix("test_"))
    yield made
    made.finish()
    check_server(server)


@pytest.fixture(scope="module")
def new_ensemble(options):
    """The ensemble of a module, not started."""
    # Connections stay through elections, however long these take.
    return Ensemble(options.server, shards=options.shards, settings={**CALM, "ensemble.hold_ms": 30_000})


@pytest.fixture(scope="module")
def running_ensemble(request, new_ensemble):
    with kept_if_failed(request, new_ensemble):
        yield new_ensemble.start()


@pytest.fixture
def ensemble(running_ensemble):
    """The ensemble of the module. All its servers run when a test begins, and those that it ended are started again."""
    running_ensemble.start()
    yield running_ensemble
    running_ensemble.start()
    for member in running_ensemble.members:
        check_server(member)


@pytest.fixture
def run_ensemble(request):
    """A function that starts an ensemble of the test's own. With `keep` its files stay after a failure."""
    with ExitStack() as stack:
        made = []

        def run(ensemble, keep=False):
            made.append(stack.enter_context(kept_if_failed(request, ensemble, keep)))
            return ensemble.start()

        yield run
        for member in [member for ensemble in made for member in ensemble.running]:
            check_server(member)


@pytest.fixture
def own_ensemble(run_ensemble, options):
    """An ensemble of the test's own, for tests that change its members."""
    return run_ensemble(Ensemble(options.server, shards=options.shards, settings=CALM))


@pytest.fixture(scope="session")
def only_corral(options):
    if options.server != "corral":
        pytest.skip("ZooKeeper does not have this")


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    packages.need_command("openssl", "Debian's package openssl")
    return Authority(tmp_path_factory.mktemp("authority"), "first")
