"""The time by which money is counted and things end for good, so that no wrong clock must decide it.

A clock may jump, even by a day: a machine wakes up, a battery is dead, an administrator makes a mistake. So the newest
block that a worker has seen has a say.
"""

from datetime import datetime, timedelta

from django.utils import timezone

from queries.models import ServiceClock

# How old the newest block may be, and how far behind a machine's clock: a node may tell any time.
_LATE, _BEHIND = timedelta(minutes=5), timedelta(days=3)


def newest_block() -> datetime | None:
    """Return the time of the newest block that a worker has seen; None if there is none, or its node lies."""
    newest = ServiceClock.objects.order_by("pk").values_list("at", flat=True).first()
    return newest if newest and newest <= timezone.now() + _BEHIND else None


def believable() -> datetime:
    """Return the machine's time; or about that of the newest block, if the machine is behind it or far ahead of it."""
    now, newest = timezone.now(), newest_block()
    return now if newest is None else min(max(now, newest), newest + _LATE)
