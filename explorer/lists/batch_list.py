"""Lists of the user's own batches, or of everybody's if the operator allows it, with filters, a search and pages.

A page begins after the identifier in its address, so new batches don't change it. Django's paginator isn't used,
because it counts all rows and numbers the pages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from itertools import groupby
from typing import Any, Literal
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from pydantic import ConfigDict, Field

from accounts import read_rate
from accounts.models import User
from accounts.throttle import client_address
from api.batches import BatchFilters, BatchStatusFilter
from config.configured_chains import get_chains
from config.json_objects import iso
from explorer.formatting import csv_lines
from explorer.lists import batch_rows, fact_list, first_query, searched_account, typed_filters
from explorer.lists.batch_rows import BatchRow
from explorer.lists.searched_account import HASH, NUMBER, SearchedAccount
from explorer.lists.typed_filters import UnreadableFilters
from proving.models import SignedTransaction, Transaction
from proving.reading.fact_search import PROPERTIES, START, FactCursor, FoundFacts, PropertyName, search, with_property
from queries import columns, query_rows
from queries.models import Batch, BatchStatus, Block, Query
from queries.query_parameters import AfterDay, BeforeDay, Number, Ulid

PAGE_SIZE = 25
# Maximum lines of a file.
MOST_IN_FILE = 1000
# Facts that are shown next to the batches that a search finds.
_MOST_FACTS = 5
_COLUMNS = (
    *("internal_id", "status", "asked", "source_chain_ids", "destination_chain_id", "cost_wei", "submitted", "ended"),
    *("rejection_code", "fee_wei", "label"),
)


class BatchListFilters(BatchFilters):
    """The API's filters by their names in a page's address, and a search."""

    model_config = ConfigDict(extra="forbid")

    destinationChainId: Number | None = Field(None, alias="chain")
    sourceChainId: Number | None = Field(None, alias="source")
    createdAfter: BeforeDay | None = Field(None, alias="since")
    createdBefore: AfterDay | None = Field(None, alias="until")
    cursor: Ulid | None = Field(None, alias="before")
    after: Ulid | None = None
    property: PropertyName | None = None
    search: str = Field("", alias="q")
    owner: Literal["", "everybody"] = Field("", alias="of")


def _by_day(rows: Sequence[BatchRow]) -> list[tuple[date, str, list[BatchRow]]]:
    """Group the rows by the day of submission, in UTC. The names of today and yesterday are included."""
    today = timezone.now().astimezone(UTC).date()
    names = {today: "Today", today - timedelta(days=1): "Yesterday"}
    by_day = groupby(rows, key=lambda row: row.batch.created_at.astimezone(UTC).date())
    return [(day, names.get(day, ""), list(of_day)) for day, of_day in by_day]


def newest(user: User | None, most: int) -> list[BatchRow]:
    """Return the newest batches of the user, or of everybody if `user` is None."""
    batches = Batch.objects.all() if user is None else Batch.objects.filter(user=user)
    return batch_rows.read(list(batches.defer("request").order_by("-pk")[:most]))


# --- Views ------------------------------------------------------------------------------------------------------------


@never_cache
@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """List the user's batches, or everybody's if `PUBLIC_BATCH_LIST` allows it. Redirect an identifier to its batch."""
    typed = typed_filters.typed(request.GET)
    user = request.user if isinstance(request.user, User) else None
    context = {
        "typed": typed,
        "everybody": _is_everybodys(user, typed.get("of", "")),
        "public": settings.PUBLIC_BATCH_LIST,
        "resolves_names": get_chains().ens is not None,
        "statuses": [*BatchStatusFilter],
        "properties": PROPERTIES,
        "sources": fact_list.source_chains(),
        "chains": fact_list.destination_chains(),
        "names_chains": fact_list.has_several_chains(),
    }
    context["may_list"] = bool(user or context["everybody"])
    try:
        filters = typed_filters.read(BatchListFilters, typed)
    except UnreadableFilters as unreadable:
        return render(request, "explorer/batch_list/page.html", context | {"faults": unreadable.faults}, status=400)
    if found := _only(filters, user):
        return HttpResponseRedirect(reverse("explorer:batch", args=[found]))
    context["is_identifier"] = bool(columns.batch_id(filters.search))
    if context["may_list"]:
        context |= _found(filters, user, searched_account.read(filters.search, client_address(request)))
        context["has_none"] = not context["days"] and not typed.keys() - {"of"}
    context["command"] = None if context.get("days") else first_query.command()
    return render(request, "explorer/batch_list/page.html", context)


def _found(filters: BatchListFilters, user: User | None, account: SearchedAccount | None) -> dict[str, Any]:
    """Return the batches of the page, and the facts next to them."""
    matching = _matching(filters, user, account)
    page = _page(matching.batches, filters)
    fact_filters = fact_list.searched(filters.search, account)
    start, reader = FactCursor.of(START), user.pk if user else None
    facts = search(fact_filters, start, _MOST_FACTS, reader=reader) if fact_filters else FoundFacts([], None)
    query = urlencode(fact_filters.model_dump(exclude_none=True)) if fact_filters else ""
    return {
        "days": _by_day(batch_rows.read(page.batches)),
        # The neighbouring pages begin after these identifiers.
        "newer": page.batches[0].pk if page.batches and page.has_newer else "",
        "older": page.batches[-1].pk if page.batches and page.has_older else "",
        "searched_for": matching.searched_for,
        "account": account,
        "facts_address": f"{reverse('facts')}?{query}" if query else "",
        "facts": list(fact_list.rows(facts.facts)),
        "has_more_facts": facts.next is not None,
    }


@never_cache
@require_safe
@read_rate.counted
def file(request: HttpRequest) -> HttpResponse:
    """Return the list as CSV. If it doesn't fit into one file, the header `Link` names the next file."""
    typed = typed_filters.typed(request.GET)
    user = request.user if isinstance(request.user, User) else None
    if not user and not _is_everybodys(user, typed.get("of", "")):
        return redirect_to_login(request.get_full_path())
    try:
        filters = typed_filters.read(BatchListFilters, typed)
    except UnreadableFilters as unreadable:
        return typed_filters.refusing_file(unreadable.faults, "batches.csv")
    matching = _matching(filters, user, searched_account.read(filters.search, client_address(request)))
    found = query_rows.first(matching.batches, MOST_IN_FILE + 1)
    batches, following = found[:MOST_IN_FILE], ""
    if refusal := read_rate.refusal_of_items(request, batch_rows.items(batches)):
        return refusal
    if len(found) > MOST_IN_FILE:
        parts = request.GET.copy()
        parts["before"] = batches[-1].pk
        following = f"?{parts.urlencode()}"
    rows = batch_rows.read(batches)
    return csv_lines.file(map(csv_lines.line, [_COLUMNS, *map(_cells, rows)]), "batches.csv", following)


