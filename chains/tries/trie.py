"""Strict verification of account and storage proofs against a root (Yellow Paper, appendix D; EIP-1186).

A proof must have exactly the nodes on the path to its key, in their canonical encoding. A key may be proven absent by
an empty trie, an empty place in a branch, another leaf, or another extension.

py-trie isn't used, because it accepts superfluous nodes. Tests compare the results with py-trie's.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import rlp
from eth_utils.crypto import keccak

from chains.encoding import Item, decode_rlp, read_bytes, read_integer

EMPTY_TRIE_ROOT = keccak(b"\x80")
EMPTY_CODE_HASH = keccak(b"")
NO_CODE_HASH = bytes(32)

_BRANCH = 17
_SHORT = 2  # a leaf or an extension
_HASH_BYTES = 32
_ACCOUNT_FIELDS = 4

Value = TypeVar("Value")


class InvalidProof(ValueError):
    """The proof doesn't verify. The message is one sentence."""


class OtherAccountForm(InvalidProof):
    """The trie's accounts have another form than Ethereum's, so the registry can't read them.

    The node is not at fault.
    """


@dataclass(frozen=True)
class StateAccount:
    """An account in the state trie. The balance is in wei.

    An account that doesn't exist has zeros, the empty trie's root, and a code hash of 32 zero bytes, like EXTCODEHASH
    (EIP-1052). An account that exists without code has `EMPTY_CODE_HASH`.
    """

    exists: bool
    nonce: int
    balance: int
    storage_root: bytes
    code_hash: bytes


NO_ACCOUNT = StateAccount(exists=False, nonce=0, balance=0, storage_root=EMPTY_TRIE_ROOT, code_hash=NO_CODE_HASH)


def verify_account(state_root: bytes, address: str | bytes, nodes: Sequence[bytes]) -> StateAccount:
    """Return the account at `address` (20 bytes, or hex) in the state with this root; `NO_ACCOUNT` if there is none.

    `nodes` is the proof. Its first node is the root. Raises `InvalidProof`.
    """
    raw = bytes.fromhex(address.removeprefix("0x")) if isinstance(address, str) else address
    if len(raw) != 20:
        raise ValueError("An address has 20 bytes.")
    return _look_up(state_root, keccak(raw), nodes, read_account) or NO_ACCOUNT


def read_account(value: bytes) -> StateAccount:
    """Read an account's leaf in the state trie. Raises `InvalidProof`."""
    try:
        fields = decode_rlp(value)
        if isinstance(fields, bytes):
            raise ValueError("not a list")  # noqa: TRY301 - handled like the other faults of the leaf.
        if len(fields) != _ACCOUNT_FIELDS:
            raise OtherAccountForm(
                f"Accounts of this chain have {len(fields)} fields instead of Ethereum's {_ACCOUNT_FIELDS}: they can't "
                "be proven."
            )
        nonce, balance, storage_root, code_hash = fields
        return StateAccount(
            exists=True,
            nonce=read_integer(nonce, 8),
            balance=read_integer(balance, 32),
            storage_root=read_bytes(storage_root, 32),
            code_hash=read_bytes(code_hash, 32),
        )
    except InvalidProof:
        raise
    except ValueError as error:
        raise InvalidProof(f"The proof's account is malformed: {error}.") from None


def verify_slot(storage_root: bytes, slot: int, nodes: Sequence[bytes]) -> int:
    """Return the value of a storage slot below `storage_root`. Zero if the proof shows that the slot is empty.

    Raises `InvalidProof`.
    """
    return _look_up(storage_root, keccak(slot.to_bytes(32, "big")), nodes, _read_slot) or 0


def _read_slot(value: bytes) -> int:
    try:
        number = read_integer(decode_rlp(value), 32)
    except ValueError as error:
        raise InvalidProof(f"The proof's slot is malformed: {error}.") from None
    if number == 0:
        raise InvalidProof("The proof's slot has a zero, which no storage trie stores.")
    return number


