"""The time for spending limits and for irreversible ends, such as deadlines. It doesn't rely on one clock.

A machine's clock may jump, even by a day, for example after a sleep, with an empty battery or by an administrator's
mistake. So the time of the newest block that a worker has seen limits it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta

from django.utils import timezone

from config.database.statements import CompiledQuery
from queries.models import ServiceClock

# The last second that `datetime` supports, in unix seconds. A node may report any number.
LAST_SECOND = 253_402_300_799
# Maximum age of the newest block, and maximum that it may be ahead of the machine's clock. A node may report any time.
_LATE, BEHIND = timedelta(minutes=5), timedelta(days=3)
_NEWEST = CompiledQuery(lambda: ServiceClock.objects.order_by("pk").values_list("at")[:1])
_read: ContextVar[list[datetime | None] | None] = ContextVar("_read", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """Read the newest block's time at most once in the `with` block, which must take less time than `_LATE`."""
    before = _read.set([])
    try:
        yield
    finally:
        _read.reset(before)


def newest_block() -> datetime | None:
    """Return the time of the newest block that a worker has seen. None: there is none, or its time is implausible."""
    if not (read := _read.get()):
        (stored,) = _NEWEST.first() or (None,)
        read = [] if read is None else read
        read.append(stored)
    newest = read[0]
    return newest if newest and newest <= timezone.now() + BEHIND else None


def is_confirmed() -> bool:
    """Return whether the newest block's time confirms the machine's clock."""
    newest = newest_block()
    return newest is not None and abs(timezone.now() - newest) <= _LATE


def earliest() -> datetime:
    """Return the machine's time, but at most `_LATE` after the newest block. That time has certainly come.

    Windows of spending limits, pruning and giving up use it, so a clock or node that is ahead can't end them early.
    """
    now, newest = timezone.now(), newest_block()
    return now if newest is None else min(now, newest + _LATE)


def latest() -> datetime:
    """Return the later of the machine's time and the newest block's time.

    Spending is recorded with it and deadlines begin at it, so a clock or node that is behind can't shorten them.
    """
    now, newest = timezone.now(), newest_block()
    return now if newest is None else max(now, newest)
