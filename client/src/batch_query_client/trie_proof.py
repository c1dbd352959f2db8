"""Proofs of accounts and storage slots against a root (Yellow Paper, appendix D; EIP-1186), by py-trie.

A node counts only if its hash is the one that its parent, or the root, names: so a proof can't show another value than
the trie holds, nor an absence that isn't so. One that has more nodes than its path is refused as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie
from trie.exceptions import MissingTrieNode

from batch_query_client.errors import InvalidBundle

EMPTY_ROOT = keccak(b"\x80")


@dataclass(frozen=True)
class ProvenAccount:
    """One that does not exist has zeros, the empty trie's root, and 32 zero bytes as code hash (EIP-1052)."""

    exists: bool
    nonce: int
    balance: int
    """In wei."""
    storage_root: bytes
    code_hash: bytes


class _Nodes(dict[bytes, bytes]):
    """By their hashes, and which of them were looked at."""

    def __init__(self, nodes: Sequence[bytes]) -> None:
        super().__init__((keccak(node), node) for node in nodes)
        self.seen: list[bytes] = []

    def __getitem__(self, key: bytes) -> bytes:
        node = super().__getitem__(key)
        self.seen.append(node)
        return node


def account(state_root: bytes, address: bytes, nodes: Sequence[bytes]) -> ProvenAccount:
    """Return the account at an address. Raises `InvalidBundle`."""
    value = _look_up(state_root, address, nodes)
    if value == b"":
        return ProvenAccount(exists=False, nonce=0, balance=0, storage_root=EMPTY_ROOT, code_hash=bytes(32))
    fields = _decode(value)
    if isinstance(fields, bytes) or len(fields) != 4 or not all(isinstance(field, bytes) for field in fields):
        raise InvalidBundle("The proof's account has not the form of Ethereum's.")
    nonce, balance, storage_root, code_hash = fields
    if len(storage_root) != 32 or len(code_hash) != 32:
        raise InvalidBundle("The proof's account has not the form of Ethereum's.")
    return ProvenAccount(
        exists=True,
        nonce=_integer(nonce, 8),
        balance=_integer(balance, 32),
        storage_root=storage_root,
        code_hash=code_hash,
    )


def slot(storage_root: bytes, key: bytes, nodes: Sequence[bytes]) -> bytes:
    """Return the word of a storage slot (32 bytes), zeros where it is empty. Raises `InvalidBundle`."""
    value = _look_up(storage_root, key, nodes)
    return (_integer(_decode(value), 32) if value else 0).to_bytes(32)


def _look_up(root: bytes, key: bytes, nodes: Sequence[bytes]) -> bytes:
    """Return the value at a key, by the nodes from the root to it; empty where they show that there is none."""
    if root == EMPTY_ROOT:
        # Some nodes of the network send the one empty node of an empty trie, others none.
        if list(nodes) not in ([], [b"\x80"]):
            raise InvalidBundle("The proof has nodes, but the trie is empty.")
        return b""
    known = _Nodes(nodes)
    try:
        value = HexaryTrie(known, root).get(keccak(key))
    except MissingTrieNode:
        raise InvalidBundle("The proof ends before its key does, or is of another trie or key.") from None
    except Exception:  # noqa: BLE001 (py-trie raises what it likes at bytes that are no node)
        raise InvalidBundle("The proof has a node that is none.") from None
    if not isinstance(value, bytes) or known.seen != list(nodes):
        raise InvalidBundle("The proof has other nodes than those from the root to its key.")
    return value


def _decode(value: bytes) -> bytes | list[bytes]:
    try:
        item: bytes | list[bytes] = rlp.decode(value, strict=True)
    except (rlp.exceptions.RLPException, RecursionError):
        raise InvalidBundle("The proof's value is not canonical RLP.") from None
    return item


def _integer(item: bytes | list[bytes], most: int) -> int:
    if not isinstance(item, bytes) or len(item) > most or item[:1] == b"\0":
        raise InvalidBundle("The proof's value is not a canonical number.")
    return int.from_bytes(item)
