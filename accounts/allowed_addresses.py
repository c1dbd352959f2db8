"""Which addresses may sign in."""

from django.conf import settings

from chains.address_checksum import checksummed
from config.configured_chains import get_chains

ANYONE = "*"


def may_sign_in(address: str) -> bool:
    """Whether `settings.ALLOWED_ADDRESSES` or `OPERATOR_ADDRESSES` lets an EIP-55 address in.

    An empty list lets anyone in, but nobody once a destination chain is not a test network: there, whoever has a key
    spends the operator's money.
    """
    if is_operator(address):
        return True
    allowed = settings.ALLOWED_ADDRESSES
    if not allowed:
        return all(chain.test_network for chain in get_chains().destinations())
    return ANYONE in allowed or address in map(checksummed, allowed)


def is_operator(address: str) -> bool:
    """Whether an EIP-55 address is of those who run this service."""
    return address in map(checksummed, settings.OPERATOR_ADDRESSES)
