"""Leases: exactly one worker at a time works on a row, and another worker takes up the rows of a killed one.

A worker claims a row by a conditional update that sets a fresh token and an expiry. It writes its results only inside
`Lease.writing()`, a transaction that raises `LeaseLost` if the row has another token by now. So a worker that was
paused for too long can't overwrite what its successor wrote. The transaction locks the whole database, as
`config.settings.database` explains, so no RPC call belongs inside.

The database's clock decides what is due and which leases have expired: all workers share it, whatever their own clocks
show.

Written by hand, because task queues need a broker of their own, and here rows are the queue.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db import models, transaction
from django.db.models import DateTimeField, F, Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Least, Now

# Nothing is postponed for longer. A row with a later time was written while the clock was ahead.
LONGEST = timedelta(hours=1)
# SQLite's clock has a resolution of a millisecond.
_TICK = timedelta(milliseconds=1)


class Leased(models.Model):
    """A row that workers work on: when it is due, and which worker has it."""

    due_at = models.DateTimeField(null=True, blank=True, db_index=True)  # null: nothing to do
    attempts = models.PositiveIntegerField(default=0)  # failures in a row
    failing_since = models.DateTimeField(null=True, blank=True)  # the first of them
    lease_token = models.CharField(max_length=32, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


LeasedRow = TypeVar("LeasedRow", bound=Leased)


class LeaseLost(Exception):
    """Another worker has taken over the row; nothing was written."""


@dataclass
class Lease(Generic[LeasedRow]):
    row: LeasedRow
    token: str

    @contextmanager
    def writing(self) -> Iterator[LeasedRow]:
        """A database transaction with the row as it is now. Extends the lease. Raises `LeaseLost`."""
        model = type(self.row)
        with transaction.atomic():
            held = model._default_manager.filter(pk=self.row.pk, lease_token=self.token)
            fresh = held.select_for_update().first()
            if fresh is None:
                raise LeaseLost
            held.update(leased_until=_expiry())
            yield fresh
        self.row = fresh

    def extend(self) -> None:
        """Keep the row while long work goes on. Raises `LeaseLost`."""
        model = type(self.row)
        held = model._default_manager.filter(pk=self.row.pk, lease_token=self.token)
        if not held.update(leased_until=_expiry()):
            raise LeaseLost

    def release(self, due_at: datetime | Combinable | None, *, attempts: int = 0) -> None:
        """Give the row back. A lost lease is not an error here: another worker has the row."""
        failing_since = Coalesce(F("failing_since"), Now()) if attempts else None
        if due_at is not None:
            due_at = Least(due_at, Now() + LONGEST, output_field=DateTimeField())
        type(self.row)._default_manager.filter(pk=self.row.pk, lease_token=self.token).update(
            due_at=due_at, attempts=attempts, failing_since=failing_since, lease_token="", leased_until=None
        )


def claim(rows: "models.QuerySet[LeasedRow]", pk: object) -> Lease[LeasedRow] | None:
    """Lease the row `pk` of `rows`. None if another worker has it, or if it is no longer among `rows`."""
    token = secrets.token_hex(16)
    free = rows.filter(Q(leased_until=None) | Q(leased_until__lt=Now()), pk=pk)
    if not free.update(lease_token=token, leased_until=_expiry()):
        return None
    row = rows.model._default_manager.filter(pk=pk, lease_token=token).first()
    return None if row is None else Lease(row, token)


def due(rows: "models.QuerySet[LeasedRow]", limit: int, *, order: str = "due_at") -> list[object]:
    """Primary keys of the rows that are due and free, the longest due first."""
    free = rows.filter(Q(leased_until=None) | Q(leased_until__lt=Now()), due_at__lt=Now() + _TICK)
    return list(free.order_by(order).values_list("pk", flat=True)[:limit])


def parties(rows: "models.QuerySet[LeasedRow]", column: str) -> list[Any]:
    """The distinct values of `column` in the rows that are or will be due."""
    return list(rows.filter(due_at__isnull=False).order_by().values_list(column, flat=True).distinct())


def without_resting(rows: "models.QuerySet[LeasedRow]") -> "models.QuerySet[LeasedRow]":
    """Those that have not just failed, for who doesn't wait until they are due."""
    return rows.exclude(attempts__gt=0, due_at__gt=Now())


def backoff(attempts: int, *, first: float = 1, longest: float = 60) -> timedelta:
    """How long to wait after this many failures in a row: doubles from `first` to `longest`, in seconds."""
    return timedelta(seconds=min(longest, first * 2 ** min(attempts, 16)))


def recover(rows: "models.QuerySet[LeasedRow]") -> None:
    """Make rows due and free that were postponed too far while the clock was ahead."""
    latest = _expiry() + LONGEST
    for column, now in (("due_at", Now()), ("leased_until", None)):
        put_off = rows.filter(**{f"{column}__gt": latest})
        # An update takes the write lock even if it changes nothing.
        if put_off.exists():
            put_off.update(**{column: now})


def _expiry() -> Combinable:
    return Now() + timedelta(seconds=settings.LEASE_SECONDS)
