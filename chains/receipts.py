"""The receipts of a block as its trie holds them, made from what nodes answer and compared with the header's root.

Nodes answer receipts as JSON, and chains encode some types in their own ways. So several encodings are tried. The root
tells which is right, so none of them needs to be trusted.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    read_object,
    read_quantity,
    shortest,
)
from chains.header import Header
from chains.node_batches import ReplyTooLong
from chains.node_errors import InvalidReply, OtherRoot, RpcRefused, other_root
from chains.nodes import Question
from chains.packed_entries import root
from chains.rpc import RpcClient
from chains.short_logs import rlp_list
from chains.trie import EMPTY_TRIE_ROOT

_BLOOM_BYTES = 256
_STATE_ROOT_BYTES = 32
_MOST_TOPICS = 4
# OP Stack's type of deposits.
_DEPOSIT = 0x7E


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
            # A deposit's nonce and version come after the logs.
            case [bytes(status), gas, bloom, [*logs], *others] if not others or (kind, len(others)) == (_DEPOSIT, 2):
                read_bytes(bloom, _BLOOM_BYTES)
                for other in others:
                    read_integer(other, 8)
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

    Raises `NodeUnavailable`, `OtherRoot` among them if the receipts of no node make the header's root, and
    `RpcRefused`.
    """
    try:
        return rpc.answer(_of_block(header))
    except ReplyTooLong:
        # Raw receipts have far fewer values in JSON: anybody can fill a block with short logs.
        with suppress(OtherRoot):
            return rpc.answer(_raw(header, ()))
    except RpcRefused:
        pass
    hashes = rpc.answer(Question(("eth_getBlockByHash", [hex_data(header.hash), False]), _transactions))
    each = rpc.answers([Question(("eth_getTransactionReceipt", [tx_hash]), read_object) for tx_hash in hashes])
    return _made(each, header.receipts_root) or rpc.answer(_raw(header, each))


def _of_block(header: Header) -> Question[BlockReceipts]:
    """Ask for all receipts of a block. If they make another root, ask the same node for raw ones."""

    def read(result: Any) -> BlockReceipts | Question[BlockReceipts] | RpcRefused:
        told = list(map(read_object, read_list(result)))
        if not told and header.receipts_root != EMPTY_TRIE_ROOT:
            # Some nodes answer so about a block whose receipts they have by their transactions' hashes.
            return RpcRefused(0, "no receipts of a block that has some")
        return _made(told, header.receipts_root) or _raw(header, told)

    return Question(("eth_getBlockReceipts", [hex(header.number)]), read)


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
    """Return the receipts if they can be encoded so that they make the expected root."""
    # Making the blooms takes longer than all else. So those that the node tells are tried first.
    for told in (receipts, [receipt | {"logsBloom": None} for receipt in receipts]):
        with suppress(ValueError):
            for values in _encodings(told):
                if root(values) == expected:
                    return BlockReceipts(tuple(values), _hashes(receipts, len(values)))
    return None


def _hashes(receipts: Sequence[dict[str, Any]], count: int) -> tuple[bytes | None, ...]:
    """Return the hashes of the first transactions as the receipts tell them, None where they don't."""
    hashes = [_hash(receipt.get("transactionHash")) for receipt in receipts[:count]]
    return *hashes, *[None] * (count - len(hashes))


def _encodings(receipts: Sequence[dict[str, Any]]) -> Iterator[list[bytes]]:
    """Yield the values that these receipts may have in the trie, the likeliest first. Raises `ValueError`."""
    values = [_encode(receipt) for receipt in receipts]
    yield values
    deposits = [at for at, receipt in enumerate(receipts) if values[at][:1] == bytes([_DEPOSIT])]
    if any(receipts[at].get("depositNonce") is not None for at in deposits):
        # Some nodes leave the version out (after Canyon), and others add it (before).
        other = [_encode(receipt, is_canyon=receipt.get("depositReceiptVersion") is None) for receipt in receipts]
        yield [
            changed if at in deposits else value for at, (value, changed) in enumerate(zip(values, other, strict=True))
        ]
    if receipts and receipts[-1].get("gasUsed") == "0x0":
        # Polygon's nodes append a receipt of what the bridge has done, which is in no trie.
        yield values[:-1]


def _encode(receipt: dict[str, Any], *, is_canyon: bool | None = None) -> bytes:
    """Return the trie's value of a receipt in JSON (Yellow Paper 4.3.1, EIP-658, EIP-2718). Raises `ValueError`."""
    kind = read_quantity(receipt.get("type") or "0x0")
    status = shortest(read_quantity(receipt["status"])) if receipt.get("status") is not None else _post_state(receipt)
    logs = list(map(read_data, read_list(receipt.get("logs"))))  # as `short_logs` has them
    told = receipt.get("logsBloom")
    bloom = _bloom(logs) if told is None else read_data(told, _BLOOM_BYTES)
    fields = [status, shortest(read_quantity(receipt.get("cumulativeGasUsed"))), bloom]
    after: list[bytes] = []
    if kind == _DEPOSIT:
        is_canyon = receipt.get("depositReceiptVersion") is not None if is_canyon is None else is_canyon
        after = [shortest(read_quantity(receipt.get("depositNonce"))), b"\1"] if is_canyon else []
    encoded = rlp_list([*map(rlp.encode, fields), rlp_list(logs), *map(rlp.encode, after)])
    return (bytes([kind]) if kind else b"") + encoded


def _post_state(receipt: dict[str, Any]) -> bytes:
    return read_data(receipt.get("root"), _STATE_ROOT_BYTES)


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
