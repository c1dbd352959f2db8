"""The writing of proof bundles, of a whole batch or of one query, part by part.

The proofs of a batch with 10,000 accounts take tens of megabytes, so its nodes are never all in memory. Digests of the
written nodes are kept, so that no node is written twice. The number of statements grows with the number of parts.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Any

from django.db.models import Exists, Min, OuterRef, Q, QuerySet
from eth_utils.crypto import keccak

from api.bundles import FORMAT, Changed
from api.fact_schema import log_json
from chains.encoding import hex_data
from chains.nodes.receipts import TransactionReceipt
from chains.tries import packed_entries
from chains.tries.header import Header
from config.database.statements import by_size, chunks
from proving import facts
from proving.facts import EntryFact, LogFact
from proving.models import AccountProof, BlockTrie, SlotProof
from proving.registries import deployments
from queries import query_rows
from queries.columns import EntryField, HeaderField
from queries.models import Batch, BatchStatus, Block, Query, QueryKind

# Number of queries, blocks or proofs that are read in one statement.
_CHUNK = 500
_DIGEST_BYTES = 16


def is_there(queries: QuerySet[Query]) -> bool:
    """Return whether the headers and proofs of all these completed queries are stored.

    It takes one statement.
    """
    proof = AccountProof.objects.filter(block=OuterRef("block"), address=OuterRef("address"))
    lacks_proof = Q(kind=QueryKind.ACCOUNT) & ~Exists(proof)
    tries = BlockTrie.objects.filter(block=OuterRef("block"))
    only_hash = Q(fields=1 << EntryField.HASH, logs=[], block_logs=[])
    shows_hash = Q(transaction_name__startswith="0x") | Q(fields__gte=1 << EntryField.HASH)
    lacks_receipts = ~only_hash & ~Exists(tries.filter(root=HeaderField.RECEIPTS_ROOT))
    lacks_transactions = shows_hash & ~Exists(tries.filter(root=HeaderField.TRANSACTIONS_ROOT))
    lacks_trie = Q(kind=QueryKind.ENTRY) & (lacks_receipts | lacks_transactions)
    return not queries.filter(Q(block__header_rlp=None) | lacks_proof | lacks_trie).exists()


def parts(batch: Batch, queries: QuerySet[Query]) -> Iterator[bytes]:
    """Yield the bundle of these completed queries of the batch, as JSON.

    Raises `Changed` if the batch changes meanwhile. The parts until then are not valid JSON.
    """
    beginning = {"format": FORMAT, "batch": batch.pk, "destinationChainId": str(batch.destination_chain_id)}
    yield f"{json.dumps(beginning)[:-1]},\n".encode()
    block_ids = _block_ids(queries)
    yield from _listed("blocks", _blocks(batch, queries, block_ids))
    yield b",\n"
    items: list[dict[str, Any]] = []
    yield from _listed("nodes", _nodes(queries, {pk: at for at, pk in enumerate(block_ids)}, items))
    yield b",\n"
    yield from _listed("queries", chunks(items, _CHUNK))
    _require_unchanged(batch)
    yield b"}\n"


def _listed(name: str, parts_of_it: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield an entry of the JSON object whose value is a list, one item per line."""
    yield f'"{name}": ['.encode()
    separator = "\n"
    for items in parts_of_it:
        if items:
            lines = ",\n".join(json.dumps(item, ensure_ascii=False) for item in items)
            yield f"{separator}{lines}".encode()
            separator = ",\n"
    yield b"\n]"


def _require_unchanged(batch: Batch) -> None:
    """Check that the batch is unchanged. Raises `Changed`.

    A batch is marked before its proofs are removed. Its headers may change after a rollback.
    """
    now = query_rows.find_batch(batch.pk)
    if (
        now is None
        or now.proofs_pruned_at is not None
        or now.went_back_at != batch.went_back_at
        or (batch.status == BatchStatus.DONE and (now.status, now.finished_at) != (batch.status, batch.finished_at))
    ):
        raise Changed(f"The batch {batch.pk} has changed while its bundle was written.")


# --- Blocks -----------------------------------------------------------------------------------------------------------


def _block_ids(queries: QuerySet[Query]) -> list[Any]:
    """Return the ids of the queries' blocks, in the order of the first query about each."""
    by_block = queries.order_by().values("block").annotate(first=Min("position"))
    return list(by_block.order_by("first").values_list("block", flat=True))


