"""Slots in which Solidity stores the values of a mapping or an array.

Source: the Solidity documentation, "Layout of State Variables in Storage", section "Mappings and Dynamic Arrays".
"""

import re

from eth_utils.crypto import keccak

from chains import encoding
from explorer.new_batch.form_sentences import slot_fault

KEYS = ("address", "uint256", "bytes32")
_WORDS = 1 << 256


def slot_of(kind: str, key: str, base: str) -> str:
    """Return the slot of a value in the mapping or array at the slot `base`. Kinds outside of `KEYS` mean an array.

    A mapping's value is at keccak256(key . base), with the key padded to 32 bytes. An array's value is at
    keccak256(base) + index. Raises `ValidationError` with the form's field.
    """
    start = _number("slot_base", "base", base).to_bytes(32)
    if kind in KEYS:
        slot = int.from_bytes(keccak(_encoded(kind, key.strip()) + start))
    else:
        slot = int.from_bytes(keccak(start)) + _number("slot_key", "index", key)
    return f"0x{slot % _WORDS:064x}"


def _encoded(kind: str, key: str) -> bytes:
    if kind == "uint256":
        return _number("slot_key", kind, key).to_bytes(32)
    if kind == "address" and encoding.checksummed(key) is None:
        raise slot_fault("slot_key", kind, key=key[:80], reason=encoding.fault(key))
    digits = key.removeprefix("0x")
    if kind == "bytes32" and not re.fullmatch(r"[0-9a-fA-F]{64}", digits):
        raise slot_fault("slot_key", kind)
    return bytes.fromhex(digits).rjust(32, b"\0")


def _number(field: str, code: str, text: str) -> int:
    try:
        number = int(text, 0)  # decimal, or hexadecimal after 0x
    except ValueError:
        number = -1
    if not 0 <= number < _WORDS:
        raise slot_fault(field, code)
    return number
