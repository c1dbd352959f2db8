"""Proofs of receipts and logs for the views of `FactsReader` that take them. Nothing is stored or sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import rlp

from chains import packed_transactions, receipts
from chains.header import Header
from chains.receipts import BlockReceipts, Log, TransactionReceipt
from chains.rpc import RpcClient
from queries.api_endpoint import ApiError
from queries.batch_request import TransactionRequest
from queries.columns import ReceiptField
from queries.strict_json import INVALID

# Types of receipts that FactsReader knows: Ethereum's, Arbitrum's 6a and the OP Stack's 7e.
_KNOWN_TYPES = {*range(5), 0x6A, 0x7E}

Asked = tuple[int | str, TransactionRequest]
"""A transaction's index in its block, or its hash, and what is asked of it."""


@dataclass(frozen=True)
class ReceiptFact:
    """A property of a transaction's receipt, or one of its logs."""

    transaction: int
    """The transaction's index in its block."""
    hash: bytes | None
    """The transaction's hash as nodes tell it. No proof of a receipt shows it."""
    content: ReceiptField | Log
    log_index: int | None
    """The index of the log within the receipt."""

    @property
    def place(self) -> list[int]:
        """Return the indexes that a view takes."""
        return [self.transaction, *([] if self.log_index is None else [self.log_index])]


def of_block(rpc: RpcClient, header: Header, asked: Sequence[Asked]) -> Iterator[tuple[ReceiptFact, bytes, bytes]]:
    """Yield what is asked of a block's transactions, each with its word and its proof.

    The receipts make the header's root. The word of a log is the hash that a registry stores.

    Raises `NodeUnavailable`, `RpcRefused`, and `ApiError`: invalid_request, if there is no such transaction or log.
    """
    block = receipts.of_block(rpc, header)
    decoded = list(map(TransactionReceipt.decode, block.values))
    logs_before = [0, *accumulate(len(receipt.logs) for receipt in decoded)]
    indexes = [_index(block, name, header.number) for name, _ in asked]
    nodes = packed_transactions.nodes(block.values, indexes)
    for index, (_, request) in zip(indexes, asked, strict=True):
        receipt = decoded[index]
        at = f"Transaction {index} of block {header.number}"
        if receipt.type not in _KNOWN_TYPES:
            raise ApiError(400, INVALID, f"{at} has a receipt of type {receipt.type:#x}, which no facts reader knows.")
        proof = rlp.encode(nodes[index])
        transaction = index, block.hashes[index]
        for field in dict.fromkeys(map(ReceiptField.__getitem__, request.props)):
            if (number := _number(receipt, field)) is None:
                raise ApiError(400, INVALID, f"{at} has no STATUS: it is of before Byzantium.")
            yield ReceiptFact(*transaction, field, None), number.to_bytes(32), proof
        for log in dict.fromkeys([*request.logs, *(place - logs_before[index] for place in request.blockLogs)]):
            if not 0 <= log < len(receipt.logs):
                raise ApiError(400, INVALID, f"{at} has no log {log}: it has {len(receipt.logs)} logs, from 0 on.")
            yield ReceiptFact(*transaction, receipt.logs[log], log), receipt.logs[log].hash, proof


def _index(block: BlockReceipts, name: int | str, number: int) -> int:
    if isinstance(name, str):
        if (digest := bytes.fromhex(name[2:])) not in block.hashes:
            raise ApiError(400, INVALID, f"Block {number} has no transaction {name}, as far as nodes tell.")
        return block.hashes.index(digest)
    if name >= len(block.values):
        raise ApiError(400, INVALID, f"Block {number} has {len(block.values)} transactions, so none has index {name}.")
    return name


def _number(receipt: TransactionReceipt, field: ReceiptField) -> int | None:
    return {
        ReceiptField.STATUS: receipt.status,
        ReceiptField.TYPE: receipt.type,
        ReceiptField.CUMULATIVE_GAS_USED: receipt.cumulative_gas_used,
        ReceiptField.LOG_COUNT: len(receipt.logs),
    }[field]
