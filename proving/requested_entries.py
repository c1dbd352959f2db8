"""The source chain's transactions that queries are about, as answers and files tell them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chains.receipts import ReceiptLog, TransactionReceipt
from proving.models import ProvenTransaction
from queries.models import Query, QueryKind


@dataclass(frozen=True)
class RequestedEntry:
    """A transaction as far as it is known, and its logs."""

    index: int | None
    """Its index in the block. None: not known yet."""
    hash: str
    """0x…, as the request names it, or by the trie of transactions. Empty: neither tells it."""
    logs: Sequence[ReceiptLog] = ()
    """The logs of its receipt. Empty: they may not be told yet."""

    def log(self, index: int) -> ReceiptLog | None:
        """Return the log with this index within the receipt, if it may be told."""
        return self.logs[index] if index < len(self.logs) else None


def entries_of(may_be_told: Mapping[Query, bool]) -> dict[int, RequestedEntry]:
    """Return the transactions of those of these queries that are about one, by the query's id.

    `may_be_told` has whether the query's values may be told. One statement reads all that are stored.
    """
    pairs = {_pair(query) for query, is_told in may_be_told.items() if query.kind == QueryKind.ENTRY and is_told}
    receipts: dict[tuple[int | None, int | None], tuple[str, TransactionReceipt]] = {}
    if pairs:
        rows = ProvenTransaction.objects.filter(
            block__in={block for block, _ in pairs}, index__in={index for _, index in pairs}
        )
        for row in rows.iterator():
            if (pair := (row.block_id, row.index)) in pairs:
                receipts[pair] = row.hash, TransactionReceipt.stored(bytes(row.receipt))
    transactions = {}
    for query, is_told in may_be_told.items():
        if query.kind != QueryKind.ENTRY:
            continue
        known = receipts.get(_pair(query)) if is_told else None  # another query may be about the same transaction
        named = query.transaction_name if query.transaction_name.startswith("0x") else ""
        tx_hash, logs = (known[0], known[1].logs) if known else ("", ())
        transactions[query.pk] = RequestedEntry(query.transaction_index, named or tx_hash, logs)
    return transactions


def _pair(query: Query) -> tuple[int | None, int | None]:
    return query.block_id, query.transaction_index
