"""Addresses of clients as reverse proxies write them in a header."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

# An address in the parameter `for` of Forwarded (RFC 7239), in quotes, in brackets (RFC 3986), or with its port (Azure,
# IIS; CloudFront's IPv6 too).
_FOR = re.compile(r'(?:.*;)?\s*for\s*=\s*("[^"]*"|[^";]*).*', re.IGNORECASE)
_QUOTED = re.compile(r'"([^"]*)"')
_IN_BRACKETS = re.compile(r"\[([^\]]*)\](?::\d*)?")
_WITH_PORT = re.compile(r"(.+):\d*")


def last_entry(header: str) -> str:
    """Return the last entry of a list that isn't empty. The proxy wrote it; the client may have written the rest."""
    return header.rstrip(", \t").rpartition(",")[2].strip()


def read(entry: str) -> IPv4Address | IPv6Address | None:
    """Return the address in an entry, without its port, brackets and parameters. None if there is none."""
    for form in (_FOR, _QUOTED, _IN_BRACKETS):
        if match := form.fullmatch(entry):
            entry = match[1]
    return _parsed(entry) or _parsed(_WITH_PORT.sub(r"\1", entry))


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
