"""Proven values of queries, as pages, answers and files tell them. Each stored proof is read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from chains.nodes.receipts import ReceiptLog, TransactionReceipt
from proving import facts
from proving.facts import Fact
from proving.models import ProvenTransaction
from queries.models import Block, Query, QueryKind


@dataclass(frozen=True)
class RequestedEntry:
    """A transaction of the source chain as far as it is known, and its logs."""

    index: int | None
    """Its index in the block. None: not known yet."""
    hash: str
    """0x…, as the request names it, or by the trie of transactions. Empty: neither tells it."""
    logs: Sequence[ReceiptLog] = ()
    """The logs of its receipt. Empty: they may not be told yet."""

    @classmethod
    def of(cls, query: Query, stored: ProvenTransaction | None = None) -> Self:
        """Return the transaction that the query is about, with what is `stored` of it if that may be told."""
        named = query.transaction_name if query.transaction_name.startswith("0x") else ""
        if stored is None:
            return cls(query.transaction_index, named)
        logs = TransactionReceipt.stored(bytes(stored.receipt)).logs
        return cls(query.transaction_index, named or stored.hash, logs)

    def log(self, index: int) -> ReceiptLog | None:
        """Return the log with this index within the receipt, if it may be told."""
        return self.logs[index] if index < len(self.logs) else None


@dataclass(frozen=True)
class QueryValues:
    """The values that may be told of a query."""

    words: Mapping[Fact, bytes] = field(default_factory=dict)
    """The 32-byte words of the facts that have a stored proof."""
    entry: RequestedEntry | None = None
    """None: the query isn't about one."""

    @classmethod
    def untold(cls, query: Query) -> Self:
        """Return what the request tells of a query whose facts may not be told."""
        return cls(entry=RequestedEntry.of(query) if query.kind == QueryKind.ENTRY else None)


def read(told: Mapping[Query, Sequence[Fact]]) -> dict[int, QueryValues]:
    """Return the values of these facts of queries, by the query's id. The facts may be told (`facts.may_be_told`).

    The number of statements doesn't grow with the number of queries.
    """
    by_block: dict[Block, list[Fact]] = {}
    for query, asked in told.items():
        if query.block is not None:
            by_block.setdefault(query.block, []).extend(asked)
    places = {query: (query.block_id, query.transaction_index) for query in told if query.kind == QueryKind.ENTRY}
    entries: dict[tuple[int | None, int | None], ProvenTransaction] = {
        (row.block_id, row.index): row for row in facts.stored_entries(set(places.values()))
    }
    words = facts.proven(by_block, entries.values())
    values: dict[int, QueryValues] = {}
    for query, asked in told.items():
        known = words.get(query.block_id or 0, {})
        entry = RequestedEntry.of(query, entries.get(places[query])) if query in places else None
        values[query.pk] = QueryValues({fact: known[fact] for fact in asked if fact in known}, entry)
    return values
