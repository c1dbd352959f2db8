"""Encodings: hexadecimal numbers and data of JSON-RPC, amounts in decimal, RLP, and slots of the history contract.

RLP is read strictly: a value has only one valid encoding.
"""

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from itertools import chain
from typing import Any

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")


def is_address(text: str) -> bool:
    """Return whether the text is an address, without a checksum or with the right one (EIP-55)."""
    # Letters of one case are no checksum, and their hash would take ten times as long as all the rest.
    return bool(_ADDRESS.fullmatch(text)) and (
        text[2:] in {text[2:].lower(), text[2:].upper()} or _checksummed(text) == text
    )


def checksummed(text: str) -> str | None:
    """Return the address with its EIP-55 checksum. None if the text is no address or has a wrong checksum."""
    return _checksummed(text) if _ADDRESS.fullmatch(text) else None


# Pages show the same addresses again and again. The cache never holds other texts, which may be long.
@lru_cache(maxsize=4096)
def _checksummed(text: str) -> str | None:
    # This import is slow, and each start of a process loads this module.
    from eth_hash.auto import keccak  # noqa: PLC0415

    digits, lower, upper = text[2:], text[2:].lower(), text[2:].upper()
    # A letter is upper case where the hash has a digit of 8 or more. eth_utils needs twice the time for this.
    letters = zip(lower, upper, keccak(lower.encode()).hex(), strict=False)
    right = "".join([large if digit > "7" else small for small, large, digit in letters])
    return f"0x{right}" if digits in {lower, upper, right} else None


def fault(text: str) -> str:
    """Return why a text is no address, as the end of a sentence."""
    if not _HEXADECIMAL.fullmatch(text):
        return "is no address, which is 0x and 40 hexadecimal digits"
    if not _ADDRESS.fullmatch(text):
        return f"has {len(text) - 2} hexadecimal digits after 0x, and an address has 40"
    return "has a wrong EIP-55 checksum: a digit is mistyped, or a letter is in the wrong case"


def in_units(amount: int, decimals: int = 18, places: int = 6, *, is_cost: bool = False) -> str:
    """Write an amount of the smallest units as a decimal number of whole ones, with commas for thousands.

    A cost is rounded up. Any other amount is cut off, so that it never looks larger, and `…` says that there is more.
    One that is not 0 never looks as if it were: then it is exact.
    """
    if 0 < amount < 10 ** (decimals - places):
        return f"0.{amount:0{decimals}d}".rstrip("0")
    parts, remainder = divmod(amount, 10 ** (decimals - places))
    whole, fraction = divmod(parts + (is_cost and remainder > 0), 10**places)
    return f"{whole:,}.{fraction:0{places}d}{'…' if remainder and not is_cost else ''}"


# Decoded RLP: bytes, or a list of items.
Item = bytes | Sequence["Item"]

_QUANTITY = re.compile(r"0x[0-9a-fA-F]{1,64}")
_DECIMAL = re.compile(r"[0-9]{1,78}", re.ASCII)
# A repeated group would take a hundred times the bytes of megabytes of data in memory.
_DATA = re.compile(r"0x[0-9a-fA-F]*")


def read_quantity(value: Any) -> int:
    """Read a JSON-RPC quantity, such as "0x1f", of at most 256 bits. Raises `ValueError`."""
    # The JSON-RPC specification forbids leading zeros, but some nodes send them and they change no value.
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise ValueError("a quantity that is not hexadecimal")
    return int(value, 16)


def read_number(value: Any) -> int:
    """Read a quantity, a JSON number, true or false, or decimal digits in a string. Raises `ValueError`.

    Use it where a hash or a root checks what was read, or where a wrong form is likelier than a wrong value.
    """
    if isinstance(value, int) and value >= 0:
        return int(value)
    return int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else read_quantity(value)


def read_data(value: Any, length: int | None = None) -> bytes:
    """Read JSON-RPC data, such as "0x00ff", of `length` bytes or of any length. Raises `ValueError`."""
    if not isinstance(value, str) or len(value) % 2 or not _DATA.fullmatch(value):
        raise ValueError("data that is not hexadecimal")
    data = bytes.fromhex(value[2:])
    if length is not None and len(data) != length:
        raise ValueError(f"{len(data)} bytes instead of {length}")
    return data


def hex_data(data: bytes) -> str:
    """Return the bytes as JSON-RPC data, such as "0x00ff"; `read_data` reads it."""
    return f"0x{data.hex()}"


def read_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("something that is not a JSON object")
    return value


def read_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("something that is no JSON list")
    return value


def decode_rlp(encoded: bytes) -> Item:
    """Decode one item. Raises `ValueError` unless `encoded` is the canonical RLP of one item, with nothing after it."""
    import rlp  # noqa: PLC0415 (slow to load, and each start of a process loads this module)

    try:
        # Strict decoding refuses an encoding that could be shorter.
        item: Item = rlp.decode(encoded, strict=True)
    except (rlp.exceptions.RLPException, RecursionError):
        raise ValueError("not canonical RLP") from None
    return item


def read_integer(item: Item, max_bytes: int) -> int:
    """Read an RLP integer: big-endian, without leading zeros, zero as empty bytes. Raises `ValueError`."""
    if not isinstance(item, bytes) or len(item) > max_bytes or item[:1] == b"\0":
        raise ValueError(f"not a canonical integer of at most {max_bytes} bytes")
    return int.from_bytes(item, "big")


def shortest(number: int) -> bytes:
    """Return the shortest big-endian bytes of an integer, empty for zero."""
    return number.to_bytes((number.bit_length() + 7) // 8)


def read_bytes(item: Item, length: int) -> bytes:
    if not isinstance(item, bytes) or len(item) != length:
        raise ValueError(f"not {length} bytes")
    return item


# The higher of a signature's two s values is refused by nodes (EIP-2), and by contracts of this repository.
HIGHEST_S = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141 // 2


# --- Hashes of earlier blocks, in the state of each block (EIP-2935) --------------------------------------------------

HISTORY_CONTRACT = "0x0000F90827F1C53a10cb7A02335B175320002935"

# Number of earlier blocks whose hashes a state holds, on Ethereum and on chains with the same contract.
HISTORY_WINDOW = 8191


def history_slot(number: int, window: int) -> int:
    """Return the storage slot of the hash of block `number`, in the states of the next `window` blocks."""
    return number % window


# --- Lists of byte strings --------------------------------------------------------------------------------------------

_LENGTH_BYTES = 4


def compress_values(values: Sequence[bytes]) -> bytes:
    """Return the values, each behind its length in `_LENGTH_BYTES` bytes, compressed by zlib."""
    lengths = (len(value).to_bytes(_LENGTH_BYTES) for value in values)
    return zlib.compress(b"".join(chain(*zip(lengths, values, strict=True))))


def decompress_values(compressed: bytes) -> list[bytes]:
    """Return the values that `compress_values` has compressed."""
    stored = BytesIO(zlib.decompress(compressed))
    return [stored.read(int.from_bytes(length)) for length in iter(lambda: stored.read(_LENGTH_BYTES), b"")]
