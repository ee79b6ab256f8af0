"""Spark's standalone masters in ZooKeeper recovery mode: the active one dies, the other takes over, the work goes on.

Two masters elect a leader with Curator's LeaderLatch and keep workers and applications in znodes. One worker and a running
application live through the kill of the active master, and through a kill -9 and restart of the coordination service itself.
The same story runs on a real ZooKeeper and on corral; what can be seen of it has to be the same, the times are printed.
"""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from support.wait import free_port, wait_until

HERE = Path(__file__).resolve().parent
# Spark asks for a session of 60 s and gets twenty ticks: 10 s.
TICK_MS = 500
LIMIT_S = 120
PROBE_LIMIT_S = 2


class Process:
    """A process of Spark's, with its log in a file."""

    def __init__(self, name, directory, command, **options):
        self.name, self.log_path = name, directory / f"{name}.log"
        with open(self.log_path, "ab") as log:
            options.setdefault("stdout", log)
            self.process = subprocess.Popen(command, stderr=log, cwd=directory, **options)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Daemon(Process):
    """A master or a worker, and the state its web page tells."""

    def __init__(self, spark, name, role, arguments, page_port):
        self.page = f"http://127.0.0.1:{page_port}/json/"
        command = [str(spark.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1"]
        super().__init__(name, spark.directory, [*command, *arguments], env=spark.environment, stdin=subprocess.DEVNULL)

    def state(self):
        try:
            with urllib.request.urlopen(self.page, timeout=PROBE_LIMIT_S) as page:
                return json.load(page)
        except (OSError, ValueError):
            return {}

    def status(self):
        return self.state().get("status", "unreachable")

    def wait_for(self, status):
        wait_until(lambda: self.status() == status, f"{self.name} is {status}, last seen {self.status()}", LIMIT_S)


class Application(Process):
    """A driver that computes a sum when it is asked to."""

    def __init__(self, spark, name):
        command = [sys.executable, str(HERE / "spark_app.py"), name, spark.url]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        super().__init__(name, spark.directory, command, env=spark.environment, **pipes)
        self.id = self.answer("id")

    def answer(self, word):
        for line in self.process.stdout:
            if line.startswith(f"{word} "):
                return line.split()[1]
        raise AssertionError(f"{self.name} ended with code {self.process.wait()}:\n{self.log_path.read_text()[-2000:]}")

    def sum(self, below):
        self.process.stdin.write(f"{below}\n")
        return int(self.answer("sum"))

    def finish(self):
        self.process.stdin.close()
        return self.process.wait(LIMIT_S)


class Spark:
    """Two masters, a worker and the applications on one coordination service."""

    def __init__(self, home, server):
        self.home, self.directory = home, server.directory
        self.ports = [free_port() for _ in range(2)]
        self.url = "spark://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)
        host, port = server.address
        recovery = {"recoveryMode": "ZOOKEEPER", "zookeeper.url": f"{host}:{port}", "zookeeper.dir": "/spark"}
        self.environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(f"-Dspark.deploy.{key}={value}" for key, value in recovery.items()),
            "SPARK_WORKER_DIR": str(self.directory / "work"),
            "SPARK_LOCAL_DIRS": str(self.directory / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
        self.started = []

    def started_one(self, process):
        self.started.append(process)
        return process

    def master(self, number):
        page = free_port()
        arguments = ["--port", str(self.ports[number]), "--webui-port", str(page)]
        return self.started_one(Daemon(self, f"master-{number}", "master.Master", arguments, page))

    def worker(self):
        page = free_port()
        arguments = ["--webui-port", str(page), "--cores", "2", "--memory", "2g", self.url]
        return self.started_one(Daemon(self, "worker", "worker.Worker", arguments, page))

    def application(self, name):
        return self.started_one(Application(self, name))

    def kill_all(self):
        for process in self.started:
            process.kill()


def seen_by(master):
    """What a master knows: its state, and those of its workers and applications, without what differs from run to run."""
    state = master.state()
    return {
        "status": state.get("status"),
        "workers": sorted(f"{worker['state']} cores {worker['coresused']}/{worker['cores']}" for worker in state["workers"]),
        "active": sorted(f"{app['name']} {app['state']}" for app in state["activeapps"]),
    }


def settled(master, workers=1, active=1):
    """Whether a master serves, with that many living workers and running applications."""
    state = master.state()
    living = [worker for worker in state.get("workers", []) if worker["state"] == "ALIVE"]
    running = [app for app in state.get("activeapps", []) if app["state"] == "RUNNING"]
    return state.get("status") == "ALIVE" and len(living) == workers and len(running) == active


def take_over(story, what, successor, begin):
    """Waits until the successor has all that its predecessor had, and notes how long that took."""
    successor.wait_for("ALIVE")
    story.time(f"{what}: the standby is active", time.monotonic() - begin)
    wait_until(lambda: settled(successor), f"{what}: worker and application are back", LIMIT_S)
    story.time(f"{what}: worker and application are back", time.monotonic() - begin)
    story.note(f"{what}: the new master", seen_by(successor))


def spark_story(server, story, home):
    """The whole story on one server, which is started."""
    spark = Spark(home, server)
    try:
        first, second = spark.master(0), None
        first.wait_for("ALIVE")
        second = spark.master(1)
        second.wait_for("STANDBY")
        spark.worker()
        wait_until(lambda: settled(first, active=0), "the worker registers", LIMIT_S)
        application = spark.application("lasting")
        story.note("before", [application.sum(1000), seen_by(first), second.status()])

        begin = time.monotonic()
        first.kill()
        take_over(story, "the active master is killed", second, begin)
        story.note("the application goes on", application.sum(2000))
        third = spark.master(0)
        third.wait_for("STANDBY")
        another = spark.application("new")
        story.note("a new application", [another.sum(3000), another.finish()])

        begin = time.monotonic()
        server.kill()
        # A master of Spark that loses the connection gives up the leadership, and ends.
        story.note("the service dies: the active master ends with code", second.process.wait(LIMIT_S))
        story.time("the service dies: the active master has ended", time.monotonic() - begin)
        story.note("the service is gone: the other master", third.status())
        story.note("the service is gone: the application goes on", application.sum(4000))
        begin = time.monotonic()
        server.start()
        take_over(story, "the service is back", third, begin)
        story.note("at the end", [application.sum(5000), application.finish()])
        wait_until(lambda: settled(third, active=0), "the application is gone", LIMIT_S)
        story.note("the last master", seen_by(third))
    finally:
        story.keep_logs(spark.started)
        spark.kill_all()
