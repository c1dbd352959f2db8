"""Which addresses are addresses, and which of them may sign in."""

import re

from django.conf import settings
from eth_utils.address import is_checksum_address, to_checksum_address

from config.chains import get_chains

ANYONE = "*"

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


def checksummed(text: str) -> str | None:
    """The address with its EIP-55 checksum; None if it is not one, or is in mixed case with a wrong checksum."""
    if not _ADDRESS.fullmatch(text):
        return None
    digits = text[2:]
    if digits not in {digits.lower(), digits.upper()} and not is_checksum_address(text):
        return None
    return to_checksum_address(text)


def may_sign_in(address: str) -> bool:
    """Whether `settings.ALLOWED_ADDRESSES` lets an EIP-55 address in.

    An empty list lets anyone in, but nobody once a destination chain is not a test network: there, whoever has a key
    spends the operator's money.
    """
    allowed = settings.ALLOWED_ADDRESSES
    if not allowed:
        return all(chain.test_network for chain in get_chains().destinations())
    return ANYONE in allowed or address in map(checksummed, allowed)
