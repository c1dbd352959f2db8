"""Leases: exactly one worker at a time works on a row, and another worker takes up the rows of a killed one.

A worker claims a row by a conditional update that sets a fresh token and an expiry. It writes its results only inside
`Lease.writing()`, a transaction that raises `LeaseLost` if the row has another token by now. So a worker that was
paused for too long can't overwrite what its successor wrote. The transaction locks the row, and on SQLite the whole
database (`config.settings` says how), so no RPC call belongs inside.

The database's clock decides what is due and which leases have expired: all workers share it, whatever their own clocks
show.

Written by hand, because rows are the queue, with a broker as well: what it says is only where to look.
"""

import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.db import OperationalError, connection, models, transaction
from django.db.models import DateTimeField, F, Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce, Least, Now

from chains import together
from chains.together import Outcome, Raised
from database import row_locks

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

# Nothing is postponed for longer. A row with a later time was written while a clock was ahead, and is due.
LONGEST = timedelta(minutes=10)
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


@dataclass(eq=False)
class Lease(Generic[LeasedRow]):
    row: LeasedRow
    token: str
    was_due_at: datetime | None
    """The due time when it was claimed. If the row has another one, it was made due since."""
    claimed_at: datetime | None
    """By the database's clock."""
    extended_at: float
    """The time when it was claimed or extended, by `time.monotonic`."""

    @property
    def is_fresh(self) -> bool:
        """Return whether most of it is left: nobody else can have the row, and extending it would gain little."""
        return time.monotonic() - self.extended_at < settings.LEASE_SECONDS / 10

    @contextmanager
    def writing(self) -> Iterator[LeasedRow]:
        """Open a database transaction with the row as it is now. Extends the lease. Raises `LeaseLost`."""
        with writing_all([self]) as held:
            if not held:
                raise LeaseLost
            yield self.row

    def write(self, change: Callable[[], Result]) -> Result:
        """Do it inside of `writing`, and again where the database has ended that because of others."""

        def whole() -> Result:
            with self.writing():
                return change()

        return row_locks.retried(whole)

    def extend(self) -> None:
        """Keep the row while long work goes on. Raises `LeaseLost`."""
        if self.is_fresh:
            return
        began = time.monotonic()
        if not row_locks.update(_held([self]), leased_until=_expiry()):
            raise LeaseLost
        self.extended_at = began

    def give_back(self, due: "timedelta | datetime | Combinable | None", *, attempts: int = 0, **also: Any) -> None:
        """Release the lease as `release` does, in one statement with what the tasks beside give back alike."""
        change = frozenset({"due": due, "attempts": attempts, **also}.items())
        together.share_work(("give back", type(self.row)), (self, change), _give_back_all)

    def release(self, due: "timedelta | datetime | Combinable | None", *, attempts: int = 0, **also: Any) -> None:
        """Give the row back, as `release_all`."""
        release_all([self], due, attempts=attempts, **also)


def lost(rows: Sequence[LeasedRow]) -> set[LeasedRow]:
    """Return those of these leased rows that another worker has claimed since, whatever it did with them."""
    tokens: dict[tuple[type[Leased], Any], str] = {}
    for model in {type(row) for row in rows}:
        leased = model._default_manager.filter(pk__in=[row.pk for row in rows if isinstance(row, model)])
        tokens |= {(model, pk): token for pk, token in leased.values_list("pk", "lease_token")}
    return {row for row in rows if tokens.get((type(row), row.pk)) != row.lease_token}


