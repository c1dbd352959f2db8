"""Leases: how exactly one worker at a time works on a row, and how a killed worker's rows are taken up by another.

A row is claimed by a conditional update that sets a fresh token and an expiry. What the worker found out is written
only inside `Lease.writing()`, which holds the row's lock and fails with `LeaseLost` if the token is no longer the
row's: a worker that was paused for too long can't overwrite what its successor wrote. No RPC call belongs inside.

The database's clock tells what is due and which leases have run out: all workers share it, whatever their own clocks
show.
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

# Nothing is put off for longer: a row with more was written by a clock that was ahead.
LONGEST = timedelta(hours=1)
# SQLite's clock tells whole milliseconds.
_TICK = timedelta(milliseconds=1)


class Leased(models.Model):
    """A row that workers work on: when it is due, and who has it."""

    due_at = models.DateTimeField(null=True, blank=True, db_index=True)  # null: nothing to do
    attempts = models.PositiveIntegerField(default=0)  # failures in a row
    failing_since = models.DateTimeField(null=True, blank=True)  # the first of them
    lease_token = models.CharField(max_length=32, blank=True)
    leased_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True


LeasedRow = TypeVar("LeasedRow", bound=Leased)


class LeaseLost(Exception):
    """The row was taken over by another worker; nothing was written."""


@dataclass
class Lease(Generic[LeasedRow]):
    row: LeasedRow
    token: str

    @contextmanager
    def writing(self) -> Iterator[LeasedRow]:
        """A database transaction with the row locked and fresh. The lease is extended on the way."""
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
        """Give the row back. A lost lease is not an error here: the row is somebody else's now."""
        failing_since = Coalesce(F("failing_since"), Now()) if attempts else None
        if due_at is not None:
            due_at = Least(due_at, Now() + LONGEST, output_field=DateTimeField())
        type(self.row)._default_manager.filter(pk=self.row.pk, lease_token=self.token).update(
            due_at=due_at, attempts=attempts, failing_since=failing_since, lease_token="", leased_until=None
        )


def claim(rows: "models.QuerySet[LeasedRow]", pk: object) -> Lease[LeasedRow] | None:
    """Lease the row `pk` of `rows`, or None when another worker has it or it isn't among `rows` any more."""
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
    """What `column` has in the rows that are due, now or later, or leased: each value once."""
    return list(rows.filter(due_at__isnull=False).order_by().values_list(column, flat=True).distinct())


def without_resting(rows: "models.QuerySet[LeasedRow]") -> "models.QuerySet[LeasedRow]":
    """Those that have not just failed, for who doesn't wait until they are due."""
    return rows.exclude(attempts__gt=0, due_at__gt=Now())


def backoff(attempts: int, *, first: float = 1, longest: float = 60) -> timedelta:
    """How long to wait after so many failures in a row: doubling from `first` to `longest`, in seconds."""
    return timedelta(seconds=min(longest, first * 2 ** min(attempts, 16)))


def recover(rows: "models.QuerySet[LeasedRow]") -> None:
    """Make those rows due, and free, that a clock which was ahead has put off."""
    latest = _expiry() + LONGEST
    for column, now in (("due_at", Now()), ("leased_until", None)):
        put_off = rows.filter(**{f"{column}__gt": latest})
        # SQLite would take its write lock to change nothing.
        if put_off.exists():
            put_off.update(**{column: now})


def _expiry() -> Combinable:
    return Now() + timedelta(seconds=settings.LEASE_SECONDS)
