"""HTTP requests to nodes, attesters and servers of files, which may be anybody: bounded in total time and in
bytes. None is asked for compressed answers, and one that comes is not read.

All requests of a process run in one event loop, in a thread of its own. A socket's time-out covers one read only, so a
blocking client would wait as long as a server likes that drips its headers or its body.
"""

import asyncio
import atexit
import threading
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import aiohttp

Result = TypeVar("Result")


class Failed(Exception):
    """There was no usable answer. The message says what the server did, to be put behind its name, and shows no URL."""


class TooLong(Failed):
    """The answer is longer than it may be."""


class TimedOut(Failed):
    """The answer, or a part of it, did not come in time."""


@dataclass(frozen=True)
class HttpRequest:
    """JSON to send, and how much the answer may take."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    max_bytes: int
    silence_seconds: float
    """For the connection, and for each pause in the answer."""
    total_seconds: float
    """For everything: the name, the connection, the headers and the content."""
    read_statuses: Collection[int] | None = None
    """The content of other answers is not read, but for `peeked_bytes`. None: it always is."""
    method: Literal["POST", "GET"] = "POST"
    """A GET has an empty body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers, or other values of those that are sent always."""
    peeked_bytes: int = 0
    """The most that is read of an answer with another status."""


@dataclass(frozen=True)
class HttpReply:
    status: int
    content: bytes
    range: str = ""
    """The header Content-Range: which bytes these are, and of how many."""


def get(url: str, path: str, headers: Mapping[str, str], max_bytes: int, *, seconds: float, status: int) -> HttpRequest:
    """Return a GET of a path below a URL, whose query stays. An answer of this status alone is read."""
    parts = urlsplit(url)
    whole = parts._replace(path=parts.path.rstrip("/") + path).geturl()
    return HttpRequest(whole, b"", max_bytes, seconds, 3 * seconds, {status}, "GET", headers)


def post_all(requests: Sequence[HttpRequest]) -> list[HttpReply | Failed]:
    """Send all at once, and follow no redirect. Return the answers in the order of the requests."""
    exchanges = _exchanges()
    return exchanges.run(_post_all(exchanges.session, requests))


async def _post_all(session: "aiohttp.ClientSession", requests: Sequence[HttpRequest]) -> list[HttpReply | Failed]:
    async def answer_or_failure(request: HttpRequest) -> HttpReply | Failed:
        try:
            return await _post(session, request)
        except Failed as failed:
            # Its traceback would keep in memory what came.
            return failed.with_traceback(None)

    return await asyncio.gather(*map(answer_or_failure, requests))


async def _post(session: "aiohttp.ClientSession", request: HttpRequest) -> HttpReply:
    """Send the request. Raises `Failed`."""
    import aiohttp  # noqa: PLC0415 (it takes a while to load, and most commands and pages ask nobody)

    try:
        # Around everything: the library's own time-out ends before it has hung up.
        async with asyncio.timeout(request.total_seconds):
            return await _answer(session, request)
    except TimeoutError:
        failed: Failed = TimedOut(f"did not answer within {request.silence_seconds:g} seconds")
    except aiohttp.ClientSSLError:
        failed = Failed("has no valid TLS certificate")
    except aiohttp.ClientConnectorError:
        failed = Failed("can't be reached")
    except (aiohttp.ClientError, OSError, ValueError):
        failed = Failed("broke off its answer")
    # Outside of `except`, so that no chained exception shows the URL.
    raise failed


async def _answer(session: "aiohttp.ClientSession", request: HttpRequest) -> HttpReply:
    import aiohttp  # noqa: PLC0415 (same)

    content = bytearray()
    async with session.request(
        request.method,
        request.url,
        data=request.body or None,
        headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **request.headers},
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=request.silence_seconds, sock_read=request.silence_seconds
        ),
        allow_redirects=False,
    ) as response:
        if request.read_statuses is not None and response.status not in request.read_statuses:
            return HttpReply(response.status, await response.content.read(request.peeked_bytes))
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Failed("answered in an encoding that it was not asked for")
        async for part in response.content.iter_any():
            content += part
            if len(content) > request.max_bytes:
                raise TooLong(f"sent more than {request.max_bytes} bytes")
        return HttpReply(response.status, bytes(content), response.headers.get("Content-Range", ""))


class _Exchanges:
    """The event loop in which they are made, in a thread of its own, and the connections that it keeps open."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="exchanges", daemon=True)
        self._thread.start()
        self.session = self.run(self._open())
        atexit.register(self._close)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine. Return or raise what it does. Any number of threads may wait at once."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> "aiohttp.ClientSession":
        import aiohttp  # noqa: PLC0415 (same)

        # As many connections as threads ask at once. Nodes and attesters need no cookies.
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
_the_exchanges: _Exchanges | None = None


def _exchanges() -> _Exchanges:
    """Return the exchanges of this process. Made at their first use: a fork before that would lose their thread."""
    global _the_exchanges
    with _lock:
        if _the_exchanges is None:
            _the_exchanges = _Exchanges()
        return _the_exchanges
