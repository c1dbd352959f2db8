"""A node that breaks the rules of HTTP. It uses bare sockets, because a server library would keep the rules."""

import json
import socket
import socketserver
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tests.chains.lying_node import is_chain_id
from tests.http_server import serving

MEGABYTE = 1024 * 1024
DRIP_SECONDS = 0.05
# Endless answers stop after this many seconds, so a client without bounds fails its test instead of hanging.
MOST_SECONDS = 60


class Exchange:
    """A received request and its connection."""

    def __init__(self, connection: socket.socket, body: Any, is_over: threading.Event) -> None:
        self.body = body
        self._connection, self._is_over = connection, is_over

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def repeat(self, data: bytes, *, pause: float = 0) -> None:
        """Send the data repeatedly until the client hangs up."""
        while not self._is_over.wait(pause):
            self.send(data)

    def wait(self) -> None:
        self._is_over.wait(MOST_SECONDS)

    def reset(self) -> None:
        """Reset the connection (RST) before the answer's announced end."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()

    def answer(self, content: bytes, *, status: str = "200 OK", headers: str = "") -> None:
        self.send(f"HTTP/1.1 {status}\r\nContent-Length: {len(content)}\r\n{headers}\r\n".encode())
        self.send(content)

    def answer_json(self, value: Any) -> None:
        self.answer(json.dumps(value).encode(), headers="Connection: close\r\n")


Behaviour = Callable[[Exchange], None]


@contextmanager
def hostile_node(behave: Behaviour, *, chain_id: int | None = 31337) -> Iterator[str]:
    """Yield the node's URL. With a chain id, the node answers the request for it honestly, and
    misbehaves afterwards.
    """
    is_over = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                while body := self._body():
                    exchange = Exchange(self.connection, body, is_over)
                    if chain_id is not None and is_chain_id(body):
                        exchange.answer(_result(body, hex(chain_id)))
                    else:
                        behave(exchange)
                        return

        def _body(self) -> Any:
            length = 0
            while (line := self.rfile.readline().strip().lower()) != b"":
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            return json.loads(self.rfile.read(length)) if length else None

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        request_queue_size = 100

    with serving(Handler, Server) as url:
        try:
            yield url
        finally:
            is_over.set()


def _result(body: Any, value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": value}).encode()


# --- Floods -----------------------------------------------------------------------------------------------------------


def gzip_bomb(exchange: Exchange) -> None:
    """Send endless zeros, compressed to a thousandth of their size."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    first = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    # After a full flush, a compressed block doesn't refer to earlier ones, so it can be repeated.
    again = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    exchange.answer(first + again * 2048, headers="Content-Encoding: gzip\r\n")


def answering(content: bytes) -> Behaviour:
    return lambda exchange: exchange.answer(content)


def endless(first: bytes, repeated: bytes, *, pause: float = 0) -> Behaviour:
    """Return a behaviour that sends `first`, and then `repeated` again and again."""

    def behave(exchange: Exchange) -> None:
        exchange.send(first)
        exchange.repeat(repeated, pause=pause)

    return behave


def _endless_logs(data: bytes, more: bytes) -> Behaviour:
    log = b'{"address": "0x%040x", "topics": [], "data": "0x%b"%b}, ' % (1, data, more)
    return endless(b'HTTP/1.1 200 OK\r\n\r\n{"result": [{"logs": [', log * 10)


endless_logs = _endless_logs(b"00" * 50_000, b"")
# Nearly nothing of these logs is kept.
endless_logs_of_spaces = _endless_logs(b"", b" " * 100_000)
FLOODS: Mapping[str, Behaviour] = {
    "gzip bomb": gzip_bomb,
    "endless reply": endless(b'HTTP/1.1 200 OK\r\n\r\n["', b"x" * MEGABYTE),
    # 63 MB of JSON, which would take 2.7 GB of memory when parsed
    "empty lists": answering(b"[" + b"[]," * (21 * MEGABYTE) + b"[]]"),
    # The largest that an honest reply may be
    "empty lists within bounds": answering(b"[" + b"[]," * (1300 * 1024) + b"[]]"),
    "deep nesting": answering(b"[" * 200_000 + b"]" * 200_000),
    "endless logs": endless_logs,
    "endless logs of spaces": endless_logs_of_spaces,
    # 15 MB as a single object, which would take 400 MB of memory when parsed
    "log of lists": answering(b'[{"topics": [' + b"[]," * (5 * MEGABYTE) + b"[]]}]"),
    "log of deep nesting": answering(b'[{"topics": ' + b"[" * 200_000 + b"]" * 200_000 + b"}]"),
    "endless headers": endless(b"HTTP/1.1 200 OK\r\n", b"X-Header: of no use\r\n" * 100),
    "endless header": endless(b"HTTP/1.1 200 OK\r\nX-Header: ", b"x" * 10_000),
}


# --- Drips, each well within the read timeout -------------------------------------------------------------------------


def dripping(first: bytes, repeated: bytes) -> Behaviour:
    return endless(first, repeated, pause=DRIP_SECONDS)


def silence(exchange: Exchange) -> None:
    exchange.wait()


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
dripped_reply = dripping(b"HTTP/1.1 200 OK\r\n\r\n", b" ")
DRIPS: Mapping[str, Behaviour] = {
    "dripped headers": dripping(b"HTTP/1.1 200 OK\r\nX-Header: ", b"x"),
    "dripped reply": dripped_reply,
    "dripped chunk length": dripping(_CHUNKED + b"1;", b"x"),
    "dripped trailers": dripping(_CHUNKED + b"2\r\n{}\r\n0\r\n", b"X-Trailer: x\r\n"),
    "endless continue": dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "silence": silence,
}


# --- Ends and lies ----------------------------------------------------------------------------------------------------


def hangs_up_midway(exchange: Exchange) -> None:
    exchange.send(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"jsonrpc": "2.0", ')


def wrong_ids(exchange: Exchange) -> None:
    questions = exchange.body if isinstance(exchange.body, list) else [exchange.body]
    replies = [{"jsonrpc": "2.0", "id": question["id"] + 1, "result": "0x1"} for question in questions]
    exchange.answer(json.dumps(replies).encode())


LIES: Mapping[str, Behaviour] = {
    "hangs up": lambda _: None,
    "hangs up midway": hangs_up_midway,
    "wrong ids": wrong_ids,
}
