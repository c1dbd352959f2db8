"""Lists of the user's own batches, or of everybody's if the operator allows it, with filters, a search and pages.

A page begins after the identifier in its address, so new batches don't change it. Django's paginator isn't used,
because it counts all rows and numbers the pages.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from typing import Self
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from accounts import read_rate
from accounts.models import User
from accounts.throttle import client_address
from config.chain_names import chain_name
from config.configured_chains import get_chains
from config.json_objects import iso
from explorer.formatting import csv_lines
from explorer.lists import batch_rows, fact_list, first_query, searched_account
from explorer.lists.batch_rows import BatchRow
from explorer.lists.searched_account import HASH, NUMBER, SearchedAccount
from proving.fact_search import PROPERTIES, START, FactCursor, FoundFacts, search, with_property
from proving.models import SignedTransaction, Transaction
from queries import columns, query_rows
from queries.models import Batch, BatchStatus, Block, Query

PAGE_SIZE = 25
# Maximum lines of a file.
MOST_IN_FILE = 1000
# Facts that are shown next to the batches that a search finds.
_MOST_FACTS = 5
_COLUMNS = (
    *("internal_id", "status", "asked", "source_chain_ids", "destination_chain_id", "cost_wei", "submitted", "ended"),
    *("rejection_code", "fee_wei"),
)
_STATUS, _PROPERTY = re.compile("|".join(BatchStatus.values)), re.compile("|".join(PROPERTIES))


@dataclass(frozen=True)
class BatchListFilters:
    """The filters in a page's address."""

    everybody: bool = False
    status: str = ""
    chain: str = ""  # the destination's chain id
    source: str = ""  # a source chain's id
    property: str = ""  # one of `fact_search.PROPERTIES`
    since: str = ""  # dates in UTC, of which the last counts too
    until: str = ""
    search: str = ""
    before: str = ""  # identifier; older batches are shown
    after: str = ""  # identifier; newer batches are shown

    @classmethod
    def of(cls, query: QueryDict) -> Self:
        """Read the filters. A malformed filter counts as empty."""
        forms = {"status": _STATUS, "chain": NUMBER, "source": NUMBER, "property": _PROPERTY}
        given = {name: query.get(name, "") for name, form in forms.items() if form.fullmatch(query.get(name, ""))}
        given |= {name: _date(query.get(name, "")) for name in ("since", "until")}
        given |= {name: columns.batch_id(query.get(name, "")) for name in ("before", "after")}
        search = query.get("q", "").strip().replace("\0", "")[:100]
        return cls(everybody=query.get("of") == "everybody", search=search, **given)


def _date(text: str) -> str:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return ""
    return day.isoformat() if day.year < date.max.year else ""  # there is a day after it


def _midnight(day: str) -> datetime:
    return datetime.combine(date.fromisoformat(day), time.min, UTC)


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
    filters = BatchListFilters.of(request.GET)
    user = request.user if isinstance(request.user, User) else None
    wanted = columns.batch_id(filters.search)
    if found := _only(filters, user):
        return HttpResponseRedirect(reverse("explorer:batch", args=[found]))
    context = {"filters": filters, "is_identifier": bool(wanted), "resolves_names": get_chains().ens is not None}
    rows, is_everybodys = [], _is_everybodys(user, filters)
    if user or is_everybodys:
        account = searched_account.read(filters.search, client_address(request))
        batches, searched_for = _matching(filters, user, account)
        page = _page(batches, filters)
        rows, fact_filters = batch_rows.read(page.batches), fact_list.searched(filters.search, account)
        facts = search(fact_filters, FactCursor.of(START), _MOST_FACTS) if fact_filters else FoundFacts([], None)
        context |= {
            "everybody": is_everybodys,
            "public": settings.PUBLIC_BATCH_LIST,
            "may_list": True,
            "days": _by_day(rows),
            # The neighbouring pages begin after these identifiers.
            "newer": page.batches[0].pk if page.batches and page.has_newer else "",
            "older": page.batches[-1].pk if page.batches and page.has_older else "",
            "searched_for": searched_for,
            "not_understood": bool(filters.search) and not searched_for,
            "has_none": not rows and filters == BatchListFilters(everybody=filters.everybody),
            "account": account,
            "facts_address": f"{reverse('facts')}?{urlencode(fact_filters.model_dump(exclude_none=True))}"
            if fact_filters
            else "",
            "facts": list(fact_list.rows(facts.facts)),
            "has_more_facts": facts.next is not None,
            "statuses": BatchStatus.values,
            "properties": PROPERTIES,
            "sources": fact_list.source_chains(),
            "chains": [chain_name(chain.id) for chain in get_chains().destinations()],
        }
    return render(
        request, "explorer/batch_list/page.html", context | {"command": None if rows else first_query.command()}
    )


