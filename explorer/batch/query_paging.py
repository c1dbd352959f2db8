"""Which of a batch's queries a page shows, as cards or as lines of a table, and where the pages beside it begin."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from django.db.models import F, Q
from django.db.models.functions import Lower
from django.db.models.lookups import IsNull
from django.http import QueryDict

from chains.address_checksum import checksummed
from config.chain_names import ChainName
from explorer.batch import query_cards
from explorer.batch.query_cards import QueryRow, ShownQuery
from proving.models import FactsRegistry
from queries import query_rows
from queries.models import Batch, Query

# A batch of at most this number of queries shows each whole, below its line, and has nothing to search through.
MAX_CARDS = 10
# Of queries that are all whole, for programs; and of lines of the table.
PAGE_SIZE = 50
ROWS_SIZE = 25


# Columns of queries, in SQL, by the name that a page's address has for them.
SORTS = {
    "account": Lower("address").asc(),
    "block": F("block__number").asc(nulls_last=True),
    "state": IsNull(F("step"), True).asc(),
}
STATES = {"proven": Q(step=None), "open": Q(step__isnull=False)}
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Filters:
    """The queries that a page leaves out, and their order. A malformed filter has no effect."""

    search: str = ""  # as written
    source: str = ""  # id of a source chain
    state: str = ""  # of `STATES`
    sort: str = ""  # of `SORTS`; empty: the order of the request

    @classmethod
    def of(cls, query: QueryDict) -> "Filters":
        source, state, sort = (query.get(name, "") for name in ("chain", "state", "sort"))
        return cls(
            search=query.get("account", "").strip().replace("\0", "")[:100],
            source=source if _NUMBER.fullmatch(source) else "",
            state=state if state in STATES else "",
            sort=sort if sort in SORTS else "",
        )

    @property
    def account(self) -> str:
        """Return the address (EIP-55) that is searched for, or an empty string."""
        return checksummed(self.search.lower()) or ""

    @property
    def block(self) -> str:
        """Return the number of the block that is searched for, or an empty string."""
        return self.search if _NUMBER.fullmatch(self.search) else ""

    @property
    def is_understood(self) -> bool:
        return bool(self.account or self.block or not self.search)

    @property
    def keep_blocks_together(self) -> bool:
        return self.sort in {"", "block"}

    @property
    def any(self) -> bool:
        return bool(self.account or self.block or self.source or self.state)

    @property
    def is_for_account_alone(self) -> bool:
        return bool(self.account) and not (self.source or self.state)

    @property
    def parts(self) -> dict[str, str]:
        """Return the parts of the filters as the page's address has them."""
        named = {"account": self.search, "chain": self.source, "state": self.state, "sort": self.sort}
        return {name: value for name, value in named.items() if value}

    @property
    def condition(self) -> Q:
        found = Q()
        if self.account:
            found &= Q(address=self.account)
        if self.block:
            found &= Q(block__number=int(self.block))
        if self.source:
            found &= Q(source_chain_id=int(self.source))
        if self.state:
            found &= STATES[self.state]
        return found


@dataclass(frozen=True)
class Wanted:
    """The queries that a reader asks for."""

    first: str = ""
    """The number of the first query to show, as written. One that doesn't exist becomes the nearest."""
    filters: Filters = Filters()
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
    cards: tuple[ShownQuery, ...]  # empty where there are many queries
    rows: tuple[QueryRow, ...]  # empty where the page is about one query
    filters: Filters

    @property
    def has_values(self) -> bool:
        return any(card.values for card in self.cards)

    @property
    def can_be_searched(self) -> bool:
        return self.total > MAX_CARDS or bool(self.filters.parts)

    @property
    def last(self) -> int | None:
        shown = self.cards or self.rows
        return shown[-1].number if shown else None

    @property
    def names_first(self) -> bool:
        """Return whether the page's address names its first query. What is sorted may begin with another one soon."""
        return self.first is not None and self.only is None and (not self.filters.sort or self.previous is not None)

    @property
    def address(self) -> str:
        """Return what of the page's address names these queries, to be followed by more."""
        return "".join(f"{urlencode({name: value})}&" for name, value in self.filters.parts.items())

    @property
    def last_matching(self) -> int:
        return self.first_matching + len(self.cards or self.rows) - 1


