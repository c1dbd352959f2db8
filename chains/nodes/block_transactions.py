"""The transactions of a block as its trie holds them, made from what nodes answer and compared with the header's root.

Nodes answer transactions as JSON. Those of a type that isn't known here are asked for as the trie holds them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import rlp
from eth_utils.crypto import keccak

from chains.encoding import (
    Item,
    hex_data,
    read_data,
    read_list,
    read_number,
    read_object,
    shortest,
)
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import OtherRoot, other_root
from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from chains.tries.packed_entries import root

# Maximum number of transactions of a block that are asked for as they are: each in a request after the one before.
_MOST_RAW = 32

_MESSAGE = ("gas", "to", "value", "input")
_SINCE_1559 = ("chainId", "nonce", "maxPriorityFeePerGas", "maxFeePerGas", *_MESSAGE, "accessList")  # EIP-1559
_SIGNATURE = ("yParity", "r", "s")
# The fields by type, in the order of their RLP.
_FIELDS = {
    0: ("nonce", "gasPrice", *_MESSAGE, "v", "r", "s"),
    1: ("chainId", "nonce", "gasPrice", *_MESSAGE, "accessList", *_SIGNATURE),  # EIP-2930
    2: (*_SINCE_1559, *_SIGNATURE),
    # EIP-4844. The blobs are not in the trie.
    3: (*_SINCE_1559, "maxFeePerBlobGas", "blobVersionedHashes", *_SIGNATURE),
    4: (*_SINCE_1559, "authorizationList", *_SIGNATURE),  # EIP-7702
    # Celo's, with a fee in another currency (CIP-64).
    0x7B: (*_SINCE_1559, "feeCurrency", *_SIGNATURE),
    # OP Stack's deposits.
    0x7E: ("sourceHash", "from", "to", "mint", "value", "gas", "isSystemTx", "input"),
    # Arbitrum's own, one at the beginning of each block.
    0x6A: ("chainId", "input"),
}
_AUTHORIZATION = ("chainId", "address", "nonce", *_SIGNATURE)


def of_block(rpc: RpcClient, header: Header) -> tuple[bytes, ...]:
    """Return the trie's values (EIP-2718) of all of a block's transactions, in order.

    A block without transactions needs no answer.

    Raises `NodeUnavailable`, `OtherRoot` among them if the transactions of no node make the header's root, and
    `RpcRefused`.
    """
    if header.is_without_transactions:
        return ()
    return rpc.answer(
        Question(("eth_getBlockByHash", [hex_data(header.hash), True]), lambda block: _read(block, header))
    )


def _read(result: Any, header: Header) -> tuple[bytes, ...] | Question[tuple[bytes, ...]]:
    block = read_object(result)
    if _hash(block.get("hash")) != header.hash:
        raise ValueError("another block than the requested one")
    told = list(map(read_object, read_list(block.get("transactions"))))
    values = list(map(_encode, told))
    # Polygon's nodes append a transaction of what the bridge has done, which is in no trie.
    ends = [len(told), len(told) - 1] if told and told[-1].get("gas") == "0x0" else [len(told)]
    for end in ends:
        known = [value for value in values[:end] if value is not None]
        if len(known) == end and root(known) == header.transactions_root:
            return tuple(known)
    hashes = [_hash(transaction.get("hash")) for transaction in told]
    raw = [at for at, value in enumerate(values) if value is None or keccak(value) != hashes[at]]
    if not 0 < len(raw) <= _MOST_RAW:
        raise OtherRoot(other_root("transactions", header.number))
    return _raw(header, {at: hashes[at] for at in raw}, [value or b"" for value in values])


def _raw(header: Header, hashes: Mapping[int, bytes], values: Sequence[bytes]) -> Question[tuple[bytes, ...]]:
    """Ask the same node for transactions as they are, by their indexes and hashes, to complete the trie's values."""
    (at, tx_hash), *others = hashes.items()

    def read(result: Any) -> tuple[bytes, ...] | Question[tuple[bytes, ...]]:
        # Nodes that keep no index of old transactions answer null.
        completed = *values[:at], b"" if result is None else read_data(result), *values[at + 1 :]
        if others:
            return _raw(header, dict(others), completed)
        if root(completed) != header.transactions_root:
            raise OtherRoot(other_root("transactions", header.number))
        return completed

    method = "eth_getRawTransactionByHash"
    return Question(
        (method, [hex_data(tx_hash)]),
        read,
        lacking=OtherRoot(other_root("transactions", header.number, refused=method)),
    )


def _encode(transaction: Mapping[str, Any]) -> bytes | None:
    """Return the trie's value of a transaction in JSON. None if its type is unknown, or a field can't be read."""
    with suppress(ValueError, KeyError):
        kind = read_number(transaction.get("type") or 0)
        encoded: bytes = rlp.encode([_field(transaction, name) for name in _FIELDS[kind]], infer_serializer=False)
        return (bytes([kind]) if kind else b"") + encoded
    return None


def _field(transaction: Mapping[str, Any], name: str) -> Item:
    """Return a field as the trie has it. Raises `ValueError`."""
    value = transaction.get(name)
    if name == "input":
        return read_data(transaction.get("data") if value is None else value)
    if name == "yParity" and value is None:
        # Some nodes answer `v` only, and some as in transactions without a type: 27 or 28, or as EIP-155 has it.
        told = read_number(transaction.get("v"))
        return shortest(told if told < 2 else (told + 1) % 2)
    return _READERS.get(name, _number)(value)


def _number(value: Any) -> bytes:
    return shortest(read_number(value))


def _address(value: Any) -> bytes:
    return read_data(value, 20)


def _optional_address(value: Any) -> bytes:
    """Read the receiver, which a transaction that creates a contract lacks, or Celo's currency of fees."""
    return _address(value) if value and value != "0x" else b""


def _hash(value: Any) -> bytes:
    return read_data(value, 32)


def _objects(value: Any) -> list[dict[str, Any]]:
    return list(map(read_object, read_list(value or [])))


_READERS: dict[str, Callable[[Any], Item]] = {
    "from": _address,
    "address": _address,
    "to": _optional_address,
    "feeCurrency": _optional_address,
    "sourceHash": _hash,
    "mint": lambda value: b"" if value is None else _number(value),
    # Nodes leave it out since Regolith, because it is always false.
    "isSystemTx": lambda value: b"\1" if value is True else b"",
    "accessList": lambda value: [
        [_address(entry.get("address")), list(map(_hash, read_list(entry.get("storageKeys") or [])))]
        for entry in _objects(value)
    ],
    "blobVersionedHashes": lambda value: list(map(_hash, read_list(value or []))),
    "authorizationList": lambda value: [
        [_field(authorization, name) for name in _AUTHORIZATION] for authorization in _objects(value)
    ],
}
