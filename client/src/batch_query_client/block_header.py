"""Block headers, whose fields are read by their index as the facts registry reads them.

Sources: Yellow Paper 4.3, and later EIPs.

Headers of all supported chains begin with the same 13 fields. The layout counts as Ethereum's if the later fields have
the sizes of Ethereum's. The block hash covers all fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import rlp
from eth_utils.crypto import keccak

from batch_query_client.errors import InvalidBundle
from batch_query_client.questions import HEADER_PROPERTIES

_SHARED = 13
_FEWEST = 15  # fields of Ethereum's headers before London
# Size of each field in bytes: exact (True) or maximum (False). None allows any size.
_HASH, _SHORT, _LONG = (32, True), (8, False), (32, False)
_SIZES: tuple[tuple[int, bool] | None, ...] = (
    *(_HASH, _HASH, (20, True), _HASH, _HASH, _HASH, (256, True)),
    *(_LONG, _SHORT, _SHORT, _SHORT, _SHORT, None),
    *(_HASH, (8, True)),  # mix hash and nonce
    (16, False),  # London, EIP-1559: base fees fit into 16 bytes, and hashes of other layouts don't
    _HASH,  # Shanghai, EIP-4895
    *(_SHORT, _SHORT, _HASH),  # Cancun, EIP-4844 and EIP-4788
    _HASH,  # Prague, EIP-7685
    *(_HASH, _SHORT),  # Amsterdam, EIP-7928 and EIP-7843
)
_HASHED = {"LOGS_BLOOM", "EXTRA_DATA"}


@dataclass(frozen=True)
class BlockHeader:
    hash: bytes
    parent_hash: bytes
    state_root: bytes
    transactions_root: bytes
    receipts_root: bytes
    number: int
    timestamp: int
    """In seconds."""
    words: dict[str, bytes]
    """Words of 32 bytes by property, for fields with Ethereum's meaning. Longer fields have their keccak-256."""


def decode(encoded: bytes) -> BlockHeader:
    """Decode a header from its RLP. Raises `InvalidBundle`."""
    try:
        fields = rlp.decode(encoded, strict=True)
    except (rlp.exceptions.RLPException, RecursionError):
        raise InvalidBundle("The header is not canonical RLP.") from None
    if isinstance(fields, bytes) or len(fields) < _SHARED or not _have_sizes(fields[:_SHARED]):
        raise InvalidBundle("The header doesn't begin with the fields of a header.")
    is_ethereums = _FEWEST <= len(fields) <= len(_SIZES) and _have_sizes(fields)
    known = fields if is_ethereums else fields[:_SHARED]
    return BlockHeader(
        hash=keccak(encoded),
        parent_hash=fields[0],
        state_root=fields[3],
        transactions_root=fields[4],
        receipts_root=fields[5],
        number=int.from_bytes(fields[8]),
        timestamp=int.from_bytes(fields[11]),
        words={
            name: keccak(content) if name in _HASHED else content.rjust(32, b"\0")
            for name, content in zip(HEADER_PROPERTIES, known, strict=False)
        },
    )


def _have_sizes(fields: Sequence[object]) -> bool:
    return all(_has_size(content, size) for content, size in zip(fields, _SIZES, strict=False))


def _has_size(content: object, size: tuple[int, bool] | None) -> bool:
    if not isinstance(content, bytes):
        return False  # the field is a list
    if size is None:
        return True
    most, is_exact = size
    # A number must not have leading zeros.
    return len(content) == most if is_exact else len(content) <= most and content[:1] != b"\0"
