"""A section: the calls of a holder to the resource, until that ends or refuses them. `corral` runs this file as its command:

section.py SOCKET CONTENDER [take]    with `take` the item of a queue is on the standard input
"""

import os
import sys
import time

# The module `socket` takes twice as long to import.
from _socket import AF_UNIX, SOCK_STREAM, socket

REFUSED = 3
PAUSE_S = 0.005


def run(address, contender, token, item=""):
    """Returns an exit code."""
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.connect(address)
    while True:
        connection.send(f"{contender} {token} {item}\n".encode())
        if (answer := connection.recv(16)) != b"go\n":
            connection.close()
            return 0 if answer == b"end\n" else REFUSED
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:3], os.environ.get("CORRAL_FENCING_TOKEN", "0"), sys.stdin.read() if "take" in sys.argv else ""))
