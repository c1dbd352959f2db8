"""How often the page of a batch asks for news, and when it stops."""

from collections.abc import Collection

from django.db.models import Count, Exists, OuterRef
from django.utils import timezone

from accounts.compiled_queries import CompiledQuery, Given, GivenList
from proving.models import WATCHED_STATES, Transaction
from queries import poll_interval
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Query

# For a closed batch, while a reorg or a pending transaction can still change it.
_NOT_FINAL_SECONDS = 10


def poll_seconds(batch: Batch) -> int | None:
    """Return how often the page asks. None: nothing can change any more, so it stops asking."""
    if batch.status in OPEN_STATUSES:
        return poll_interval.poll_seconds(timezone.now() - batch.created_at)
    return _NOT_FINAL_SECONDS if _can_change(batch) else None


_TRANSACTIONS = CompiledQuery(
    lambda: (
        Transaction.objects.filter(
            Exists(Transaction.queries.through.objects.filter(transaction=OuterRef("pk"), query__batch=Given("batch"))),
            signer__chain_id=Given("destination"),
            state__in=GivenList("states"),
        )
        .order_by()
        .values_list("state")
        .annotate(Count("pk"))
    )
)


def transactions(batch: Batch, states: Collection[str]) -> dict[str, int]:
    """Count the transactions of the batch in each of these states.

    They are found among those of its destination: that takes as long as they are many, however large the batch is.
    """
    return dict(_TRANSACTIONS.every(batch=batch.pk, destination=batch.destination_chain_id, states=states))


# From the batch to its blocks: others may have any number of due ones.
_DUE = CompiledQuery(
    lambda: Query.objects.filter(batch=Given("batch"), block__due_at__isnull=False).order_by().values_list("pk")[:1]
)


def _can_change(batch: Batch) -> bool:
    """Return whether a closed batch may still change.

    A reorg takes it back from DONE, and a pending transaction adds its cost.
    """
    if batch.status == BatchStatus.DONE and _DUE.first(batch=batch.pk):
        return True
    return bool(transactions(batch, WATCHED_STATES))
