"""Proofs of accounts, storage slots and transactions against a root (Yellow Paper, appendix D; EIP-1186), by py-trie.

The hash of each node must be in its parent, or be the root. Therefore a proof can't show a wrong value or a wrong
absence. Nodes outside the path to the key, and nodes of a form that no trie has, are refused too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie
from trie.exceptions import MissingTrieNode

from batch_query_client.errors import InvalidBundle

EMPTY_ROOT = keccak(b"\x80")
_HASH_BYTES = 32
_NO_NODE = "The proof has an impossible trie node."

Value = TypeVar("Value")


@dataclass(frozen=True)
class ProvenAccount:
    """An account. If it doesn't exist, it has zeros, the empty trie's root, and a code hash of zeros (EIP-1052)."""

    exists: bool
    nonce: int
    balance: int
    """In wei."""
    storage_root: bytes
    code_hash: bytes


class _ProofNodes(dict[bytes, bytes]):
    """Trie nodes by their hashes. It records which nodes were read."""

    def __init__(self, nodes: Sequence[bytes]) -> None:
        super().__init__((keccak(node), node) for node in nodes)
        self.seen: list[bytes] = []

    def __getitem__(self, key: bytes) -> bytes:
        node = super().__getitem__(key)
        self.seen.append(node)
        return node


def account(state_root: bytes, address: bytes, nodes: Sequence[bytes]) -> ProvenAccount:
    """Return the account at an address. Raises `InvalidBundle`."""
    nothing = ProvenAccount(exists=False, nonce=0, balance=0, storage_root=EMPTY_ROOT, code_hash=bytes(32))
    return _look_up(state_root, keccak(address), nodes, _account) or nothing


def _account(value: bytes) -> ProvenAccount:
    fields = _decode(value)
    if isinstance(fields, bytes) or len(fields) != 4 or not all(isinstance(field, bytes) for field in fields):
        raise InvalidBundle("The proof's account does not have Ethereum's form.")
    nonce, balance, storage_root, code_hash = fields
    if len(storage_root) != 32 or len(code_hash) != 32:
        raise InvalidBundle("The proof's account does not have Ethereum's form.")
    return ProvenAccount(
        exists=True,
        nonce=_integer(nonce, 8),
        balance=_integer(balance, 32),
        storage_root=storage_root,
        code_hash=code_hash,
    )


def slot(storage_root: bytes, key: bytes, nodes: Sequence[bytes]) -> bytes:
    """Return the word of a storage slot (32 bytes). It is zero for an empty slot. Raises `InvalidBundle`."""
    return (_look_up(storage_root, keccak(key), nodes, _slot) or 0).to_bytes(32)


def _slot(value: bytes) -> int:
    if not (number := _integer(_decode(value), 32)):
        raise InvalidBundle("The proof's slot has a zero, which no storage trie stores.")
    return number


def of_transaction(root: bytes, index: int, nodes: Sequence[bytes]) -> bytes:
    """Return the value of a transaction in its block's trie of transactions or receipts. Raises `InvalidBundle`."""
    # These tries are by the RLP of the index, and don't hash it.
    value = _look_up(root, rlp.encode(index), nodes, bytes)
    if value is None:
        raise InvalidBundle(f"The proof shows that the block has no transaction {index}.")
    return value


def _look_up(root: bytes, key: bytes, nodes: Sequence[bytes], read: Callable[[bytes], Value]) -> Value | None:
    """Return the value at a key of the trie, from the nodes on the path to it. None if they prove that there is none.

    If another key's leaf proves the absence, its value is read too, as the service does.
    """
    if root == EMPTY_ROOT:
        # Some RPC nodes send the empty root node of an empty trie, others no node.
        if list(nodes) not in ([], [b"\x80"]):
            raise InvalidBundle("The proof has nodes, but the trie is empty.")
        return None
    known = _ProofNodes(nodes)
    try:
        value = HexaryTrie(known, root).get(key)
    except MissingTrieNode:
        raise InvalidBundle("The proof ends before its key does, or belongs to another trie or key.") from None
    except Exception:  # noqa: BLE001 (py-trie raises many kinds of exceptions for malformed nodes)
        raise InvalidBundle(_NO_NODE) from None
    if not isinstance(value, bytes) or known.seen != list(nodes):
        raise InvalidBundle("The proof has other nodes than those from the root to its key.")
    last = _last_value(nodes, key.hex())
    of_leaf = read(last) if last else None
    return of_leaf if value else None


def _last_value(nodes: Sequence[bytes], path: str) -> bytes:
    """Return the value of the leaf at the end of a path (hex digits of a key). Empty if there is no leaf.

    The leaf may belong to another key. Nodes of a form that no trie has are refused, because py-trie accepts them.
    """
    remaining = [_decode(node) for node in nodes]
    node = remaining.pop(0)
    while True:
        if isinstance(node, list) and len(node) == 17 and path and node[16] == b"":
            child: bytes | list[bytes] = node[int(path[0], 16)]
            path = path[1:]
            if child == b"":
                return b""
        else:
            prefix, is_leaf, child = _read_short(node)
            if is_leaf and len(prefix) == len(path) and isinstance(child, bytes) and child:
                return child
            if is_leaf or not 0 < len(prefix) < len(path):
                raise InvalidBundle(_NO_NODE)
            if not path.startswith(prefix):
                return b""
            path = path[len(prefix) :]
        node = remaining.pop(0) if isinstance(child, bytes) and remaining else child
        # A node is embedded in its parent exactly if it is shorter than a hash.
        if isinstance(child, bytes) == (len(rlp.encode(node)) < _HASH_BYTES):
            raise InvalidBundle(_NO_NODE)


def _read_short(node: bytes | list[bytes]) -> tuple[str, bool, bytes | list[bytes]]:
    """Return the path in hex digits (Yellow Paper, appendix C), whether the node is a leaf, and its content."""
    digits = node[0].hex() if isinstance(node, list) and len(node) == 2 and isinstance(node[0], bytes) else ""
    if isinstance(node, list) and (digits[:2] in {"00", "20"} or digits[:1] in {"1", "3"}):
        return digits[1 if digits[0] in "13" else 2 :], digits[0] in "23", node[1]
    raise InvalidBundle(_NO_NODE)


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
