"""Operations of packed proofs (docs/developing/proof-format.md), valid and refused ones."""

from collections.abc import Sequence
from functools import cache

from eth_utils.crypto import keccak

from chains.encoding import shortest
from chains.packed import (
    ABSENT_ACCOUNT,
    ABSENT_CLOSES_STORAGE,
    ACCOUNT,
    AT_EMPTY,
    AT_SAME,
    BLOCK_HASH,
    BRANCH,
    CLOSES_STORAGE,
    EXTENSION,
    FULL_BRANCH,
    HASH_CHILD,
    NODE_CHILD,
    OPEN_STORAGE,
    OWN_CHILD,
    SLOT,
    STORE_NONCE_AND_BALANCE,
    ZERO_SLOT,
)


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
    return _account(STORE_NONCE_AND_BALANCE, address, depth, nonce, balance)


def closing_account(depth: int, nonce: int = 1, balance: int = 2) -> bytes:
    """Return an operation for an account without code that closes the open storage and stores no other fact."""
    return _account(CLOSES_STORAGE, b"", depth, nonce, balance)


def _account(bits: int, address: bytes, depth: int, nonce: int, balance: int) -> bytes:
    head = (depth << 10 | len(shortest(nonce)) << 6 | len(shortest(balance))).to_bytes(2)
    return bytes([ACCOUNT | bits | bits.bit_count() % 2]) + head + address + shortest(nonce) + shortest(balance)


def absent_account(address: bytes, depth: int) -> bytes:
    """Return an operation that proves an account absent at an empty place."""
    return bytes([ABSENT_ACCOUNT | AT_EMPTY]) + address + bytes([depth])


def also_absent_account(address: bytes) -> bytes:
    """Return an operation that proves an account absent at the top subtree."""
    return bytes([ABSENT_ACCOUNT | AT_SAME]) + address


def closing_absent_account(depth: int) -> bytes:
    """Return an operation that proves an account absent at an empty place, and closes the open storage."""
    return bytes([ABSENT_ACCOUNT | ABSENT_CLOSES_STORAGE | AT_EMPTY, depth])


def open_storage(address: bytes) -> bytes:
    return bytes([OPEN_STORAGE]) + address


def absent_slot(number: int, depth: int) -> bytes:
    """Return an operation that proves a slot absent at an empty place."""
    return bytes([ZERO_SLOT + AT_EMPTY]) + _sized(number) + bytes([depth])


def also_absent_slot(number: int) -> bytes:
    """Return an operation that proves a slot absent at the top subtree."""
    return bytes([ZERO_SLOT + AT_SAME]) + _sized(number)


def slot(number: int, depth: int, value: int) -> bytes:
    return bytes([SLOT]) + _slot(number, depth, value)


def block_hash(number: int, depth: int, digest: bytes) -> bytes:
    """Return an operation that proves a block hash in a slot of the history contract."""
    return bytes([BLOCK_HASH]) + _slot(number, depth, int.from_bytes(digest))


def _slot(number: int, depth: int, value: int) -> bytes:
    return bytes([*_sized(number), depth, *_sized(value)])


def _sized(number: int) -> bytes:
    digits = shortest(number)
    return bytes([len(digits)]) + digits


def extension(length: int) -> bytes:
    return bytes([EXTENSION, length])


def full_branch(others: Sequence[bytes]) -> bytes:
    """Return the branch that has the top subtree and fifteen hashes as children."""
    return bytes([FULL_BRANCH]) + b"".join(others)


def branch(count: int, *children: bytes, size: int | None = None) -> bytes:
    """Return the branch that has `count` subtrees among its children. `size` replaces the number of children by a wrong
    one.
    """
    return bytes([BRANCH + count - 1, len(children) if size is None else size]) + b"".join(children)


def hash_child(index: int, digest: bytes) -> bytes:
    return bytes([HASH_CHILD << 4 | index]) + digest


def node_child(index: int, node: bytes) -> bytes:
    return bytes([NODE_CHILD << 4 | index]) + node


def own_child(index: int) -> bytes:
    """Return a child that is the branch's next subtree."""
    return bytes([OWN_CHILD << 4 | index])
