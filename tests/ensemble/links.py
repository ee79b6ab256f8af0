"""An ensemble whose servers reach each other through proxies that can be told to be slow.

Whatever a server says to another arrives `delay_s` later, in order; so each exchange between servers takes twice that, and
what happens between two of them can be seen and met from outside. Clients are not delayed.
"""

import asyncio
import threading
import time

from ensemble.cluster import Ensemble
from support.wait import free_port

PIECE_BYTES = 1 << 16


class Links:
    """Proxies on an event loop in a thread of their own."""

    def __init__(self):
        self.delay_s = 0
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def add(self, port, to):
        """Listens on the port and passes on to the other one, both of the loopback."""

        async def listen():
            await asyncio.start_server(lambda reader, writer: self.join(to, reader, writer), "127.0.0.1", port)

        asyncio.run_coroutine_threadsafe(listen(), self.loop).result()

    async def join(self, to, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self.carry(reader, far_writer), self.carry(far_reader, writer))

    async def carry(self, reader, writer):
        """One direction; its end ends the other one, too."""
        under_way = asyncio.Queue()
        delivery = asyncio.ensure_future(deliver(under_way, writer))
        piece = b"first"
        while piece:
            try:
                piece = await reader.read(PIECE_BYTES)
            except OSError:
                piece = b""
            under_way.put_nowait((time.monotonic() + self.delay_s, piece))
        await delivery


async def deliver(under_way, writer):
    piece = b"first"
    while piece:
        due, piece = await under_way.get()
        await asyncio.sleep(max(0, due - time.monotonic()))
        try:
            writer.write(piece)
            await writer.drain()
        except OSError:
            break
    writer.close()


class Linked(Ensemble):
    """Servers of corral behind such proxies; `links` has their delay."""

    def __init__(self, **options):
        self.links = Links()
        super().__init__("corral", **options)
        for member in self.members:
            self.place(member)

    def joiner(self, role):
        member = super().joiner(role)
        self.place(member)
        return member

    def place(self, member):
        """A proxy where the member is listed; it listens elsewhere."""
        listed, own = int(self.specs[self.number(member)].split(":")[1]), free_port()
        self.links.add(listed, own)
        member.settings["ensemble.peer_addr"] = f"127.0.0.1:{own}"
