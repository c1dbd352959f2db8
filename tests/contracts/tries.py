"""Small tries for tests: built by py-trie, or by hand where no builder would make such a thing."""

import random
from collections.abc import Mapping, Sequence

import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie

# The reference to no node.
EMPTY = b"\x80"
EMPTY_ROOT = keccak(EMPTY)
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
    return leaf_below(key, 0, value)


def leaf_below(key: bytes, depth: int, value: bytes) -> bytes:
    """Encode a leaf as `leaf` does, with `depth` nibbles of the key above it."""
    return encode([hex_prefix(key.hex()[depth:], leaf=True), value])


def extension(path: str, child: bytes) -> bytes:
    """The node that leads along these nibbles to a child, by the reference to it."""
    return listed(encode(hex_prefix(path, leaf=False)) + child)


def branch(children: Mapping[int, bytes]) -> bytes:
    """The node whose children are at these places, by the references to them."""
    return listed(b"".join(children.get(place, EMPTY) for place in range(17)))


def reference(node: bytes) -> bytes:
    """Return how a node stands in its parent: as it is if it is shorter than 32 bytes, else by its hash, as RLP."""
    return node if len(node) < 32 else hash_reference(keccak(node))


def hash_reference(digest: bytes) -> bytes:
    return b"\xa0" + digest


def hex_prefix(path: str, *, leaf: bool) -> bytes:
    """The bytes of these nibbles (Yellow Paper, appendix C)."""
    flag = 2 if leaf else 0
    return bytes.fromhex(f"{flag + 1:x}{path}" if len(path) % 2 else f"{flag:x}0{path}")


def listed(payload: bytes) -> bytes:
    """The RLP of a list, by that of its items."""
    if len(payload) < 56:
        return bytes([0xC0 + len(payload)]) + payload
    size = len(payload).to_bytes(1 if len(payload) < 256 else 2)
    return bytes([0xF7 + len(size)]) + size + payload


def account(nonce: int = 0, balance: int = 0, storage_root: bytes = EMPTY_ROOT, code: bytes = EMPTY_CODE_HASH) -> bytes:
    return encode([nonce, balance, storage_root, code])


def header(number: int, state_root: bytes, parent_hash: bytes = bytes(32), extra_data: bytes = b"") -> bytes:
    """A header of 15 fields that holds nothing but these."""
    fields: list[bytes | int] = [
        parent_hash,
        bytes(32),
        bytes(20),
        state_root,
        bytes(32),
        bytes(32),
        bytes(256),
        0,
        number,
    ]
    return encode([*fields, 0, 0, 0, extra_data, bytes(32), bytes(8)])


# How many children the branches on a mainnet account's path have, from the root down: as in recorded proofs.
MAINNET_LEVELS = (16, 16, 16, 16, 16, 16, 9, 2)


def shaped(
    entries: Mapping[bytes, bytes], chance: random.Random, levels: Sequence[int] = MAINNET_LEVELS
) -> tuple[bytes, dict[bytes, list[bytes]]]:
    """The root of a large trie that holds `entries`, and the proof of each: their siblings are hashes of nothing.

    At depth n a branch has `levels[n]` children, or more where the keys need them, and below them are leaves.
    """
    proofs: dict[bytes, list[bytes]] = {key: [] for key in entries}

    def node(keys: list[bytes], depth: int) -> bytes:
        if len(keys) == 1 and depth >= len(levels):
            encoded = leaf_below(keys[0], depth, entries[keys[0]])
        else:
            below: dict[int, list[bytes]] = {}
            for key in keys:
                below.setdefault(int(key.hex()[depth], 16), []).append(key)
            others = [place for place in range(16) if place not in below]
            count = max(0, (levels[depth] if depth < len(levels) else 2) - len(below))
            siblings = {place: chance.randbytes(32) for place in chance.sample(others, min(count, len(others)))}
            children = [
                keccak(node(below[place], depth + 1)) if place in below else siblings.get(place, b"")
                for place in range(16)
            ]
            encoded = encode([*children, b""])
        for key in keys:
            proofs[key].insert(0, encoded)
        return encoded

    return keccak(node(sorted(entries), 0)), proofs