def release_all(
    leases: "Sequence[Lease[LeasedRow]]",
    due: "timedelta | datetime | Combinable | None",
    *,
    attempts: int = 0,
    rows: "models.QuerySet[LeasedRow] | None" = None,
    **also: Any,
) -> int:
    """Give the rows, of one model, back with these columns `also`, and return how many; with `rows` only these.

    They are due after a pause, or at a time of the database's clock. A lost lease is no error here: another worker has
    the row.
    """
    failing_since = Coalesce(F("failing_since"), Now()) if attempts else None
    due_at = Now() + due if isinstance(due, timedelta) else due
    if due_at is not None:
        due_at = Least(due_at, Now() + LONGEST, output_field=DateTimeField())
    changes = {"due_at": due_at, "attempts": attempts, "failing_since": failing_since, **also}
    rows = _held(leases) if rows is None else rows
    return row_locks.update(rows, lease_token="", leased_until=None, **changes)


def not_woken(leases: "Sequence[Lease[LeasedRow]]") -> "models.QuerySet[LeasedRow]":
    """Return the rows of those leases that are not lost, and that nobody has made due since they were claimed."""
    claimed_at = min(lease.claimed_at for lease in leases if lease.claimed_at)
    rows = _held(leases).filter(due_at__lt=claimed_at - _TICK)
    if connection.features.has_select_for_update:
        # A statement that makes rows due tells when it began. It may have begun before the claim, and
        # waited for another row.
        rows = rows.filter(due_at__in={lease.was_due_at for lease in leases})
    return rows


@contextmanager
def writing_all(
    leases: "Sequence[Lease[LeasedRow]]", *, lock_first: Callable[[], None] = lambda: None
) -> Iterator[list[Lease[LeasedRow]]]:
    """Open a database transaction with those of the leases (of rows of one model) that are not lost.

    Their rows are as they are now. Extends the leases. Where it is rolled back, the rows are as they were. What comes
    before them in the order of `database.row_locks` is to be locked by `lock_first`.
    """
    by_pk = {lease.row.pk: lease for lease in leases}
    before = [lease.row for lease in leases]
    began = time.monotonic()
    try:
        with transaction.atomic():
            lock_first()
            held: list[Lease[LeasedRow]] = []
            for row in _held(leases).order_by("pk").select_for_update(no_key=True):
                lease = by_pk[row.pk]
                if row.lease_token == lease.token:
                    lease.row = row
                    held.append(lease)
            stale = [lease for lease in held if not lease.is_fresh]
            if stale:
                _held(stale).update(leased_until=_expiry())
            yield held
    except BaseException:
        for lease, row in zip(leases, before, strict=True):
            lease.row = row
        raise
    for lease in stale:
        lease.extended_at = began


def write_together(
    items: "Sequence[Item]",
    lease_of: "Callable[[Item], Lease[Any]]",
    write: "Callable[[Sequence[Item]], Sequence[Result]]",
    *,
    lock_first: "Callable[[Sequence[Item]], None]" = lambda _: None,
) -> "list[Outcome[Result]]":
    """Write what each of these tasks has decided, in one database transaction, and return what `write` returns of each.

    `lock_first` is as that of `writing_all`, and `write` may be called again where the database asks for that. Those
    whose leases are lost raise `LeaseLost`. Where something fails, each is written by itself: the fault of one must not
    be the others' for ever.
    """

    def write_all() -> "tuple[list[Lease[Any]], Iterator[Result]]":
        with writing_all([lease_of(item) for item in items], lock_first=partial(lock_first, items)) as held:
            return held, iter(write([item for item in items if lease_of(item) in held]))

    try:
        held, results = row_locks.retried(write_all)
    except OperationalError:
        # The database's trouble, not that of one of them.
        raise
    except Exception as error:  # noqa: BLE001 (whose it is gets it)
        if len(items) == 1:
            return [Raised(error)]
        logger.warning("writing %d tasks by themselves: together they failed with %s", len(items), error)
        return [write_together([item], lease_of, write, lock_first=lock_first)[0] for item in items]
    return [next(results) if lease_of(item) in held else Raised(LeaseLost()) for item in items]


