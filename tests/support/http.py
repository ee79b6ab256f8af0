"""Requests by HTTP to servers on the loopback."""

import json
from collections import namedtuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

LIMIT_S = 60


class Answer(namedtuple("Answer", "status headers body")):
    @property
    def text(self):
        return self.body.decode(errors="replace")

    def json(self):
        return json.loads(self.text)


def ask(url, method="GET", headers=None, context=None):
    """The answer, whatever its status. A POST has an empty body."""
    request = Request(url, data=b"" if method == "POST" else None, headers=headers or {}, method=method)
    try:
        with urlopen(request, timeout=LIMIT_S, context=context) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except HTTPError as refused:
        with refused:
            return Answer(refused.code, refused.headers, refused.read())
