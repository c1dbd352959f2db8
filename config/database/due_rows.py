"""Rows that workers process when they are due. The holder of a row's lane may process it (`proving.working.lanes`).

The database's clock decides which rows are due, because all workers share it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Case, DateTimeField, F, Q, Value, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Least, Now

# Maximum time by which a row is postponed.
LONGEST = timedelta(minutes=10)
# SQLite's clock has a resolution of a millisecond.
MILLISECOND = timedelta(milliseconds=1)


class DueRow(models.Model):
    """A row that workers process, with the time when it is due and its number of failures."""

    due_at = models.DateTimeField(null=True, blank=True, db_index=True)  # null if there is nothing to do
    attempts = models.PositiveIntegerField(default=0)  # consecutive failures
    failing_since = models.DateTimeField(null=True, blank=True)  # the first of them, or a failure of the database

    class Meta:
        abstract = True


Row = TypeVar("Row", bound=DueRow)


@dataclass(frozen=True)
class Postponement(Generic[Row]):
    """Rows that a worker is processing. If the worker is killed, they are due again at `until`."""

    rows: Sequence[Row]
    until: datetime | None
    due_before: Mapping[Any, datetime | None]
    """When the rows were due before, by primary key."""

    def end(
        self,
        rows: Sequence[Row],
        pause: "timedelta | datetime | Combinable | None",
        *,
        attempts: int = 0,
        **also: Any,
    ) -> None:
        """Make the rows due after a pause, or at a time of the database's clock. Set the columns `also`.

        If `pause` is None, the rows are done. If another process made a row due meanwhile, it stays due. If another
        process ended a row meanwhile, it stays ended.
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
        unfinished = type(rows[0])._default_manager.filter(due_at__isnull=False)
        unfinished.filter(pk__in=[row.pk for row in rows]).update(**changes)

    def keep_age(self, rows: Sequence[Row]) -> None:
        """Note that the database failed while these rows were worked on, which is no failure of theirs.

        They have been failing since they were due, without attempts. They stay postponed, so that others have a turn.
        """
        untouched = type(rows[0])._default_manager.filter(due_at=self.until, failing_since=None)
        for row in sorted(rows, key=lambda row: row.pk):
            since = Least(
                Coalesce(Value(self.due_before[row.pk], output_field=DateTimeField()), Now()),
                Now(),
                output_field=DateTimeField(),
            )
            untouched.filter(pk=row.pk).update(failing_since=since)


def postpone(rows: "models.QuerySet[Row]", keys: Sequence[object]) -> Postponement[Row]:
    """Postpone the rows with these primary keys. Return their new state, in the keys' order.

    A row that another process makes due later has another time, by which `Postponement.end` notices the change. The
    caller has a transaction, which keeps other processes from changing the rows until it ends.
    """
    # An UPDATE of several rows would lock them in any order.
    locked = rows.filter(pk__in=keys).order_by("pk").select_for_update(no_key=True, of=("self",))
    rows_by_key = {row.pk: row for row in locked.annotate(now=Now())}
    ordered = [rows_by_key[key] for key in keys if key in rows_by_key]
    if not ordered:
        return Postponement([], None, {})
    until: datetime = ordered[0].now + timedelta(seconds=settings.LEASE_SECONDS)  # type: ignore[attr-defined]  # annotated
    due_before = {row.pk: row.due_at for row in ordered}
    rows.filter(pk__in=rows_by_key).update(due_at=until)
    for row in ordered:
        row.due_at = until
    return Postponement(ordered, until, due_before)


def due(rows: "models.QuerySet[Row]") -> "models.QuerySet[Row]":
    """Select the rows that are due."""
    return rows.filter(due_at__lt=Now() + MILLISECOND)


def wake_all(rows: "models.QuerySet[Row]") -> None:
    """Make the rows due now that are due later."""
    rows.filter(due_at__gt=Now()).update(due_at=Now())


def wake_rows_postponed_too_long(rows: "models.QuerySet[Row]") -> None:
    """Make rows due now that are postponed for more than the maximum. A clock that was ahead causes this."""
    rows.filter(due_at__gt=Now() + LONGEST + timedelta(minutes=1)).update(due_at=Now())


def backoff(attempts: int, *, first: float = 1, longest: float = 60) -> timedelta:
    """Return the pause after this many consecutive failures. It doubles from `first` to `longest`, in seconds."""
    return timedelta(seconds=min(longest, first * 2 ** min(attempts, 16)))


def without_resting(rows: "models.QuerySet[Row]") -> "models.QuerySet[Row]":
    """Leave out rows that failed and are not due yet. For callers that take rows before they are due."""
    return rows.exclude(Q(attempts__gt=0, due_at__gt=Now()))
