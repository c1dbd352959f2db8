"""The receipts of a block as its trie holds them, made from what nodes answer and compared with the header's root.

Nodes answer receipts as JSON, in odd forms too, and chains encode some types in their own ways. So several readings are
tried. The root tells which is right, so none of them needs to be trusted.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, islice, product
from typing import Any

import rlp
from eth_utils.crypto import keccak

from chains.encoding import (
    Item,
    decode_rlp,
    hex_data,
    read_bytes,
    read_data,
    read_integer,
    read_list,
    read_number,
    read_object,
    shortest,
)
from chains.nodes.chain_nodes import MAX_REPLY_BYTES, Question
from chains.nodes.node_batches import NodeTimedOut, ReplyTooLong
from chains.nodes.node_errors import InvalidReply, OtherRoot, RpcRefused, other_root
from chains.nodes.rpc import RpcClient
from chains.nodes.short_logs import encode, rlp_list
from chains.tries.header import Header
from chains.tries.packed_entries import root

_BLOOM_BYTES = 256
_STATE_ROOT_BYTES = 32
_MOST_TOPICS = 4
# OP Stack's type of deposits.
_DEPOSIT = 0x7E
# The first type whose receipts may have strings behind the logs, such as a deposit's nonce and version.
_FIRST_OF_OTHER_CHAINS = 0x64
# Receipts that are asked for one by one in an exchange, and seconds for all of a block's.
_ASKED_AT_ONCE, _SECONDS_ONE_BY_ONE = 200, 60
# Maximum readings of a block's receipts that are compared with the root.
_MOST_READINGS = 8


@dataclass(frozen=True)
class ReceiptLog:
    """A log of a receipt."""

    emitter: bytes
    topics: tuple[bytes, ...]
    data: bytes

    @property
    def hash(self) -> bytes:
        """Return the hash that a registry stores: of emitter, topics and the data's keccak-256, each as a word."""
        return keccak(self.emitter.rjust(32, b"\0") + b"".join(self.topics) + keccak(self.data))


@dataclass(frozen=True)
class TransactionReceipt:
    """A receipt of a block, decoded from the trie's value."""

    type: int
    status: int | None
    """1 for success, 0 for a failure. None before Byzantium."""
    cumulative_gas_used: int
    logs: Sequence[ReceiptLog]

    @classmethod
    def decode(cls, value: bytes) -> "TransactionReceipt":
        """Decode the trie's value (EIP-2718) as strictly as `ReceiptReader`. Raises `ValueError`."""
        kind, encoded = _by_type(value)
        match decode_rlp(encoded):
            case [bytes(status), gas, bloom, [*logs], *more] if kind >= _FIRST_OF_OTHER_CHAINS or not more:
                read_bytes(bloom, _BLOOM_BYTES)
                if not all(isinstance(item, bytes) for item in more):
                    raise ValueError("not a receipt's list")
                has_status = kind or len(status) != _STATE_ROOT_BYTES
                if has_status and status not in {b"", b"\1"}:
                    raise ValueError("not a receipt's status")
                return cls(
                    kind, len(status) if has_status else None, read_integer(gas, 8), tuple(_log(log) for log in logs)
                )
        raise ValueError("not a receipt's list")

    @classmethod
    def stored(cls, value: bytes) -> "TransactionReceipt":
        """Read a value that was decoded before it was stored. Each log is decoded when it is used."""
        kind, encoded = _by_type(value)
        status, gas, _, logs, *_ = rlp.decode_lazy(encoded)
        has_status = kind or len(status) != _STATE_ROOT_BYTES
        return cls(kind, len(status) if has_status else None, int.from_bytes(gas), _StoredLogs(logs))


class _StoredLogs(Sequence[ReceiptLog]):
    """The logs of a stored receipt, which may have thousands of which few are used."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        emitter, topics, data = self._items[index]
        return ReceiptLog(emitter, tuple(topics), data)


@dataclass(frozen=True)
class BlockReceipts:
    """All receipts of a block. Their trie has the root that the block's header names."""

    values: tuple[bytes, ...]
    """The trie's values in the order of transactions."""
    hashes: tuple[bytes | None, ...]
    """The transactions' hashes as the node tells them, which no root of receipts shows."""


