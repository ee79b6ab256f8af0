"""What a test of a single server gets: the server, its address, clients, and a path of the test's own."""

import time

from support.client import Client, Closed, Refused

FINISH_LIMIT_S = 2


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
