"""Batches as lines of a list: what was asked and what came out, from where to where, what it cost, how long it took.

The number of statements doesn't grow with that of the batches.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Max, Min

from config.chain_names import ChainName, chain_name
from explorer.batch import fact_display
from explorer.batch.fact_display import Value
from explorer.lists import headlines
from explorer.lists.headlines import AskedQuery, Headline
from proving import facts
from proving.facts import TimeFact
from proving.models import FactsRegistry
from proving.registry import deployments
from queries.models import Batch, Query


@dataclass(frozen=True)
class BatchRow:
    batch: Batch  # without its request
    headline: Headline
    sources: tuple[ChainName, ...]
    destination: ChainName

    @property
    def reads_itself(self) -> bool:
        """Return whether the facts are read on the chain that they are about."""
        return self.sources == (self.destination,)

    @property
    def took(self) -> timedelta | None:
        return self.batch.finished_at - self.batch.created_at if self.batch.finished_at else None


@dataclass(frozen=True)
class _Counted:
    """The queries of a batch about one source chain."""

    source: int
    total: int
    open: int
    first: str  # of the addresses in their order; empty where a header is asked for
    last: str


def read(batches: Sequence[Batch]) -> list[BatchRow]:
    """Return the lines of batches."""
    counts: dict[str, list[_Counted]] = defaultdict(list)
    queries = Query.objects.filter(batch__in=[batch.pk for batch in batches])
    by_source = queries.values_list("batch", "source_chain_id").order_by("source_chain_id")
    for pk, *row in by_source.annotate(Count("pk"), Count("step"), Min("address"), Max("address")):
        counts[pk].append(_Counted(*row))
    firsts = {one.batch_id: one for one in queries.filter(position=0).select_related("block").defer("slots")}
    # A larger one asks for several slots, which no line names.
    small = [pk for pk, one in firsts.items() if sum(of.total for of in counts[pk]) == 1]
    singles = queries.filter(batch__in=small, batch__size__lte=2).select_related("block", "batch")
    firsts |= {one.batch_id: one for one in singles}
    values = _values([one for one in firsts.values() if not one.get_deferred_fields()])
    return [_row(batch, counts[batch.pk], firsts.get(batch.pk), values) for batch in batches]


def _values(queries: Sequence[Query]) -> Mapping[int, Value]:
    """Return the value, by the query, where it asks for one alone and has it."""
    # Beside a fact, a query may ask which block there was at a time.
    asked = {query: [fact for fact in facts.of(query) if not isinstance(fact, TimeFact)] for query in queries}
    told = {query: alone for query, alone in asked.items() if len(alone) == 1 and facts.may_be_told(query.batch, query)}
    words = facts.proven_for(told) if told else {}
    registries = FactsRegistry.objects.order_by("source_chain_id", "pk") if told else []
    found = {}
    for query, [fact] in told.items():
        here = [row for row in registries if row.destination_chain_id == query.batch.destination_chain_id]
        registry, word = deployments.of_batch(query.batch, here).get(query.source_chain_id), words[query.pk].get(fact)
        if registry and word is not None:
            currency = chain_name(query.source_chain_id).currency
            found[query.pk] = fact_display.value(fact, word, currency, registry.address)
    return found


def _row(batch: Batch, counts: Sequence[_Counted], first: Query | None, values: Mapping[int, Value]) -> BatchRow:
    return BatchRow(
        batch,
        headline=_headline(batch, counts, first, values) if first else Headline("No queries"),
        sources=tuple(chain_name(one.source) for one in counts),
        destination=chain_name(batch.destination_chain_id),
    )


def _headline(batch: Batch, counts: Sequence[_Counted], first: Query, values: Mapping[int, Value]) -> Headline:
    asked = AskedQuery(
        address=first.address or None,
        source=chain_name(first.source_chain_id),
        selector=first.block_tag,
        timestamp=first.timestamp,
        block_number=first.block.number if first.block else None,
        fields=[field.name for field in first.account_fields or first.header_fields],
        slots=() if first.get_deferred_fields() else first.slots,
        slot_count=batch.size - 1,
        values=[values[first.pk]] if first.pk in values else [],
    )
    total, still_open = sum(one.total for one in counts), sum(one.open for one in counts)
    if total == 1:
        return headlines.of_query(asked, names_chain=False)
    where = headlines.block_in_words(asked) if batch.block_count == 1 else f"{batch.block_count:,} blocks"
    accounts = {address for one in counts for address in (one.first, one.last)}
    return headlines.of_several(total, total - still_open, f"at {where}", accounts.pop() if len(accounts) == 1 else "")
