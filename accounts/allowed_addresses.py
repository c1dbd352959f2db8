"""Which addresses may sign in."""

from functools import lru_cache

from django.conf import settings

from chains.encoding import checksummed
from config.configured_chains import get_chains

ANYONE = "*"


def may_sign_in(address: str) -> bool:
    """Return whether `settings.ALLOWED_ADDRESSES` or `OPERATOR_ADDRESSES` lets an EIP-55 address in.

    With an empty list, anyone may sign in if all destination chains are test networks, and nobody otherwise: a user
    with a key for another destination spends the operator's money.
    """
    if is_operator(address):
        return True
    allowed = settings.ALLOWED_ADDRESSES
    if not allowed:
        return all(chain.test_network for chain in get_chains().destinations())
    return ANYONE in allowed or address in _checksummed(tuple(allowed))


def is_operator(address: str) -> bool:
    """Return whether an EIP-55 address belongs to an operator of this service."""
    return address in _checksummed(tuple(settings.OPERATOR_ADDRESSES))


@lru_cache(maxsize=8)
def _checksummed(addresses: tuple[str, ...]) -> frozenset[str | None]:
    """Return the addresses with checksums. They are kept, because each request asks, and a checksum is a hash."""
    return frozenset(map(checksummed, addresses))
