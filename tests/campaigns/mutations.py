"""Mutated HTTP requests, which `test_http.py` sends. A request follows from the seed and its number alone.

No request holds a proof: neither the server's token nor the password of the super user. So none of them may change anything.
"""

import random
from collections import namedtuple

from blackbox.test_admin import SUPER_DIGEST, TOKEN

CHANGES = "connection_stat_reset crst stat_reset srst observer_connection_stat_reset orst set_trace_mask stmk shed_connections shed".split()
OTHERS = (
    "configuration conf config connections cons dirs dump environment env envi get_trace_mask gtmk hash initial_configuration icfg "
    "is_read_only isro last_snapshot lsnp leader lead monitor mntr observers obsr restore rest ruok server_stats srvr snapshot snap "
    "stats stat system_properties sysp voting_view watch_summary wchs watches wchc watches_by_path wchp zabstate none"
).split()
PATHS = "/metrics /livez /readyz /healthz /readyz?verbose /healthz?verbose=1 /commands /commands/ / /top?seconds=0 /top?seconds=x".split()
QUERIES = ("?traceMask=7", "?traceMask=-1", "?traceMask=", "?a=1&traceMask=9", "?", "?" + "a=b&" * 2000, "?%00", "#f", "??")
METHODS = [*["GET"] * 40, *["POST"] * 20, *"HEAD HEAD HEAD PUT DELETE PATCH OPTIONS TRACE CONNECT get PRI G\0T".split(" "), "", "A" * 300]
VERSIONS = [*[" HTTP/1.1"] * 60, *[" HTTP/1.0"] * 9, *"|  HTTP/1.1| HTTP/0.9| HTTP/2.0| HTTP/1.2| HTTP/9| http/1.1".split("|")]
HOSTS = (*["localhost", "127.0.0.1:8080", "[::1]"] * 25, "[::", "a.org", "localhost.example.org", "user@localhost", "", "a b", "\0", "é")
PROOFS = (
    *["", "Bearer", "Bearer ", "Bearer \0", f"Bearer {TOKEN[::-1]}", f"Bearer {TOKEN[:16]}", f"Basic {TOKEN[:24]}", "Bearer a, Bearer b"],
    *["x509", "ip 127.0.0.1", "world anyone", "digest", "digest :", "digest super:", "digest super:wrong", f"digest {SUPER_DIGEST}"],
    *["Digest username=super", "Negotiate YII=", "Basic c3VwZXI6", "Bearer é\xff", "\t Bearer\t"],
    *[f"Bearer {'x' * 9000}", "digest " + ":" * 99],
)
OTHER_HEADERS = (
    *["Connection: keep-alive", "Connection: close, upgrade", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk", "Expect: 100-continue"] * 3,
    *["Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: none", "Origin: null", "X-HTTP-Method-Override: POST", "X-Forwarded-For: ::1"],
    *["Range: bytes=0-", "Accept-Encoding: gzip;q=9", "X: " + "y" * 300, "X: " + "y" * 20_000, "X" * 70_000 + ": y"],
    *["X: 1\r\n 2", "X : 1", ": 1", "no colon", "X: \0", "X: \x7f\x80\xff", "X:\t\t", "X: a\rb", "X: a\nY: b", "Ünicode: 1"],
    *["\r\n".join([f"H{at}: {at}" for at in range(count)]) for count in (20, 95, 101, 1000)],
)
# Sizes of a body or of a chunk of five bytes, and whole bodies behind their headers.
SIZES = ("5", "5", "5", "0", "4", "6", "+5", "-5", "0x5", "", " 5", "5, 5", "5;a=b", "f" * 16, "f" * 17, 2**63, 2**64, 2**64 + 5, "9" * 30)
BODIES = (
    *[f"Content-Length: {size}\r\n\r\nhello" for size in SIZES],
    *[f"Transfer-Encoding: chunked\r\n\r\n{size}\r\nhello\r\n0\r\n\r\n" for size in SIZES],
    *[f"Transfer-Encoding: {name}\r\n\r\n0\r\n\r\n" for name in ("gzip, chunked", "chunked, gzip", "identity", "xchunked", "\vchunked")],
    *["Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"],
    *["Content-Length: 70000\r\n\r\n" + "x" * 70_000, "Transfer-Encoding: chunked\r\n\r\n" + "1\r\na\r\n" * 2000],
    *["Transfer-Encoding: chunked\r\n\r\n" + text for text in ("5;" + "e" * 20_000 + "\r\nhello", "0\r\n" + "T: 1\r\n" * 200 + "\r\n")],
)
# Bytes that are no request, or one of another protocol.
FOREIGN = (
    *[b"", b"\r\n", b"\0" * 24, b"srst", b"stmk\0\0\0\0\0\0\0\1", b"GET /commands/srst\r\n"],
    *[b"\x16\x03\x01\x02\0\1\0\1\xfc\x03\x03", b"\n" * 40_000],
    *[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\nGET /livez HTTP/1.1\r\n\r\n"],
)
INSERTED = (
    *[b"\r\n", b"\n", b"\0", b": ", b"\r\n\r\n", b" ", b"%00", b"%2e%2e%2f", b"chunked", b"\xff", b"HTTP/1.1"],
    b"POST /commands/srst HTTP/1.1\r\n\r\n",
)
TOP = b"GET /top?seconds=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"

# Pieces are sent in turn, with a pause between them. The end is `wait` for the answer, `linger` for as long as the server keeps the
# connection open, `shut` to close one direction at once, or `close`.
Case = namedtuple("Case", "number port pieces pause_s end")


def target(draw):
    path = "/commands/" + draw.choice(CHANGES if draw.random() < 0.5 else OTHERS) if draw.random() < 0.7 else draw.choice(PATHS)
    path += draw.choice(QUERIES) if draw.random() < 0.2 else ""
    if draw.random() < 0.75:
        return path
    name = path.rpartition("/")[2]
    return draw.choice((
        "/commands/../commands/" + name, "/commands/%2e%2e/commands/" + name, "//commands//" + name, "/./commands/./" + name, path + "/",
        path + "%00", path + "\0", path + "%", path + "%zz", path + "%ff", path + "\xff", path + " ", path + "\t", path + ";a=b", path + "/..",
        path.replace("/", "\\"), path.replace("/", "%2f"), path.upper(), "/".join("".join(f"%{ord(sign):02x}" for sign in part) for part in path.split("/")),
        "http://127.0.0.1" + path, "https://localhost:1" + path, "http://example.org" + path, "http://" + path, "HTTP:" + path, "ftp://[::1]" + path,
        "/commands/" + "a" * draw.choice((300, 8000, 16_300, 70_000)), "/" * draw.choice((2, 300, 9000)), "/commands/" + "../" * 2000 + name,
        "/commands/é\u202e" + name, "/commands/\"'<script>{}|^`" + name, "127.0.0.1:8080", "user:pw@localhost:80", path[1:], "*", "",
    ))  # fmt: skip


def request(draw):
    """A request whose bytes are not changed yet."""
    headers = [f"Host: {draw.choice(HOSTS)}"] if draw.random() < 0.97 else []
    if draw.random() < 0.5:
        headers.append(f"{draw.choice(('Authorization', 'authorization'))}: {draw.choice(PROOFS)}")
    while draw.random() < 0.15:
        headers.append(draw.choice(OTHER_HEADERS))
    if headers and draw.random() < 0.05:
        headers += [draw.choice(headers)] * draw.choice((1, 2, 150))
    draw.shuffle(headers)
    headers.append(draw.choice(BODIES) if draw.random() < 0.15 else "\r\n")
    text = "\r\n".join([f"{draw.choice(METHODS)} {target(draw)}{draw.choice(VERSIONS)}", *headers])
    return (text.replace("\r\n", "\n") if draw.random() < 0.03 else text).encode("utf-8" if draw.random() < 0.5 else "latin-1", "replace")


def mutated(draw, data):
    """The bytes with some of them changed, most often near the beginning."""
    data = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        at, kind = int(draw.random() ** 2 * (len(data) + 1)), draw.randrange(16)
        if kind < 4 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif kind < 7:
            del data[at : at + draw.choice((1, 2, 4, 100))]
        elif kind < 15:
            inserted = draw.choice(INSERTED), draw.randbytes(draw.choice((1, 2, 4, 100))), data[at : at + draw.randrange(1, 200)]
            data[at:at] = draw.choice(inserted)
        else:
            del data[at:]
    return bytes(data)


def split(draw, data):
    """The bytes in pieces, and the pause between them."""
    if draw.random() < 0.8 or len(data) < 2:
        return [data], 0
    count = len(data) - 1 if draw.random() < 0.02 and len(data) < 300 else min(draw.randrange(1, 6), len(data) - 1)
    cuts = [0, *sorted(draw.sample(range(1, len(data)), count)), len(data)]
    return [data[begin:end] for begin, end in zip(cuts, cuts[1:])], draw.choice((0, 0, 0, 0.0005, 0.002)) if draw.random() < 0.98 else 0.05


def case(seed, number):
    draw = random.Random(seed << 40 | number)
    kind, port, end = draw.random(), "admin" if draw.random() < 0.8 else "metrics", draw.choices(("wait", "shut", "close"), (85, 8, 7))[0]
    if kind < 0.0001:
        return Case(number, "admin", [TOP], 0, "linger")
    data = draw.choice(FOREIGN) if kind < 0.02 else request(draw)
    if draw.random() < 0.05:
        data += b"".join(request(draw) for _ in range(draw.choice((1, 1, 3, 20))))
    data = mutated(draw, data) if draw.random() < 0.35 else data
    return Case(number, port, *split(draw, data), "linger" if draw.random() < 0.0001 else end)
