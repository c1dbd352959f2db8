"""The packed calldata of the facts registry (docs/developing/proof-format.md), which `encode` builds out of trie nodes.

One set of facts has one byte string. `tests/contracts/decoder.py` verifies it as the contract does, for comparisons.
"""

from chains.packed.encoder import encode, encode_parent_hash
from chains.packed.layout import (
    CODE_HASH,
    HASHED_HEADER_FIELDS,
    HEADER_FIELDS,
    HISTORY_ADDRESS,
    IMPLIED_HEADER_FIELDS,
    NONCE_AND_BALANCE,
    STORAGE_ROOT,
    AccountToProve,
    CannotPack,
)

__all__ = [
    "CODE_HASH",
    "HASHED_HEADER_FIELDS",
    "HEADER_FIELDS",
    "HISTORY_ADDRESS",
    "IMPLIED_HEADER_FIELDS",
    "NONCE_AND_BALANCE",
    "STORAGE_ROOT",
    "AccountToProve",
    "CannotPack",
    "encode",
    "encode_parent_hash",
]
