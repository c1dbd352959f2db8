"""What limits count a client by."""

from ipaddress import IPv6Address, ip_address, ip_network

# One subscriber usually has a whole /64 (RFC 6177), so a single IPv6 address says nothing.
_IPV6_PREFIX = 64


def client(address: str) -> str:
    """The IPv4 address, or the IPv6 network of 64 bits, as text; empty if the text is no address."""
    try:
        parsed = ip_address(address.strip())
    except ValueError:
        return ""
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ip_network((int(parsed), _IPV6_PREFIX), strict=False))
