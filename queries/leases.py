"""Leases: how exactly one worker at a time works on a row, and how a killed worker's rows are taken up by another.

A row is claimed by a conditional update that sets a fresh token and an expiry. What the worker found out is written
only inside `Lease.writing()`, which holds the row's lock and fails with `LeaseLost` if the token is no longer the
row's: a worker that was paused for too long can't overwrite what its successor wrote. No RPC call belongs inside.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils import timezone


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
            fresh = model._default_manager.select_for_update().filter(pk=self.row.pk, lease_token=self.token).first()  # noqa: SLF001 (Django's public name for it)
            if fresh is None:
                raise LeaseLost
            fresh.leased_until = _expiry(timezone.now())
            fresh.save(update_fields=["leased_until"])
            yield fresh
        self.row = fresh

    def extend(self) -> None:
        """Keep the row while long work goes on. Raises `LeaseLost`."""
        model = type(self.row)
        held = model._default_manager.filter(pk=self.row.pk, lease_token=self.token)  # noqa: SLF001 (Django's public name for it)
        if not held.update(leased_until=_expiry(timezone.now())):
            raise LeaseLost

    def release(self, due_at: datetime | None, *, attempts: int = 0) -> None:
        """Give the row back. A lost lease is not an error here: the row is somebody else's now."""
        failing_since = Coalesce(F("failing_since"), timezone.now()) if attempts else None
        type(self.row)._default_manager.filter(pk=self.row.pk, lease_token=self.token).update(  # noqa: SLF001 (as above)
            due_at=due_at, attempts=attempts, failing_since=failing_since, lease_token="", leased_until=None
        )


def claim(rows: "models.QuerySet[LeasedRow]", pk: object) -> Lease[LeasedRow] | None:
    """Lease the row `pk` of `rows`, or None when another worker has it or it isn't among `rows` any more."""
    now = timezone.now()
    token = secrets.token_hex(16)
    free = rows.filter(Q(leased_until=None) | Q(leased_until__lt=now), pk=pk)
    if not free.update(lease_token=token, leased_until=_expiry(now)):
        return None
    row = rows.model._default_manager.filter(pk=pk, lease_token=token).first()  # noqa: SLF001 (as above)
    return None if row is None else Lease(row, token)


def due(rows: "models.QuerySet[LeasedRow]", limit: int, *, order: str = "due_at") -> list[object]:
    """Primary keys of the rows that are due and free, the longest due first."""
    now = timezone.now()
    free = rows.filter(Q(leased_until=None) | Q(leased_until__lt=now), due_at__lte=now)
    return list(free.order_by(order).values_list("pk", flat=True)[:limit])


def parties(rows: "models.QuerySet[LeasedRow]", column: str) -> list[Any]:
    """What `column` has in the rows that are due, now or later, or leased: each value once."""
    return list(rows.filter(due_at__isnull=False).order_by().values_list(column, flat=True).distinct())


def backoff(attempts: int, *, first: float = 1, longest: float = 60) -> timedelta:
    """How long to wait after so many failures in a row: doubling from `first` to `longest`, in seconds."""
    return timedelta(seconds=min(longest, first * 2 ** min(attempts, 16)))


def _expiry(now: datetime) -> datetime:
    return now + timedelta(seconds=settings.LEASE_SECONDS)
