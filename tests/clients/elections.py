"""The election of the ZooKeeper recipes and kazoo's own, as roles of contenders."""

import queue
import threading

from kazoo.exceptions import NoNodeError


class WatchPredecessor:
    """The lowest sequential ephemeral leads. Each of the others watches the znode just below its own."""

    def __init__(self, client, path, name):
        self.client, self.path = client, path
        self.name = client.create(f"{path}/n-", name.encode(), ephemeral=True, sequence=True).rpartition("/")[2]

    def leads(self, wake):
        while True:
            below = [name for name in self.client.get_children(self.path) if name < self.name]
            if not below:
                return True
            if self.client.exists(f"{self.path}/{max(below)}", watch=wake):
                return False


def contend(client, pipe, name, algorithm, path):
    """Stands for election; says ("leader", name) when elected and answers every message with whether it leads now."""
    inbox = queue.SimpleQueue()
    candidate = algorithm(client, path, name)
    pipe.send(("entered", name))
    threading.Thread(target=_forward, args=(pipe, inbox), daemon=True).start()
    leads = False
    while True:
        if not leads and candidate.leads(inbox.put):
            leads = True
            pipe.send(("leader", name))
        if inbox.get() == "report":
            client.sync(path)
            pipe.send(("report", candidate.leads(inbox.put) if not leads else True))


def contend_with_kazoo(client, pipe, name, path):
    """The same with kazoo's Election recipe."""
    inbox = queue.SimpleQueue()
    pipe.send(("entered", name))
    threading.Thread(target=_forward, args=(pipe, inbox), daemon=True).start()
    threading.Thread(target=client.Election(path, name).run, args=(_lead, pipe, name), daemon=True).start()
    while True:
        assert inbox.get() == "report"
        try:
            contenders = client.Election(path, name).contenders()
        except NoNodeError:
            contenders = []
        pipe.send(("report", contenders[:1] == [name]))


def _lead(pipe, name):
    pipe.send(("leader", name))
    threading.Event().wait()


def _forward(pipe, inbox):
    """Puts the parent's messages into the inbox where the watches' events go too."""
    while True:
        inbox.put(pipe.recv())
