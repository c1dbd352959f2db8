"""Whether the web server can be reached from this machine alone."""

from ipaddress import ip_address

LISTENS_ON_LOOPBACK = "batch_query_service.listens_on_loopback"
"""A key of each request's environment, from the web server alone: True if all its addresses are loopback."""


def is_loopback(host: str) -> bool:
    """Return whether an address, or the name `localhost`, means this machine alone."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