def read(
    batch: Batch, wanted: Wanted, total: int, destination: ChainName, held_by: Mapping[int, FactsRegistry]
) -> QueryPage:
    """Read one page of the queries. `held_by` are the registries that hold the batch's facts, by source chain."""
    if total == 1:  # There is nothing to choose from.
        wanted = replace(wanted, filters=Filters())
    place = _place(batch, wanted, total)
    whole = wanted.always_whole or wanted.only is not None or total <= MAX_CARDS
    queries = query_rows.at(batch, place.positions)
    order = {position: at for at, position in enumerate(place.positions)}
    queries.sort(key=lambda query: order[query.position])
    steps = query_rows.steps_of(queries) if whole else {}
    cards = tuple(
        query_cards.cards(batch, queries, steps, destination, held_by, first_slot=_first_slot(wanted, queries))
        if whole
        else ()
    )
    in_table = wanted.only is None and not wanted.always_whole and total > 1
    by_number = {card.number: card for card in cards}
    return QueryPage(
        total=total,
        account=wanted.filters.account,
        matching=place.matching,
        first_matching=place.first_matching,
        first=queries[0].position + 1 if queries else None,
        previous=place.previous,
        following=place.following,
        only=wanted.only,
        cards=cards,
        rows=tuple(query_cards.rows(batch, queries, by_number, held_by)) if in_table else (),
        filters=wanted.filters,
    )


def first_of_page(first: str, total: int) -> int:
    """Return the number of the first query of a page.

    A query keeps its position, so a page stays the same page for ever.
    """
    # Converting thousands of digits would take long, and no number has more than these.
    number = int(first) if first.isascii() and first.isdigit() and len(first) < 10 else 1
    return max(1, min(number, total))


def _first_slot(wanted: Wanted, queries: list[Query]) -> int | None:
    """Return the number of the first slot to show; None: all slots."""
    if wanted.always_whole:
        return None
    return first_of_page(wanted.slots, len(queries[0].slots)) if wanted.only is not None else 1


@dataclass(frozen=True)
class _Place:
    """Some queries in the batch, and where the pages beside them begin."""

    positions: Sequence[int]  # in the order in which they are shown
    previous: int | None
    following: int | None
    matching: int
    first_matching: int = 1


def _place(batch: Batch, wanted: Wanted, total: int) -> _Place:
    if wanted.filters.any or wanted.filters.sort:
        return _place_among(batch, wanted, total)
    if (only := wanted.only) is not None:
        previous, following = (only - 1 if only > 1 else None), (only + 1 if only < total else None)
        return _Place((only - 1,), previous, following, total)
    start, size = first_of_page(wanted.first, total), PAGE_SIZE if wanted.always_whole else ROWS_SIZE
    return _Place(
        range(start - 1, start - 1 + size),
        previous=max(1, start - size) if start > 1 else None,
        following=start + size if start + size <= total else None,
        matching=total,
    )


def _place_among(batch: Batch, wanted: Wanted, total: int) -> _Place:
    """Find the page among the queries that the filters leave, in their order."""
    order = [SORTS[wanted.filters.sort]] if wanted.filters.sort else []
    matching = Query.objects.filter(wanted.filters.condition, batch=batch).order_by(*order, "position")
    positions = list(matching.values_list("position", flat=True))
    at = _place_of(positions, wanted, total)
    return _Place(
        positions[at : at + ROWS_SIZE],
        previous=positions[max(0, at - ROWS_SIZE)] + 1 if at else None,
        following=positions[at + ROWS_SIZE] + 1 if at + ROWS_SIZE < len(positions) else None,
        matching=len(positions),
        first_matching=at + 1,
    )


def _place_of(positions: list[int], wanted: Wanted, total: int) -> int:
    """Return the index of the first query of a page.

    Of a query that is left out, it is that of the next after it in the request.
    """
    first = first_of_page(wanted.first, total) - 1
    if wanted.filters.sort:
        return positions.index(first) if wanted.first and first in positions else 0
    return max(0, min(bisect_left(positions, first), len(positions) - 1))
