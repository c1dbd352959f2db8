"""Proofs of receipts and logs for the views of `FactsReader` that take them. Nothing is stored or sent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import rlp

from chains import packed_transactions
from chains.header import Header
from chains.receipts import Log
from chains.rpc import RpcClient
from proving import facts, named_transactions
from proving.batch_estimate import EstimateUnavailable
from proving.facts import LogFact
from proving.named_transactions import NamedTransaction, Unprovable
from queries.api_endpoint import ApiError
from queries.batch_request import BodyFault, pointer
from queries.columns import TransactionField
from queries.strict_json import INVALID


@dataclass(frozen=True)
class ShownReceiptPart:
    """A property of a transaction's receipt, or one of its logs."""

    transaction: int
    """The transaction's index in its block."""
    hash: bytes | None
    """The transaction's hash: by the trie of transactions if the request names it, else as nodes tell it."""
    content: TransactionField | Log
    log_index: int | None
    """The index of the log within the receipt."""

    @property
    def place(self) -> list[int]:
        """Return the indexes that a view takes."""
        return [self.transaction, *([] if self.log_index is None else [self.log_index])]


def of_block(
    rpc: RpcClient, header: Header, asked: Sequence[NamedTransaction], place: Sequence[str]
) -> Iterator[tuple[ShownReceiptPart, bytes, bytes]]:
    """Yield what is asked of a block's transactions, each with its word and its proof.

    The receipts make the header's root. The word of a log is the hash that a registry stores. `place` is where the
    request names the transactions.

    Raises `NodeUnavailable`, `RpcRefused`, and `ApiError`: invalid_request, if there is no such transaction or log.
    """
    named = [(each, [*place, each.name]) for each in asked]
    try:
        contents = named_transactions.read(rpc, header, [each for each, _ in named])
    except Unprovable as why:
        raise EstimateUnavailable(str(why)) from None
    there = []
    for each, at in named:
        try:
            there.append(contents.find(each, most_bytes=None))
        except Unprovable as why:
            raise _invalid(str(why), *at, *why.place) from None
        if len({transaction.index for transaction in there}) < len(there):
            why_twice = f"Transaction {there[-1].index} of block {header.number} is named twice."
            raise _invalid(why_twice, *at)
    nodes = packed_transactions.nodes(contents.receipts.values, [transaction.index for transaction in there])
    for transaction in there:
        index = transaction.index
        tx_hash = bytes.fromhex(transaction.hash[2:]) or contents.receipts.hashes[index]
        proof = rlp.encode(nodes[index])
        for fact in transaction.facts:
            if isinstance(fact, LogFact):
                log = transaction.receipt.logs[fact.log]
                yield ShownReceiptPart(index, tx_hash, log, fact.log), log.hash, proof
            else:
                number = facts.receipt_number(transaction.receipt, fact.field) or 0
                yield ShownReceiptPart(index, tx_hash, fact.field, None), number.to_bytes(32), proof


def _invalid(sentence: str, *place: str | int) -> ApiError:
    """Return the error of a value of the request."""
    return ApiError(400, INVALID, sentence, faults=[BodyFault(pointer(*place), sentence)])
