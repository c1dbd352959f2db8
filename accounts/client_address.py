"""The client address that limits are counted by."""

from ipaddress import ip_network

from django.conf import settings
from django.http import HttpRequest

from config import client_networks

# What a log keeps: the network of a provider's customers, not the customer (an IPv6 /48 is one site at most).
_LOGGED_PREFIX = {4: 24, 6: 48}


def client_address(request: HttpRequest) -> str:
    """An IPv4 address or an IPv6 network of 64 bits, as text; empty if there is none (a Unix socket).

    With `settings.CLIENT_ADDRESS_HEADER` it is what the reverse proxy says there. Of a list, as in X-Forwarded-For,
    the last counts: the proxy has written it, and the client may have written the others.
    """
    header = settings.CLIENT_ADDRESS_HEADER
    from_proxy = client_networks.client(request.headers.get(header, "").rpartition(",")[2]) if header else ""
    return from_proxy or client_networks.client(request.META.get("REMOTE_ADDR", ""))


def client_network(request: HttpRequest) -> str:
    """The client's address without what names one customer: a /24 of IPv4, a /48 of IPv6; empty if there is none."""
    address = client_address(request)
    if not address:
        return ""
    network = ip_network(address)
    return str(network.supernet(new_prefix=_LOGGED_PREFIX[network.version]))
