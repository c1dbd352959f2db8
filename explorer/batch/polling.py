"""How often the page of a batch asks for news, and when it stops."""

from django.utils import timezone

from proving import batch_waits
from proving.models import WATCHED_STATES
from queries import poll_interval
from queries.models import OPEN_STATUSES, Batch, BatchStatus

# For a closed batch, while a reorg or a pending transaction can still change it.
_NOT_FINAL_SECONDS = 10


def poll_seconds(batch: Batch) -> int | None:
    """Return how often the page asks. None: nothing can change any more, so it stops asking."""
    if batch.status in OPEN_STATUSES:
        return poll_interval.poll_seconds(timezone.now() - batch.created_at)
    return _NOT_FINAL_SECONDS if _can_change(batch) else None


def _can_change(batch: Batch) -> bool:
    """Return whether a closed batch may still change.

    A reorg takes it back from DONE, and a pending transaction adds its cost.
    """
    if batch.status == BatchStatus.DONE and batch.queries.filter(block__due_at__isnull=False).exists():
        return True
    return bool(batch_waits.transactions(batch, WATCHED_STATES))
