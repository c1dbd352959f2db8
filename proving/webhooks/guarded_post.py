"""One POST to a receiver that a user has chosen: it reaches no network of the operator, and takes bounded time.

Whatever a URL and a name server say, the address of each connection is judged as it is opened
(`queries.webhook_targets`). TLS and the header `Host` keep the name. No redirect is followed, no proxy of the
environment is used, and nothing of the answer is read but its status.
"""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import closing
from ipaddress import IPv6Address, ip_address

import aiohttp
from yarl import URL

from chains.bounded_http import Failed, TimedOut
from queries import webhook_targets
from queries.webhook_targets import Address

TOTAL_SECONDS = 10.0
"""For everything: the name, the connection, TLS, the request and the answer's header."""

# Nothing listens there; no packet is sent to it.
_DISCARD_PORT = 9


def post(url: str, headers: Mapping[str, str], body: bytes, *, seconds: float = TOTAL_SECONDS) -> int:
    """Send a request, and return the HTTP status of the answer. Raises `Failed`, `TimedOut`."""
    door = _Door(url)
    try:
        # Unlike `asyncio.run`, it doesn't wait for the thread of a name server that hangs: a look-up can't be ended.
        with closing(asyncio.new_event_loop()) as loop:
            return loop.run_until_complete(_answered(url, headers, body, door, seconds))
    except TimeoutError:
        failed: Failed = TimedOut(f"did not answer within {seconds:g} seconds")
    except aiohttp.ClientSSLError:
        failed = Failed("has no valid TLS certificate")
    except aiohttp.ClientConnectorError as error:
        # Which names there are inside is nobody's business.
        is_unknown = door.has_refused or isinstance(error, aiohttp.ClientConnectorDNSError)
        failed = Failed("has no public address" if is_unknown else "can't be reached")
    except (aiohttp.ClientError, OSError, ValueError):
        failed = Failed("broke off its answer")
    # Outside of `except`, so that no chained exception shows the URL.
    raise failed


class _Door:
    """Makes the sockets of a request, for addresses that are allowed alone."""

    def __init__(self, url: str) -> None:
        # The host as the library that sends reads it.
        self._is_named = webhook_targets.is_named(URL(url).raw_host or "")
        self.has_refused = False

    def open(self, to: aiohttp.AddrInfoType) -> socket.socket:
        """Return a socket that is going to be connected. Raises `PermissionError`."""
        family, kind, protocol, _, sockaddr = to
        if not self._is_named and not _may_connect(ip_address(sockaddr[0])):
            self.has_refused = True
            raise PermissionError
        return socket.socket(family, kind, protocol)


def _may_connect(address: Address) -> bool:
    if not webhook_targets.is_allowed(address):
        return False
    return webhook_targets.is_exempt(address) or not _is_of_this_machine(address)


def _is_of_this_machine(address: Address) -> bool:
    """Return whether connections to it stay in this machine, where no firewall stops them: they come from there."""
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _DISCARD_PORT))
        except OSError:
            return False  # There is no way to it at all.
        return ip_address(probe.getsockname()[0]) == address


async def _answered(url: str, headers: Mapping[str, str], body: bytes, door: _Door, seconds: float) -> int:
    # Of its own: nothing that another receiver has left is used again.
    connector = aiohttp.TCPConnector(
        resolver=aiohttp.ThreadedResolver(), use_dns_cache=False, force_close=True, socket_factory=door.open
    )
    async with (
        asyncio.timeout(seconds),
        aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False
        ) as session,
        session.post(
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer,
    ):
        return answer.status
