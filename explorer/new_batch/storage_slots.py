"""Where Solidity keeps what is in a mapping or an array.

Source: the Solidity documentation, "Layout of State Variables in Storage", section "Mappings and Dynamic Arrays".
"""

import re

from django.core.exceptions import ValidationError
from eth_utils.crypto import keccak

from chains import encoding

KEYS = ("address", "uint256", "bytes32")
_WORDS = 1 << 256


def slot_of(kind: str, key: str, base: str) -> str:
    """Return the slot of a value in the mapping at the slot `base`, or for another kind than `KEYS`, in the array.

    They are keccak256(key . base), the key padded to 32 bytes, and keccak256(base) + index. Raises `ValidationError`
    with the field of the form.
    """
    start = _number("slot_base", "This slot", base).to_bytes(32)
    if kind in KEYS:
        found = int.from_bytes(keccak(_encoded(kind, key.strip()) + start))
    else:
        found = int.from_bytes(keccak(start)) + _number("slot_key", "The index", key)
    return f"0x{found % _WORDS:064x}"


def _encoded(kind: str, key: str) -> bytes:
    if kind == "uint256":
        return _number("slot_key", "The key", key).to_bytes(32)
    if kind == "address" and encoding.checksummed(key) is None:
        raise ValidationError({"slot_key": f"{key[:80]!r} {encoding.fault(key)}."})
    digits = key.removeprefix("0x")
    if kind == "bytes32" and not re.fullmatch(r"[0-9a-fA-F]{64}", digits):
        raise ValidationError({"slot_key": "The key is 0x and 64 hexadecimal digits."})
    return bytes.fromhex(digits).rjust(32, b"\0")


def _number(field: str, what: str, text: str) -> int:
    try:
        number = int(text, 0)  # 0x begins a hexadecimal one
    except ValueError:
        number = -1
    if not 0 <= number < _WORDS:
        raise ValidationError({field: f"{what} is a number below 2^256: decimal, or hexadecimal with 0x."})
    return number
