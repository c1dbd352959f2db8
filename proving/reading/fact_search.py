"""A search for facts that this service has proven for any user. Users are never named.

A search reads completed queries backwards in the order of an index: by block and id. So what was asked for last comes
first. Each page begins where the previous page ended. A query may have thousands of slots, so a page may end within a
query.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

from django.conf import settings
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Length, StrIndex
from pydantic import BaseModel, Field

from proving import facts
from proving.facts import AccountFact, EntryFact, Fact, HeaderFact, LogFact, SlotFact, TimeFact
from proving.models import FactsRegistry, ProvenTransaction
from proving.reading import query_values
from proving.reading.query_values import RequestedEntry
from queries.columns import AccountField, EntryField, HeaderField
from queries.models import Batch, BatchStatus, Block, Query, QueryKind, Step, StepKind
from queries.query_parameters import Address, Number, Slot, TransactionName

_FIELDS = {
    QueryKind.ACCOUNT: AccountField,
    QueryKind.ENTRY: EntryField,
    QueryKind.HEADER: HeaderField,
}
# A property that headers have too, `NONCE`, stands once.
PROPERTIES = {
    "Account": (*AccountField.names, "SLOT"),
    "Transaction": (*EntryField.names, "LOG"),
    "Header": (*(name for name in HeaderField.names if name not in AccountField.names), "BLOCK_AT_TIMESTAMP"),
}
_PROPERTY_NAMES = tuple(sorted(itertools.chain(*PROPERTIES.values())))
PropertyName = Literal[_PROPERTY_NAMES]  # type: ignore[valid-type]  # the type is built from names
# Maximum characters of a slot in JSON, with quotes, a comma and a space.
_CHARACTERS_OF_SLOT = 70
# Maximum other queries that are read for the transactions of a page's facts: for each of them, and in all. The maximum
# length of their slots.
_OTHERS_OF_FACT, _MOST_OTHERS, _MOST_LENGTH = 10, 10_000, 1_000_000


class FactFilters(BaseModel):
    destinationChainId: Number | None = None
    sourceChainId: Number | None = None
    account: Address | None = Field(None, description="Give this or `block`.")
    block: Number | None = None
    property: PropertyName | None = None
    slot: Slot | None = None
    transaction: TransactionName | None = Field(None, description="At the `block`: its index, decimal, or its hash.")

    def asks_for(self, fact: Fact) -> bool:
        if self.account and not isinstance(fact, AccountFact | SlotFact):
            return False
        if self.slot and not (isinstance(fact, SlotFact) and fact.slot == self.slot):
            return False
        if self.transaction is not None and not isinstance(fact, EntryFact | LogFact):
            return False
        return self.property in {None, facts.name(fact)}


@dataclass(frozen=True)
class FactCursor:
    """A position in the results: a block, a query about it, and the index of a fact in the query."""

    block: int
    query: int
    fact: int = 0

    @classmethod
    def of(cls, cursor: str) -> Self:
        """Return the position in a cursor of the form `CURSOR`."""
        return cls(*map(int, cursor.split(".")))

    def __str__(self) -> str:
        return f"{self.block}.{self.query}.{self.fact}"


_LAST = 10**18 - 1
START, CURSOR = f"{_LAST}.{_LAST}.0", r"^[0-9]{1,18}\.[0-9]{1,18}\.[0-9]{1,9}$"


@dataclass(frozen=True)
class FoundFact:
    """A fact that a registry holds."""

    block: Block
    address: str  # EIP-55; empty for a fact of the block or of a transaction
    fact: Fact
    word: bytes
    registry: FactsRegistry
    transaction: RequestedEntry | None  # the transaction that the query is about
    transaction_hash: str  # hash of the transaction that proved the fact; empty if it isn't known
    batch: Batch | None  # one that asks for the fact, if the reader may know of it
    is_own: bool  # whether it is the reader's own


@dataclass(frozen=True)
class FoundFacts:
    facts: Sequence[FoundFact]
    next: FactCursor | None
    """The beginning of the next page. None: there is none."""


def search(filters: FactFilters, start: FactCursor, limit: int, *, reader: int | None = None) -> FoundFacts:
    """Return a page of matching facts, newest first.

    `filters` name an account or a block, or nothing for the latest facts. Registries may hold more facts, which others
    have proven. A fact of several queries may appear again on a later page. Among batches that ask for the same fact,
    those of the user with the id `reader` come first. Of batches that the reader may not list, no name of a slot
    is told. Another user's name states no part of the word, so that nobody else chooses a value.
    """
    held = _RegistriesInUse.by(_registries(filters))
    rows = _rows(filters, held, start, limit + 1)
    page = _page(filters, rows, start, limit, reader)
    return FoundFacts(list(_held_facts(page.matches, held, reader)), page.next)


# --- Registries -------------------------------------------------------------------------------------------------------


def _registries(filters: FactFilters) -> list[FactsRegistry]:
    """Return the registries of the requested connections, including replaced ones."""
    rows = FactsRegistry.objects.order_by("pk")
    if filters.destinationChainId is not None:
        rows = rows.filter(destination_chain_id=filters.destinationChainId)
    if filters.sourceChainId is not None:
        rows = rows.filter(source_chain_id=filters.sourceChainId)
    return list(rows)


@dataclass(frozen=True)
class _RegistriesInUse:
    """The registries in use, and the condition by which queries have facts in them."""

    rows: dict[tuple[int, int], FactsRegistry]
    """The registries, by (destination, source chain id)."""
    condition: Q
    """The condition for a query: its facts are in one of them, and in no former one."""

    @property
    def holding(self) -> Q:
        """Return the condition for a query: it is completed, and one of the registries holds its facts."""
        # No worker checks whether the registry still holds the facts of a rejected batch.
        return Q(step=None) & ~Q(batch__status=BatchStatus.REJECTED) & self.condition

    @classmethod
    def by(cls, registries: Sequence[FactsRegistry]) -> "_RegistriesInUse":
        rows: dict[tuple[int, int], FactsRegistry] = {}
        held = Q(pk__in=[])
        for row in registries:
            if row.replaced_at or row.refused or not row.deployed_at:
                continue
            connection = (row.destination_chain_id, row.source_chain_id)
            rows[connection] = row
            condition = Q(block__destination_chain_id=connection[0], block__source_chain_id=connection[1])
            former = [
                other.replaced_at
                for other in registries
                if other.replaced_at and (other.destination_chain_id, other.source_chain_id) == connection
            ]
            if former:
                # The facts of batches that were DONE before are in the former registry.
                condition &= Q(batch__finished_at=None) | Q(batch__finished_at__gt=max(former))
            held |= condition
        return cls(rows, held)


# --- Queries ----------------------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A completed query, without its slots."""

    query: int
    block: int
    length: int
    """The length of its slots as JSON."""


