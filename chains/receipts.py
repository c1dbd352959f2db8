"""The receipts of a block as its trie holds them, made from what nodes answer and compared with the header's root.

Nodes answer receipts as JSON, and chains encode some types in their own ways. So several encodings are tried. The root
tells which is right, so none of them needs to be trusted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import rlp
from eth_utils.crypto import keccak

from chains import questions
from chains.encoding import Item, decode_rlp, hex_data, read_data, read_list, read_object, read_quantity, shortest
from chains.header import Header
from chains.node_errors import InvalidReply, RpcRefused
from chains.nodes import Question
from chains.packed_transactions import root
from chains.rpc import RpcClient

_OTHER_ROOT = "receipts of block {} that make another root than the header's"
_BLOOM_BYTES = 256
_FORK_STATUS = 32
# OP Stack's type of deposits.
_DEPOSIT = 0x7E


@dataclass(frozen=True)
class Log:
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
    logs: tuple[Log, ...]

    @classmethod
    def decode(cls, value: bytes) -> "TransactionReceipt":
        """Decode the trie's value (EIP-2718). Raises `ValueError`."""
        kind, encoded = (value[0], value[1:]) if b"" < value[:1] < b"\x80" else (0, value)
        items = decode_rlp(encoded)
        if isinstance(items, bytes) or len(items) < 4:
            raise ValueError("no receipt")
        status, gas, _, logs = items[:4]
        if not isinstance(status, bytes) or not isinstance(gas, bytes) or isinstance(logs, bytes):
            raise ValueError("no receipt")
        return cls(
            kind,
            None if len(status) == _FORK_STATUS else int.from_bytes(status),
            int.from_bytes(gas),
            tuple(_log(log) for log in logs),
        )


@dataclass(frozen=True)
class BlockReceipts:
    """All receipts of a block. Their trie has the root that the block's header names."""

    values: tuple[bytes, ...]
    """The trie's values in the order of transactions."""
    hashes: tuple[bytes | None, ...]
    """The transactions' hashes as the node tells them, which no root of receipts shows."""


def of_block(rpc: RpcClient, header: Header) -> BlockReceipts:
    """Return all receipts of a block, from one request where a node takes it, else from one for each transaction.

    Raises `NodeUnavailable`, also if the receipts of no node make the header's root, and `RpcRefused`.
    """
    try:
        return rpc.answer(_of_block(header))
    except RpcRefused:
        block = read_object(rpc.call("eth_getBlockByHash", hex_data(header.hash), False))
        hashes = [hex_data(read_data(tx_hash, 32)) for tx_hash in read_list(block.get("transactions"))]
        each = rpc.answers([questions.plain("eth_getTransactionReceipt", tx_hash) for tx_hash in hashes])
        if receipts := _made(each, header.receipts_root):
            return receipts
        raise InvalidReply(f"The {_OTHER_ROOT.format(header.number)}.") from None


def _of_block(header: Header) -> Question[BlockReceipts]:
    """Ask for all receipts of a block. If they make another root, ask the same node for raw ones."""

    def read(result: Any) -> BlockReceipts | Question[BlockReceipts]:
        lacking = f"sent {_OTHER_ROOT.format(header.number)}, and refuses debug_getRawReceipts"
        raw = Question(("debug_getRawReceipts", [hex(header.number)]), read_raw, lacking=lacking)
        return _made(read_list(result), header.receipts_root) or raw

    def read_raw(result: Any) -> BlockReceipts:
        values = tuple(map(read_data, read_list(result)))
        if root(values) != header.receipts_root:
            raise ValueError(_OTHER_ROOT.format(header.number))
        return BlockReceipts(values, (None,) * len(values))

    return Question(("eth_getBlockReceipts", [hex(header.number)]), read)


def _made(told: Sequence[Any], expected: bytes) -> BlockReceipts | None:
    """Return the receipts if they can be encoded so that they make the expected root."""
    receipts = list(map(read_object, told))
    for values in _encodings(receipts):
        if root(values) == expected:
            hashes = (_hash(receipt.get("transactionHash")) for receipt in receipts[: len(values)])
            return BlockReceipts(tuple(values), tuple(hashes))
    return None


def _encodings(receipts: Sequence[dict[str, Any]]) -> Iterator[list[bytes]]:
    """Yield the values that these receipts may have in the trie, the likeliest first."""
    try:
        values = [_encode(receipt) for receipt in receipts]
    except ValueError:
        return
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
    logs: list[Item] = [
        [
            read_data(log.get("address"), 20),
            [read_data(topic, 32) for topic in read_list(log.get("topics"))],
            read_data(log.get("data")),
        ]
        for log in map(read_object, read_list(receipt.get("logs")))
    ]
    fields: list[Item] = [status, shortest(read_quantity(receipt.get("cumulativeGasUsed"))), _bloom(logs), logs]
    if kind == _DEPOSIT:
        is_canyon = receipt.get("depositReceiptVersion") is not None if is_canyon is None else is_canyon
        if is_canyon:
            fields += [shortest(read_quantity(receipt.get("depositNonce"))), b"\1"]
    encoded: bytes = rlp.encode(fields)
    return (bytes([kind]) if kind else b"") + encoded


def _post_state(receipt: dict[str, Any]) -> bytes:
    return read_data(receipt.get("root"), _FORK_STATUS)


def _bloom(logs: Sequence[Any]) -> bytes:
    """Return the bloom of logs (Yellow Paper, 4.3.1). Some nodes answer another one."""
    bits = 0
    for emitter, topics, _ in logs:
        for digest in map(keccak, (emitter, *topics)):
            for at in (0, 2, 4):
                bits |= 1 << (int.from_bytes(digest[at : at + 2]) & 2047)
    return bits.to_bytes(_BLOOM_BYTES)


def _log(item: Item) -> Log:
    match item:
        case [bytes(emitter), [*topics], bytes(data)]:
            return Log(emitter, tuple(bytes(topic) for topic in topics if isinstance(topic, bytes)), data)
    raise ValueError("no log")


def _hash(value: Any) -> bytes | None:
    try:
        return read_data(value, 32)
    except ValueError:
        return None