def _give_back_all(several: "Sequence[tuple[Lease[LeasedRow], frozenset[tuple[str, Any]]]]") -> Sequence[None]:
    alike: dict[frozenset[tuple[str, Any]], list[Lease[LeasedRow]]] = defaultdict(list)
    for lease, change in several:
        alike[change].append(lease)
    for change, leases in alike.items():
        release_all(leases, **dict(change))
    return [None] * len(several)


def _held(leases: "Sequence[Lease[LeasedRow]]") -> "models.QuerySet[LeasedRow]":
    """Return the rows of those leases that are not lost."""
    rows = type(leases[0].row)._default_manager
    return rows.filter(pk__in=[lease.row.pk for lease in leases], lease_token__in={lease.token for lease in leases})


def claim(rows: "models.QuerySet[LeasedRow]", pk: object) -> Lease[LeasedRow] | None:
    """Lease the row `pk` of `rows`. None if another worker has it, or if it is no longer among `rows`."""
    key = ("claim", rows.model, str(rows.query.where))
    return together.share_work(key, pk, partial(_claim_all, rows))


def _claim_all(rows: "models.QuerySet[LeasedRow]", pks: Sequence[object]) -> "Sequence[Lease[LeasedRow] | None]":
    """Lease the free rows with one token for all of them: it tells them from what others have claimed."""
    token, began = secrets.token_hex(16), time.monotonic()
    # A row that is being written just now is claimed at the next poll.
    row_locks.update_free(rows.filter(_is_free(), pk__in=pks), lease_token=token, leased_until=_expiry())
    # Read after that: whoever has made one due before is heeded, and whoever does so later gives it another time.
    claimed = {row.pk: row for row in rows.model._default_manager.filter(pk__in=pks, lease_token=token)}
    # Who asks for the same row twice has it once.
    return [_lease(claimed.pop(pk), token, began) if pk in claimed else None for pk in pks]


def _lease(row: LeasedRow, token: str, began: float) -> Lease[LeasedRow]:
    claimed_at = row.leased_until and row.leased_until - timedelta(seconds=settings.LEASE_SECONDS)
    return Lease(row, token, row.due_at, claimed_at, began)


def due(rows: "models.QuerySet[LeasedRow]") -> list[object]:
    """Return primary keys of the rows that are due and free, the longest due first."""
    return list(due_and_free(rows).order_by("due_at").values_list("pk", flat=True))


def due_and_free(rows: "models.QuerySet[LeasedRow]") -> "models.QuerySet[LeasedRow]":
    is_due = Q(due_at__lt=Now() + _TICK) | Q(due_at__gt=Now() + LONGEST + timedelta(seconds=settings.LEASE_SECONDS))
    # SQLite doesn't see by the times alone that an index of rows with one will do.
    return rows.filter(_is_free(), is_due, due_at__isnull=False)


def _is_free() -> Q:
    """Select rows that nobody has leased. A lease that lasts too long was written while a clock was ahead."""
    lease = timedelta(seconds=settings.LEASE_SECONDS)
    return Q(leased_until=None) | Q(leased_until__lt=Now()) | Q(leased_until__gt=Now() + 2 * lease)


def parties(rows: "models.QuerySet[Any]", column: str) -> list[Any]:
    """Return the distinct values of a column in the rows that are or will be due."""
    return list(rows.filter(due_at__isnull=False).order_by().values_list(column, flat=True).distinct())


def without_resting(rows: "models.QuerySet[LeasedRow]") -> "models.QuerySet[LeasedRow]":
    """Leave out rows that failed and are not due again yet, for callers that take other rows before they are due."""
    return rows.exclude(attempts__gt=0, due_at__gt=Now())


def backoff(attempts: int, *, first: float = 1, longest: float = 60) -> timedelta:
    """Return how long to wait after this many failures in a row. It doubles from `first` to `longest`, in seconds."""
    return timedelta(seconds=min(longest, first * 2 ** min(attempts, 16)))


def _expiry() -> Combinable:
    return Now() + timedelta(seconds=settings.LEASE_SECONDS)
