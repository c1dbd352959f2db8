"""The parts of a bundle that prove transactions, receipts and logs, made from the stored tries of their blocks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from eth_utils.crypto import keccak

from api.bundles import Changed
from api.fact_schema import log_json
from chains import packed_entries
from chains.encoding import hex_data
from chains.receipts import TransactionReceipt
from proving import facts
from proving.facts import EntryFact, LogFact
from proving.models import BlockTrie
from queries.columns import HeaderField
from queries.models import Query, QueryKind

_NONE: dict[str, Any] = {"transaction": None, "receiptProof": None, "transactionProof": None, "logs": {}}

_Tries = Mapping[HeaderField, Sequence[bytes]]
_Nodes = Mapping[HeaderField, Mapping[int, Sequence[bytes]]]


def parts(queries: Sequence[Query], take: Callable[[Sequence[str]], list[int]]) -> Iterator[dict[str, Any]]:
    """Yield what the bundle has of each query's transaction, in order. `facts` is left out where there is none.

    `take` returns the places of nodes. The tries of one block at a time are in memory. Raises `Changed`.
    """
    for block, following in groupby(queries, key=lambda query: query.block_id):
        of_block = list(following)
        indexes: dict[HeaderField, list[int]] = {}
        for query in of_block:
            for root in _roots(query):
                indexes.setdefault(root, []).append(query.transaction_index or 0)
        rows = BlockTrie.objects.filter(block=block, root__in=indexes) if indexes else ()
        tries = {HeaderField(row.root): row.values for row in rows}
        if tries.keys() != indexes.keys():
            raise Changed("The receipts of a block are not stored any more.")
        nodes = {root: packed_entries.nodes(values, indexes[root]) for root, values in tries.items()}
        for query in of_block:
            yield _of_transaction(query, tries, nodes, take) if query.kind == QueryKind.ENTRY else _NONE


def _roots(query: Query) -> set[HeaderField]:
    """Return the roots below which the query's transaction is proven. One that is named by its hash has its hash so."""
    by_hash = {HeaderField.TRANSACTIONS_ROOT} if query.transaction_name.startswith("0x") else set()
    return by_hash | {root.field for root in facts.roots_of(facts.of(query))}


def _of_transaction(
    query: Query, tries: _Tries, nodes: _Nodes, take: Callable[[Sequence[str]], list[int]]
) -> dict[str, Any]:
    index, roots = query.transaction_index or 0, _roots(query)
    of_receipt, of_transaction = (
        (tries[root][index], take(list(map(hex_data, nodes[root][index])))) if root in roots else (None, None)
        for root in (HeaderField.RECEIPTS_ROOT, HeaderField.TRANSACTIONS_ROOT)
    )
    receipt = TransactionReceipt.stored(of_receipt[0]) if of_receipt[0] else None
    tx_hash = hex_data(keccak(of_transaction[0])) if of_transaction[0] else ""
    words, logs = dict[str, str](), dict[str, dict[str, Any]]()
    for fact in facts.of(query):
        if isinstance(fact, EntryFact | LogFact) and (word := facts.entry_word(fact, receipt, tx_hash)):
            if isinstance(fact, EntryFact):
                words[facts.name(fact)] = hex_data(word)
            elif receipt:
                logs[str(fact.log)] = {"word": hex_data(word), **log_json(receipt.logs[fact.log])}
    return {
        "transaction": {"index": str(index), "hash": tx_hash or None},
        "receiptProof": of_receipt[1],
        "transactionProof": of_transaction[1],
        "facts": words,
        "logs": logs,
    }
