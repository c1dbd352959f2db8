"""Which texts are addresses, and their EIP-55 checksum."""

import re

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")


def checksummed(text: str) -> str | None:
    """Return the address with its EIP-55 checksum. None if it is no address, or in mixed case with a wrong checksum."""
    if not _ADDRESS.fullmatch(text):
        return None
    # The models of users load this module at each start, and these take a while.
    from eth_utils.address import is_checksum_address, to_checksum_address  # noqa: PLC0415

    digits = text[2:]
    if digits not in {digits.lower(), digits.upper()} and not is_checksum_address(text):
        return None
    return to_checksum_address(text)
