"""What shells of ZooKeeper print: names for the numbers and times that differ from server to server."""

import functools
import re

ZXID = re.compile(r"((?:[cmp]Zxid = )0x|^version=|^(?=[0-9a-f]{9,} \S*,)|zxid: (?=[1-9]))([0-9a-f]+)")
OWNER = re.compile(r"(ephemeralOwner = 0x)([1-9a-f][0-9a-f]*)")
LOGGED = re.compile(r"^(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d\S+ ")
TIME = re.compile(r"([cm]time = )(?!Thu Jan 01 00:00:00 UTC 1970)\w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}$")


def replaced(text, others):
    """The text with others in place of the keys, in their order."""
    return functools.reduce(lambda text, one: text.replace(one, others[one]), others, text)


class Names:
    """Gives numbers that differ between servers the same names: the place where they appear first, and their order there.

    `texts` are names for texts, such as addresses.
    """

    def __init__(self):
        self.known = {}
        self.move("")

    def move(self, place, texts=None):
        self.place, self.count, self.texts = place, 0, texts or {}

    def line(self, line):
        line = replaced(line, self.texts)
        line = ZXID.sub(lambda found: self.replace("zxid", found, base=10 if ":" in found[1] else 16), line)
        line = OWNER.sub(lambda found: self.replace("session", found), line)
        return TIME.sub(r"\1<time>", LOGGED.sub("<time> ", line))

    def replace(self, kind, found, base=16):
        number = int(found[2], base)
        if number == 0:
            return found[0]
        if (kind, number) not in self.known:
            self.known[kind, number] = f"<{kind} {self.place}{self.count}>"
            self.count += 1
        return found[1] + self.known[kind, number]
