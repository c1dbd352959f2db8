"""The client address that limits are counted by."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest

# One subscriber usually has a whole /64 (RFC 6177), so a single IPv6 address says nothing.
_IPV6_PREFIX = 64

# What a log keeps: the network of a provider's customers, not the customer (an IPv6 /48 is one site at most).
_LOGGED_PREFIX = {4: 24, 6: 48}


def client_address(request: HttpRequest) -> str:
    """An IPv4 address or an IPv6 network of 64 bits, as text; empty if there is none (a Unix socket).

    With `settings.CLIENT_ADDRESS_HEADER` it is what the reverse proxy says there. Of a list, as in X-Forwarded-For,
    the last counts: the proxy has written it, and the client may have written the others.
    """
    header = settings.CLIENT_ADDRESS_HEADER
    from_proxy = _parse(request.headers.get(header, "").rpartition(",")[2]) if header else None
    address = from_proxy or _parse(request.META.get("REMOTE_ADDR", ""))
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ip_network((int(address), _IPV6_PREFIX), strict=False))
    return str(address or "")


def client_network(request: HttpRequest) -> str:
    """The client's address without what names one customer: a /24 of IPv4, a /48 of IPv6; empty if there is none."""
    address = client_address(request)
    if not address:
        return ""
    network = ip_network(address)
    return str(network.supernet(new_prefix=_LOGGED_PREFIX[network.version]))


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text.strip())
    except ValueError:
        return None
