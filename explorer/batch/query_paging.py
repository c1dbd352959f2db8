"""Selection, order and pages of a batch's queries."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Lower
from django.db.models.lookups import IsNull
from django.http import QueryDict

from chains.encoding import checksummed
from explorer.lists.searched_account import HASH, NUMBER
from explorer.lists.typed_filters import known
from queries.models import Batch, Query

# Batches of up to this number of queries show all details of each, and offer no search.
MAX_CARDS = 10
PAGE_SIZE = 25

# SQL expressions to sort queries by, by their names in the page's address.
SORTS = {
    "account": Lower("address").asc(),
    "block": F("block__number").asc(nulls_last=True),
    "state": IsNull(F("step"), True).asc(),
}
STATES = {"proven": Q(step=None), "open": Q(step__isnull=False)}


@dataclass(frozen=True)
class QueryFilters:
    """Filters and order of the queries on a page."""

    search: str = ""  # as typed
    source: str = ""  # id of a source chain
    state: str = ""  # a key of `STATES`
    sort: str = ""  # a key of `SORTS`; empty: the order of the request

    @classmethod
    def of(cls, query: QueryDict) -> "QueryFilters":
        """Return the filters in a page's address. Raises `BadRequest`."""
        return cls(
            search=known(query, "account", bool),
            source=known(query, "chain", NUMBER.fullmatch, "source"),
            state=known(query, "state", STATES.__contains__),
            sort=known(query, "sort", SORTS.__contains__),
        )

    @property
    def is_understood(self) -> bool:
        return bool(not self.search or self._searched)

    @property
    def keep_blocks_together(self) -> bool:
        return self.sort in {"", "block"}

    @property
    def any(self) -> bool:
        return bool(self.condition)

    @property
    def address(self) -> str:
        """Return the filters as the beginning of a query string."""
        named = {"account": self.search, "chain": self.source, "state": self.state, "sort": self.sort}
        return "".join(f"{urlencode({name: value})}&" for name, value in named.items() if value)

    @property
    def _searched(self) -> Q:
        if address := checksummed(self.search.lower()):
            return Q(address=address)
        if HASH.fullmatch(self.search):
            return Q(transaction_name=self.search.lower()) | Q(block_of=self.search.lower())
        return Q(block__number=int(self.search)) if NUMBER.fullmatch(self.search) else Q()

    @property
    def condition(self) -> Q:
        source = Q(source_chain_id=int(self.source)) if self.source else Q()
        return self._searched & source & STATES.get(self.state, Q())


@dataclass(frozen=True)
class QuerySelection:
    """The queries that a reader requests."""

    page: str = ""  # as in the page's address
    filters: QueryFilters = QueryFilters()
    only: int | None = None  # the number of the only query to show
    slots: str = ""  # the page of that query's slots or logs, as in the page's address
    event: str = ""  # the signature of an event by which that query's logs are decoded, as typed
    steps_first: bool = False  # the steps stay above the queries, as in a page that was opened before they were DONE


def read(batch: Batch, wanted: QuerySelection, count: int) -> "Page[Query]":
    """Read one page of the queries, with their blocks. `count` is the number of all queries of the batch."""
    queries: QuerySet[Query] = batch.queries.prefetch_related("block").filter(wanted.filters.condition)
    if wanted.only is not None:
        queries = queries.filter(position=wanted.only - 1)
    order = [SORTS[wanted.filters.sort]] if wanted.filters.sort else []
    pages = Paginator(queries.order_by(*order, "position"), PAGE_SIZE)
    if not wanted.filters.any:
        pages.count = 1 if wanted.only is not None else count  # Its own count would be another statement.
    return pages.get_page(wanted.page or 1)
