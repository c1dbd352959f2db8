"""Which texts are addresses, and their EIP-55 checksum."""

import re

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")


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


def fault(text: str) -> str:
    """Say what is wrong with a text that is no address: its length, its checksum, or all of it."""
    if not _HEXADECIMAL.fullmatch(text):
        return "is no address, which is 0x and 40 hexadecimal digits"
    if not _ADDRESS.fullmatch(text):
        return f"has {len(text) - 2} hexadecimal digits after 0x, and an address has 40"
    return "has a wrong EIP-55 checksum: a digit is mistyped, or a letter is in the wrong case"