def of_block(rpc: RpcClient, header: Header) -> BlockReceipts:
    """Return all receipts of a block, from one request where a node answers it, else from one for each transaction.

    A block without transactions needs no answer.

    Raises `NodeUnavailable`, `OtherRoot` among them if the receipts of no node make the header's root, and
    `RpcRefused`.
    """
    if header.is_without_transactions:
        return BlockReceipts((), ())
    try:
        return rpc.answer(_of_block(header))
    except ReplyTooLong:
        # Raw receipts have far fewer values in JSON: anybody can fill a block with short logs.
        with suppress(OtherRoot):
            return rpc.answer(_raw(header, ()))
    except RpcRefused:
        pass
    hashes = rpc.answer(Question(("eth_getBlockByHash", [hex_data(header.hash), False]), _transactions))
    each = _one_by_one(rpc, hashes)
    return _made(each, header.receipts_root) or rpc.answer(_raw(header, each))


def _one_by_one(rpc: RpcClient, hashes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the receipts of these transactions, of which a node may have named any number.

    Raises `ReplyTooLong` if they are longer than a reply with all of a block's, and `NodeTimedOut`.
    """
    receipts: list[dict[str, Any]] = []
    size, ends_at = 0, time.monotonic() + _SECONDS_ONE_BY_ONE
    for start in range(0, len(hashes), _ASKED_AT_ONCE):
        if time.monotonic() > ends_at:
            raise NodeTimedOut(f"{rpc.chain.label} takes longer than {_SECONDS_ONE_BY_ONE} seconds for all receipts")
        asked = hashes[start : start + _ASKED_AT_ONCE]
        told = rpc.answers([Question(("eth_getTransactionReceipt", [tx_hash]), read_object) for tx_hash in asked])
        size += sum(len(json.dumps(receipt)) for receipt in told)
        if size > MAX_REPLY_BYTES:
            raise ReplyTooLong(f"{rpc.chain.label} has receipts of more than {MAX_REPLY_BYTES:,} bytes in a block")
        receipts += told
    return receipts


def _of_block(header: Header) -> Question[BlockReceipts]:
    """Ask for all receipts of a block. If they make another root, ask the same node for raw ones."""

    def read(result: Any) -> BlockReceipts | Question[BlockReceipts] | RpcRefused:
        told = sorted(result, key=_index) if isinstance(result, list) else []
        if not told or not all(isinstance(receipt, dict) for receipt in told):
            # Some nodes answer so about a block whose receipts they have by their transactions' hashes.
            return RpcRefused(0, "no receipts for a block that has some")
        return _made(told, header.receipts_root) or _raw(header, told)

    return Question(("eth_getBlockReceipts", [hex(header.number)]), read)


def _index(receipt: Any) -> int:
    """Return the index in the block. 0, which keeps the order of a list, if it isn't told."""
    try:
        return read_number(receipt["transactionIndex"])
    except (ValueError, KeyError, TypeError):
        return 0


def _raw(header: Header, told: Sequence[dict[str, Any]]) -> Question[BlockReceipts]:
    """Ask for raw receipts of a block, whose receipts in JSON make another root."""
    # The number may have passed to another block since the header was read. Then the fault passes too.
    is_of_header = all(_hash(receipt.get("blockHash")) in {None, header.hash} for receipt in told)
    fault, method = OtherRoot if is_of_header else InvalidReply, "debug_getRawReceipts"

    def read(result: Any) -> BlockReceipts:
        values = tuple(map(read_data, read_list(result)))
        if root(values) != header.receipts_root:
            raise fault(other_root("receipts", header.number))
        return BlockReceipts(values, _hashes(told, len(values)))

    return Question(
        (method, [hex(header.number)]), read, lacking=fault(other_root("receipts", header.number, refused=method))
    )


def _transactions(block: Any) -> list[str]:
    """Return the hashes of a block's transactions. Raises `ValueError`."""
    return [hex_data(read_data(tx_hash, 32)) for tx_hash in read_list(read_object(block).get("transactions"))]


def _made(receipts: Sequence[dict[str, Any]], expected: bytes) -> BlockReceipts | None:
    """Return the receipts if one of their readings makes the expected root."""
    for values in islice(_readings(receipts), _MOST_READINGS):
        if root(values) == expected:
            return BlockReceipts(tuple(values), _hashes(receipts, len(values)))
    return None


def _hashes(receipts: Sequence[dict[str, Any]], count: int) -> tuple[bytes | None, ...]:
    """Return the hashes of the first transactions as the receipts tell them, None where they don't."""
    hashes = [_hash(receipt.get("transactionHash")) for receipt in receipts[:count]]
    return *hashes, *[None] * (count - len(hashes))


@dataclass(frozen=True)
class _Reading:
    """A way to read receipts whose JSON may mean several values of the trie."""

    has_own_bloom: bool
    """True: the blooms are made from the logs, because those of the node may be others."""
    prefers_root: bool
    """True: a receipt with a status and a state root is one before Byzantium."""
    has_other_deposits: bool
    """True: deposits have a nonce and a version in the trie although the JSON lacks the version, or vice versa."""
    omits_last: bool
    sums_gas: bool
    """True: the gas that was used until each receipt is the sum of `gasUsed`, because the node's may be another."""

    def values(self, receipts: Sequence[dict[str, Any]]) -> list[bytes]:
        """Return the trie's values. Raises `ValueError`."""
        told = receipts[:-1] if self.omits_last else receipts
        return list(map(self._encode, _with_sums(told) if self.sums_gas else told))

    def _encode(self, receipt: dict[str, Any]) -> bytes:
        """Return a receipt's value in the trie (Yellow Paper 4.3.1, EIP-658, EIP-2718)."""
        kind, told = read_number(receipt.get("type") or 0), receipt.get("logsBloom")
        # `short_logs` has encoded most logs already.
        logs = [
            encode(log) if isinstance(log, dict) else read_data(log) for log in read_list(receipt.get("logs") or [])
        ]
        bloom = _bloom(logs) if self.has_own_bloom or told is None else read_data(told, _BLOOM_BYTES)
        fields = [self._outcome(receipt), shortest(read_number(receipt.get("cumulativeGasUsed"))), bloom]
        after: list[bytes] = []
        if kind == _DEPOSIT and self.has_other_deposits == (receipt.get("depositReceiptVersion") is None):
            after = [shortest(read_number(receipt.get("depositNonce"))), b"\1"]
        encoded = rlp_list([*map(rlp.encode, fields), rlp_list(logs), *map(rlp.encode, after)])
        return (bytes([kind]) if kind else b"") + encoded

    def _outcome(self, receipt: dict[str, Any]) -> bytes:
        """Return the status, or the state root that receipts have before Byzantium."""
        status, state_root = receipt.get("status"), receipt.get("root")
        if status is None or (self.prefers_root and _hash(state_root)):
            return read_data(state_root, _STATE_ROOT_BYTES)
        return b"" if status == "0x" else shortest(read_number(status))


def _readings(receipts: Sequence[dict[str, Any]]) -> Iterator[list[bytes]]:
    """Yield the values that these receipts may have in the trie, the likeliest first."""
    has_both = any(receipt.get("status") is not None and _hash(receipt.get("root")) for receipt in receipts)
    # Some nodes leave the version out (after Canyon), and others add it (before).
    has_deposits = any(receipt.get("depositNonce") is not None for receipt in receipts)
    # Polygon's nodes append a receipt of what the bridge has done, which is in no trie. A list or an object is no key.
    may_end_sooner = receipts[-1:] != [] and receipts[-1].get("gasUsed") in ("0x0", 0)
    has_other_sums = any(
        str(told.get("cumulativeGasUsed")) != hex(summed["cumulativeGasUsed"])
        for told, summed in zip(receipts, _with_sums(receipts), strict=False)
    )
    may = has_both, has_deposits, may_end_sooner, has_other_sums
    # Making the blooms takes longer than all else. So those that the node tells are tried first.
    for choices in product((False, True), *((False, True)[: 1 + is_possible] for is_possible in may)):
        with suppress(ValueError):
            yield _Reading(*choices).values(receipts)


def _with_sums(receipts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the receipts with the sums of their gas. Empty if a receipt doesn't tell its own."""
    try:
        sums = list(accumulate(read_number(receipt.get("gasUsed")) for receipt in receipts))
    except ValueError:
        return []
    return [receipt | {"cumulativeGasUsed": gas} for receipt, gas in zip(receipts, sums, strict=True)]


def _bloom(logs: Sequence[bytes]) -> bytes:
    """Return the bloom of logs in RLP (Yellow Paper, 4.3.1). Some nodes answer another one."""
    bits = 0
    for log in map(_log, map(decode_rlp, logs)):
        for digest in map(keccak, (log.emitter, *log.topics)):
            for at in (0, 2, 4):
                bits |= 1 << (int.from_bytes(digest[at : at + 2]) & 2047)
    return bits.to_bytes(_BLOOM_BYTES)


def _by_type(value: bytes) -> tuple[int, bytes]:
    """Return the type of a receipt (EIP-2718), 0 where it has none, and its RLP."""
    return (value[0], value[1:]) if b"\0" < value[:1] < b"\x80" else (0, value)


def _log(item: Item) -> ReceiptLog:
    match item:
        case [emitter, [*topics], bytes(data)] if len(topics) <= _MOST_TOPICS:
            return ReceiptLog(read_bytes(emitter, 20), tuple(read_bytes(topic, 32) for topic in topics), data)
    raise ValueError("not a log")


def _hash(value: Any) -> bytes | None:
    try:
        return read_data(value, 32)
    except ValueError:
        return None
