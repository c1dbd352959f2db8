"""Who may read the metrics, and the sentences of `/healthz`.

They say how much money is left, and who knows that may wait for the right moment.
"""

from hmac import compare_digest
from ipaddress import ip_address
from typing import Protocol

from django.conf import settings

# What proxies add. Where the settings name none of them, the connection's address is the proxy's and not the client's.
_OF_PROXIES = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip")


class _Headers(Protocol):
    def get(self, name: str, default: str, /) -> str: ...

    def __contains__(self, name: str, /) -> bool: ...


def may_read(peer: str, headers: _Headers, *, behind_proxy: bool) -> bool:
    """Return whether a client may read the metrics.

    `peer` is the address of the connection, as text; a Unix socket has none. `headers` ignore case.

    `behind_proxy`: whether this is what the settings say of a proxy about.
    """
    token = settings.METRICS_TOKEN
    if token and compare_digest(headers.get("Authorization", "").encode(), f"Bearer {token}".encode()):
        return True
    told = headers.get(settings.CLIENT_ADDRESS_HEADER, "") if behind_proxy and settings.CLIENT_ADDRESS_HEADER else ""
    if told:
        # Of a list the last entry counts: the proxy wrote it.
        peer = told.rpartition(",")[2]
    elif any(header in headers for header in _OF_PROXIES):
        return False
    try:
        address = ip_address(peer.strip())
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in settings.METRICS_ALLOWED_NETWORKS)
