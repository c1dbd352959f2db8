"""Small tries for tests, built by py-trie, or by hand where no builder would make them."""

import random
from collections.abc import Mapping, Sequence

import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie

# Reference to no node.
EMPTY = b"\x80"
EMPTY_ROOT = keccak(EMPTY)
EMPTY_CODE_HASH = keccak(b"")


def encode(item: object) -> bytes:
    """Return RLP of bytes, integers, and lists of them."""
    return bytes(rlp.encode(item))


def build(entries: Mapping[bytes, bytes]) -> HexaryTrie:
    trie = HexaryTrie({})
    for key, value in entries.items():
        trie[key] = value
    return trie


def proof(trie: HexaryTrie, key: bytes) -> list[bytes]:
    """Return the nodes that a server would send: the root, and the nodes below it that aren't embedded."""
    nodes = [encode(node) for node in trie.get_proof(key)]
    return [node for place, node in enumerate(nodes) if place == 0 or len(node) >= 32]


def leaf(key: bytes, value: bytes) -> bytes:
    """Return the only node of a trie with one key of 32 bytes. Its hash is the root."""
    return leaf_below(key, 0, value)


def leaf_below(key: bytes, depth: int, value: bytes) -> bytes:
    """Encode a leaf as `leaf` does, with `depth` nibbles of the key above it."""
    return encode([hex_prefix(key.hex()[depth:], leaf=True), value])


def extension(path: str, child: bytes) -> bytes:
    """Return the node that leads along these nibbles to a child, given by its reference."""
    return listed(encode(hex_prefix(path, leaf=False)) + child)


def branch(children: Mapping[int, bytes]) -> bytes:
    """Return the node with children at these places, given by their references."""
    return listed(b"".join(children.get(place, EMPTY) for place in range(17)))


def reference(node: bytes) -> bytes:
    """Return a node's form in its parent: itself if it is shorter than 32 bytes, else its hash as RLP."""
    return node if len(node) < 32 else hash_reference(keccak(node))


def hash_reference(digest: bytes) -> bytes:
    return b"\xa0" + digest


def hex_prefix(path: str, *, leaf: bool) -> bytes:
    """Return the bytes of these nibbles (Yellow Paper, appendix C)."""
    flag = 2 if leaf else 0
    return bytes.fromhex(f"{flag + 1:x}{path}" if len(path) % 2 else f"{flag:x}0{path}")


def listed(payload: bytes) -> bytes:
    """Return RLP of a list, from the RLP of its items."""
    if len(payload) < 56:
        return bytes([0xC0 + len(payload)]) + payload
    size = len(payload).to_bytes(1 if len(payload) < 256 else 2)
    return bytes([0xF7 + len(size)]) + size + payload


def account(nonce: int = 0, balance: int = 0, storage_root: bytes = EMPTY_ROOT, code: bytes = EMPTY_CODE_HASH) -> bytes:
    return encode([nonce, balance, storage_root, code])


def header(number: int, state_root: bytes, parent_hash: bytes = bytes(32), extra_data: bytes = b"") -> bytes:
    """Return a header of 15 fields, all empty except these."""
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


# Numbers of children of the branches on a mainnet account's path, from the root down, as in recorded proofs.
MAINNET_LEVELS = (16, 16, 16, 16, 16, 16, 9, 2)


def shaped(
    entries: Mapping[bytes, bytes], chance: random.Random, levels: Sequence[int] = MAINNET_LEVELS
) -> tuple[bytes, dict[bytes, list[bytes]]]:
    """Return the root of a large trie that holds `entries`, and the proof of each. Siblings are random hashes.

    A branch at depth n has `levels[n]` children, or more if the keys need them. Leaves are below the last level.
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