def _rows(filters: FactFilters, held: _RegistriesInUse, start: FactCursor, most: int) -> list[_Row]:
    """Return the completed queries that match, from `start` on."""
    queries = _asking(filters, Query.objects.filter(held.holding))
    if filters.account:
        queries = queries.filter(address=filters.account)
    if filters.account and filters.block is None:
        # Two statements are used, because with an OR a database would scan all other rows.
        rows = _first(queries.filter(block_id=start.block, pk__lte=start.query), most)
        return rows + _first(queries.filter(block_id__lt=start.block), most - len(rows))
    rows = []
    # Blocks are read one after another, because an index has the queries of each block in this order.
    for block in _blocks(filters.block, held, start.block, queries)[:most]:
        if len(rows) < most:
            first = start.query if block == start.block else _LAST
            rows += _first(queries.filter(block_id=block, pk__lte=first), most - len(rows))
    return rows


def _first(queries: QuerySet[Query], most: int) -> list[_Row]:
    length = Length(Cast("slots", TextField()))
    return [_Row(*row) for row in queries.order_by("-block_id", "-pk").values_list("pk", "block_id", length)[:most]]


def _blocks(number: int | None, held: _RegistriesInUse, start: int, queries: QuerySet[Query]) -> "QuerySet[Block, int]":
    """Return the ids of blocks from `start` on, newest first: with this number, or all that have such queries."""
    blocks = Block.objects.filter(pk__lte=start).order_by("-pk").values_list("pk", flat=True)
    if number is None:
        # With the connections, SQLite would read all of their blocks by an index, and sort them.
        return blocks.filter(Exists(queries.filter(block=OuterRef("pk"))))
    of_connections = Q(pk__in=[])
    for destination, source in held.rows:
        of_connections |= Q(destination_chain_id=destination, source_chain_id=source)
    return blocks.filter(of_connections, number=number)


