"""What was sent for blocks, and what waits beside them, as rows tell.

What was sent is read for all blocks at once, in their order.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from django.db.models import Exists, Max, OuterRef, Q, QuerySet

from database import row_locks
from database.statements import chunks
from proving import facts
from proving.facts import Fact
from proving.models import LIVE_STATES, SignedTransaction, Transaction, proves_facts
from proving.registry.deployments import Deployment
from queries.models import ADMITTED_STATUSES, Block, Query, Sender, StepKind

# Rows named in one statement, and read at a time.
_PER_STATEMENT, _PER_READ = 500, 1000

_queries_of = Transaction.queries.through.objects
_accumulated_blocks = Transaction.accumulates.through.objects


def accumulated_by(registry: Deployment, blocks: Sequence[Block]) -> dict[int, str]:
    """Return the hash of the transaction of ours that brought the header to the registry, where one did."""
    rows = _accumulated_blocks.filter(
        block__in=blocks, transaction__to__in=registry.addresses, transaction__succeeded=True
    )
    # The first, where there are several.
    return dict(rows.order_by("-transaction").values_list("block", "transaction__hash"))


def unseen(confirmed: int) -> Q:
    """Select transactions that are under way, or mined after the `confirmed` block, at which the chain is read."""
    return Q(state__in=LIVE_STATES) | Q(block_number__gt=confirmed)


def accumulating(blocks: Sequence[Block], confirmed: int) -> set[int]:
    """Return the blocks (ids) whose header a transaction brings that is `unseen`."""
    rows = Transaction.objects.filter(unseen(confirmed), accumulates__in=blocks)
    return set(rows.values_list("accumulates", flat=True))


def facts_under_way(blocks: Sequence[Block], confirmed: int) -> dict[int, set[Fact]]:
    """Return, by the block's id, facts that transactions that are `unseen` may prove already, for other queries."""
    sent = Transaction.objects.filter(unseen(confirmed), proves_facts("queries__block"), queries=OuterRef("pk"))
    found: dict[int, set[Fact]] = {block.pk: set() for block in blocks}
    for query in Query.objects.filter(Exists(sent), block__in=blocks).iterator(chunk_size=_PER_READ):
        found[query.block_id or 0].update(facts.of(query))
    return found


def newest_under_way(blocks: Sequence[Block]) -> dict[int, Transaction]:
    """Return, by the block's id, the newest transaction under way for its queries, whatever it does, without data."""
    sent = _queries_of.filter(query__block__in=blocks, transaction__state__in=LIVE_STATES).order_by()
    newest = dict(sent.values_list("query__block").annotate(newest=Max("transaction")))
    rows = Transaction.objects.filter(pk__in=newest.values()).defer("data").prefetch_related("versions")
    by_pk = {tx.pk: tx for tx in rows} if newest else {}
    return {block: by_pk[tx] for block, tx in newest.items() if tx in by_pk}


def proven_by(registry: Deployment, queries: Collection[int]) -> dict[int, str]:
    """Return, by a query's id, the hash of our mined transaction that proved it to the registry, if any did."""
    proving = proves_facts("query__block", "transaction")
    sent_here = _queries_of.filter(transaction__to__in=registry.addresses)
    hashes: dict[int, str] = {}
    for chunk in chunks(sorted(queries), _PER_STATEMENT):
        mined = sent_here.filter(proving, query__in=chunk, transaction__succeeded=True).order_by("pk")
        hashes |= dict(mined.values_list("query", "transaction__hash"))
    return hashes


def failures(asking: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Count, by the block's id, the transactions for these queries of it, the first few hundred, that reverted."""
    firsts = {block: queries[:_PER_STATEMENT] for block, queries in asking.items()}
    reverted: dict[int, set[int]] = defaultdict(set)
    # One that was cancelled, because nobody wanted it any more, says nothing.
    cancelled = SignedTransaction.objects.filter(
        transaction=OuterRef("transaction"), hash=OuterRef("transaction__hash"), is_cancellation=True
    )
    sent_for = _queries_of.filter(~Exists(cancelled), transaction__succeeded=False)
    for chunk in chunks(sorted({pk for queries in firsts.values() for pk in queries}), _PER_STATEMENT):
        for query, transaction in sent_for.filter(query__in=chunk).values_list("query", "transaction"):
            reverted[query].add(transaction)
    return {
        block: len(set[int]().union(*(reverted[pk] for pk in queries if pk in reverted)))
        for block, queries in firsts.items()
    }


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


def first_for_path(blocks: Sequence[Block]) -> int | None:
    """Return which block is to have the next path: of these and those that wait for one on their connection, that of
    the oldest batch, and of this the lowest.

    Others lack what a path takes.
    """
    others = Q(block__waits_for_path=True, block__attempts=0, block__due_at__isnull=False)
    waiting = _waiting(blocks[0]).filter(Q(block__in=blocks) | others, batch__sender=Sender.OPERATOR)
    return waiting.order_by("batch", "block__number").values_list("block", flat=True).first()


def _waiting(block: Block) -> QuerySet[Query]:
    """Return the queries of the block's connection that may need a header."""
    return Query.objects.filter(
        step__in=[StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED],
        block__destination_chain_id=block.destination_chain_id,
        block__source_chain_id=block.source_chain_id,
        batch__status__in=ADMITTED_STATUSES,
    )