def _blocks(batch: Batch, queries: QuerySet[Query], block_ids: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    chains = queries.order_by().values_list("source_chain_id", flat=True).distinct()
    rows = deployments.all_of(batch.destination_chain_id, chains)
    registries = {chain: row.address for chain, row in deployments.of_batch(batch, rows).items()}
    for ids in chunks(block_ids, _CHUNK):
        blocks = Block.objects.in_bulk(ids)
        yield [_block(blocks[pk], registries) for pk in ids]


def _block(block: Block, registries: dict[int, str]) -> dict[str, Any]:
    if block.header_rlp is None:
        raise Changed(f"The header of {block} is no longer stored.")
    return {
        "sourceChainId": str(block.source_chain_id),
        "blockNumber": str(block.number),
        "blockHash": block.hash,
        "header": hex_data(bytes(block.header_rlp)),
        "nextHeader": None,
        "factsRegistry": registries.get(block.source_chain_id),
    }


# --- Queries ----------------------------------------------------------------------------------------------------------


class _Pool:
    """The written nodes, by their digests."""

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}

    def take(self, new: list[str], nodes: Sequence[str]) -> list[int]:
        """Return the indexes of the nodes. Nodes that are not in the pool yet are added to `new`."""
        taken = []
        for node in nodes:
            digest = hashlib.blake2b(node.encode(), digest_size=_DIGEST_BYTES).digest()
            place = self._places.get(digest)
            if place is None:
                place = self._places[digest] = len(self._places)
                new.append(node)
            taken.append(place)
        return taken


def _nodes(queries: QuerySet[Query], places: Mapping[int, int], items: list[dict[str, Any]]) -> Iterator[Sequence[str]]:
    """Yield the nodes of all proofs in several lists, and add the bundle's entry of each query to `items`.

    `places` has the indexes of blocks by their ids.
    """
    pool = _Pool()
    for ids in chunks(list(queries.order_by("position").values_list("pk", flat=True)), _CHUNK):
        rows = Query.objects.filter(pk__in=ids).order_by("position").prefetch_related("block")
        for several in by_size(rows, lambda query: 1 + len(query.slots), _CHUNK):
            accounts = _accounts(several)
            slots = _slots(several, accounts)
            new: list[str] = []
            for query, entry in zip(several, _entries(several), strict=True):
                proven = accounts.get(_pair(query)) or entry
                items.append(_query(query, places, proven, slots, partial(pool.take, new)))
            yield new


def _pair(query: Query) -> tuple[int | None, str]:
    return query.block_id, query.address


def _accounts(queries: Sequence[Query]) -> dict[tuple[int | None, str], AccountProof]:
    """Return the account proofs by (block's id, address). Raises `Changed`."""
    pairs = {_pair(query) for query in queries if query.kind == QueryKind.ACCOUNT}
    proofs: dict[tuple[int | None, str], AccountProof] = {}
    if pairs:
        blocks, addresses = {block for block, _ in pairs}, {address for _, address in pairs}
        # The first statement also finds proofs of these accounts at other batches' blocks. Only the needed proofs are
        # read.
        near = AccountProof.objects.filter(block__in=blocks, address__in=addresses).values_list(
            "pk", "block_id", "address"
        )
        ids = [pk for pk, *pair in near if tuple(pair) in pairs]
        proofs = {(proof.block_id, proof.address): proof for proof in AccountProof.objects.filter(pk__in=ids)}
    if len(proofs) < len(pairs):
        raise Changed("The proof of an account is no longer stored.")
    return proofs


def _slots(queries: Sequence[Query], accounts: Mapping[tuple[int | None, str], AccountProof]) -> Iterator[SlotProof]:
    """Yield the slots of each query with their proofs, in the queries' order. Raises `Changed`."""
    pairs = [(accounts[_pair(query)].pk, slot) for query in queries for slot in query.slots]
    for several in chunks(pairs, _CHUNK):
        needed = set(several)
        near = SlotProof.objects.filter(
            account__in={account for account, _ in needed}, slot__in={slot for _, slot in needed}
        ).values_list("pk", "account_id", "slot")
        ids = [pk for pk, *pair in near if tuple(pair) in needed]
        proofs = {(proof.account_id, proof.slot): proof for proof in SlotProof.objects.filter(pk__in=ids)}
        for pair in several:
            if pair not in proofs:
                raise Changed("The proof of a slot is no longer stored.")
            yield proofs[pair]


