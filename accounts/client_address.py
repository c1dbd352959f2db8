"""The client's address, by which limits count."""

from ipaddress import IPv6Address, ip_address, ip_network

from django.conf import settings
from django.http import HttpRequest

# One subscriber usually has a whole /64 (RFC 6177), so a single IPv6 address identifies nobody.
_IPV6_PREFIX = 64
# A log keeps the network of a provider's customers, but not the customer (an IPv6 /48 is at most one site).
_LOGGED_PREFIX = {4: 24, 6: 48}


def client_address(request: HttpRequest) -> str:
    """Return an IPv4 address or an IPv6 network of 64 bits, as text; empty if there is none (a Unix socket).

    The reverse proxy tells it in the header `settings.CLIENT_ADDRESS_HEADER`, if that is set. Of a list, as in
    X-Forwarded-For, the last entry counts: the proxy wrote it, and the client may have written the others.
    """
    header = settings.CLIENT_ADDRESS_HEADER
    from_proxy = _subscriber(request.headers.get(header, "").rpartition(",")[2]) if header else ""
    return from_proxy or _subscriber(request.META.get("REMOTE_ADDR", ""))


def _subscriber(address: str) -> str:
    """Return the IPv4 address, or the IPv6 network of 64 bits; empty if the text is no address."""
    try:
        parsed = ip_address(address.strip())
    except ValueError:
        return ""
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), _IPV6_PREFIX), strict=False))


def client_network(request: HttpRequest) -> str:
    """Return the client's network, too wide to be one customer: a /24 of IPv4, a /48 of IPv6, or empty if unknown."""
    address = client_address(request)
    if not address:
        return ""
    network = ip_network(address)
    return str(network.supernet(new_prefix=_LOGGED_PREFIX[network.version]))
