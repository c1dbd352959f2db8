"""The results of a user's batches on each of the last days, by the day on which they ended, in UTC.

Batches are never pruned, so nothing is missing for that. What is added up is bounded instead.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Substr
from django.utils import timezone

from accounts.models import User
from queries.models import Batch, BatchStatus

DAYS = 30
# Only this number of a user's newest batches is added up.
MOST_BATCHES = 10_000


@dataclass(frozen=True)
class Day:
    date: date
    done: int = 0  # batches
    rejected: int = 0
    proven: int = 0  # accounts, slots and headers of those that were done
    gas: int = 0  # of all that ended

    @property
    def ended(self) -> int:
        return self.done + self.rejected


@dataclass(frozen=True)
class History:
    days: tuple[Day, ...]  # `DAYS` of them, the last one is today
    is_whole: bool  # whether all batches of these days are counted

    @property
    def any(self) -> bool:
        return any(day.ended for day in self.days)


def _sums(user: User, first: datetime) -> "QuerySet[Batch, tuple[Any, ...]]":
    batches = Batch.objects.filter(user=user, created_at__gte=first)
    newest = batches.order_by("-created_at").values("pk")[:MOST_BATCHES]
    # A day as text: SQLite would call Python for each row to make a date.
    day = Substr(Cast("finished_at", TextField()), 1, len("2026-01-31"))
    rows = batches.filter(pk__in=newest).annotate(day=day).values_list("day", "status")
    return rows.annotate(Count("pk"), Sum("size"), Sum("gas_used"))


def read(user: User) -> History:
    """Read the user's days by one statement. The database adds up the rows that an index finds by user and time."""
    today = timezone.now().astimezone(UTC).date()
    dates = [today - timedelta(days=ago) for ago in reversed(range(DAYS))]
    # A batch ends by its deadline. One that a reorganised chain took back may end later, within a new one.
    first = timezone.now() - timedelta(days=DAYS, seconds=2 * settings.BATCH_DEADLINE_SECONDS)
    rows = list(_sums(user, first))
    sums: dict[str, dict[str, tuple[int, int, int]]] = defaultdict(dict)
    for day, status, *added in rows:
        if day is not None:
            sums[day][status] = (int(added[0]), int(added[1]), int(added[2]))
    return History(
        days=tuple(_day(day, sums.get(day.isoformat(), {})) for day in dates),
        is_whole=sum(int(count) for _, _, count, *_ in rows) < MOST_BATCHES,
    )


def _day(day: date, sums: dict[str, tuple[int, int, int]]) -> Day:
    none = (0, 0, 0)
    done, rejected = sums.get(BatchStatus.DONE, none), sums.get(BatchStatus.REJECTED, none)
    return Day(day, done=done[0], rejected=rejected[0], proven=done[1], gas=done[2] + rejected[2])
