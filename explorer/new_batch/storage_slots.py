"""Where Solidity keeps what is in a mapping or an array.

Source: the Solidity documentation, "Layout of State Variables in Storage", section "Mappings and Dynamic Arrays".
"""

import re
from collections.abc import Callable

from eth_utils.crypto import keccak

from chains.address_checksum import checksummed

_WORDS = 1 << 256
_DECIMAL = re.compile(r"[0-9]{1,78}", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,64}", re.ASCII)


class NotAKey(ValueError):
    """The key, the index or the base slot is none; a sentence. `of_base`: it is about the base slot."""

    def __init__(self, sentence: str, *, of_base: bool = False) -> None:
        super().__init__(sentence)
        self.sentence, self.of_base = sentence, of_base


def of_mapping(kind: str, key: str, base: str) -> str:
    """Return the slot of the value under `key` in the mapping at the slot `base`: keccak256(h(key) . base).

    `kind` is one of `KEYS`, the type of its keys. `h` pads a value type as memory does, to 32 bytes. For a mapping in a
    mapping, `base` is the slot that the outer one gives. The slot is 0x and 64 hexadecimal digits. Raises `NotAKey`.
    """
    if kind not in KEYS:
        raise NotAKey(f"It is in a mapping by {', '.join(KEYS)}, or in an array.")
    return _shown(int.from_bytes(keccak(KEYS[kind](key) + _word(_base(base)))))


def of_array(index: str, base: str) -> str:
    """Return the slot of an element of the dynamic array at the slot `base`, whose elements take a slot each.

    It is keccak256(base) + index. Where an element takes n slots, its first one is that of the index n times as high.
    The slot is 0x and 64 hexadecimal digits. Raises `NotAKey`.
    """
    start = int.from_bytes(keccak(_word(_base(base))))
    return _shown((start + _number(index, "The index")) % _WORDS)


def _base(text: str) -> int:
    try:
        return _number(text, "The slot of the mapping or array")
    except NotAKey as error:
        raise NotAKey(error.sentence, of_base=True) from None


def _number(text: str, what: str) -> int:
    """Read a uint256, in decimal, or in hexadecimal with 0x."""
    text = text.strip()
    if _DECIMAL.fullmatch(text) and int(text) < _WORDS:
        return int(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    raise NotAKey(f"{what} is a number below 2^256: decimal, or 0x and up to 64 hexadecimal digits.")


def _address(text: str) -> bytes:
    address = checksummed(text.strip())
    if address is None:
        raise NotAKey("The key is 0x and 40 hexadecimal digits, with the right EIP-55 checksum if in mixed case.")
    return bytes.fromhex(address[2:]).rjust(32, b"\0")


def _bytes32(text: str) -> bytes:
    digits = text.strip().removeprefix("0x")
    if not re.fullmatch(r"[0-9a-fA-F]{64}", digits, re.ASCII):
        raise NotAKey("The key is 0x and 64 hexadecimal digits.")
    return bytes.fromhex(digits)


def _word(number: int) -> bytes:
    return number.to_bytes(32)


def _shown(slot: int) -> str:
    return f"0x{slot:064x}"


KEYS: dict[str, Callable[[str], bytes]] = {
    "address": _address,
    "uint256": lambda text: _word(_number(text, "The key")),
    "bytes32": _bytes32,
}
"""The encoding of each type of key in 32 bytes: numbers and addresses on the right, bytes on the left."""