def _cells(row: BatchRow) -> Iterator[str]:
    batch = row.batch
    yield from (batch.pk, batch.status, row.headline.text)
    yield " ".join(str(chain.id) for chain in row.sources)
    yield str(row.destination.id)
    yield "" if batch.is_self_funded else str(batch.spent)
    code = batch.rejection_code if batch.status == BatchStatus.REJECTED else ""
    yield from (iso(batch.created_at) or "", iso(batch.finished_at) or "", code, str(batch.fee), batch.label or "")


def _is_everybodys(user: User | None, owner: str) -> bool:
    return settings.PUBLIC_BATCH_LIST and (owner == "everybody" or user is None)


def _only(filters: BatchListFilters, user: User | None) -> str:
    """Return the identifier of the batch that the search names. A prefix must name one alone that the reader may list.

    Empty: there is none.
    """
    if not (prefix := _id_prefix(filters.search)):
        return ""
    batches = Batch.objects.filter(columns.batches_with_prefix(prefix))
    if prefix != columns.batch_id(prefix) and not settings.PUBLIC_BATCH_LIST:
        batches = batches.filter(user=user) if user else batches.none()
    found = list(batches.values_list("pk", flat=True)[:2])
    return found[0] if len(found) == 1 else ""


def _id_prefix(text: str) -> str:
    """Return the beginning of an identifier that the text may stand for. Numbers of blocks begin with no zero."""
    return "" if text.isdecimal() and not text.startswith("0") else columns.batch_id_prefix(text)


