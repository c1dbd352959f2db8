"""The time by which money is counted and things end for good, so that no wrong clock must decide it.

A clock may jump, even by a day: a machine wakes up, a battery is dead, an administrator makes a mistake. So the newest
block that a worker has seen has a say.
"""

from datetime import datetime, timedelta

from django.utils import timezone

from queries.models import ServiceClock

# How old the newest block may be, and how far behind a machine's clock: a node may tell any time.
_LATE, BEHIND = timedelta(minutes=5), timedelta(days=3)


def newest_block() -> datetime | None:
    """Return the time of the newest block that a worker has seen; None if there is none, or its node lies."""
    newest = ServiceClock.objects.order_by("pk").values_list("at", flat=True).first()
    return newest if newest and newest <= timezone.now() + BEHIND else None


def is_confirmed() -> bool:
    """Return whether the newest block says that the machine's clock is right."""
    newest = newest_block()
    return newest is not None and abs(timezone.now() - newest) <= _LATE


def earliest() -> datetime:
    """Return the time that has certainly come: the machine's, but at most some minutes after the newest block's.

    Windows of money begin by it, and pruning and giving up follow it. So no clock or node that is ahead ends them.
    """
    now, newest = timezone.now(), newest_block()
    return now if newest is None else min(now, newest + _LATE)


def latest() -> datetime:
    """Return the time that may have come: the machine's or the newest block's, whichever is later.

    What is spent is stamped with it, and deadlines count from it: a clock or a node that is behind forgets nothing.
    """
    now, newest = timezone.now(), newest_block()
    return now if newest is None else max(now, newest)
