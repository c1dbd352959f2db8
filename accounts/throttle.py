"""How much somebody may do in a minute: the one throttle of this service, counted in the database.

A minute begins with the first use and ends 60 seconds later; then counting begins anew. One conditional UPDATE decides,
so any number of requests at once, in any number of processes, get no more than the limit.
"""

import math
from datetime import timedelta

from django.db.models import Case, F, Q, QuerySet, Value, When
from django.utils import timezone

from accounts.models import ThrottleCount

PERIOD = timedelta(minutes=1)
# Counts are deleted when they are this old.
_KEPT = timedelta(hours=1)


def take(what: str, who: object, most: int, amount: int = 1) -> int:
    """Count `amount` and return 0. Or count nothing and return how many seconds to wait, if that would exceed `most`.

    Raises `ValueError` for an amount that no wait makes room for.
    """
    if amount > most:
        raise ValueError(f"An amount of {amount} never fits a limit of {most}.")
    # This only reads: whoever has to wait costs no write.
    if seconds := seconds_to_wait(what, who, most, amount):
        return seconds
    if not _count(what, who, most, amount):
        now = timezone.now()
        if _count_of(what, who).exists():
            return max(1, seconds_to_wait(what, who, most, amount))  # Other requests took the rest meanwhile.
        ThrottleCount.objects.filter(Q(began_at__lt=now - _KEPT) | Q(began_at__gt=now + _KEPT)).delete()
        ThrottleCount.objects.bulk_create(
            [ThrottleCount(what_and_who=_key(what, who), began_at=now)], ignore_conflicts=True
        )
        if not _count(what, who, most, amount):
            return max(1, seconds_to_wait(what, who, most, amount))
    return 0


def seconds_to_wait(what: str, who: object, most: int, amount: int = 1) -> int:
    """How long until there is room for `amount`; 0 if there is. Counts nothing."""
    now = timezone.now()
    found = _count_of(what, who).exclude(_is_over()).filter(used__gt=most - amount).first()
    return max(1, math.ceil((found.began_at + PERIOD - now).total_seconds())) if found else 0


def _count(what: str, who: object, most: int, amount: int) -> bool:
    """Whether there was room. The database evaluates condition and change as one."""
    is_over = _is_over()
    return bool(
        _count_of(what, who)
        .filter(is_over | Q(used__lte=most - amount))
        .update(
            used=Case(When(is_over, then=Value(amount)), default=F("used") + amount),
            began_at=Case(When(is_over, then=Value(timezone.now())), default=F("began_at")),
        )
    )


def _count_of(what: str, who: object) -> QuerySet[ThrottleCount]:
    return ThrottleCount.objects.filter(pk=_key(what, who))


def _key(what: str, who: object) -> str:
    return f"{what}:{who}"


def _is_over() -> Q:
    """A minute that begins far in the future is over too: the clock was set back, and nobody waits for it."""
    now = timezone.now()
    return Q(began_at__lte=now - PERIOD) | Q(began_at__gt=now + PERIOD)
