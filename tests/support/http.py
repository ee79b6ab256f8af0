"""Requests by HTTP to servers on the loopback."""

import json
from collections import namedtuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from support.wait import free_port

LIMIT_S = 60


class Answer(namedtuple("Answer", "status headers body")):
    @property
    def text(self):
        return self.body.decode(errors="replace")

    def json(self):
        return json.loads(self.text)


# Of the holder of the token that `admin` writes.
PROOF = {"Authorization": "Bearer 0123456789abcdef"}


def admin(server, directory):
    """Lets a server that has not started answer the holder of a token. Gives the address and the token's file."""
    token, port = directory / "token", free_port()
    token.write_text(PROOF["Authorization"].removeprefix("Bearer ") + "\n")
    token.chmod(0o600)
    server.settings |= {"admin.enabled": "true", "admin.http_addr": f"127.0.0.1:{port}", "admin.token_file": f'"{token}"'}
    return f"127.0.0.1:{port}", token


def reaches(url):
    """The answer, or None while nothing listens."""
    try:
        return ask(url)
    except OSError:
        return None


def ask(url, method="GET", headers=None, context=None, body=b""):
    """The answer, whatever its status."""
    request = Request(url, data=body if method == "POST" else None, headers=headers or {}, method=method)
    try:
        with urlopen(request, timeout=LIMIT_S, context=context) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except HTTPError as refused:
        with refused:
            return Answer(refused.code, refused.headers, refused.read())
