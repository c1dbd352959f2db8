"""Proofs of receipts and logs for the views of `FactsReader` that take them. Nothing is stored or sent."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import rlp

from chains import packed_transactions, receipts
from chains.header import Header
from chains.receipts import BlockReceipts, Log, TransactionReceipt
from chains.rpc import RpcClient
from queries.api_endpoint import ApiError
from queries.batch_request import BodyFault, TransactionRequest, pointer
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


def of_block(
    rpc: RpcClient, header: Header, asked: Sequence[Asked], place: Sequence[str]
) -> Iterator[tuple[ReceiptFact, bytes, bytes]]:
    """Yield what is asked of a block's transactions, each with its word and its proof.

    The receipts make the header's root. The word of a log is the hash that a registry stores. `place` is where the
    request names the transactions.

    Raises `NodeUnavailable`, `RpcRefused`, and `ApiError`: invalid_request, if there is no such transaction or log.
    """
    block = receipts.of_block(rpc, header)
    named: dict[int, Asked] = {}
    for name, request in asked:
        index = _index(block, name, header.number, place)
        if index in named:
            raise _invalid(f"Transaction {index} of block {header.number} is named twice.", *place, name)
        named[index] = name, request
    nodes = packed_transactions.nodes(block.values, named)
    logs_before = [0]
    if any(request.blockLogs for _, request in asked):
        before = block.values[: max(named)]
        logs_before += accumulate(len(_decoded(header, *numbered, place).logs) for numbered in enumerate(before))
    for index, (name, request) in named.items():
        receipt = _decoded(header, index, block.values[index], [*place, name])
        at = _at(header, index)
        if receipt.type not in _KNOWN_TYPES:
            raise _invalid(f"{at} has a receipt of type {receipt.type:#x}, which no facts reader knows.", *place, name)
        proof = rlp.encode(nodes[index])
        transaction = index, block.hashes[index]
        for field in dict.fromkeys(map(ReceiptField.__getitem__, request.props)):
            if (number := _number(receipt, field)) is None:
                raise _invalid(f"{at} has no STATUS: it is of before Byzantium.", *place, name, "props")
            yield ReceiptFact(*transaction, field, None), number.to_bytes(32), proof
        for log in _logs(
            request, len(receipt.logs), logs_before[index] if request.blockLogs else 0, at, [*place, name]
        ):
            yield ReceiptFact(*transaction, receipt.logs[log], log), receipt.logs[log].hash, proof


def _logs(request: TransactionRequest, count: int, before: int, at: str, place: Sequence[str | int]) -> Iterable[int]:
    """Return the indexes within the receipt of the logs that are asked for, without duplicates."""
    logs: dict[int, None] = {}
    for name, indexes, first, where in (
        ("logs", request.logs, 0, ""),
        ("blockLogs", request.blockLogs, before, " of the block"),
    ):
        for number, index in enumerate(indexes):
            if not first <= index < first + count:
                its = f"its logs are {first} to {first + count - 1}{where}" if count else "it has none"
                raise _invalid(f"{at} has no log {index}{where}: {its}.", *place, name, number)
            logs[index - first] = None
    return logs


def _invalid(sentence: str, *place: str | int) -> ApiError:
    """Return the error of a value of the request."""
    return ApiError(400, INVALID, sentence, faults=[BodyFault(pointer(*place), sentence)])


def _at(header: Header, index: int) -> str:
    return f"Transaction {index} of block {header.number}"


def _decoded(header: Header, index: int, value: bytes, place: Sequence[str | int]) -> TransactionReceipt:
    try:
        return TransactionReceipt.decode(value)
    except ValueError:
        sentence = f"{_at(header, index)} has a receipt of a form that no facts reader knows."
        raise _invalid(sentence, *place) from None


def _index(block: BlockReceipts, name: int | str, number: int, place: Sequence[str]) -> int:
    if isinstance(name, str):
        if (digest := bytes.fromhex(name[2:])) not in block.hashes:
            raise _invalid(f"Block {number} has no transaction {name}, as far as nodes tell.", *place, name)
        return block.hashes.index(digest)
    if name >= len(block.values):
        why = f"Block {number} has {len(block.values)} transactions, so none has index {name}."
        raise _invalid(why, *place, name)
    return name


def _number(receipt: TransactionReceipt, field: ReceiptField) -> int | None:
    return {
        ReceiptField.STATUS: receipt.status,
        ReceiptField.TYPE: receipt.type,
        ReceiptField.CUMULATIVE_GAS_USED: receipt.cumulative_gas_used,
        ReceiptField.LOG_COUNT: len(receipt.logs),
    }[field]
