"""How often the page of a batch asks for news, and when it stops."""

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from proving.models import WATCHED_STATES, Transaction
from queries import polling
from queries.models import OPEN_STATUSES, Batch, BatchStatus

# For a closed batch, while a reorg or a pending transaction can still change it.
_NOT_FINAL_SECONDS = 10


def poll_seconds(batch: Batch) -> int | None:
    """None: nothing can change any more, so the page stops asking."""
    if batch.status in OPEN_STATUSES:
        return polling.poll_seconds(timezone.now() - batch.created_at)
    return _NOT_FINAL_SECONDS if _can_change(batch) else None


def transactions_of(batch: Batch) -> "QuerySet[Transaction]":
    """The batch's transactions, found among those of its destination: that takes as long as they are many, however
    large the batch is.
    """
    links = Transaction.queries.through.objects.filter(transaction=OuterRef("pk"), query__batch=batch.pk)
    return Transaction.objects.filter(Exists(links), signer__chain_id=batch.destination_chain_id)


def _can_change(batch: Batch) -> bool:
    """Whether a closed batch may still change: a reorg takes it back from DONE, a pending transaction adds its cost."""
    # From the batch to its blocks: others may have any number of due ones.
    if batch.status == BatchStatus.DONE and batch.queries.filter(block__due_at__isnull=False).exists():
        return True
    return transactions_of(batch).filter(state__in=WATCHED_STATES).exists()
