"""Batches as lines of a list: request, result, chains, cost and duration.

The number of SQL statements doesn't grow with the number of batches.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from django.db.models import Count, OuterRef, Subquery

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
from queries.models import Batch, Query

# Maximum queries of a batch that are read. Further ones are only counted.
_MOST_READ = 64


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


def read(batches: Sequence[Batch]) -> list[BatchRow]:
    """Return the lines of batches."""
    pks = [batch.pk for batch in batches]
    queries = Query.objects.filter(batch__in=pks)
    # The last query's position gives the number of queries without a count. A request names each source chain once, so
    # the queries of a chain are consecutive.
    last = Query.objects.filter(batch=OuterRef("pk")).order_by("-position")
    ends = Subquery(last.values("position")[:1]), Subquery(last.values("source_chain_id")[:1])
    counts = {pk: end for pk, *end in Batch.objects.filter(pk__in=pks).values_list("pk", *ends)}
    known: dict[str, list[Query]] = defaultdict(list)
    few = queries.filter(position__lt=_MOST_READ).order_by("position")
    for query in few.select_related("block").defer("slots", "slot_names", "logs", "block_logs", "block__header_rlp"):
        known[query.batch_id].append(query)
    # A batch of a larger size requests several slots or logs, which lines don't name.
    alone = queries.filter(batch__in=[pk for pk, (at, _) in counts.items() if at == 0], batch__size__lte=2)
    singles = {query.batch_id: query for query in alone.select_related("block", "batch")}
    values = _values(list(singles.values()))
    large = [batch.pk for batch in batches if batch.is_open and (counts[batch.pk][0] or 0) >= _MOST_READ]
    done = dict(queries.filter(batch__in=large, step=None).order_by().values_list("batch").annotate(Count("pk")))
    rows = []
    for batch in batches:
        known_queries = [singles[batch.pk]] if batch.pk in singles else known[batch.pk]
        last_position, last_source = counts[batch.pk]
        if batch.pk in large:
            progress = RowProgress(done.get(batch.pk, 0), last_position + 1, counts_queries=True)
        else:
            steps = (
                sum(query.completed for query in known_queries),
                sum(len(query.step_kinds) for query in known_queries),
            )
            progress = RowProgress(*steps, counts_queries=False)
        sources = list(dict.fromkeys(query.source_chain_id for query in known_queries))
        is_whole = last_position == len(known_queries) - 1 or sources == [last_source]
        rows.append(
            BatchRow(
                batch,
                headline=_headline(batch, known_queries, last_position + 1, values)
                if known_queries
                else Headline("No queries"),
                sources=tuple(map(chain_name, sources)) if is_whole else (),
                destination=chain_name(batch.destination_chain_id),
                progress=progress if batch.is_open else None,
            )
        )
    return rows


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


def _headline(batch: Batch, known: Sequence[Query], count: int, values: Mapping[int, Value]) -> Headline:
    first = known[0]
    if count == 1:
        # Beside the account, header or transaction, each slot and log counts.
        facts_asked = len(first.property_names) + batch.size - 1
        known_values = [values[first.pk]] if first.pk in values else []
        return headlines.of_query(first, facts_asked, known_values, names_chain=False)
    has_one_source = len({query.source_chain_id for query in known}) == 1
    line = Headline(
        f"{count:,} queries",
        where=f"at {batch.block_count:,} blocks",
        source=chain_name(first.source_chain_id) if has_one_source and count <= len(known) else None,
    )
    if count <= len(known):
        accounts, done = {query.address for query in known}, sum(query.step is None for query in known)
        address = accounts.pop() if len(accounts) == 1 else ""
        line = replace(line, address=address, state=headlines.progress(count, done))
    return headlines.at_block(line, first) if batch.block_count == 1 else line
