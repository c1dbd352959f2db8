"""Clients that are slow, silent, greedy or malformed, while others ask from another address.

All of 127.0.0.0/8 is this machine, so each address of it is a client of its own.
"""

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from campaigns.attacks.table import Seen
from campaigns.attacks.target import target
from tests.serving.process import Answer, ask, connect, read_answer

_HOST = b"Host: 127.0.0.1\r\n"
_PROBE = b"GET /chain-connections HTTP/1.1\r\n" + _HOST + b"\r\n"
_PROBE_EVERY_SECONDS = 0.2
# Each probe's answer: alone it takes some milliseconds.
_PROMPT_SECONDS = 2.0
_MEGABYTE = 1024 * 1024
_MALFORMED = 4000
_SLOW_SECONDS = 13
# In bytes: more than a header may have.
_HEADER = 32 * 1024


class _Probes:
    """Asks again and again, in a thread, from an address."""

    def __init__(self, port: int, source: str) -> None:
        self._port, self._source = port, source
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._seconds: list[float] = []
        self._failed: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        self._probe()
        while not self._over.wait(_PROBE_EVERY_SECONDS):
            self._probe()

    def _probe(self) -> None:
        began = time.monotonic()
        try:
            status = ask(self._port, _PROBE, source=self._source).status
        except (OSError, HTTPException) as error:
            self._failed.append(type(error).__name__)
        else:
            if status == 200:
                self._seconds.append(time.monotonic() - began)
            else:
                self._failed.append(str(status))

    def __str__(self) -> str:
        failed = f" ({', '.join(sorted(set(self._failed)))})" if self._failed else ""
        answered, all_of_them = len(self._seconds), len(self._seconds) + len(self._failed)
        slowest = max(self._seconds, default=0)
        return (
            f"{answered} of {all_of_them} probes from {self._source} answered{failed}, the slowest in {slowest:.2f} s"
        )

    def all_prompt(self) -> bool:
        return bool(self._seconds) and not self._failed and max(self._seconds) < _PROMPT_SECONDS


