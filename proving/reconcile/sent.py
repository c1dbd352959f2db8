"""What was sent for a block, as rows tell: read at once for all blocks that are observed side by side."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from django.db.models import Exists, Max, OuterRef

from chains import together
from database.chunks import chunks
from proving import facts
from proving.facts import Fact
from proving.models import LIVE_STATES, Transaction, proves_facts
from proving.registry.deployments import Deployment
from queries.models import Block, Query

# Rows named in one statement, and read at a time.
_PER_STATEMENT, _PER_READ = 500, 1000

Found = TypeVar("Found")


def accumulated_by(block: Block, registry: Deployment) -> str:
    """Return the hash of the transaction of ours that brought the header to the registry; empty if none did."""

    def read(blocks: Sequence[int]) -> Mapping[int, str]:
        rows = Transaction.accumulates.through.objects.filter(
            block__in=blocks, transaction__to__in=registry.addresses, transaction__succeeded=True
        )
        # The first, where there are several.
        return dict(rows.order_by("-transaction").values_list("block", "transaction__hash"))

    return _of_block(("accumulated by", registry.addresses), block, read, "")


def is_under_way(block: Block) -> bool:
    """Return whether any transaction is under way for queries of the block, or with its header."""

    def read(blocks: Sequence[int]) -> Mapping[int, bool]:
        sent = Transaction.queries.through.objects.filter(query__block__in=blocks, transaction__state__in=LIVE_STATES)
        carry = Transaction.accumulates.through.objects.filter(block__in=blocks, transaction__state__in=LIVE_STATES)
        found = sent.order_by().values_list("query__block").union(carry.order_by().values_list("block"))
        return {block: True for (block,) in found}

    return _of_block("is under way", block, read, False)


def is_accumulating(block: Block) -> bool:
    """Return whether a transaction that brings the header is under way."""

    def read(blocks: Sequence[int]) -> Mapping[int, bool]:
        rows = Transaction.accumulates.through.objects.filter(block__in=blocks, transaction__state__in=LIVE_STATES)
        return dict.fromkeys(rows.values_list("block", flat=True), True)

    return _of_block("is accumulating", block, read, False)


def facts_under_way(block: Block) -> Collection[Fact]:
    """Return the facts that transactions that are under way may prove already, for other queries."""

    def read(blocks: Sequence[int]) -> Mapping[int, Collection[Fact]]:
        live = Transaction.objects.filter(proves_facts("queries__block"), queries=OuterRef("pk"), state__in=LIVE_STATES)
        found: dict[int, set[Fact]] = defaultdict(set)
        for query in Query.objects.filter(Exists(live), block__in=blocks).iterator(chunk_size=_PER_READ):
            assert query.block_id is not None, "it is one of these"
            found[query.block_id].update(facts.of(query))
        return found

    return _of_block("facts under way", block, read, frozenset[Fact]())


def newest_under_way(block: Block) -> Transaction | None:
    """Return the newest transaction under way for a query of the block, whatever it does, without its data."""

    def read(blocks: Sequence[int]) -> Mapping[int, Transaction]:
        sent = Transaction.queries.through.objects.filter(
            query__block__in=blocks, transaction__state__in=LIVE_STATES
        ).order_by()
        newest = dict(sent.values_list("query__block").annotate(newest=Max("transaction")))
        rows = Transaction.objects.filter(pk__in=newest.values()).defer("data").prefetch_related("versions")
        by_pk = {tx.pk: tx for tx in rows} if newest else {}
        return {block: by_pk[pk] for block, pk in newest.items()}

    return _of_block("newest under way", block, read, None)


def proven_by(queries: Collection[int], registry: Deployment) -> Mapping[int, str]:
    """Return, by a query's id, the hash of our mined transaction that proved it to the registry, if any did."""
    return together.share_work(("proven by", registry.addresses), queries, partial(_proven_by, registry))


def _proven_by(registry: Deployment, several: Sequence[Collection[int]]) -> list[Mapping[int, str]]:
    proving = proves_facts("query__block", "transaction")
    sent_here = Transaction.queries.through.objects.filter(transaction__to__in=registry.addresses)
    hashes: dict[int, str] = {}
    for chunk in chunks(sorted({pk for queries in several for pk in queries}), _PER_STATEMENT):
        mined = sent_here.filter(proving, query__in=chunk, transaction__succeeded=True).order_by("pk")
        hashes |= dict(mined.values_list("query", "transaction__hash"))
    return [{pk: hashes[pk] for pk in queries if pk in hashes} for queries in several]


def failures(queries: Sequence[int]) -> int:
    """Count the transactions for these queries, the first few hundred, that reverted."""
    return together.share_work("failures", queries[:_PER_STATEMENT], _failures)


def _failures(several: Sequence[Sequence[int]]) -> list[int]:
    reverted: dict[int, set[int]] = defaultdict(set)
    sent_for = Transaction.queries.through.objects.filter(transaction__succeeded=False)
    for chunk in chunks(sorted({pk for queries in several for pk in queries}), _PER_STATEMENT):
        for query, transaction in sent_for.filter(query__in=chunk).values_list("query", "transaction"):
            reverted[query].add(transaction)
    return [len(set().union(*(reverted[pk] for pk in queries if pk in reverted))) for queries in several]


def _of_block(key: object, block: Block, read: Callable[[Sequence[int]], Mapping[int, Found]], default: Found) -> Found:
    def read_all(blocks: Sequence[int]) -> list[Found]:
        found = read(blocks)
        return [found.get(pk, default) for pk in blocks]

    return together.share_work(("sent", key), block.pk, read_all)
