"""The two parts of a path that leads over a rollup's parent chain: first a slot of its Outbox, then the rollup's block.

The number of statements does not grow with the number of blocks.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db.models import OuterRef, Prefetch, Q, Subquery

from chains.chains_file import Connection
from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from config.json_objects import JsonObject, Wei
from explorer.batch import transaction_display
from explorer.batch.paths_to_blocks import ShownPath
from explorer.batch.transaction_display import ShownTransaction
from proving.models import ChainHead, FactsRegistry, ParentFact, SignedTransaction, TransactionState
from queries.models import Batch, BatchStatus, Block, Query, StepKind, StepStatus


@dataclass(frozen=True)
class ShownPart(JsonObject):
    """One part. Of the first, the registry holds the slot's value; of the second, the state of the query's block."""

    chain: ChainName  # that it is about
    status: str  # of `StepStatus`, or STOPPED, or empty: not begun
    block_number: int | None  # the parent's, at which the slot is proven, or the rollup's that it vouches for
    facts_registry: str  # an address; empty: not deployed yet
    account: str  # the Outbox; empty in the second part, like the slot
    slot: str  # empty also while it isn't known
    gas: int | None  # of the first part as estimated, of the second what remains; None: not known
    cost: Wei | None  # of that gas, in the destination's currency, once it is mined
    transactions: tuple[ShownTransaction, ...]  # one with both parts is in both
    on_another_path: bool = False  # the transaction was sent for another block, and counts there


_Parts = tuple[ShownPart, ShownPart]


def of_queries(
    batch: Batch,
    queries: Collection[Query],
    paths: Mapping[int, ShownPath],
    held_by: Mapping[int, FactsRegistry],
    *,
    destination: ChainName,
    head: ChainHead | None,
) -> Mapping[int, _Parts]:
    """Return the parts of the paths to the blocks of those queries that lead over a parent chain, by the queries' ids.

    `paths` are by the blocks' primary keys. `held_by` is that of `query_cards.cards`.
    """
    chains = {query.source_chain_id for query in queries}
    connections = {chain: get_chains().connection(chain, destination.id) for chain in chains}
    over = {chain: one for chain, one in connections.items() if one is not None and one.parent_id is not None}
    # A batch that was rejected before it was checked has nothing to be shown of.
    asked = [query for query in queries if query.source_chain_id in over and query.block is not None]
    if not asked:
        return {}
    facts = _facts_for({query.block_id for query in asked if query.block_id is not None}, destination.id)
    parents = {
        row.source_chain_id: row.address
        for row in FactsRegistry.in_use.filter(
            destination_chain_id=destination.id, source_chain_id__in={one.parent_id for one in over.values()}
        )
    }
    found: dict[int, _Parts] = {}
    for query in asked:
        connection = over[query.source_chain_id]
        assert query.block_id is not None, "it is one of these"
        known, path = facts.get(query.block_id), paths.get(query.block_id)
        first, second = _unproven(connection, parents, held_by)
        shown = None
        if known:
            fact = known.fact
            shown = transaction_display.shown(fact.transaction.latest_hash, fact.transaction, destination, head)
            first = replace(first, block_number=fact.block_number, facts_registry=fact.registry.address, slot=fact.slot)
            second = replace(second, block_number=fact.vouches_for)
            first, second = _with_transactions(first, second, known, shown, path.transactions if path else ())
        found[query.pk] = _with_status(batch, query, first, second, shown)
    return found


@dataclass(frozen=True)
class _Known:
    """The fact about the parent chain that a path to a block begins with, proven or sent to be."""

    fact: ParentFact
    is_own: bool  # by a transaction of a path to the block; otherwise for the nearest block from it on


def _facts_for(blocks: Collection[int], destination: int) -> Mapping[int, _Known]:
    tried = ParentFact.objects.exclude(
        Q(transaction__succeeded=False) | Q(transaction__state=TransactionState.DISPLACED)
    )
    own = tried.filter(transaction__queries__block=OuterRef("pk")).order_by("-transaction")
    before = ParentFact.objects.filter(
        transaction__succeeded=True,
        transaction__extends__destination_chain_id=destination,
        transaction__extends__source_chain_id=OuterRef("source_chain_id"),
        transaction__extends__replaced_at=None,
        vouches_for__gte=OuterRef("number"),
    ).order_by("vouches_for")
    rows = Block.objects.filter(pk__in=blocks).values_list(
        "pk", Subquery(own.values("pk")[:1]), Subquery(before.values("pk")[:1])
    )
    chosen = {block: (mine or others, mine is not None) for block, mine, others in rows if mine or others}
    versions = Prefetch("transaction__versions", SignedTransaction.objects.defer("raw"))
    found = ParentFact.objects.select_related("registry", "transaction").defer("transaction__data")
    facts = found.prefetch_related(versions).in_bulk({pk for pk, _ in chosen.values()})
    return {block: _Known(facts[pk], is_own) for block, (pk, is_own) in chosen.items()}


def _unproven(connection: Connection, parents: Mapping[int, str], held_by: Mapping[int, FactsRegistry]) -> _Parts:
    """Return the parts as they are known before anything is sent."""
    assert connection.parent_id is not None, "it leads over a parent chain"
    nothing: Sequence[ShownTransaction] = ()
    own = held_by.get(connection.source_id)
    outbox, registry = str(connection.outbox), parents.get(connection.parent_id, "")
    first = ShownPart(chain_name(connection.parent_id), "", None, registry, outbox, "", None, None, tuple(nothing))
    second = ShownPart(
        chain_name(connection.source_id), "", None, own.address if own else "", "", "", None, None, tuple(nothing)
    )
    return first, second


def _with_transactions(
    first: ShownPart, second: ShownPart, known: _Known, shown: ShownTransaction, path: Sequence[ShownTransaction]
) -> _Parts:
    """Divide the transactions between the parts: one that has proven the slot belongs to both."""
    if not known.is_own:
        gas, cost = _costs(path)
        first = replace(first, transactions=(shown,), on_another_path=True)
        return first, replace(second, transactions=tuple(path), gas=gas, cost=cost)
    # A block that rides along has no path of its own.
    place = next((place for place, tx in enumerate(path) if tx.pk == shown.pk), 0)
    before, after = path[:place], path[place + 1 :]
    in_first, in_second = known.fact.gas, None
    if shown.gas_used is not None and in_first is not None:
        in_first = min(in_first, shown.gas_used)
        in_second = shown.gas_used - in_first
    gas, cost = _costs([*before, replace(shown, gas_used=in_first)])
    first = replace(first, transactions=(*before, shown), gas=gas, cost=cost)
    gas, cost = _costs([replace(shown, gas_used=in_second), *after])
    return first, replace(second, transactions=(shown, *after), gas=gas, cost=cost)


def _costs(transactions: Sequence[ShownTransaction]) -> tuple[int | None, int | None]:
    """Return the gas of all, and what it has cost; None where one of them doesn't tell, or isn't mined."""
    told = [tx for tx in transactions if tx.gas_used is not None]
    if not told or len(told) < len(transactions):
        return None, None
    gas = sum(tx.gas_used or 0 for tx in told)
    if not all(tx.mined_at and tx.gas_price is not None for tx in told):
        return gas, None
    return gas, sum((tx.gas_used or 0) * (tx.gas_price or 0) for tx in told)


def _with_status(
    batch: Batch, query: Query, first: ShownPart, second: ShownPart, shown: ShownTransaction | None
) -> _Parts:
    order = list(StepKind)
    at = len(order) if query.step is None else order.index(StepKind(query.step))
    if at > order.index(StepKind.HEADER_ACCUMULATED):
        return _at(first, StepStatus.COMPLETED), _at(second, StepStatus.COMPLETED)
    running = "STOPPED" if batch.status == BatchStatus.REJECTED else StepStatus.IN_PROGRESS
    if shown is not None:
        is_proven = shown.result == "ok"
        return _at(first, StepStatus.COMPLETED if is_proven else running), _at(second, running)
    return _at(first, running if at >= order.index(StepKind.BLOCKHASH_AVAILABLE) else ""), second


def _at(part: ShownPart, status: str) -> ShownPart:
    return replace(part, status=str(status))