# --- Search -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _BatchPage:
    batches: Sequence[Batch]
    """The newest come first."""
    has_newer: bool
    has_older: bool


def _page(batches: "QuerySet[Batch]", filters: BatchListFilters) -> _BatchPage:
    if filters.after:
        rows = query_rows.first(batches.filter(pk__gt=filters.after), PAGE_SIZE + 1, order="pk")
        return _BatchPage(rows[:PAGE_SIZE][::-1], has_newer=len(rows) > PAGE_SIZE, has_older=True)
    rows = query_rows.first(batches, PAGE_SIZE + 1)
    return _BatchPage(rows[:PAGE_SIZE], has_newer=bool(filters.cursor), has_older=len(rows) > PAGE_SIZE)


@dataclass(frozen=True)
class _SearchedBatches:
    batches: "QuerySet[Batch]"
    searched_for: str = ""
    """The kind of the search. Empty if there is no search."""


def _matching(filters: BatchListFilters, user: User | None, account: SearchedAccount | None) -> _SearchedBatches:
    batches = _filtered(filters, user)
    text = filters.search
    if not text:
        return _SearchedBatches(batches)
    if HASH.fullmatch(text):
        sent = SignedTransaction.objects.filter(hash=text.lower()).values("transaction")
        by_transaction = Transaction.queries.through.objects.filter(transaction__in=sent).values("query__batch")
        blocks = Block.objects.filter(hash=text.lower()).values("pk")
        by_block = Query.objects.filter(block__in=blocks).values("batch")
        named = Query.objects.filter(Q(transaction_name=text.lower()) | Q(block_of=text.lower())).values("batch")
        found = batches.filter(Q(pk__in=by_transaction) | Q(pk__in=by_block) | Q(pk__in=named))
        return _SearchedBatches(found, "hash")
    # The condition that the label isn't null leads to the index of labels.
    labelled = Batch.objects.filter(label__isnull=False, label__icontains=text)
    if user and not _is_everybodys(user, filters.owner):
        labelled = labelled.filter(user=user)
    by_label = Q(pk__in=labelled.values("pk"))
    if prefix := _id_prefix(text):
        return _SearchedBatches(batches.filter(columns.batches_with_prefix(prefix) | by_label), "identifier")
    if NUMBER.fullmatch(text):
        # With the ids in the statement, PostgreSQL can estimate the number of their queries.
        numbered = list(Block.objects.filter(number=int(text)).values_list("pk", flat=True))
        of_blocks = Query.objects.filter(block__in=numbered).values("batch")
        return _SearchedBatches(batches.filter(Q(pk__in=of_blocks) | by_label), "number")
    if account and account.address:
        of_account = Query.objects.filter(address=account.address).values("batch")
        return _SearchedBatches(batches.filter(Q(pk__in=of_account) | by_label), "account")
    return _SearchedBatches(batches.filter(by_label), "label")


def _filtered(filters: BatchListFilters, user: User | None) -> "QuerySet[Batch]":
    """Return the batches of the list, without the search."""
    is_everybodys = not user or _is_everybodys(user, filters.owner)
    batches = filters.apply(Batch.objects.all() if is_everybodys else Batch.objects.filter(user=user))
    if not filters.property:
        return batches
    queries = Query.objects.filter(batch=OuterRef("pk"))
    if filters.sourceChainId is not None:
        queries = queries.filter(source_chain_id=filters.sourceChainId)
    return batches.filter(Exists(with_property(filters.property, queries)))
