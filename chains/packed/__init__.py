"""The packed calldata of the facts registry (docs/developing/proof-format.md), which `encode` builds out of trie nodes.

One set of facts has one byte string. `tests/contracts/decoder.py` verifies it as the contract does, for comparisons.
"""

from chains.packed.encoder import encode, encode_block_hash, encode_parent_hash
from chains.packed.layout import (
    BLOCK_BEFORE_CAPELLA,
    BLOCK_BEFORE_MERGE,
    CODE_HASH,
    HASHED_HEADER_FIELDS,
    HEADER_FIELDS,
    HISTORY_ADDRESS,
    IMPLIED_HEADER_FIELDS,
    NONCE_AND_BALANCE,
    OLD_BLOCK,
    STORAGE_ROOT,
    AccountToProve,
    BlockBranch,
    CannotPack,
    HeaderParts,
)

__all__ = [
    "BLOCK_BEFORE_CAPELLA",
    "BLOCK_BEFORE_MERGE",
    "CODE_HASH",
    "HASHED_HEADER_FIELDS",
    "HEADER_FIELDS",
    "HISTORY_ADDRESS",
    "IMPLIED_HEADER_FIELDS",
    "NONCE_AND_BALANCE",
    "OLD_BLOCK",
    "STORAGE_ROOT",
    "AccountToProve",
    "BlockBranch",
    "CannotPack",
    "HeaderParts",
    "encode",
    "encode_block_hash",
    "encode_parent_hash",
]
