"""How often the page of a batch asks for news, and when it stops."""

from datetime import timedelta

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from proving.models import WATCHED_STATES, Transaction
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Block, Query

# Seconds between two requests of a page, by the age of an open batch.
_POLL = ((timedelta(minutes=2), 2), (timedelta(minutes=10), 5))
_OLD_SECONDS = 15
# For a closed batch, while a reorg or a pending transaction can still change it.
_NOT_FINAL_SECONDS = 10


def poll_seconds(batch: Batch) -> int | None:
    """None: nothing can change any more, so the page stops asking."""
    if batch.status in OPEN_STATUSES:
        age = timezone.now() - batch.created_at
        return next((seconds for younger, seconds in _POLL if age < younger), _OLD_SECONDS)
    return _NOT_FINAL_SECONDS if _can_change(batch) else None


def transactions_of(batch: Batch) -> "QuerySet[Transaction]":
    """The batch's transactions, found among those of its destination: that takes as long as they are many, however
    large the batch is.
    """
    links = Transaction.queries.through.objects.filter(transaction=OuterRef("pk"), query__batch=batch.pk)
    return Transaction.objects.filter(Exists(links), signer__chain_id=batch.destination_chain_id)


def _can_change(batch: Batch) -> bool:
    """Whether a closed batch may still change: a reorg takes it back from DONE, a pending transaction adds its cost."""
    if batch.status == BatchStatus.DONE:
        here = Query.objects.filter(batch=batch.pk, block=OuterRef("pk"))
        if Block.objects.filter(Exists(here), due_at__isnull=False).exists():
            return True
    return transactions_of(batch).filter(state__in=WATCHED_STATES).exists()
