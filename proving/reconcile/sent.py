"""What was sent for blocks, and what waits beside them, as rows tell.

What was sent is read for all blocks at once, in their order.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from database import row_locks
from database.chunks import chunks
from proving import facts
from proving.facts import Fact
from proving.models import LIVE_STATES, Transaction, proves_facts
from proving.registry.deployments import Deployment
from queries.models import BatchStatus, Block, Query, Sender, StepKind

# Rows named in one statement, and read at a time.
_PER_STATEMENT, _PER_READ = 500, 1000

_queries_of = Transaction.queries.through.objects
_accumulated_blocks = Transaction.accumulates.through.objects


def accumulated_by(registry: Deployment, blocks: Sequence[Block]) -> list[str]:
    """Return the hash of the transaction of ours that brought the header to the registry; empty if none did."""
    rows = _accumulated_blocks.filter(
        block__in=blocks, transaction__to__in=registry.addresses, transaction__succeeded=True
    )
    # The first, where there are several.
    found = dict(rows.order_by("-transaction").values_list("block", "transaction__hash"))
    return [found.get(block.pk, "") for block in blocks]


def is_under_way(blocks: Sequence[Block]) -> list[bool]:
    """Return whether any transaction is under way for queries of the block, or with its header."""
    sent = _queries_of.filter(query__block__in=blocks, transaction__state__in=LIVE_STATES)
    carry = _accumulated_blocks.filter(block__in=blocks, transaction__state__in=LIVE_STATES)
    found = set(sent.order_by().values_list("query__block").union(carry.order_by().values_list("block")))
    return [(block.pk,) in found for block in blocks]


def is_accumulating(blocks: Sequence[Block]) -> list[bool]:
    """Return whether a transaction that brings the header is under way."""
    rows = _accumulated_blocks.filter(block__in=blocks, transaction__state__in=LIVE_STATES)
    found = set(rows.values_list("block", flat=True))
    return [block.pk in found for block in blocks]


def facts_under_way(blocks: Sequence[Block]) -> list[Collection[Fact]]:
    """Return the facts that transactions that are under way may prove already, for other queries."""
    live = Transaction.objects.filter(proves_facts("queries__block"), queries=OuterRef("pk"), state__in=LIVE_STATES)
    found: dict[int | None, set[Fact]] = defaultdict(set)
    for query in Query.objects.filter(Exists(live), block__in=blocks).iterator(chunk_size=_PER_READ):
        found[query.block_id].update(facts.of(query))
    return [found[block.pk] for block in blocks]


def newest_under_way(blocks: Sequence[Block]) -> list[Transaction | None]:
    """Return the newest transaction under way for a query of the block, whatever it does, without its data."""
    sent = _queries_of.filter(query__block__in=blocks, transaction__state__in=LIVE_STATES).order_by()
    newest = dict(sent.values_list("query__block").annotate(newest=Max("transaction")))
    rows = Transaction.objects.filter(pk__in=newest.values()).defer("data").prefetch_related("versions")
    by_pk = {tx.pk: tx for tx in rows} if newest else {}
    return [by_pk.get(newest.get(block.pk, 0)) for block in blocks]


def proven_by(registry: Deployment, several: Sequence[Collection[int]]) -> list[Mapping[int, str]]:
    """Return, by a query's id, the hash of our mined transaction that proved it to the registry, if any did."""
    proving = proves_facts("query__block", "transaction")
    sent_here = _queries_of.filter(transaction__to__in=registry.addresses)
    hashes: dict[int, str] = {}
    for chunk in chunks(sorted({pk for queries in several for pk in queries}), _PER_STATEMENT):
        mined = sent_here.filter(proving, query__in=chunk, transaction__succeeded=True).order_by("pk")
        hashes |= dict(mined.values_list("query", "transaction__hash"))
    return [{pk: hashes[pk] for pk in queries if pk in hashes} for queries in several]


def failures(several: Sequence[Sequence[int]]) -> list[int]:
    """Count the transactions for these queries, the first few hundred, that reverted."""
    firsts = [queries[:_PER_STATEMENT] for queries in several]
    reverted: dict[int, set[int]] = defaultdict(set)
    sent_for = _queries_of.filter(transaction__succeeded=False)
    for chunk in chunks(sorted({pk for queries in firsts for pk in queries}), _PER_STATEMENT):
        for query, transaction in sent_for.filter(query__in=chunk).values_list("query", "transaction"):
            reverted[query].add(transaction)
    return [len(set().union(*(reverted[pk] for pk in queries if pk in reverted))) for queries in firsts]


# --- What waits for a path --------------------------------------------------------------------------------------------


def waiting_beside(block: Block, queries: Collection[int]) -> Mapping[int, Collection[int]]:
    """Return other queries (ids) of the batch of these that wait for blocks' hashes, by the blocks' numbers.

    None where these are of several batches: each would pay for the stops of the others.
    """
    batches = set(Query.objects.filter(pk__in=queries).order_by().values_list("batch", flat=True).distinct()[:2])
    if len(batches) > 1:
        return {}
    waiting = _waiting(block).exclude(block=block).filter(batch__in=batches).order_by("pk")
    found: dict[int, list[int]] = defaultdict(list)
    for pk, number, timestamp in waiting.values_list("pk", "block__number", "timestamp")[:_PER_READ]:
        # Only the next block's header says when a block ended.
        found[number if timestamp is None else number + 1].append(pk)
    return found


def give_way(block: Block, batches: Collection[str]) -> None:
    """Let no block of these batches go first for a path on the block's connection, until it asks for one again."""
    waiting = _waiting(block).filter(batch__in=batches).order_by().values("block")
    rows = Block.objects.filter(pk__in=waiting, waits_for_path=True)
    row_locks.retried(partial(rows.update, waits_for_path=False))


def is_first(block: Block) -> bool:
    """Return whether the block is of the oldest batch of those that wait for a path on its connection, or the lowest.

    Others lack what a path takes.
    """
    others = Q(block__waits_for_path=True, block__attempts=0, block__due_at__isnull=False)
    waiting = _waiting(block).filter(Q(block=block) | others, batch__sender=Sender.OPERATOR)
    first = waiting.order_by("batch", "block__number").values_list("block", flat=True).first()
    return first in {None, block.pk}


def _waiting(block: Block) -> QuerySet[Query]:
    """Return the queries of the block's connection that may need a header."""
    return Query.objects.filter(
        is_admitted=True,
        step__in=[StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED],
        block__destination_chain_id=block.destination_chain_id,
        block__source_chain_id=block.source_chain_id,
        batch__status__in=[BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS],
    )
