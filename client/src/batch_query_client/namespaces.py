"""Namespaces of storage (ERC-7201). Those of OpenZeppelin's upgradeable contracts are known by name."""

import re
from functools import cache

from eth_utils.crypto import keccak

_NAMES = (
    *("ERC20", "ERC20Capped", "ERC20Wrapper", "ERC3009", "ERC4626", "ERC6909", "ERC6909TokenSupply"),
    *("ERC721", "ERC721Enumerable", "ERC721URIStorage", "ERC721Consecutive", "ERC1155", "ERC1155Supply"),
    *("Votes", "VotesExtended", "Nonces", "NoncesKeyed", "EIP712", "Ownable", "Ownable2Step", "Pausable"),
    *("AccessControl", "AccessControlEnumerable", "AccessControlDefaultAdminRules", "AccessManaged", "AccessManager"),
    *("VestingWallet", "TimelockController", "Governor", "GovernorCountingSimple", "GovernorVotes"),
)
_BASE = re.compile(r"(0x[0-9a-fA-F]{1,64})|([0-9]{1,78})|erc7201:([!-~]{1,200})", re.ASCII)
# The first slot of a namespace ends with a zero byte. The members of its struct follow.
_MEMBERS = 0xFF


def first_slot(name: str) -> int:
    """Return the first slot of a namespace."""
    return int.from_bytes(keccak((int.from_bytes(keccak(text=name)) - 1).to_bytes(32))) & ~_MEMBERS


def base_slot(text: str) -> int:
    """Return the slot that a hint names: in decimal, in hexadecimal with 0x, or by a namespace. Raises `ValueError`."""
    if match := _BASE.fullmatch(text):
        digits, decimal, name = match.groups()
        slot = first_slot(name) if name else int(digits, 16) if digits else int(decimal)
        if slot < 1 << 256:
            return slot
    raise ValueError("A base is a slot in decimal, or in hexadecimal with 0x, or a namespace, as erc7201:example.main.")


def namespace(slot: int) -> str:
    """Return the known namespace of a slot, such as `erc7201:openzeppelin.storage.ERC20 + 2`. Empty: there is none."""
    place = slot & _MEMBERS
    name = _known().get(slot - place)
    return f"erc7201:{name}{f' + {place}' if place else ''}" if name else ""


@cache
def _known() -> dict[int, str]:
    return {first_slot(name): name for name in (f"openzeppelin.storage.{each}" for each in _NAMES)}
