"""Which of a batch's queries a page shows, as cards or as lines of a table, and where the pages beside it begin."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from accounts import statements
from accounts.statements import M
from explorer.pages import query_cards
from explorer.pages.chain_names import ChainName
from explorer.pages.query_cards import QueryRow, ShownQuery
from proving.models import FactsRegistry
from queries.models import Batch, Block, Query, Step

# A batch of at most so many queries shows each as a card, a larger one a table.
MAX_CARDS = 10
PAGE_SIZE = 50


@dataclass(frozen=True)
class Wanted:
    """Which queries a reader asks for."""

    first: str = ""
    """The number of the first query to show, as written. One that doesn't exist becomes the nearest."""
    account: str = ""
    """EIP-55: leave the queries about others out. Empty: show all."""
    only: int | None = None
    """The number of the one query to show."""
    slots: str = ""
    """The number of the first slot of `only` to show, as written."""
    always_whole: bool = False
    """Show each query as a card with all its slots, however many there are."""


@dataclass(frozen=True)
class QueryPage:
    total: int  # queries of the batch
    account: str  # the one that was looked for (EIP-55); empty: all queries are shown
    matching: int  # queries about this account, or all
    first_matching: int  # place of the first query shown among these, from 1
    first: int | None  # number of the first query shown, from 1; None: none is shown
    previous: int | None  # `first` of the previous page
    following: int | None  # `first` of the next page
    only: int | None  # number of the one query that the page is about
    cards: tuple[ShownQuery, ...]
    rows: tuple[QueryRow, ...]  # instead of cards where there are many queries

    @property
    def has_values(self) -> bool:
        return any(card.values for card in self.cards)

    @property
    def last(self) -> int | None:
        shown = self.cards or self.rows
        return shown[-1].number if shown else None

    @property
    def last_matching(self) -> int:
        return self.first_matching + len(self.cards or self.rows) - 1


def read(
    batch: Batch, wanted: Wanted, total: int, destination: ChainName, held_by: Mapping[int, FactsRegistry]
) -> QueryPage:
    """`held_by` are the registries that hold the batch's facts, by source chain."""
    place = _place(batch, wanted, total)
    whole = wanted.always_whole or wanted.only is not None or total <= MAX_CARDS
    queries = _queries(batch, place.condition, place.values, without=() if whole else ("header_rlp",))
    steps = steps_of(queries) if whole else {}
    cards = query_cards.cards(batch, queries, steps, destination, held_by, first_slot=_first_slot(wanted, queries))
    return QueryPage(
        total=total,
        account=wanted.account,
        matching=place.matching,
        first_matching=place.first_matching,
        first=queries[0].position + 1 if queries else None,
        previous=place.previous,
        following=place.following,
        only=wanted.only,
        cards=tuple(cards) if whole else (),
        rows=() if whole else tuple(query_cards.rows(queries)),
    )


def from_number(batch: Batch, first: int, most: int) -> list[Query]:
    """So many of the batch's queries, from the one with this number on, with their blocks."""
    return _queries(batch, "position >= %s AND position < %s", (first - 1, first - 1 + most), without=())


def _queries(batch: Batch, condition: str, values: tuple[int, ...], without: tuple[str, ...]) -> list[Query]:
    """With their blocks, which come `without` these fields."""
    queries = statements.objects(Query, f"WHERE batch_id = %s AND {condition} ORDER BY position", (batch.pk, *values))
    ids = {query.block_id for query in queries if query.block_id is not None}
    blocks = {block.pk: block for block in _having(Block, "id", ids, without)}
    for query in queries:
        if query.block_id is not None:
            query.block = blocks[query.block_id]
    return queries


def steps_of(queries: Iterable[Query]) -> dict[int, list[Step]]:
    """By the id of the query."""
    found: dict[int, list[Step]] = {query.pk: [] for query in queries}
    for step in _having(Step, "query_id", found):
        found[step.query_id].append(step)
    return found


def _having(model: type[M], column: str, ids: Collection[int], without: tuple[str, ...] = ()) -> list[M]:
    if not ids:
        return []
    places = ", ".join(["%s"] * len(ids))
    return statements.objects(model, f"WHERE {column} IN ({places}) ORDER BY id", tuple(ids), without)


def first_of_page(first: str, total: int) -> int:
    """The number of the first query of a page. A query keeps its position, so a page stays the same page for ever."""
    # Converting thousands of digits would take long, and no number has more than these.
    number = int(first) if first.isascii() and first.isdigit() and len(first) < 10 else 1
    return max(1, min(number, total))


def _first_slot(wanted: Wanted, queries: list[Query]) -> int | None:
    """The number of the first slot to show; None: all slots."""
    if wanted.always_whole:
        return None
    return first_of_page(wanted.slots, len(queries[0].slots)) if wanted.only is not None else 1


@dataclass(frozen=True)
class _Place:
    """Some queries in the batch, and where the pages beside them begin."""

    condition: str  # in SQL, with its `values`
    values: tuple[int, ...]
    previous: int | None
    following: int | None
    matching: int
    first_matching: int = 1


def _place(batch: Batch, wanted: Wanted, total: int) -> _Place:
    if wanted.account:
        return _place_among(batch, wanted, total)
    if (only := wanted.only) is not None:
        previous, following = (only - 1 if only > 1 else None), (only + 1 if only < total else None)
        return _Place("position = %s", (only - 1,), previous, following, total)
    start = first_of_page(wanted.first, total)
    return _Place(
        "position >= %s AND position < %s",
        (start - 1, start - 1 + PAGE_SIZE),
        previous=max(1, start - PAGE_SIZE) if start > 1 else None,
        following=start + PAGE_SIZE if start + PAGE_SIZE <= total else None,
        matching=total,
    )


def _place_among(batch: Batch, wanted: Wanted, total: int) -> _Place:
    """Among the queries about one account."""
    rows = statements.every(
        "SELECT position FROM queries_query WHERE batch_id = %s AND address = %s ORDER BY position",
        (batch.pk, wanted.account),
    )
    positions = [position for (position,) in rows]
    at = max(0, min(bisect_left(positions, first_of_page(wanted.first, total) - 1), len(positions) - 1))
    shown = tuple(positions[at : at + PAGE_SIZE])
    return _Place(
        f"position IN ({', '.join(['%s'] * len(shown))})" if shown else "1 = 0",
        shown,
        previous=positions[max(0, at - PAGE_SIZE)] + 1 if at else None,
        following=positions[at + PAGE_SIZE] + 1 if at + PAGE_SIZE < len(positions) else None,
        matching=len(positions),
        first_matching=at + 1,
    )
