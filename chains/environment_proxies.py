"""The proxies that the environment names for requests to other machines: HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""

import os
import re
from ipaddress import ip_address, ip_network
from socket import inet_aton
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

_PORTS = {"http": 80, "https": 443}
# An address or a network in NO_PROXY, such as fd00::/8, [fd00::]/8 or [::1]:8000.
_NETWORK = re.compile(r"\[?(?P<address>[^\]]+)\]?(?P<bits>/[0-9]+)?(?::(?P<port>[0-9]+))?", re.ASCII)


class UnusableProxy(Exception):
    """The environment's proxy can't be used. The message continues a sentence, and shows no password."""


class NamedProxy(NamedTuple):
    url: str
    """It may have a user and a password."""
    name: str
    """The proxy and its variable, for messages."""


def proxy_for(url: str) -> NamedProxy | None:
    """Return the proxy for requests to this URL. None: no proxy. Raises `UnusableProxy`."""
    to, proxies = urlsplit(url), getproxies()
    text = proxies.get(to.scheme, "")
    if not text or _is_direct(to, proxies.get("no", "")):
        return None
    names = sorted(name for name in os.environ if name.lower() == f"{to.scheme}_proxy" and os.environ[name])
    # The name in lower case comes last, and counts first. Without a variable, the proxy is in macOS's settings.
    variable = names[-1] if names else "the system's settings"
    text = text if "://" in text else f"http://{text}"
    try:
        proxy = urlsplit(text)
        is_usable = (
            proxy.scheme in _PORTS
            and proxy.hostname
            and proxy.port != 0
            and "@" not in proxy.path + proxy.query + proxy.fragment
        )
    except ValueError:
        is_usable = False
    if not is_usable:
        # Raised outside of `except`, so that no chained exception shows a password.
        raise UnusableProxy(f"the proxy in {variable} has no http or https URL")
    return NamedProxy(text, f"the proxy {proxy.netloc.rpartition('@')[2]} ({variable})")


def _is_direct(to: SplitResult, exceptions: str) -> bool:
    """Return whether requests use no proxy: those to this machine, and to what NO_PROXY names."""
    host, port = (to.hostname or "").rstrip("."), to.port or _PORTS.get(to.scheme)
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
