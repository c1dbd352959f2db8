"""The packed calldata of the facts registry, both ways (docs/developing/proof-format.md).

`encode` builds it out of trie nodes, `decode` verifies it as the contract does, and tells which facts it proves.

One set of facts has one byte string. A byte string that `decode` takes is therefore the one that `encode` makes.
"""

from chains.packed.decoder import decode
from chains.packed.encoder import encode, encode_parent_hash
from chains.packed.layout import (
    CODE_HASH,
    HASHED_HEADER_FIELDS,
    HEADER_FIELDS,
    HISTORY_ADDRESS,
    IMPLIED_HEADER_FIELDS,
    NONCE_AND_BALANCE,
    STORAGE_ROOT,
    AccountFacts,
    AccountToProve,
    CannotPack,
    InvalidPacked,
    PackedFacts,
)

__all__ = [
    "CODE_HASH",
    "HASHED_HEADER_FIELDS",
    "HEADER_FIELDS",
    "HISTORY_ADDRESS",
    "IMPLIED_HEADER_FIELDS",
    "NONCE_AND_BALANCE",
    "STORAGE_ROOT",
    "AccountFacts",
    "AccountToProve",
    "CannotPack",
    "InvalidPacked",
    "PackedFacts",
    "decode",
    "encode",
    "encode_parent_hash",
]
