"""A port between one client and some servers, which can be shut: then nothing passes, and no connection is closed."""

import contextlib
import random
import socket
import threading


class Gate:
    def __init__(self, servers):
        """`servers` are HOST:PORT with commas between them. Each connection goes to one of them."""
        self.servers, self.open = servers.split(","), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.open.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.join, args=self.listener.accept()[:1], daemon=True).start()

    def join(self, client):
        host, port = random.choice(self.servers).split(":")
        try:
            server = socket.create_connection((host, int(port)))
        except OSError:
            client.close()
            return
        threading.Thread(target=self.pump, args=(server, client), daemon=True).start()
        self.pump(client, server)

    def pump(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.open.wait()
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def end(self):
        self.open.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