def _look_up(root: bytes, key: bytes, nodes: Sequence[bytes], read: Callable[[bytes], Value]) -> Value | None:
    """Return the value at a hashed key. None if the nodes prove that there is none.

    If another key's leaf proves the absence, its value is read too, as the registry does.
    """
    if root == EMPTY_TRIE_ROOT:
        # An empty trie needs no proof. Some RPC nodes send its empty root node, others no node.
        if list(nodes) not in ([], [b"\x80"]):
            raise InvalidProof("The proof has nodes, but the trie is empty.")
        return None
    remaining = iter(nodes)
    value = _walk(_referenced(root, remaining, is_root=True), key.hex(), remaining, read)
    if next(remaining, None) is not None:
        raise InvalidProof("The proof has nodes after its end.")
    return value


def _walk(node: Sequence[Item], path: str, remaining: Iterator[bytes], read: Callable[[bytes], Value]) -> Value | None:
    """Follow `path`, the rest of a key in hex digits, from `node` down to its value. None if the value is absent."""
    while True:
        if len(node) == _BRANCH:
            if node[-1] != b"":
                raise InvalidProof("The proof has a branch with a value, but all keys are equally long.")
            if not path:
                raise InvalidProof("The proof is deeper than its key is long.")
            _check_references(node[:-1], {0, _HASH_BYTES})
            child, path = node[int(path[0], 16)], path[1:]
            if child == b"":
                return None
        else:
            prefix, is_leaf = _read_path(node[0])
            if is_leaf:
                if len(prefix) != len(path):
                    raise InvalidProof("The proof has a leaf whose key has the wrong length.")
                value = read(_read_value(node[1]))
                return value if prefix == path else None
            if not prefix or len(prefix) >= len(path):
                raise InvalidProof("The proof has an extension that is empty or longer than its key.")
            _check_references(node[1:], {_HASH_BYTES})
            if not path.startswith(prefix):
                return None
            child, path = node[1], path[len(prefix) :]
        node = _child(child, remaining)


def _check_references(children: Sequence[Item], sizes: Collection[int]) -> None:
    """Reject a child that is neither a string of one of these sizes nor an embedded node."""
    for child in children:
        if isinstance(child, bytes):
            if len(child) not in sizes:
                raise InvalidProof("The proof has a child that is neither a hash nor an embedded node.")
        # A node is embedded in its parent exactly if it is shorter than a hash.
        elif len(rlp.encode(child)) >= _HASH_BYTES:
            raise InvalidProof("The proof has an embedded node that is not shorter than a hash.")


def _child(child: Item, remaining: Iterator[bytes]) -> Sequence[Item]:
    return _referenced(child, remaining) if isinstance(child, bytes) else _read_node(child)


def _referenced(reference: bytes, remaining: Iterator[bytes], *, is_root: bool = False) -> Sequence[Item]:
    """Return the next node of the proof. Its hash must be `reference`."""
    encoded = next(remaining, None)
    if encoded is None:
        raise InvalidProof("The proof ends before its key does.")
    if keccak(encoded) != reference:
        raise InvalidProof("The proof has a node whose hash is not the hash in its parent, or the root.")
    if len(encoded) < _HASH_BYTES and not is_root:
        raise InvalidProof("The proof refers to a short node by hash, but its parent should embed it.")
    try:
        return _read_node(decode_rlp(encoded))
    except InvalidProof:
        raise
    except ValueError as error:
        raise InvalidProof(f"The proof has a node that is {error}.") from None


def _read_node(node: Item) -> Sequence[Item]:
    if isinstance(node, bytes) or len(node) not in {_BRANCH, _SHORT}:
        raise InvalidProof("The proof has a node that is neither branch, extension nor leaf.")
    return node


def _read_path(encoded: Item) -> tuple[str, bool]:
    """Return a hex-prefix encoded path (Yellow Paper, appendix C) as nibbles, and whether it ends in a leaf."""
    digits = encoded.hex() if isinstance(encoded, bytes) else ""
    if digits[:1] in {"0", "2"} and digits[1:2] == "0":
        return digits[2:], digits[0] == "2"
    if digits[:1] in {"1", "3"}:
        return digits[1:], digits[0] == "3"
    raise InvalidProof("The proof has a path that is not hex-prefix encoded.")


def _read_value(value: Item) -> bytes:
    if not isinstance(value, bytes) or not value:
        raise InvalidProof("The proof has a leaf without a value.")
    return value
