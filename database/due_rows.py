"""Rows that workers work on when they are due. Who may work on them is the holder of their lane (`proving.lanes`).

The database's clock decides what is due: all workers share it, whatever their own clocks show.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Case, DateTimeField, F, Q, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Least, Now

# Nothing is postponed for longer.
LONGEST = timedelta(minutes=10)
# SQLite's clock has a resolution of a millisecond.
MILLISECOND = timedelta(milliseconds=1)


class DueRow(models.Model):
    """A row that workers work on: when it is due, and how often that has failed."""

    due_at = models.DateTimeField(null=True, blank=True, db_index=True)  # null: nothing to do
    attempts = models.PositiveIntegerField(default=0)  # failures in a row
    failing_since = models.DateTimeField(null=True, blank=True)  # the first of them
    # Unused since 0.3; both go with the next minor version.
    lease_token = models.CharField(max_length=32, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


Row = TypeVar("Row", bound=DueRow)


@dataclass(frozen=True)
class Postponement(Generic[Row]):
    """Rows that a worker works on: they are due again at `until`, which is what happens if the worker is killed."""

    rows: Sequence[Row]
    until: datetime | None

    def end(
        self,
        rows: Sequence[Row],
        pause: "timedelta | datetime | Combinable | None",
        *,
        attempts: int = 0,
        **also: Any,
    ) -> None:
        """Make some of the rows due after a pause, or at a time of the database's clock, with these columns `also`.

        None: there is nothing more to do. A row that somebody has made due meanwhile stays so, and one that somebody
        has ended stays as it is.
        """
        due_at = Now() + pause if isinstance(pause, timedelta) else pause
        if due_at is not None:
            due_at = Least(due_at, Now() + LONGEST, output_field=DateTimeField())
        is_untouched = When(due_at=self.until, then=Value(None) if due_at is None else due_at)
        changes = {
            "due_at": Case(is_untouched, default=F("due_at"), output_field=DateTimeField()),
            "attempts": attempts,
            "failing_since": Coalesce(F("failing_since"), Now()) if attempts else None,
            **also,
        }
        going = type(rows[0])._default_manager.filter(due_at__isnull=False)
        going.filter(pk__in=[row.pk for row in rows]).update(**changes)


def postpone(rows: "models.QuerySet[Row]", keys: Sequence[object]) -> Postponement[Row]:
    """Postpone those of the rows with these primary keys, and return them as they are then, in the keys' order.

    Whoever makes one due later gives it another time, which `Postponement.end` heeds. Inside the caller's transaction:
    until it ends nobody else does.
    """
    rows.filter(pk__in=keys).update(due_at=Now() + timedelta(seconds=settings.LEASE_SECONDS))
    found = rows.in_bulk(keys)
    ordered = [found[key] for key in keys if key in found]
    return Postponement(ordered, ordered[0].due_at if ordered else None)


def due(rows: "models.QuerySet[Row]") -> "models.QuerySet[Row]":
    """Select the rows that are due."""
    return rows.filter(due_at__lt=Now() + MILLISECOND)


def wake_all(rows: "models.QuerySet[Row]") -> None:
    """Make all rows due for which there is something to do, now or later."""
    rows.filter(due_at__gt=Now()).update(due_at=Now())


def wake_what_is_too_late(rows: "models.QuerySet[Row]") -> None:
    """Make rows due that are postponed for longer than anything is: a clock was ahead when they were."""
    rows.filter(due_at__gt=Now() + LONGEST + timedelta(minutes=1)).update(due_at=Now())


def backoff(attempts: int, *, first: float = 1, longest: float = 60) -> timedelta:
    """Return how long to wait after this many failures in a row. It doubles from `first` to `longest`, in seconds."""
    return timedelta(seconds=min(longest, first * 2 ** min(attempts, 16)))


def without_resting(rows: "models.QuerySet[Row]") -> "models.QuerySet[Row]":
    """Leave out rows that failed and are not due again yet, for callers that take other rows before they are due."""
    return rows.exclude(Q(attempts__gt=0, due_at__gt=Now()))
