"""One POST to a receiver that a user has chosen: it reaches no network of the operator, and takes bounded time.

The name is looked up once. Each address that it has is judged (`queries.webhook_targets`), and one that isn't allowed
refuses all: an honest receiver has none. The connection is made to these very addresses, while TLS and the header
`Host` keep the name, so a name server that gives another answer the next moment changes nothing. No redirect is
followed, no proxy of the environment is used, and nothing of the answer is read but its status.

All of them run in one event loop, in a thread of its own, as in `chains.bounded_http`.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from chains.bounded_http import Failed, TimedOut
from chains.loop_thread import LoopThread
from queries import webhook_targets
from queries.webhook_targets import Address

TOTAL_SECONDS = 10.0
"""For everything: the name, the connection, TLS, the request and the answer's header."""

# As many as `proving.worker.webhook_dispatcher` has threads: none waits for another.
MOST_LOOK_UPS = 32
# Of a name with many addresses, those that are tried.
_MOST_TRIED = 4
# Nothing listens there; no packet is sent to it.
_DISCARD_PORT = 9

_NOT_PUBLIC = "has no public address"


@dataclass(frozen=True)
class Post:
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


LookUp = Future[Sequence[Address]]


def look_up(url: str) -> LookUp:
    """Begin to look up the addresses of a URL's host. That can't be ended: it may last longer than anybody waits."""
    return _look_ups.submit(_addresses, _host(url))


def post(request: Post, found: LookUp, *, seconds: float = TOTAL_SECONDS) -> int:
    """Send a request, and return the HTTP status of the answer. Raises `Failed`, `TimedOut`."""
    ends = time.monotonic() + seconds
    timed_out = TimedOut(f"did not answer within {seconds:g} seconds")
    try:
        addresses = found.result(seconds)
    except FutureTimeoutError:
        raise timed_out from None
    except (OSError, UnicodeError):
        # In the same words as below: which names there are inside is nobody's business.
        raise Failed(_NOT_PUBLIC) from None
    is_named = webhook_targets.is_named(_host(request.url))
    if not addresses or not (is_named or all(map(_may_connect, addresses))):
        raise Failed(_NOT_PUBLIC)
    try:
        return _loop().run(_answered(request, addresses, is_named=is_named, seconds=ends - time.monotonic()))
    except TimeoutError:
        failed: Failed = timed_out
    except aiohttp.ClientSSLError:
        failed = Failed("has no valid TLS certificate")
    except aiohttp.ClientConnectorError:
        failed = Failed("can't be reached")
    except (aiohttp.ClientError, OSError, ValueError):
        failed = Failed("broke off its answer")
    # Outside of `except`, so that no chained exception shows the URL.
    raise failed


# --- Addresses --------------------------------------------------------------------------------------------------------

_look_ups = ThreadPoolExecutor(MOST_LOOK_UPS, thread_name_prefix="look-up")


def _host(url: str) -> str:
    """Return the host as the library that sends reads it: no other reading of a URL may be what is judged."""
    return URL(url).raw_host or ""


def _addresses(host: str) -> Sequence[Address]:
    """Look up the addresses of a host. Raises `OSError`, `UnicodeError`."""
    try:
        return [ip_address(host)]
    except ValueError:
        pass
    # With a dot at its end it is a full name, to which no domain of this machine's is appended.
    name = host if webhook_targets.is_named(host) else f"{host}."
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ip_address(sockaddr[0]) for *_, sockaddr in found))


def _may_connect(address: Address) -> bool:
    if webhook_targets.is_exempt(address):
        return webhook_targets.is_allowed(address)
    return webhook_targets.is_allowed(address) and not _is_of_this_machine(address)


def _is_of_this_machine(address: Address) -> bool:
    """Return whether connections to it stay in this machine, where no firewall stops them.

    They come from where they go.
    """
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _DISCARD_PORT))
        except OSError:
            return False  # There is no way to it at all.
        return ip_address(probe.getsockname()[0]) == address


# --- Sending ----------------------------------------------------------------------------------------------------------


class _Found(AbstractResolver):
    """Tells the addresses that were judged, whatever it is asked."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Close nothing: nothing is open."""


async def _answered(request: Post, addresses: Sequence[Address], *, is_named: bool, seconds: float) -> int:
    def checked_socket(to: aiohttp.AddrInfoType) -> socket.socket:
        """Check the address a last time: whatever the library makes of URL and addresses, it connects to this."""
        family, kind, protocol, _, sockaddr = to
        if not is_named and not _may_connect(ip_address(sockaddr[0])):
            raise PermissionError
        return socket.socket(family, kind, protocol)

    # Of its own: nothing that another receiver has left is used again.
    connector = aiohttp.TCPConnector(
        resolver=_Found(addresses[:_MOST_TRIED]), use_dns_cache=False, force_close=True, socket_factory=checked_socket
    )
    async with (
        asyncio.timeout(seconds),
        aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False
        ) as session,
        session.post(
            request.url,
            data=request.body,
            headers=request.headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer,
    ):
        return answer.status


_lock = threading.Lock()
_the_loop: LoopThread | None = None


def _loop() -> LoopThread:
    """Return the loop. It is made at its first use, as that of `chains.bounded_http`."""
    global _the_loop
    with _lock:
        if _the_loop is None:
            _the_loop = LoopThread("webhooks")
        return _the_loop
