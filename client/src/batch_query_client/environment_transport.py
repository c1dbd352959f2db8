"""Connections through the proxies and with the certificates that the environment names, such as in HTTP_PROXY.

httpx reads these variables too, but when a client is made. One value that it can't use would stop every request.
"""

import os
import re
import ssl
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from socket import inet_aton
from urllib.request import getproxies, proxy_bypass

import httpx

from batch_query_client.errors import Unavailable
from batch_query_client.plain_text import plain

_PORTS = {"http": 80, "https": 443}
MOST_PORT = 65535
# An address or a network in NO_PROXY, such as fd00::/8, [fd00::]/8 or [::1]:8000.
_NETWORK = re.compile(r"\[?(?P<address>[^\]]+)\]?(?P<bits>/[0-9]+)?(?::(?P<port>[0-9]+))?", re.ASCII)
# Variables of TLS that httpx and Python read.
_TLS_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")


@dataclass(frozen=True)
class EnvironmentProxy:
    variable: str
    proxy: httpx.Proxy = field(repr=False)

    @property
    def name(self) -> str:
        """Return the proxy's name for messages, without its user and password."""
        return f"the proxy {plain(self.proxy.url.netloc.decode())} ({self.variable})"


class EnvironmentTransport(httpx.AsyncBaseTransport):
    """Open connections of each proxy. A request's extension `proxy` has its `EnvironmentProxy` or None."""

    def __init__(self) -> None:
        self._transports: dict[tuple[str, httpx.URL | None], httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request. Raises `Unavailable` if a variable of the environment has an unusable value."""
        by: EnvironmentProxy | None = request.extensions["proxy"]
        key = request.url.scheme, by.proxy.url if by else None
        if key not in self._transports:
            self._transports[key] = _transport(by, has_tls=request.url.scheme == "https")
        return await self._transports[key].handle_async_request(request)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


def _transport(by: EnvironmentProxy | None, *, has_tls: bool) -> httpx.AsyncHTTPTransport:
    try:
        # Certificates are read only if they are needed. The other context trusts none.
        tls = httpx.create_ssl_context() if has_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.AsyncHTTPTransport(verify=tls, proxy=by.proxy if by else None)
    except OSError as error:
        why = plain((isinstance(error, ssl.SSLError) and error.reason) or error.strerror or type(error).__name__)
        names = " and ".join(filter(os.environ.get, _TLS_VARIABLES)) or "the certificates that this machine trusts"
        failed = f"TLS can't begin on this machine ({why.replace('_', ' ').lower()}). Check {names}."
    except ImportError:
        variable = by.variable if by else ""
        failed = f"The proxy in {variable} is a SOCKS proxy, for which the Python package socksio is missing."
    raise Unavailable(failed)


def proxy_for(url: httpx.URL) -> EnvironmentProxy | None:
    """Return the proxy for requests to this URL. None: no proxy. Raises `Unavailable` if the proxy can't be used."""
    proxies = getproxies()
    kind = next((kind for kind in (url.scheme, "all") if proxies.get(kind)), "")
    if not kind or _is_direct(url, proxies.get("no", "")):
        return None
    names = sorted(name for name in os.environ if name.lower() == f"{kind}_proxy" and os.environ[name])
    # The name in lower case comes last, and counts first. Without a variable, the proxy is in macOS's or Windows's
    # settings.
    variable = names[-1] if names else "the system's settings"
    text = proxies[kind]
    try:
        proxy = httpx.Proxy(text if "://" in text else f"http://{text}")
        is_usable = bool(proxy.url.host) and "@" not in str(proxy.url) and (proxy.url.port or 0) <= MOST_PORT
    except (ValueError, httpx.InvalidURL):
        is_usable = False
    if not is_usable:
        # Raised outside of `except`, so that no chained exception shows a password.
        raise Unavailable(
            f"The client can't use the proxy in {variable}. The proxy's URL begins with http://, https://, socks5:// "
            "or socks5h://, and names a host. Special characters of its password are escaped, such as %40 for @."
        )
    return EnvironmentProxy(variable, proxy)


def _is_direct(url: httpx.URL, exceptions: str) -> bool:
    """Return whether requests to this URL use no proxy: those to this machine, and to what NO_PROXY names."""
    host, port = url.host.rstrip("."), url.port or _PORTS.get(url.scheme)
    names = [name.strip() for name in exceptions.lower().split(",")]
    if (
        host in {"localhost", "ip6-localhost"}
        or host.endswith(".localhost")
        or "*" in names
        or proxy_bypass(f"{host}:{port}")
    ):
        return True
    try:
        address = ip_address(host if ":" in host else inet_aton(host))
    except (ValueError, OSError):
        return any(name.startswith("*.") and host.endswith(name[1:]) for name in names)
    address = getattr(address, "ipv4_mapped", None) or address
    # A connection to 0.0.0.0 or :: also reaches this machine.
    if address.is_loopback or address.is_unspecified:
        return True
    # `proxy_bypass` knows neither networks nor brackets.
    for match in filter(None, map(_NETWORK.fullmatch, names)):
        try:
            network = ip_network(match["address"] + (match["bits"] or ""), strict=False)
        except ValueError:
            continue
        if address in network and match["port"] in {None, str(port)}:
            return True
    return False