def _asking(filters: FactFilters, queries: QuerySet[Query]) -> QuerySet[Query]:
    """Select queries that have a matching fact. Without it, a page before the last could be empty."""
    if filters.slot:
        # SQLite's LIKE takes four times as long.
        return queries.alias(at=StrIndex(Cast("slots", TextField()), Value(filters.slot))).filter(at__gt=0)
    if isinstance(filters.transaction, int):
        queries = queries.filter(transaction_index=filters.transaction)
    elif filters.transaction:
        place = {"block": OuterRef("block"), "index": OuterRef("transaction_index")}
        queries = queries.filter(Exists(ProvenTransaction.objects.filter(**place, hash=filters.transaction)))
    return with_property(filters.property, queries)


def with_property(name: str | None, queries: QuerySet[Query]) -> QuerySet[Query]:
    """Select queries that ask for a property (one of `PROPERTIES`). None: all."""
    match name:
        case None:
            return queries
        case "SLOT":
            return queries.exclude(slots=[])
        case "LOG":
            return queries.exclude(logs=[], block_logs=[])
        case "BLOCK_AT_TIMESTAMP":
            return queries.filter(timestamp__isnull=False)
        case name:
            masks = {
                kind: F("fields").bitand(1 << fields[name] if name in fields.names else 0)
                for kind, fields in _FIELDS.items()
            }
            mask = Case(*(When(kind=kind, then=mask) for kind, mask in masks.items()))
            return queries.alias(wanted=mask).filter(wanted__gt=0)


# --- Facts of a page --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FactOfQuery:
    query: Query  # loaded with its block
    fact: Fact


@dataclass(frozen=True)
class _MatchPage:
    matches: Sequence[_FactOfQuery]
    next: FactCursor | None


def _page(filters: FactFilters, rows: Sequence[_Row], start: FactCursor, limit: int, reader: int | None) -> _MatchPage:
    """Return the facts of a page. `rows` has more than `limit` rows if there are more."""
    chosen = _enough(rows, start.fact + limit)
    matches: dict[tuple[int, Fact], _FactOfQuery] = {}
    for place, match in _in_order(filters, chosen):
        if place.query == start.query and place.fact < start.fact:
            continue
        if len(matches) == limit:
            return _MatchPage(list(matches.values()), place)
        known = matches.setdefault((place.block, match.fact), match)
        if match.query.batch.user_id == reader != known.query.batch.user_id:
            matches[place.block, match.fact] = match
    next_row = rows[len(chosen)] if len(chosen) < len(rows) else None
    if next_row is None and len(rows) > limit:
        next_row = _Row(rows[-1].query - 1, rows[-1].block, 0)
    return _MatchPage(list(matches.values()), FactCursor(next_row.block, next_row.query) if next_row else None)