def _drip(connections: Sequence[socket.socket], piece: bytes, every: float, seconds: float) -> None:
    """Send the piece on each again and again."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        for connection in connections:
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(piece)
        time.sleep(every)


def _slow(port: int, tried: str, count: int, start: bytes, piece: bytes, every: float) -> Iterator[Seen]:
    """So many connections of one address hold no thread."""
    with ExitStack() as opened, _Probes(port, "127.0.0.2") as probes:
        connections = []
        for _ in range(count):
            connections.append(opened.enter_context(connect(port)))
            connections[-1].sendall(start)
        _drip(connections, piece, every, _SLOW_SECONDS)
    yield Seen(tried, "others are answered promptly", str(probes), probes.all_prompt())


def _slow_headers(port: int) -> Iterator[Seen]:
    start = b"GET / HTTP/1.1\r\n" + _HOST
    yield from _slow(port, "16 clients send a header line every 3 s", 16, start, b"a: b\r\n", 3)
    yield from _slow(port, "200 clients of one address send a byte of a header every 0.5 s", 200, start, b"a", 0.5)


def _slow_bodies(port: int) -> Iterator[Seen]:
    start = b"POST /submit-batch-query HTTP/1.1\r\n" + _HOST + b"Content-Length: 1000\r\n\r\n"
    yield from _slow(port, "200 clients of one address send a byte of a body every 0.2 s", 200, start, b"{", 0.2)


def _half_open(port: int) -> Iterator[Seen]:
    """Nearly as many as the service holds: who may have how many is for the proxy in front to say."""
    sources = [f"127.0.1.{1 + number % 12}" for number in range(900)]
    tried = f"{len(sources)} connections of 12 addresses say nothing, or have asked once"
    with ExitStack() as opened, _Probes(port, "127.0.0.2") as probes, _Probes(port, "127.0.1.1") as own:
        for number, source in enumerate(sources):
            connection = opened.enter_context(connect(port, source))
            if number % 2:
                connection.sendall(_PROBE)
        time.sleep(2)
    yield Seen(tried, "others are answered promptly", str(probes), probes.all_prompt())
    yield Seen(tried, "their own addresses are as well", str(own), own.all_prompt())


def _unread(port: int) -> Iterator[Seen]:
    tried = "80 clients ask for the largest file there is and don't read it"
    path = b"GET /static/admin/js/vendor/xregexp/xregexp.js HTTP/1.1\r\n"
    with ExitStack() as opened, _Probes(port, "127.0.0.2") as probes:
        for _ in range(80):
            connection = opened.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", port))
            connection.sendall(path + _HOST + b"\r\n")
        time.sleep(4)
    yield Seen(tried, "others are answered promptly", str(probes), probes.all_prompt())


def _endless_headers(port: int) -> Iterator[Seen]:
    def one(_: int) -> tuple[int, str]:
        sent, piece = 0, b"a: " + b"b" * 4096 + b"\r\n"
        with connect(port) as connection:
            connection.sendall(b"GET /chain-connections HTTP/1.1\r\n")
            with suppress(OSError):
                while sent < 200 * _MEGABYTE:
                    connection.sendall(piece)
                    sent += len(piece)
        # What it says shows in a shorter one: after so much, the answer is lost by the reset.
        request = b"GET /chain-connections HTTP/1.1\r\n" + _HOST + b"a: " + b"b" * _HEADER + b"\r\n\r\n"
        return sent, str(ask(port, request).status)

    with _Probes(port, "127.0.0.2") as probes, ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(4)))
    most, said = max(sent for sent, _ in results), {said for _, said in results}
    yield Seen(
        "4 clients send headers without an end",
        "they are cut off and told why, others are answered promptly",
        f"cut off after {most // _MEGABYTE} MB at most, {', '.join(sorted(said))}; {probes}",
        probes.all_prompt() and most < 200 * _MEGABYTE and said == {"431"},
    )


def _large_bodies(port: int) -> Iterator[Seen]:
    def one(_: int) -> str:
        with connect(port) as connection:
            length = 30 * _MEGABYTE
            connection.sendall(b"POST /submit-batch-query HTTP/1.1\r\n%sContent-Length: %d\r\n\r\n" % (_HOST, length))
            with suppress(OSError):
                connection.sendall(bytes(length))
            try:
                return str(read_answer(connection).status)
            except (OSError, HTTPException) as error:
                return type(error).__name__

    with _Probes(port, "127.0.0.2") as probes, ThreadPoolExecutor(8) as pool:
        seen = Counter(pool.map(one, range(24)))
    yield Seen(
        "24 bodies of 30 MB, sent whole before anything is read, 8 at a time",
        "each sender that reads on after the reset sees 413, others are answered promptly",
        f"{dict(seen)}; {probes}",
        seen == {"413": 24} and probes.all_prompt(),
    )


# --- Malformed requests -----------------------------------------------------------------------------------------------

_METHODS = [b"GET", b"POST", b"HEAD", b"OPTIONS", b"PUT", b"get", b"", b"\0", b"G" * 300, b"PRI"]
_TARGETS = [
    *[b"/", b"/submit-batch-query", b"/batch-query-status?batchQueryId=1", b"/sign-in/verify", b"*", b"//x", b"/%00"],
    *[
        b"http://[",
        b"http://127.0.0.1/sign-in",
        b"/" + b"%ff" * 50,
        b"/?" + b"a=b&" * 3000,
        b"/\xff\xfe",
        b"",
        b"/../..",
    ],
    *[b"/explorer/query/%27", b"/explorer?q=%00", b"/a b", b"\\", b"/;apiKey=1", b"/chain-connections#x"],
]
_VERSIONS = [
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"HTTP/0.9",
    b"HTTP/1.1 ",
    b"http/1.1",
    b"",
    b"HTTP/1.1\0",
    b"ICAP/1",
]
_FIELDS = [
    *[b"Host: 127.0.0.1", b"Host: a b", b"Host:", b"Host: [::1", b"Content-Length: 2", b"Content-Length: 2, 3"],
    *[b"Content-Length: +2", b"Content-Length: 0x2", b"Content-Length: " + b"1" * 5000, b"Content-Length: 99999999"],
    *[b"Transfer-Encoding: chunked", b"Transfer-Encoding: \x0bchunked", b"transfer-encoding:identity", b"TE: trailers"],
    *[b"Content-Type: application/json", b"Content-Type: multipart/form-data; boundary=", b"Content-Encoding: gzip"],
    *[b"Accept: */*;q=x", b"Accept: application/json", b"Cookie: csrftoken=" + b"x" * 3000, b"Cookie: =;=;sessionid"],
    *[b"Expect: 100-continue", b"Expect: x", b"Connection: Upgrade", b"Upgrade: websocket", b"Range: bytes=-1"],
    *[b"If-Modified-Since: x", b"SCRIPT_NAME: /x", b"X-Forwarded-Proto: https", b"api-key: \xff", b"api-key: bqs_"],
    *[
        b" folded",
        b": empty",
        b"a" * 9000 + b": b",
        b"a\0b: c",
        b"a: b\rc",
        b"a: b\nc: d",
        b"no colon",
        b"Origin: null",
    ],
]
_BODIES = [
    b"",
    b"{}",
    b"[" * 5000,
    b"0\r\n\r\n",
    b"\xff\xfe",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    bytes(3000),
]


def _malformed(chance: random.Random) -> bytes:
    line = b" ".join([chance.choice(_METHODS), chance.choice(_TARGETS), chance.choice(_VERSIONS)])
    fields = [_FIELDS[0]] if chance.random() < 0.8 else []
    fields += chance.choices(_FIELDS, k=chance.randrange(4))
    raw = bytearray(b"\r\n".join([line, *fields, b"", chance.choice(_BODIES)]))
    if chance.random() < 0.3:
        for _ in range(chance.randrange(1, 6)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
    return bytes(raw)


def _say(port: int, raw: bytes) -> Answer | None:
    """The answer, or None where the server closes without one."""
    with connect(port, "127.0.0.3") as connection:
        with suppress(OSError):
            connection.sendall(raw)
            # Of what never ends by itself, the end.
            connection.shutdown(socket.SHUT_WR)
        try:
            return read_answer(connection, "HEAD" if raw.startswith(b"HEAD ") else "GET")
        except (OSError, HTTPException):
            return None


def _malformed_requests(port: int, log: Path, seed: int) -> Iterator[Seen]:
    chance = random.Random(seed)
    statuses: Counter[int | str] = Counter()
    broken: list[bytes] = []
    with _Probes(port, "127.0.0.2") as probes:
        for _ in range(_MALFORMED):
            raw = _malformed(chance)
            answer = _say(port, raw)
            statuses[answer.status if answer else "closed"] += 1
            if answer and answer.status == 500:
                broken.append(raw)
    counted = ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items(), key=str))
    tracebacks = log.read_text(errors="replace").count("Traceback")
    yield Seen(
        f"{_MALFORMED} malformed requests, seed {seed}",
        "none is answered 500 or leaves a traceback, others are answered promptly",
        f"{counted}; {tracebacks} tracebacks; {probes}" + (f"; the first with 500: {broken[0]!r}" if broken else ""),
        not broken and not tracebacks and probes.all_prompt(),
    )


# --- All --------------------------------------------------------------------------------------------------------------


def _memory(pid: int) -> int:
    """Return the memory of gunicorn's child processes, in bytes."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    fields = [Path(f"/proc/{child}/status").read_text().partition("VmRSS:")[2].split()[0] for child in children]
    return sum(map(int, fields)) * 1024


def run(seed: int) -> Iterator[Seen]:
    with target() as attacked:
        port, web = int(attacked.url.rpartition(":")[2]), attacked.service._processes["web"]._process.pid
        before = _memory(web)
        yield from _slow_headers(port)
        yield from _slow_bodies(port)
        yield from _half_open(port)
        yield from _unread(port)
        yield from _endless_headers(port)
        yield from _large_bodies(port)
        yield from _malformed_requests(port, attacked.service.log("web"), seed)
        grown = _memory(web) - before
        yield Seen(
            "all of these, one after another",
            "the web server's memory grows by less than 100 MB",
            f"by {grown / _MEGABYTE:.0f} MB",
            grown < 100 * _MEGABYTE,
        )
