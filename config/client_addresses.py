"""Addresses of clients, by which limits count, and as reverse proxies write them in a header."""

import hashlib
import logging
import re
from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from django.conf import settings

_logger = logging.getLogger(__name__)

# One subscriber usually has a whole /64 (RFC 6177), so a single IPv6 address identifies nobody.
_IPV6_PREFIX = 64

# An address in the parameter `for` of Forwarded (RFC 7239), in quotes, in brackets (RFC 3986), or with its port (Azure,
# IIS; CloudFront's IPv6 too).
_FOR = re.compile(r'(?:.*;)?\s*for\s*=\s*("[^"]*"|[^";]*).*', re.IGNORECASE)
_QUOTED = re.compile(r'"([^"]*)"')
_IN_BRACKETS = re.compile(r"\[([^\]]*)\](?::\d*)?")
# Longest entry that proxies write, with all parameters. A longer one would cost much to read.
_MOST_CHARS = 1000


def last_entry(header: str) -> str:
    """Return the last entry of a list that isn't empty. The proxy wrote it; the client may have written the rest."""
    return header.rstrip(", \t").rpartition(",")[2].strip()


def read(entry: str) -> IPv4Address | IPv6Address | None:
    """Return the address in an entry, without its port, brackets and parameters. None if there is none."""
    if len(entry) > _MOST_CHARS:
        return None
    for form in (_FOR, _QUOTED, _IN_BRACKETS):
        if match := form.fullmatch(entry):
            entry = match[1]
    host, _, port = entry.rpartition(":")
    return _parsed(entry) or (None if port.strip("0123456789") else _parsed(host))


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def of(environ: Mapping[str, Any]) -> str:
    """Return an IPv4 address or an IPv6 network of 64 bits, as text; empty if there is none (a Unix socket).

    `environ` has the request's WSGI variables. The reverse proxy sends the address in the header
    `settings.CLIENT_ADDRESS_HEADER`, if that is set. An entry that can't be read stands for itself, so that not all
    clients share the proxy's limits.
    """
    header = settings.CLIENT_ADDRESS_HEADER
    variable = f"HTTP_{header.upper().replace('-', '_')}"
    entry = last_entry(environ.get(variable, "")) if header else ""
    address = read(entry or environ.get("REMOTE_ADDR", ""))
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), _IPV6_PREFIX), strict=False))
    if address or not entry:
        return str(address or "")
    _warn_of(header)
    return f"unread {hashlib.sha256(entry.encode()).hexdigest()[:32]}"


@cache
def _warn_of(header: str) -> None:
    """Log a header that can't be read, once in a process."""
    _logger.warning("CLIENT_ADDRESS_HEADER: no address can be read from the header %s.", header)
