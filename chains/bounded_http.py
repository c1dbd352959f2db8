"""HTTP requests to untrusted nodes, attesters and file servers, with limits of total time and of bytes.

A blocking client's time-out covers a single read, so a server that sends its answer slowly could hold it up. Therefore
all requests of a process run in one event loop, in a thread of its own. Answers are not asked for in a compressed form;
if one comes so, its limit holds for what is unpacked.
"""

import asyncio
import atexit
import ssl
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

from chains.environment_proxies import NamedProxy, UnusableProxy, proxy_for

if TYPE_CHECKING:
    import aiohttp

# Bytes after which a part is shortened, and bytes that are received at most for each that may be left.
_SHORTENED_AT_ONCE, _RECEIVED_PER_SHORTENED = 256 * 1024, 8
# Redirects that may be followed, with the same method and body.
_REDIRECTS = {
    HTTPStatus.MOVED_PERMANENTLY,
    HTTPStatus.FOUND,
    HTTPStatus.TEMPORARY_REDIRECT,
    HTTPStatus.PERMANENT_REDIRECT,
}
_PORTS = {"http": 80, "https": 443}

Result = TypeVar("Result")


class Failed(Exception):
    """There was no usable answer.

    The message continues a sentence that begins with the server's name, and shows no URL.
    """


class TooLong(Failed):
    """The answer is longer than its limit."""


class TimedOut(Failed):
    """The answer, or the next part of it, did not come in time."""


@dataclass(frozen=True)
class HttpRequest:
    """A request with JSON or without a body, and the limits of its answer."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    max_bytes: int
    silence_seconds: float
    """Maximum to connect, and of each pause in the answer."""
    total_seconds: float
    """Maximum of the whole exchange: look-up of the name, connection, headers and content."""
    read_statuses: Collection[int] | None = None
    """Answers with other statuses are read up to `peeked_bytes`. None: all are read whole."""
    method: Literal["POST", "GET"] = "POST"
    """A GET has an empty body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers. They replace default headers of the same name."""
    peeked_bytes: int = 0
    """Maximum bytes read of an answer with another status."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """Certificates for TLS. None: those that this machine trusts, and none of its own."""
    asked: str = ""
    """A word for what is requested. The failure of a time-out has it."""
    redirects: int = 0
    """Maximum redirects within the host that are followed one after another."""
    shorten: Callable[[bytes], bytes] | None = None
    """Shortens the JSON objects in a part of the answer that ends with one. `max_bytes` limits what is left."""
    take: Callable[[bytes], None] | None = None
    """Takes each part of the answer, whose content is then empty. It runs between the parts of other answers."""
    rest_seconds: float = 0
    """After a time-out, further requests to the URL time out at once for so long."""


@dataclass(frozen=True)
class HttpReply:
    status: int
    content: bytes
    range: str = ""
    """The header Content-Range: the range of these bytes, and the size of the whole."""
    retry_after: float = 0
    """The header Retry-After, in seconds from now. 0: none."""
    proxy: str = ""
    """The name of the proxy that sent the answer. Empty: none."""

    @property
    def status_text(self) -> str:
        """Continue a sentence that begins with the server's name."""
        return f"answered{f' through {self.proxy}' if self.proxy else ''} with HTTP status {self.status}"


def get(url: str, path: str, headers: Mapping[str, str], max_bytes: int, *, seconds: float, status: int) -> HttpRequest:
    """Return a GET request for a path below a URL, with the URL's query. Answers with other statuses are not read."""
    parts = urlsplit(url)
    whole = parts._replace(path=parts.path.rstrip("/") + path).geturl()
    return HttpRequest(whole, b"", max_bytes, seconds, 3 * seconds, {status}, "GET", headers)


def send_all(requests: Sequence[HttpRequest]) -> list[HttpReply | Failed]:
    """Send all requests at the same time. Return the answers in the same order."""
    exchanges = _exchanges()
    return exchanges.run(_send_all(exchanges.session, requests))


async def _send_all(session: "aiohttp.ClientSession", requests: Sequence[HttpRequest]) -> list[HttpReply | Failed]:
    async def answer_or_failure(request: HttpRequest) -> HttpReply | Failed:
        try:
            return await _send(session, request)
        except Failed as failed:
            # The traceback would keep the received bytes in memory.
            return failed.with_traceback(None)

    return await asyncio.gather(*map(answer_or_failure, requests))


async def _send(session: "aiohttp.ClientSession", request: HttpRequest) -> HttpReply:
    """Send the request, through the environment's proxy if there is one. Raises `Failed`."""
    import aiohttp  # noqa: PLC0415 (slow to load, and most commands and pages send no requests)

    asked = f" {request.asked}" if request.asked else ""
    late = TimedOut(f"did not answer{asked} within {request.silence_seconds:g} seconds")
    if time.monotonic() < _rests_until.get(request.url, 0):
        raise late
    by: NamedProxy | None = None
    try:
        by = proxy_for(request.url)
        # The library's own time-out doesn't cover closing the connection.
        async with asyncio.timeout(request.total_seconds):
            return await _answer(by, session, request)
    except TimeoutError:
        failed: Failed = late
        _let_rest(request)
    except UnusableProxy as unusable:
        failed = Failed(f"can't be reached, because {unusable}")
    except aiohttp.ClientHttpProxyError as refused:
        failed = Failed(f"can't be reached (HTTP status {refused.status})")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        failed = failure(error)
    # Raised outside of `except`, so that no chained exception shows the URL.
    raise type(failed)(f"{failed} through {by.name}") if by else failed


