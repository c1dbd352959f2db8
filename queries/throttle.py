"""How often, and how much, a user may submit in a minute.

Every request counts, whatever becomes of it: to refuse one may cost as much as another. Accounts, slots and headers
count of what is stored. Polls don't count: they come every few seconds, and must cost no write.
"""

import math
from datetime import timedelta

from django.conf import settings
from django.db.models import Case, F, Q, Value, When
from django.utils import timezone

from queries.models import SubmissionCount

PERIOD = timedelta(minutes=1)


def sentence() -> str:
    """What a user may do, for one who is to wait."""
    return (
        f"At most {settings.MAX_BATCHES_PER_MINUTE} submissions a minute are taken, faulty ones included, and "
        f"{settings.MAX_QUERIES_PER_MINUTE} accounts, slots and headers in them."
    )


def count_request(user_id: int) -> int:
    """Count one request of the user and return 0; or, where they had as much as they may, after how long to come back.

    In seconds. One statement decides, so that of any number at once, in any number of processes, no more get through.
    """
    # Each has one at least.
    return _count(user_id, Q(queries__lt=settings.MAX_QUERIES_PER_MINUTE), requests=1)


def count_queries(user_id: int, queries: int) -> int:
    """The same of what a request asks for that was counted: accounts, slots and headers."""
    return _count(user_id, Q(queries__lte=settings.MAX_QUERIES_PER_MINUTE - queries), queries=queries)


def _count(user_id: int, has_room: Q, requests: int = 0, queries: int = 0) -> int:
    now = timezone.now()
    # From the future: the clock was set back since, and nobody waits for it to catch up.
    is_over = Q(began_at__lte=now - PERIOD) | Q(began_at__gt=now + PERIOD)
    has_room = is_over | has_room & Q(requests__lte=settings.MAX_BATCHES_PER_MINUTE - requests)
    row = SubmissionCount.objects.filter(user=user_id)
    if not row.exists():
        SubmissionCount.objects.bulk_create([SubmissionCount(user_id=user_id, began_at=now)], ignore_conflicts=True)
    # Looked at first: who is to wait costs no write.
    if row.filter(has_room).exists() and row.filter(has_room).update(
        # In a new minute as well, it is of one request.
        requests=Case(When(is_over, then=Value(1)), default=F("requests") + requests),
        queries=Case(When(is_over, then=Value(queries)), default=F("queries") + queries),
        began_at=Case(When(is_over, then=Value(now)), default=F("began_at")),
    ):
        return 0
    began_at = row.values_list("began_at", flat=True).get()
    return max(1, math.ceil((began_at + PERIOD - timezone.now()).total_seconds()))
