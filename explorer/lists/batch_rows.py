"""Batches as lines of a list: request, result, chains, cost and duration.

The number of SQL statements doesn't grow with the number of batches.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from django.db.models import Count, Max, Min, OuterRef, Subquery

from config.chain_names import ChainName, chain_name
from explorer.batch import fact_display
from explorer.batch.fact_display import Value
from explorer.lists import headlines
from explorer.lists.headlines import Headline
from proving import facts
from proving.facts import TimeFact
from proving.models import FactsRegistry
from proving.reading import query_values
from proving.registries import deployments
from queries.models import HEADER_STEPS, Batch, Query, QueryKind, StepKind

# Maximum queries of a batch whose steps and accounts are counted, and the number that takes as long as another item.
_MOST_COUNTED, _QUERIES_PER_ITEM = 64, 16
# The maximum size of a query with one fact. A larger one requests several slots or logs, which lines don't name.
_SIZE_OF_ONE = 2


class RowProgress(NamedTuple):
    completed: int
    total: int
    counts_queries: bool  # there are too many queries to count their steps


@dataclass(frozen=True)
class BatchRow:
    batch: Batch  # without its request
    headline: Headline
    sources: tuple[ChainName, ...]  # empty: there are several, and not all are configured
    destination: ChainName
    progress: RowProgress | None  # None: the batch is not open

    @property
    def reads_itself(self) -> bool:
        """Return whether the batch's only source chain is its destination."""
        return self.sources == (self.destination,)

    @property
    def took(self) -> timedelta | None:
        return self.batch.finished_at - self.batch.created_at if self.batch.finished_at else None


class _Group(NamedTuple):
    """The number of a batch's queries of a kind that are about the same source chain and at the same step."""

    source_chain_id: int
    kind: str
    step: str | None
    queries: int
    position: int  # of the first
    lowest: str  # the first and the last of their addresses in alphabetical order
    highest: str

    @property
    def steps(self) -> tuple[StepKind, ...]:
        return HEADER_STEPS if self.kind == QueryKind.HEADER else tuple(StepKind)

    @property
    def completed(self) -> int:
        return len(self.steps) if self.step is None else self.steps.index(StepKind(self.step))