def failure(error: Exception) -> Failed:
    """Return the failure of an exchange, with the cause if its TLS did not come about."""
    import aiohttp  # noqa: PLC0415 (slow to load)

    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        # "Hostname mismatch" goes on with the name.
        return Failed(f"has no valid TLS certificate ({cause.verify_message.partition(',')[0].lower()})")
    if isinstance(cause, ssl.SSLError) and cause.reason:
        if "CERTIFICATE_REQUIRED" in cause.reason:
            return Failed("wants a TLS certificate of its clients")
        reason = cause.reason.replace("_", " ").lower()
        return Failed(f"speaks no TLS, or no version that this machine knows ({reason})")
    if isinstance(error, aiohttp.ClientConnectorError):
        # Such an end comes after the connection, in the handshake.
        is_ended = isinstance(error.os_error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
        is_ended = is_ended or isinstance(error, aiohttp.ClientSSLError)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return Failed("can't be reached, because its name doesn't resolve")
        return Failed("ended the connection before TLS came about" if is_ended else "can't be reached")
    return Failed("broke off its answer")


_rests_until: dict[str, float] = {}  # by URL, on the monotonic clock; only the event loop's thread uses it


def _let_rest(request: HttpRequest) -> None:
    now = time.monotonic()
    for url in [url for url, until in _rests_until.items() if until <= now]:
        del _rests_until[url]
    if request.rest_seconds:
        _rests_until[request.url] = now + request.rest_seconds


async def _answer(by: NamedProxy | None, session: "aiohttp.ClientSession", request: HttpRequest) -> HttpReply:
    import aiohttp  # noqa: PLC0415 (slow to load)
    from yarl import URL  # noqa: PLC0415 (aiohttp loads it)

    async with session.request(
        request.method,
        # A key in a URL is another one if its escapes are written otherwise.
        URL(request.url, encoded=request.url.isascii()),
        data=request.body or None,
        headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **request.headers},
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=request.silence_seconds, sock_read=request.silence_seconds
        ),
        allow_redirects=False,
        ssl=True if request.tls is None else request.tls,
        proxy=by.url if by else None,
    ) as response:
        url = _redirected(request.url, response) if request.redirects else None
        if url is None:
            return replace(await _read(response, request), proxy=by.name if by else "")
    return await _answer(proxy_for(url), session, replace(request, url=url, redirects=request.redirects - 1))


def _redirected(url: str, response: "aiohttp.ClientResponse") -> str | None:
    """Return the URL to which an answer redirects, if it is of the same host. Another host would learn a key."""
    if response.status not in _REDIRECTS or "Location" not in response.headers:
        return None
    here, there = urlsplit(url), urlsplit(urljoin(url, response.headers["Location"]))
    is_secured = (_port(here), _port(there)) == (("http", 80), ("https", 443))
    if there.hostname != here.hostname or not (_port(there) == _port(here) or is_secured):
        return None
    login, at, _ = here.netloc.rpartition("@")
    return there._replace(netloc=f"{login}{at}{there.netloc.rpartition('@')[2]}").geturl()


def _port(parts: SplitResult) -> tuple[str, int | None]:
    return parts.scheme, parts.port or _PORTS.get(parts.scheme)


async def _read(response: "aiohttp.ClientResponse", request: HttpRequest) -> HttpReply:
    shortened, rest, received = bytearray(), bytearray(), 0
    most, of_what = request.max_bytes, " of shortened JSON" if request.shorten else ""
    most_received = most * (_RECEIVED_PER_SHORTENED if request.shorten else 1)
    reply = HttpReply(
        response.status,
        b"",
        response.headers.get("Content-Range", ""),
        _seconds_until(response.headers.get("Retry-After", "")),
    )
    if request.read_statuses is not None and response.status not in request.read_statuses:
        return replace(reply, content=await response.content.read(request.peeked_bytes))
    async for part in response.content.iter_any():
        received += len(part)
        if request.take:
            request.take(part)
        else:
            rest += part
        if request.shorten and len(rest) > _SHORTENED_AT_ONCE:
            end = rest.rfind(b"}") + 1
            shortened += request.shorten(bytes(rest[:end]))
            del rest[:end]
        if len(shortened) + len(rest) > most:
            raise TooLong(f"sent more than {most:,} bytes{of_what}")
        if received > most_received:
            raise TooLong(f"sent more than {most_received:,} bytes")
    return replace(reply, content=bytes(shortened) + (request.shorten or bytes)(bytes(rest)))


def _seconds_until(time: str) -> float:
    """Return the seconds until the time in a header, which are written as such or as a date. 0 if it is neither."""
    if time.isascii() and time.isdecimal():
        return float(time[:9])
    try:
        return max(0.0, (parsedate_to_datetime(time) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


class _Exchanges:
    """The event loop of all HTTP requests, its thread, and its open connections."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="exchanges", daemon=True)
        self._thread.start()
        self.session = self.run(self._open())
        atexit.register(self._close)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine in the loop, and return its result. Any number of threads may call it at the same time."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> "aiohttp.ClientSession":
        import aiohttp  # noqa: PLC0415 (slow to load)

        # Callers limit the number of requests. Nodes and attesters need no cookies.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Some providers refuse the names of libraries.
            headers={"User-Agent": "batch-query-service"},
            # `proxy_for` chooses proxies: aiohttp would use one for this machine too.
            trust_env=False,
        )

    def _close(self) -> None:
        self.run(self.session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_lock = threading.Lock()
_the_exchanges: _Exchanges | None = None


def _exchanges() -> _Exchanges:
    """Return the process's event loop of HTTP requests.

    It starts at the first use, because its thread would be missing in a process that is forked later.
    """
    global _the_exchanges
    with _lock:
        if _the_exchanges is None:
            _the_exchanges = _Exchanges()
        return _the_exchanges
