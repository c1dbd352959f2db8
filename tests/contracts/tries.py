"""Small tries, built by py-trie, or by hand where no builder makes them."""

import random
from collections.abc import Mapping, Sequence

import rlp
from eth_utils.crypto import keccak
from trie import HexaryTrie

# Reference of an empty place.
EMPTY = b"\x80"
EMPTY_ROOT = keccak(EMPTY)
EMPTY_CODE_HASH = keccak(b"")


def encode(item: object) -> bytes:
    """Return the RLP of bytes, an integer, or a list of these."""
    return bytes(rlp.encode(item))


def build(entries: Mapping[bytes, bytes]) -> HexaryTrie:
    trie = HexaryTrie({})
    for key, value in entries.items():
        trie[key] = value
    return trie


def proof(trie: HexaryTrie, key: bytes) -> list[bytes]:
    """Return a proof as nodes send it: the root, and the nodes below it that aren't embedded."""
    nodes = [encode(node) for node in trie.get_proof(key)]
    return [node for index, node in enumerate(nodes) if index == 0 or len(node) >= 32]


def leaf(key: bytes, value: bytes) -> bytes:
    """Return the only node of a trie with one 32-byte key. Its hash is the root."""
    return leaf_below(key, 0, value)


def leaf_below(key: bytes, depth: int, value: bytes) -> bytes:
    """Return a leaf below `depth` nibbles of its key."""
    return encode([hex_prefix(key.hex()[depth:], leaf=True), value])


def extension(path: str, child: bytes) -> bytes:
    """Return an extension along these nibbles. `child` is the child's reference."""
    return listed(encode(hex_prefix(path, leaf=False)) + child)


def branch(children: Mapping[int, bytes]) -> bytes:
    """Return a branch with these children, given as references by index."""
    return listed(b"".join(children.get(index, EMPTY) for index in range(17)))


def reference(node: bytes) -> bytes:
    """Return a node's reference: the node itself if it is shorter than 32 bytes, else the RLP of its hash."""
    return node if len(node) < 32 else hash_reference(keccak(node))


def hash_reference(digest: bytes) -> bytes:
    return b"\xa0" + digest


def hex_prefix(path: str, *, leaf: bool) -> bytes:
    """Return the hex-prefix encoding of these nibbles (Yellow Paper, appendix C)."""
    flag = 2 if leaf else 0
    return bytes.fromhex(f"{flag + 1:x}{path}" if len(path) % 2 else f"{flag:x}0{path}")


def listed(payload: bytes) -> bytes:
    """Return the RLP of a list from its items' RLP."""
    if len(payload) < 56:
        return bytes([0xC0 + len(payload)]) + payload
    size = len(payload).to_bytes(1 if len(payload) < 256 else 2)
    return bytes([0xF7 + len(size)]) + size + payload


def account(nonce: int = 0, balance: int = 0, storage_root: bytes = EMPTY_ROOT, code: bytes = EMPTY_CODE_HASH) -> bytes:
    return encode([nonce, balance, storage_root, code])


def header(
    number: int,
    state_root: bytes,
    parent_hash: bytes = bytes(32),
    extra_data: bytes = b"",
    roots: tuple[bytes, bytes] = (bytes(32), bytes(32)),
) -> bytes:
    """Return a header of 15 fields, mostly empty ones. `roots` are of transactions and receipts."""
    fields: list[bytes | int] = [
        parent_hash,
        bytes(32),
        bytes(20),
        state_root,
        *roots,
        bytes(256),
        0,
        number,
    ]
    return encode([*fields, 0, 0, 0, extra_data, bytes(32), bytes(8)])


# Numbers of children in the branches on a mainnet account's path, from the root down, in recorded proofs.
MAINNET_LEVELS = (16, 16, 16, 16, 16, 16, 9, 2)


def shaped(
    entries: Mapping[bytes, bytes], chance: random.Random, levels: Sequence[int] = MAINNET_LEVELS
) -> tuple[bytes, dict[bytes, list[bytes]]]:
    """Return the root of a large trie that contains `entries`, and each entry's proof. Siblings are random hashes.

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
            others = [index for index in range(16) if index not in below]
            count = max(0, (levels[depth] if depth < len(levels) else 2) - len(below))
            siblings = {index: chance.randbytes(32) for index in chance.sample(others, min(count, len(others)))}
            children = [
                keccak(node(below[index], depth + 1)) if index in below else siblings.get(index, b"")
                for index in range(16)
            ]
            encoded = encode([*children, b""])
        for key in keys:
            proofs[key].insert(0, encoded)
        return encoded

    return keccak(node(sorted(entries), 0)), proofs
