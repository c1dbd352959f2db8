"""The user's start page: newest batches, the remaining budget of the day, and the last 30 days."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta

from django.conf import settings
from django.db.models import Count, TextField
from django.db.models.functions import Cast, Substr
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from accounts.key_views import keys_as_json, live_keys, shown_keys
from accounts.models import User
from accounts.signed_in import signed_in
from config.error_answers import wants_json
from explorer.lists import batch_list
from proving import money
from queries.columns import RejectionCode
from queries.models import Batch, BatchStatus

_DAYS = 30
# Statistics cover only this number of a user's newest batches.
MOST_BATCHES = 10_000
_LATEST, _KEYS = 6, 3


@dataclass(frozen=True)
class Day:
    date: date
    done: int  # batches
    rejected: int

    @property
    def ended(self) -> int:
        return self.done + self.rejected


def success(done: int, ended: int) -> str:
    """Return the percentage of DONE batches. It shows 100 % or 0 % only if that is exact."""
    if done in {0, ended}:
        return "100 %" if done else "0 %"
    return f"{min(max(100 * done / ended, 0.1), 99.9):.1f} %"


@dataclass(frozen=True)
class Month:
    """The results of a user's batches of the last days."""

    days: Sequence[Day]  # in UTC, the newest last
    counts_all: bool  # False: only the newest batches are counted

    @property
    def done(self) -> int:
        return sum(day.done for day in self.days)

    @property
    def ended(self) -> int:
        return sum(day.ended for day in self.days)


def month(user: User) -> Month:
    """Return the results of the user's batches by day.

    Cancelled batches don't count as failed. The database adds up the rows, which an index finds by user and time.
    """
    # A batch ends by its deadline. A batch that a reorg reopened gets a new deadline.
    first = timezone.now() - timedelta(days=_DAYS, seconds=2 * settings.BATCH_DEADLINE_SECONDS)
    batches = Batch.objects.filter(user=user, created_at__gte=first)
    newest = batches.order_by("-created_at").values("pk")[:MOST_BATCHES]
    cancelled = (RejectionCode.CANCELLED_BY_USER, RejectionCode.CANCELLED_BY_OPERATOR)
    # The day is a string, because SQLite calls a Python function for each row to make a date.
    day = Substr(Cast("finished_at", TextField()), 1, len("2026-01-31"))
    # Without the identifiers, SQLite would read all of the user's batches.
    rows = Batch.objects.filter(pk__in=newest).exclude(rejection_code__in=cancelled).annotate(day=day)
    counts = {(at, status): n for at, status, n in rows.values_list("day", "status").annotate(Count("pk"))}
    today = timezone.now().astimezone(UTC).date()
    dates = [today - timedelta(days=ago) for ago in reversed(range(_DAYS))]
    done, rejected = BatchStatus.DONE, BatchStatus.REJECTED
    days = [Day(at, counts.get((str(at), done), 0), counts.get((str(at), rejected), 0)) for at in dates]
    return Month(days, counts_all=sum(counts.values()) < MOST_BATCHES)


@require_GET
@signed_in
def dashboard(request: HttpRequest, user: User) -> HttpResponse:
    """Show the user's newest batches, budget and days. Programs get the user's keys, like at `/keys`."""
    if wants_json(request):
        return keys_as_json(user)
    live, past = live_keys(user), month(user)
    context = {
        "latest": batch_list.newest(user, _LATEST),
        "allowances": money.allowances_of(user),
        "days": past.days,
        "done": past.done,
        "ended": past.ended,
        "success": success(past.done, past.ended),
        "top": max(day.ended for day in past.days),
        "most_counted": None if past.counts_all else MOST_BATCHES,
        "keys": shown_keys(live[: -_KEYS - 1 : -1]),
        "key_count": len(live),
    }
    return render(request, "explorer/dashboard/page.html", context)