def items(batches: Sequence[Batch]) -> int:
    """Return how many items of a file take as long to read as the lines of these batches."""
    return sum(1 + min(batch.size, _MOST_COUNTED) // _QUERIES_PER_ITEM for batch in batches)


def read(batches: Sequence[Batch]) -> list[BatchRow]:
    """Return the lines of batches. The database counts their queries. Only a query that a headline names is read."""
    queries = Query.objects.filter(batch__in=[batch.pk for batch in batches]).order_by()
    alike = queries.filter(position__lt=_MOST_COUNTED).values_list("batch", "source_chain_id", "kind", "step")
    groups: dict[str, list[_Group]] = defaultdict(list)
    for pk, *group in alike.annotate(Count("pk"), Min("position"), Min("address"), Max("address")):
        groups[pk].append(_Group(*group))
    counted = {batch.pk: sum(group.queries for group in groups[batch.pk]) for batch in batches}
    ends = _ends([pk for pk, count in counted.items() if count == _MOST_COUNTED])
    totals = counted | {pk: position + 1 for pk, (position, _) in ends.items()}
    large = [batch.pk for batch in batches if batch.is_open and totals[batch.pk] > _MOST_COUNTED]
    done = dict(queries.filter(batch__in=large, step=None).values_list("batch").annotate(Count("pk"))) if large else {}
    firsts = _firsts(batches, totals)
    values = _values([query for pk, query in firsts.items() if totals[pk] == 1 and query.batch.size <= _SIZE_OF_ONE])
    rows = []
    for batch in batches:
        known, total = sorted(groups[batch.pk], key=lambda group: group.position), totals[batch.pk]
        sources = list(dict.fromkeys(group.source_chain_id for group in known))
        # A request names each source chain once, so the queries of a chain are consecutive.
        is_whole = total == counted[batch.pk] or sources == [ends[batch.pk][1]]
        rows.append(
            BatchRow(
                batch,
                headline=_headline(batch, known, total, firsts.get(batch.pk), values)
                if total
                else Headline("No queries"),
                sources=tuple(map(chain_name, sources)) if is_whole else (),
                destination=chain_name(batch.destination_chain_id),
                progress=_progress(known, total, done.get(batch.pk, 0)) if batch.is_open else None,
            )
        )
    return rows


def _progress(known: Sequence[_Group], total: int, done: int) -> RowProgress:
    """Return the progress of an open batch. `done` is the number of its completed queries if there are many."""
    if total > _MOST_COUNTED:
        return RowProgress(done, total, counts_queries=True)
    completed = sum(group.queries * group.completed for group in known)
    return RowProgress(completed, sum(group.queries * len(group.steps) for group in known), counts_queries=False)


def _ends(pks: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Return the position and the source chain of each batch's last query."""
    last = Query.objects.filter(batch=OuterRef("pk")).order_by("-position")
    ends = Subquery(last.values("position")[:1]), Subquery(last.values("source_chain_id")[:1])
    rows = Batch.objects.filter(pk__in=pks).values_list("pk", *ends) if pks else ()
    return {pk: (position, source) for pk, position, source in rows}


def _firsts(batches: Sequence[Batch], totals: Mapping[str, int]) -> Mapping[str, Query]:
    """Return the only query of each batch that has one, and the first one of each batch that is about one block."""
    named = {batch.pk: batch for batch in batches if totals[batch.pk] == 1 or batch.block_count == 1}
    alone = [pk for pk, batch in named.items() if totals[pk] == 1 and batch.size <= _SIZE_OF_ONE]
    first = Query.objects.filter(position=0).select_related("block")
    brief = first.defer("slots", "slot_names", "logs", "block_logs", "block__header_rlp")
    firsts = {}
    for query in (*first.filter(batch__in=alone), *brief.filter(batch__in=named.keys() - {*alone})):
        query.batch = named[query.batch_id]
        firsts[query.batch_id] = query
    return firsts


def _values(queries: Sequence[Query]) -> Mapping[int, Value]:
    """Return the values of queries that request a single fact and have it, by query id."""
    # A query may also request the block at a time. That fact doesn't count here.
    facts_of = {query: [fact for fact in facts.of(query) if not isinstance(fact, TimeFact)] for query in queries}
    single_facts = {
        query: alone for query, alone in facts_of.items() if len(alone) == 1 and facts.may_be_told(query.batch, query)
    }
    known = query_values.read(single_facts)
    registries = FactsRegistry.objects.order_by("source_chain_id", "pk") if single_facts else []
    values = {}
    for query, [fact] in single_facts.items():
        here = [row for row in registries if row.destination_chain_id == query.batch.destination_chain_id]
        registry = deployments.of_batch(query.batch, here).get(query.source_chain_id)
        word = known[query.pk].words.get(fact)
        if registry and word is not None:
            currency = chain_name(query.source_chain_id).currency
            values[query.pk] = fact_display.value(fact, word, currency, registry)
    return values


def _headline(
    batch: Batch, known: Sequence[_Group], count: int, first: Query | None, values: Mapping[int, Value]
) -> Headline:
    if first and count == 1:
        # Beside the account, header or transaction, each slot and log counts.
        facts_asked = len(first.property_names) + batch.size - 1
        known_values = [values[first.pk]] if first.pk in values else []
        return headlines.of_query(first, facts_asked, known_values, names_chain=False)
    is_counted = count <= _MOST_COUNTED
    sources = {group.source_chain_id for group in known}
    line = Headline(
        f"{count:,} queries",
        where=f"at {batch.block_count:,} blocks",
        source=chain_name(known[0].source_chain_id) if len(sources) == 1 and is_counted else None,
    )
    if is_counted:
        accounts = {address for group in known for address in (group.lowest, group.highest)}
        address, done = (
            accounts.pop() if len(accounts) == 1 else "",
            sum(group.queries for group in known if not group.step),
        )
        line = replace(line, address=address, state=headlines.progress(count, done))
    return headlines.at_block(line, first) if first else line
