"""Small tries for tests: built by py-trie, or by hand where no builder would make such a thing."""

from collections.abc import Mapping

import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie

EMPTY_ROOT = keccak(b"\x80")
EMPTY_CODE_HASH = keccak(b"")


def encode(item: object) -> bytes:
    """The RLP of bytes, integers, and lists of them."""
    return bytes(rlp.encode(item))


def build(entries: Mapping[bytes, bytes]) -> HexaryTrie:
    trie = HexaryTrie({})
    for key, value in entries.items():
        trie[key] = value
    return trie


def proof(trie: HexaryTrie, key: bytes) -> list[bytes]:
    """The nodes that a server would send: the root, and below it those that are not embedded in their parents."""
    nodes = [encode(node) for node in trie.get_proof(key)]
    return [node for place, node in enumerate(nodes) if place == 0 or len(node) >= 32]


def leaf(key: bytes, value: bytes) -> bytes:
    """The one node of a trie that holds one key of 32 bytes; its hash is the root."""
    return encode([b"\x20" + key, value])


def account(nonce: int = 0, balance: int = 0, storage_root: bytes = EMPTY_ROOT, code: bytes = EMPTY_CODE_HASH) -> bytes:
    return encode([nonce, balance, storage_root, code])


def header(number: int, state_root: bytes) -> bytes:
    """A header of 15 fields that holds nothing but these two."""
    fields: list[bytes | int] = [
        bytes(32),
        bytes(32),
        bytes(20),
        state_root,
        bytes(32),
        bytes(32),
        bytes(256),
        0,
        number,
    ]
    return encode([*fields, 0, 0, 0, b"", bytes(32), bytes(8)])
