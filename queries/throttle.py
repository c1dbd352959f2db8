"""How often a user may submit. Every request counts, whatever becomes of it: to refuse one may cost as much as another.

Polls don't: they come every few seconds, and must cost no write.
"""

import math
from datetime import timedelta

from django.conf import settings
from django.db.models import Case, F, Q, Value, When
from django.utils import timezone

from queries.models import SubmissionCount

PERIOD = timedelta(minutes=1)


def seconds_to_wait(user_id: int) -> int:
    """Count one request of the user and return 0; or, where they had as many as they may, after how long to come back.

    One statement decides, so that of any number at once, in any number of processes, no more get through.
    """
    now = timezone.now()
    # From the future: the clock was set back since, and nobody waits for it to catch up.
    is_over = Q(began_at__lte=now - PERIOD) | Q(began_at__gt=now + PERIOD)
    row = SubmissionCount.objects.filter(user=user_id)
    if not row.exists():
        SubmissionCount.objects.bulk_create([SubmissionCount(user_id=user_id, began_at=now)], ignore_conflicts=True)
    has_room = is_over | Q(requests__lt=settings.MAX_BATCHES_PER_MINUTE)
    # Looked at first: who is to wait costs no write.
    if row.filter(has_room).exists() and row.filter(has_room).update(
        requests=Case(When(is_over, then=Value(1)), default=F("requests") + 1),
        began_at=Case(When(is_over, then=Value(now)), default=F("began_at")),
    ):
        return 0
    began_at = row.values_list("began_at", flat=True).get()
    return max(1, math.ceil((began_at + PERIOD - timezone.now()).total_seconds()))
