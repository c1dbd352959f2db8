"""Operations of packed proofs (docs/developing/proof-format.md), valid and refused ones."""

from collections.abc import Sequence
from functools import cache

from eth_utils.crypto import keccak

from chains import encoding
from chains.tries import packed


@cache
def address_below(*prefixes: str) -> bytes:
    """Return an address whose key begins with one of the nibbles in `prefixes`."""
    return next(address for number in range(2**24) if keccak(address := number.to_bytes(20)).hex().startswith(prefixes))


@cache
def slot_below(*prefixes: str) -> int:
    """Return a slot whose key begins with one of the nibbles in `prefixes`."""
    return next(slot for slot in range(2**24) if keccak(slot.to_bytes(32)).hex().startswith(prefixes))


def account(address: bytes, depth: int, nonce: int = 1, balance: int = 2) -> bytes:
    """Return an operation for an account without storage and code that stores its nonce and balance."""
    return _account(packed.STORE_NONCE_AND_BALANCE, address, depth, nonce, balance)


def closing_account(depth: int, nonce: int = 1, balance: int = 2) -> bytes:
    """Return an operation for an account without code that closes the open storage and stores no other fact."""
    return _account(packed.CLOSES_STORAGE, b"", depth, nonce, balance)


def _account(bits: int, address: bytes, depth: int, nonce: int, balance: int) -> bytes:
    head = (depth << 10 | len(encoding.shortest(nonce)) << 6 | len(encoding.shortest(balance))).to_bytes(2)
    return (
        bytes([packed.ACCOUNT | bits | bits.bit_count() % 2])
        + head
        + address
        + encoding.shortest(nonce)
        + encoding.shortest(balance)
    )


def absent_account(address: bytes, depth: int) -> bytes:
    """Return an operation that proves an account absent at an empty place."""
    return bytes([packed.ABSENT_ACCOUNT | packed.AT_EMPTY]) + address + bytes([depth])


def also_absent_account(address: bytes) -> bytes:
    """Return an operation that proves an account absent at the top subtree."""
    return bytes([packed.ABSENT_ACCOUNT | packed.AT_SAME]) + address


def closing_absent_account(depth: int) -> bytes:
    """Return an operation that proves an account absent at an empty place, and closes the open storage."""
    return bytes([packed.ABSENT_ACCOUNT | packed.ABSENT_CLOSES_STORAGE | packed.AT_EMPTY, depth])


def open_storage(address: bytes) -> bytes:
    return bytes([packed.OPEN_STORAGE]) + address


def absent_slot(number: int, depth: int) -> bytes:
    """Return an operation that proves a slot absent at an empty place."""
    return bytes([packed.ZERO_SLOT + packed.AT_EMPTY]) + _sized(number) + bytes([depth])


def also_absent_slot(number: int) -> bytes:
    """Return an operation that proves a slot absent at the top subtree."""
    return bytes([packed.ZERO_SLOT + packed.AT_SAME]) + _sized(number)


def slot(number: int, depth: int, value: int) -> bytes:
    return bytes([packed.SLOT]) + _slot(number, depth, value)


def block_hash(number: int, depth: int, digest: bytes) -> bytes:
    """Return an operation that proves a block hash in a slot of the history contract."""
    return bytes([packed.BLOCK_HASH]) + _slot(number, depth, int.from_bytes(digest))


def _slot(number: int, depth: int, value: int) -> bytes:
    return bytes([*_sized(number), depth, *_sized(value)])


def _sized(number: int) -> bytes:
    digits = encoding.shortest(number)
    return bytes([len(digits)]) + digits


def extension(length: int) -> bytes:
    return bytes([packed.EXTENSION, length])


def full_branch(others: Sequence[bytes]) -> bytes:
    """Return the branch that has the top subtree and fifteen hashes as children."""
    return bytes([packed.FULL_BRANCH]) + b"".join(others)


# Kinds of a branch's children, as the functions below return them: the kind in the high half of the first byte, and the
# place in the low half. A hash or a node follows.
HASH_CHILD, NODE_CHILD, OWN_CHILD = 0, 1, 2


def branch(count: int, *children: bytes, hashes: int = 0, nodes: int = 0) -> bytes:
    """Return the branch that has `count` subtrees and these children.

    The bits of `hashes` and `nodes` are changed in the masks. Subtrees among the children aren't written, because their
    keys tell their places.
    """
    for child in children:
        hashes ^= (child[0] >> 4 == HASH_CHILD) << (child[0] & 0x0F)
        nodes ^= (child[0] >> 4 == NODE_CHILD) << (child[0] & 0x0F)
    operation = packed.BRANCH_WITH_NODES if nodes else packed.BRANCH
    masks = hashes.to_bytes(2) + (nodes.to_bytes(2) if nodes else b"")
    return bytes([operation + count - 1]) + masks + b"".join(child[1:] for child in children)


def hash_child(index: int, digest: bytes) -> bytes:
    return bytes([HASH_CHILD << 4 | index]) + digest


def node_child(index: int, node: bytes) -> bytes:
    return bytes([NODE_CHILD << 4 | index]) + node


def own_child(index: int) -> bytes:
    """Return a child that is one of the branch's subtrees."""
    return bytes([OWN_CHILD << 4 | index])