def _enough(rows: Sequence[_Row], count: int) -> Sequence[_Row]:
    """Return the shortest beginning of `rows` that has more than `count` facts in total, or all rows."""
    facts_in_them = 0
    for at, row in enumerate(rows):
        if facts_in_them > count:
            return rows[:at]
        facts_in_them += max(1, row.length // _CHARACTERS_OF_SLOT)
    return rows


def _in_order(filters: FactFilters, rows: Sequence[_Row]) -> Iterator[tuple[FactCursor, _FactOfQuery]]:
    if not rows:
        return
    whole = Query.objects.select_related("block", "batch").defer("batch__request")
    queries = whole.in_bulk([row.query for row in rows])
    for row in rows:
        # Since the query was listed, it may have been deleted or moved to another block.
        if (query := queries.get(row.query)) is None or query.block_id != row.block:
            continue
        for at, fact in enumerate(facts.of(query)):
            if filters.asks_for(fact):
                yield FactCursor(row.block, row.query, at), _FactOfQuery(query, fact)


# --- Words and transactions -------------------------------------------------------------------------------------------


def _held_facts(matches: Sequence[_FactOfQuery], held: _RegistriesInUse, reader: int | None) -> Iterator[FoundFact]:
    told: dict[Query, list[Fact]] = defaultdict(list)
    for match in matches:
        told[match.query].append(match.fact)
    values = query_values.read(told)
    transactions = _transactions(matches, held)
    for match in matches:
        block, of_query = match.query.block, values[match.query.pk]
        assert block
        word = of_query.words.get(match.fact)
        if word is None:
            continue
        is_of_account = isinstance(match.fact, AccountFact | SlotFact)
        is_own = match.query.batch.user_id == reader
        is_known = settings.PUBLIC_BATCH_LIST or is_own
        fact = match.fact
        if isinstance(fact, SlotFact) and not is_own:
            fact = replace(fact, name=_without_part(fact.name) if is_known else None)
        yield FoundFact(
            block,
            match.query.address if is_of_account else "",
            fact,
            word,
            held.rows[block.destination_chain_id, block.source_chain_id],
            of_query.entry,
            transactions.get((block.pk, match.fact), ""),
            match.query.batch if is_known else None,
            is_own,
        )


def _without_part(name: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return another user's name of a slot, without the type of its answer. None: it says nothing else."""
    rest = {key: value for key, value in (name or {}).items() if key not in {"part", "decimals", "symbol"}}
    if "call" in rest:
        rest["call"] = f"{rest['call'].partition(')')[0]})"
    return rest if rest.get("keys") or "call" in rest else None


def _transactions(matches: Sequence[_FactOfQuery], held: _RegistriesInUse) -> dict[tuple[int, Fact], str]:
    """Return the hashes of the transactions that proved facts, by block (id) and fact.

    A transaction completes a step of the queries that it is sent for. A later query for the same fact has none, or one
    that proved its other facts. So the step that was completed first tells the fact's transaction. Steps of rejected
    batches come last, because after a reorganisation nobody corrects them.
    """
    queries = {match.query.pk: match.query for match in matches}
    # The address of a query about a header or a transaction is empty.
    places = {
        "block__in": {each.block_id for each in queries.values()},
        "address__in": {each.address for each in queries.values()},
    }
    # They come in the order of an index, the oldest first.
    others = Query.objects.filter(held.condition, **places).values_list("pk", flat=True)
    asking = {*queries, *others[: min(_MOST_OTHERS, _OTHERS_OF_FACT * len(matches))]}
    is_rejected = Case(When(query__batch__status=BatchStatus.REJECTED, then=1), default=0)
    length = Length(Cast("query__slots", TextField()))
    completed = Step.objects.filter(query__in=asking, completed_at__isnull=False).exclude(transaction_hash="")
    steps = sorted(
        completed.values_list(is_rejected, "completed_at", "pk", "kind", "transaction_hash", "query", length)
    )
    read, total = set[int](), 0
    for *_, query, length_of_slots in steps:
        if query not in queries and query not in read:
            total += length_of_slots
            if total > _MOST_LENGTH:
                break
            read.add(query)
    queries |= Query.objects.in_bulk(read)
    proven: dict[tuple[int, Fact], str] = {}
    for _, _, _, kind, sent, pk, _ in steps:
        if of_step := queries.get(pk):
            for fact in _proven_by(kind, of_step):
                proven.setdefault((of_step.block_id or 0, fact), sent)
    return proven


def _proven_by(kind: str, query: Query) -> Iterator[Fact]:
    """Return the facts that a step of a query proves. The roots below which others are proven are facts too."""
    asked = facts.of(query)
    of_header = [fact for fact in asked if isinstance(fact, HeaderFact | TimeFact)]
    if kind == StepKind.FACTS_PROVEN:
        yield from (fact for fact in asked if fact not in of_header)
    elif kind == StepKind.HEADER_ACCUMULATED:
        yield from [*of_header, *facts.roots_of(asked)]