@dataclass(frozen=True)
class _ProvenValue:
    """A receipt or transaction, and the nodes from the root to it."""

    value: bytes
    nodes: Sequence[str]


# A transaction's values that a query needs, by the roots that prove them.
_Entry = Mapping[HeaderField, _ProvenValue]


def _entries(queries: Sequence[Query]) -> Iterator[_Entry | None]:
    """Yield the transaction of each query, or None for one that is about none, in the queries' order.

    The tries of one block at a time are in memory. Raises `Changed`.
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
            raise Changed("The receipts of a block are no longer stored.")
        nodes = {root: packed_entries.nodes(values, indexes[root]) for root, values in tries.items()}
        for query in of_block:
            index = query.transaction_index or 0
            entry = {
                root: _ProvenValue(tries[root][index], list(map(hex_data, nodes[root][index])))
                for root in _roots(query)
            }
            yield entry if query.kind == QueryKind.ENTRY else None


def _roots(query: Query) -> set[HeaderField]:
    """Return the roots below which the query's transaction is proven. One that is named by its hash has its hash so."""
    by_hash = {HeaderField.TRANSACTIONS_ROOT} if query.transaction_name.startswith("0x") else set()
    return by_hash | {root.field for root in facts.roots_of(facts.of(query))}


def _query(
    query: Query,
    places: Mapping[int, int],
    proven: AccountProof | _Entry | None,
    slots: Iterator[SlotProof],
    take: Callable[[Sequence[str]], list[int]],
) -> dict[str, Any]:
    """Return the bundle's entry of a query. `proven` has its account or transaction; None: it is about the header.

    It takes as many proofs from `slots` as the query has slots. Raises `Changed`.
    """
    block = query.block
    if block is None or block.header_rlp is None or block.pk not in places:
        raise Changed(f"The header of query {query.position + 1} is no longer stored.")
    item: dict[str, Any] = {
        "number": query.position + 1,
        "block": places[block.pk],
        "selector": query.selector,
        "account": query.address or None,
        "name": query.name or None,
        "accountProof": None,
        "facts": {},
        "slots": {},
        "timestamp": None if query.timestamp is None else str(query.timestamp),
        "transaction": None,
        "receiptProof": None,
        "transactionProof": None,
        "logs": {},
    }
    match proven:
        case None:
            header = facts.header_words(Header.decode(bytes(block.header_rlp)))
            item["facts"] = {field.name: hex_data(header[field]) for field in query.header_fields}
        case AccountProof():
            item["accountProof"] = take(proven.nodes)
            properties = facts.account_words(proven)
            item["facts"] = {field.name: hex_data(properties[field]) for field in query.account_fields}
            item["slots"] = {
                proof.slot: {"word": hex_data(proof.value.to_bytes(32)), "proof": take(proof.nodes)}
                for proof in islice(slots, len(query.slots))
            }
        case _:
            _add_entry(item, query, proven, take)
    return item


def _add_entry(item: dict[str, Any], query: Query, entry: _Entry, take: Callable[[Sequence[str]], list[int]]) -> None:
    receipt, transaction = entry.get(HeaderField.RECEIPTS_ROOT), entry.get(HeaderField.TRANSACTIONS_ROOT)
    item["receiptProof"] = take(receipt.nodes) if receipt else None
    item["transactionProof"] = take(transaction.nodes) if transaction else None
    tx_hash = hex_data(keccak(transaction.value)) if transaction else ""
    item["transaction"] = {"index": str(query.transaction_index or 0), "hash": tx_hash or None}
    stored = TransactionReceipt.stored(receipt.value) if receipt else None
    for fact in facts.of(query):
        if not isinstance(fact, EntryFact | LogFact) or not (word := facts.entry_word(fact, stored, tx_hash)):
            continue
        if isinstance(fact, EntryFact):
            item["facts"][facts.name(fact)] = hex_data(word)
        elif stored:
            item["logs"][str(fact.log)] = {"word": hex_data(word), **log_json(stored.logs[fact.log])}
