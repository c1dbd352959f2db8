"""The way of one key down a Merkle Patricia trie, as its proof's nodes tell: how deep it is, and how wide.

It verifies nothing; `chains.trie` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from eth_utils.crypto import keccak

from chains.encoding import Item, decode_rlp

_BRANCH = 17


class End(Enum):
    """The kind of node at which a path ends."""

    LEAF = "leaf"  # at the key's own
    OTHER = "other"  # at another key's leaf, or an extension elsewhere: the key is absent
    EMPTY = "empty"  # at an empty place of a branch, or in the empty trie: same


@dataclass(frozen=True)
class TriePath:
    branches: Sequence[tuple[int, int]]
    """Each branch of the path, from the root: its depth in nibbles, and the number of its children."""
    depth: int
    """Depth of the end, in nibbles."""
    end: End


def path_of(key: bytes, nodes: Sequence[bytes]) -> TriePath:
    """Return the way to an address or a slot (32 bytes), by the nodes of its proof, which was verified."""
    digits = keccak(key).hex()
    by_hash = {keccak(node): node for node in nodes}
    branches: list[tuple[int, int]] = []
    depth = 0
    node = _read(keccak(nodes[0]), by_hash) if nodes else b""
    while not isinstance(node, bytes):
        if len(node) == _BRANCH:
            branches.append((depth, sum(child != b"" for child in node[:-1])))
            node = _read(node[int(digits[depth], 16)], by_hash)
            depth += 1
            continue
        nibbles, is_leaf = _nibbles(node[0])
        if is_leaf or not digits[depth:].startswith(nibbles):
            return TriePath(branches, depth, End.LEAF if is_leaf and digits[depth:] == nibbles else End.OTHER)
        depth += len(nibbles)
        node = _read(node[1], by_hash)
    return TriePath(branches, depth, End.EMPTY)


def _read(reference: Item, by_hash: dict[bytes, bytes]) -> Item:
    """Return the node; empty bytes where there is none. A node of less than 32 bytes stands in its parent itself."""
    return decode_rlp(by_hash[reference]) if isinstance(reference, bytes) and reference else reference


def _nibbles(encoded: Item) -> tuple[str, bool]:
    """Return the nibbles of a hex-prefix encoded path (Yellow Paper, appendix C), and whether it ends in a leaf."""
    digits = encoded.hex() if isinstance(encoded, bytes) else ""
    flag = int(digits[0], 16)
    return digits[1 if flag & 1 else 2 :], flag > 1