@never_cache
@require_safe
@read_rate.counted
def file(request: HttpRequest) -> HttpResponse:
    """Return the list as CSV. If it doesn't fit into one file, the header `Link` names the next file."""
    filters = BatchListFilters.of(request.GET)
    user = request.user if isinstance(request.user, User) else None
    if not user and not _is_everybodys(user, filters):
        return redirect_to_login(request.get_full_path())
    batches, _ = _matching(filters, user, searched_account.read(filters.search, client_address(request)))
    if filters.before:
        batches = batches.filter(pk__lt=filters.before)
    rows = batch_rows.read(query_rows.first(batches, MOST_IN_FILE + 1))
    following = ""
    if len(rows) > MOST_IN_FILE:
        rows = rows[:MOST_IN_FILE]
        parts = request.GET.copy()
        parts["before"] = rows[-1].batch.pk
        following = f"?{parts.urlencode()}"
    return csv_lines.file(map(csv_lines.line, [_COLUMNS, *map(_cells, rows)]), "batches.csv", following)


def _cells(row: BatchRow) -> Iterator[str]:
    batch = row.batch
    yield from (batch.pk, batch.status, row.headline.text)
    yield " ".join(str(chain.id) for chain in row.sources)
    yield str(row.destination.id)
    yield "" if batch.is_self_funded else str(batch.spent)
    code = batch.rejection_code if batch.status == BatchStatus.REJECTED else ""
    yield from (iso(batch.created_at) or "", iso(batch.finished_at) or "", code, str(batch.fee))


def _is_everybodys(user: User | None, filters: BatchListFilters) -> bool:
    return settings.PUBLIC_BATCH_LIST and (filters.everybody or user is None)


def _only(filters: BatchListFilters, user: User | None) -> str:
    """Return the identifier of the batch that the search names. A prefix must name one alone that the reader may list.

    Empty: there is none.
    """
    if not (ids := _ids(filters.search)):
        return ""
    batches = Batch.objects.filter(pk__range=ids)
    if ids[0] != ids[1] and not settings.PUBLIC_BATCH_LIST:
        batches = batches.filter(user=user) if user else batches.none()
    found = list(batches.values_list("pk", flat=True)[:2])
    return found[0] if len(found) == 1 else ""


def _ids(text: str) -> tuple[str, str] | None:
    """Return the first and the last identifier that the text may stand for. Numbers of blocks begin with no zero."""
    return None if text.isdecimal() and not text.startswith("0") else columns.batch_ids(text)


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
    if filters.before:
        batches = batches.filter(pk__lt=filters.before)
    rows = query_rows.first(batches, PAGE_SIZE + 1)
    return _BatchPage(rows[:PAGE_SIZE], has_newer=bool(filters.before), has_older=len(rows) > PAGE_SIZE)


def _matching(
    filters: BatchListFilters, user: User | None, account: SearchedAccount | None
) -> tuple["QuerySet[Batch]", str]:
    """Return the matching batches and the kind of the search. If nothing can match, return no batches and no kind."""
    batches = _filtered(filters, user)
    text = filters.search
    if not text:
        return batches, ""
    if ids := _ids(text):
        return batches.filter(pk__range=ids), "identifier"
    if NUMBER.fullmatch(text):
        # With the ids in the statement, PostgreSQL can estimate the number of their queries.
        numbered = list(Block.objects.filter(number=int(text)).values_list("pk", flat=True))
        return batches.filter(pk__in=Query.objects.filter(block__in=numbered).values("batch")), "number"
    if HASH.fullmatch(text):
        sent = SignedTransaction.objects.filter(hash=text.lower()).values("transaction")
        by_transaction = Transaction.queries.through.objects.filter(transaction__in=sent).values("query__batch")
        blocks = Block.objects.filter(hash=text.lower()).values("pk")
        by_block = Query.objects.filter(block__in=blocks).values("batch")
        named = Query.objects.filter(Q(transaction_name=text.lower()) | Q(block_of=text.lower())).values("batch")
        return batches.filter(Q(pk__in=by_transaction) | Q(pk__in=by_block) | Q(pk__in=named)), "hash"
    if account and account.address:
        return batches.filter(pk__in=Query.objects.filter(address=account.address).values("batch")), "account"
    # An unknown name matches nothing. An empty address would match queries about headers.
    return batches.none(), "account" if account else ""


def _filtered(filters: BatchListFilters, user: User | None) -> "QuerySet[Batch]":
    """Return the batches of the list, without the search."""
    batches = Batch.objects.all()
    if user and not _is_everybodys(user, filters):
        batches = batches.filter(user=user)
    if filters.status:
        batches = batches.filter(status=filters.status)
    if filters.chain:
        batches = batches.filter(destination_chain_id=int(filters.chain))
    if filters.since:
        batches = batches.filter(created_at__gte=_midnight(filters.since))
    if filters.until:
        batches = batches.filter(created_at__lt=_midnight(filters.until) + timedelta(days=1))
    if filters.source or filters.property:
        queries = Query.objects.filter(batch=OuterRef("pk"))
        if filters.source:
            queries = queries.filter(source_chain_id=int(filters.source))
        batches = batches.filter(Exists(with_property(filters.property or None, queries)))
    return batches
