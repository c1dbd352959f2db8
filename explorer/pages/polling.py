"""How often the page of a batch asks for news, and when it stops."""

from collections.abc import Collection

from django.utils import timezone

from accounts import statements
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


def transactions(batch: Batch, states: Collection[str]) -> dict[str, int]:
    """Count the transactions of the batch in each of these states.

    They are found among those of its destination: that takes as long as they are many, however large the batch is.
    """
    places = ", ".join(["%s"] * len(states))
    return dict(
        statements.every(
            "SELECT t.state, COUNT(*) FROM proving_transaction t JOIN proving_signer s ON s.id = t.signer_id "  # noqa: S608
            f"WHERE s.chain_id = %s AND t.state IN ({places}) AND EXISTS ("
            "SELECT 1 FROM proving_transaction_queries l JOIN queries_query q ON q.id = l.query_id "
            "WHERE l.transaction_id = t.id AND q.batch_id = %s) GROUP BY t.state",
            (batch.destination_chain_id, *states, batch.pk),
        )
    )


def _can_change(batch: Batch) -> bool:
    """Return whether a closed batch may still change.

    A reorg takes it back from DONE, and a pending transaction adds its cost.
    """
    # From the batch to its blocks: others may have any number of due ones.
    if batch.status == BatchStatus.DONE and statements.first(
        "SELECT 1 FROM queries_query q JOIN queries_block k ON k.id = q.block_id "
        "WHERE q.batch_id = %s AND k.due_at IS NOT NULL LIMIT 1",
        (batch.pk,),
    ):
        return True
    return bool(transactions(batch, WATCHED_STATES))
