"""One HTTP exchange with a node, which may be anybody: bounded in time as a whole, and in bytes once decompressed.

All exchanges of a process run in one loop, in a thread of its own: a time-out of a socket is for one read, and a node
that drips headers or chunks would be waited for as long as it likes.
"""

import asyncio
import atexit
import threading
import zlib
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

import aiohttp

# Some nodes send JSON-RPC errors as HTTP 400. The content of any other answer is not looked at.
_READ_STATUSES = {HTTPStatus.OK, HTTPStatus.BAD_REQUEST}
_GZIP = 16 + zlib.MAX_WBITS

Result = TypeVar("Result")


class Failed(Exception):
    """There was no usable answer. The message says what the node did, to be put behind its name, and shows no URL."""


class TooLong(Failed):
    """The answer is longer than it may be."""


def post(url: str, body: bytes, *, timeout_seconds: float, max_bytes: int) -> tuple[int, bytes]:
    """The status of the answer to JSON, and its content where the status is one that nodes answer with.

    `timeout_seconds` are for the connection and for each silence; three times as many for everything. Redirects are not
    followed. Raises `Failed`, `TooLong`.
    """
    status, is_packed, content = _loop().run(_post(_loop().session, url, body, timeout_seconds, max_bytes))
    return status, _unpacked(content, max_bytes) if is_packed else content


async def _post(
    session: aiohttp.ClientSession, url: str, body: bytes, timeout_seconds: float, max_bytes: int
) -> tuple[int, bool, bytes]:
    """Status, whether the content is packed by gzip, and the content."""
    try:
        # Around all of it: the library's own time-out ends before it has hung up.
        async with asyncio.timeout(3 * timeout_seconds):
            return await _answer(session, url, body, timeout_seconds, max_bytes)
    except TimeoutError:
        problem = f"did not answer within {timeout_seconds:g} seconds"
    except aiohttp.ClientSSLError:
        problem = "has no valid TLS certificate"
    except aiohttp.ClientConnectorError:
        problem = "can't be reached"
    except (aiohttp.ClientError, OSError, ValueError):
        problem = "broke off its answer"
    # Outside of `except`, so that no chained exception shows the URL.
    raise Failed(problem)


async def _answer(
    session: aiohttp.ClientSession, url: str, body: bytes, timeout_seconds: float, max_bytes: int
) -> tuple[int, bool, bytes]:
    content = bytearray()
    async with session.post(
        url,
        data=body,
        headers={"Content-Type": "application/json", "Accept-Encoding": "gzip"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeout_seconds, sock_read=timeout_seconds),
        allow_redirects=False,
    ) as response:
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if response.status not in _READ_STATUSES:
            return response.status, False, b""
        if encoding not in {"identity", "gzip"}:
            raise Failed("answered in an encoding that it was not asked for")
        async for part in response.content.iter_any():
            content += part
            if len(content) > max_bytes:
                raise TooLong(f"sent more than {max_bytes} bytes")
        return response.status, encoding == "gzip", bytes(content)


def _unpacked(content: bytes, max_bytes: int) -> bytes:
    unpacker = zlib.decompressobj(_GZIP)
    try:
        unpacked = unpacker.decompress(content, max_bytes + 1)
    except zlib.error:
        raise Failed("answered with something that is not gzip") from None
    if len(unpacked) > max_bytes:
        raise TooLong(f"sent more than {max_bytes} bytes")
    if not unpacker.eof:
        raise Failed("broke off its answer")
    return unpacked


class _Loop:
    """A loop in a thread of its own, and the connections that it keeps open."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="exchanges", daemon=True)
        self._thread.start()
        self.session = self.run(self._open())
        atexit.register(self._close)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> aiohttp.ClientSession:
        # As many connections as threads ask at once. No node needs cookies.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
            auto_decompress=False,
        )

    def _close(self) -> None:
        self.run(self.session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_lock = threading.Lock()
_the_loop: _Loop | None = None


def _loop() -> _Loop:
    """Made at its first use: a server forks its processes before, and no thread goes with them."""
    global _the_loop  # noqa: PLW0603 (one per process)
    with _lock:
        if _the_loop is None:
            _the_loop = _Loop()
        return _the_loop
