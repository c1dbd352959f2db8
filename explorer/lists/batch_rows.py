"""Batches as lines of a list: what was asked and what came out, from where to where, what it cost, how long it took.

The number of statements doesn't grow with that of the batches, and of each batch only the first queries are read.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from django.db.models import IntegerField, OuterRef, QuerySet, Subquery
from django.utils import timezone

from config.chain_names import ChainName, chain_name
from explorer.batch import fact_display, query_cards
from explorer.batch.fact_display import Value
from explorer.lists import headlines
from explorer.lists.headlines import AskedQuery, Headline
from proving import facts
from proving.facts import TimeFact
from proving.models import FactsRegistry
from proving.registry import deployments
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Query
from queries.properties import AccountField, HeaderField

# Number of queries of a batch that are read. More are only counted.
_MOST_READ = 64
_SEVERAL = {
    AccountField.NONCE: "nonces",
    AccountField.BALANCE: "balances",
    AccountField.STORAGE_ROOT: "storage roots",
    AccountField.CODE_HASH: "code hashes",
}


@dataclass(frozen=True)
class BatchRow:
    id: str
    status: str
    headline: Headline
    rejection_code: str
    sources: tuple[ChainName, ...]  # empty: several, of which not all are known here
    destination: ChainName
    is_self_funded: bool
    spent: int  # wei
    created_at: datetime
    finished_at: datetime | None

    @property
    def reads_itself(self) -> bool:
        """Return whether the facts are read on the chain that they are about."""
        return [chain.id for chain in self.sources] == [self.destination.id]

    @property
    def took(self) -> timedelta | None:
        return self.finished_at - self.created_at if self.finished_at else None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES

    @property
    def day(self) -> date:
        """Return the day of its submission, in UTC."""
        return self.created_at.astimezone(UTC).date()


@dataclass(frozen=True)
class Day:
    """The batches of one day, one after another."""

    date: date
    name: str  # empty: it is no day that has one
    rows: tuple[BatchRow, ...]


class _Asked(NamedTuple):
    """One of the first queries of a batch."""

    batch: str
    source: int
    timestamp: int | None
    tag: str
    number: int | None
    address: str
    fields: int
    step: str | None


def by_day(rows: Sequence[BatchRow]) -> list[Day]:
    """Group the rows by their day. `rows` are in the order of their times."""
    today = timezone.now().astimezone(UTC).date()
    names = {today: "Today", today - timedelta(days=1): "Yesterday"}
    return [Day(day, names.get(day, ""), tuple(of_day)) for day, of_day in groupby(rows, key=lambda row: row.day)]


def counted(batches: "QuerySet[Batch]") -> "QuerySet[Batch]":
    """Add what `read` needs of batches beside their columns, and leave out their requests."""
    # The last position in a batch tells how many queries it has, without counting them. A request names each source
    # chain once, so the queries of one follow each other.
    last = Query.objects.filter(batch=OuterRef("pk")).order_by("-position")
    return batches.defer("request").annotate(
        last_position=Subquery(last.values("position")[:1], output_field=IntegerField()),
        last_source=Subquery(last.values("source_chain_id")[:1], output_field=IntegerField()),
    )


def read(batches: Sequence[Batch]) -> list[BatchRow]:
    """Return the lines of batches that are `counted`."""
    asked = _asked([batch.pk for batch in batches])
    alone = {batch.pk: batch for batch in batches if _count(batch) == 1}
    # A larger one asks for several slots.
    single = _single([pk for pk, batch in alone.items() if batch.size <= 2])
    values = _values(alone, single)
    return [_row(batch, asked[batch.pk], single.get(batch.pk), values.get(batch.pk, ())) for batch in batches]


def _count(batch: Batch) -> int:
    """Return how many queries the batch has."""
    last: int | None = getattr(batch, "last_position")  # noqa: B009 (an annotation, which no type knows)
    return 0 if last is None else last + 1


def _asked(batches: Collection[str]) -> Mapping[str, list[_Asked]]:
    """Return the first queries of each batch, in their order."""
    found: dict[str, list[_Asked]] = defaultdict(list)
    first = Query.objects.filter(batch__in=batches, position__lt=_MOST_READ).order_by("batch_id", "position")
    for row in first.values_list(
        *("batch_id", "source_chain_id", "timestamp", "block_tag", "block__number", "address", "fields", "step")
    ):
        found[row[0]].append(_Asked(*row))
    return found


def _single(batches: Collection[str]) -> dict[str, Query]:
    """Return the queries, with their blocks, of batches that have one each."""
    if not batches:
        return {}
    return {query.batch_id: query for query in Query.objects.filter(batch__in=batches).select_related("block")}


def _values(batches: Mapping[str, Batch], single: Mapping[str, Query]) -> dict[str, tuple[Value, ...]]:
    """Return, by the batch, the value, where it has asked for one alone and got it."""
    told = [query for pk, query in single.items() if facts.may_be_told(batches[pk], query) and _is_one(query)]
    if not told:
        return {}
    words = fact_display.proven(told, 1, 1)
    registries = FactsRegistry.objects.order_by("source_chain_id", "pk")
    found: dict[str, tuple[Value, ...]] = {}
    for query in told:
        batch = batches[query.batch_id]
        here = [row for row in registries if row.destination_chain_id == batch.destination_chain_id]
        if registry := deployments.of_batch(batch, here).get(query.source_chain_id):
            source = chain_name(query.source_chain_id)
            values = query_cards.values_of(query, words[query.pk], source, registry.address, with_code=False)
            found[query.batch_id] = tuple(values)
    return found


def _is_one(query: Query) -> bool:
    """Return whether the query asks for one fact, beside which block there was at a time."""
    return sum(not isinstance(fact, TimeFact) for fact in facts.of(query)) == 1


# --- In words ---------------------------------------------------------------------------------------------------------


def _row(batch: Batch, asked: Sequence[_Asked], single: Query | None, values: Sequence[Value]) -> BatchRow:
    if len(asked) == 1:
        headline = headlines.of_query(_query(batch, asked[0], single, values), names_chain=False)
    else:
        headline = _of_several(batch, asked)
    return BatchRow(
        id=batch.pk,
        status=batch.status,
        headline=headline,
        rejection_code=batch.rejection_code,
        sources=tuple(map(chain_name, _sources(batch, asked))),
        destination=chain_name(batch.destination_chain_id),
        is_self_funded=batch.is_self_funded,
        spent=batch.spent,
        created_at=batch.created_at,
        finished_at=batch.finished_at,
    )


def _sources(batch: Batch, asked: Sequence[_Asked]) -> Sequence[int]:
    found = list(dict.fromkeys(query.source for query in asked))
    is_whole = _count(batch) <= len(asked) or found == [getattr(batch, "last_source")]  # noqa: B009 (as in `_count`)
    return found if is_whole else []


def _query(batch: Batch, asked: _Asked, single: Query | None, values: Sequence[Value]) -> AskedQuery:
    kinds = AccountField if asked.address else HeaderField
    return AskedQuery(
        address=asked.address or None,
        source=chain_name(asked.source),
        selector=asked.tag,
        timestamp=asked.timestamp,
        block_number=asked.number,
        fields=[field.name for field in kinds if asked.fields & 1 << field],
        slots=single.slots if single else (),
        slot_count=batch.size - 1,
        values=values,
    )


def _of_several(batch: Batch, asked: Sequence[_Asked]) -> Headline:
    total = _count(batch)
    if not asked:
        return Headline("No queries")
    if total > len(asked):
        return Headline(f"{total:,} queries", "", _where(batch, asked))
    accounts, headers = {query.address for query in asked if query.address}, sum(not query.address for query in asked)
    what = _one_property(batch, asked) if not headers else ""
    address = next(iter(accounts)) if len(accounts) == 1 and not headers else ""
    if not what:
        counts = [f"{len(accounts):,} account{'' if len(accounts) == 1 else 's'}"] if accounts else []
        counts += [f"{headers:,} header{'' if headers == 1 else 's'}"] if headers else []
        what = "Facts" if address else " and ".join(counts)
    proven = sum(query.step is None for query in asked)
    state = f"{proven:,} of {total:,} proven" if batch.status == BatchStatus.IN_PROGRESS else ""
    return Headline(what, address, _where(batch, asked), state=state)


def _one_property(batch: Batch, asked: Sequence[_Asked]) -> str:
    """Say how many of one property are asked for, where each account is asked for that one and for no slots.

    It is empty elsewhere.
    """
    masks = {query.fields for query in asked}
    field = next((field for field in AccountField if masks == {1 << field}), None)
    return f"{len(asked):,} {_SEVERAL[field]}" if field is not None and batch.size == len(asked) else ""


def _where(batch: Batch, asked: Sequence[_Asked]) -> str:
    if batch.block_count == 1:
        return f"at {headlines.block_in_words(_query(batch, asked[0], None, ()))}"
    return f"at {batch.block_count:,} blocks" if batch.block_count else ""
