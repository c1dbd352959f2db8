"""The time that deadlines are compared with. A rejection can't be taken back, so no wrong clock must cause it.

A clock may jump, even by a day: a machine wakes up, a battery is dead, an administrator makes a mistake. All processes
share the database's clock. It is trusted while it agrees with the time counted since it was last trusted, or with the
newest block of a chain. Otherwise time is counted from the last trusted moment, by a clock that can't jump. So whatever
waits gets more time than promised, never less, and a chain that stands still holds nothing up.

A block proves that its time has come, however long ago that was. It proves that no more time has passed, and so that a
clock which was set back is right, only while its chain produces blocks.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max
from django.db.models.functions import Now
from django.utils import timezone

from queries.models import OPEN_STATUSES, Batch, ServiceClock

# A smaller step is not a jump. Deadlines are hours away.
_STEP = timedelta(minutes=5)
# By how much the clocks of two machines may differ.
_SKEW = timedelta(minutes=1)


@dataclass(frozen=True)
class Witness:
    """The newest block of a chain: its timestamp, and how old it may be."""

    chain_id: int
    made_at: datetime
    lag: timedelta


@dataclass(frozen=True)
class Reading:
    at: datetime
    problem: str
    """A sentence that says what is wrong with the clocks; empty if nothing is."""


class Clock:
    """The clock of one process. Each reading is stored for processes that start later."""

    def __init__(self) -> None:
        self._read_at: tuple[datetime, float] | None = None  # and what `time.monotonic` said then
        # Of each chain: the newest block that was seen, and `time.monotonic` when it followed another one.
        self._newest: dict[int, tuple[datetime, float | None]] = {}

    def read(self, witnesses: Iterable[Witness]) -> Reading:
        kept, database = _kept_and_database()
        monotonic = time.monotonic()
        counted = kept
        if self._read_at:
            counted = self._read_at[0] + timedelta(seconds=monotonic - self._read_at[1])
        agrees = abs(database - counted) <= _STEP
        # Evaluated for all of them, because each call notes the newest block.
        going_on = [(witness, self._goes_on(witness, monotonic)) for witness in witnesses]
        agrees = agrees or any(
            abs(database - witness.made_at) <= witness.lag and (goes_on or database > counted)
            for witness, goes_on in going_on
        )
        at = database if agrees else counted
        self._read_at = (at, monotonic)
        ServiceClock.objects.update(at=at)
        machine = timezone.now()
        if not agrees:
            problem = (
                f"The clock is {_apart(database, counted)} the time counted since it was last trusted, "
                "and no chain's newest block confirms it. No batch is rejected because of it."
            )
        elif abs(machine - database) > _SKEW:
            problem = (
                f"A worker's clock is {_apart(machine, database)} the database's. No batch is rejected because of it."
            )
        else:
            problem = ""
        return Reading(at, problem)

    def _goes_on(self, witness: Witness, monotonic: float) -> bool:
        """Return whether this process has seen a new block of the chain lately."""
        newest, followed_at = self._newest.get(witness.chain_id, (witness.made_at, None))
        if witness.made_at > newest:
            newest, followed_at = witness.made_at, monotonic
        self._newest[witness.chain_id] = newest, followed_at
        return followed_at is not None and monotonic - followed_at <= witness.lag.total_seconds()


def last_read() -> datetime | None:
    """Return the last reading of a worker's clock; it is a few seconds old while a worker runs."""
    return ServiceClock.objects.values_list("at", flat=True).first()


def believable() -> datetime:
    """Return the machine's time; or about the last reading, if the machine is behind it or far ahead of it."""
    now = timezone.now()
    read = last_read()
    return now if read is None else min(max(now, read), read + _SKEW)


def _kept_and_database() -> tuple[datetime, datetime]:
    """Return the last reading, and the time of the database's clock."""
    rows = ServiceClock.objects.annotate(database=Now()).values_list("at", "database")
    if (found := rows.first()) is None:
        # Batches may have waited since before this clock was first read.
        newest = Batch.objects.filter(status__in=OPEN_STATUSES).aggregate(at=Max("created_at"))["at"]
        ServiceClock.objects.get_or_create(pk=1, defaults={"at": newest or Now()})
        found = rows.get()
    return found


def _apart(one: datetime, other: datetime) -> str:
    seconds = (one - other).total_seconds()
    return f"{abs(seconds):,.0f} s {'ahead of' if seconds > 0 else 'behind'}"
