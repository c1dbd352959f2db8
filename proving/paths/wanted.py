"""Whose blocks' hashes are wanted on a connection: what one path can make known for several."""

from collections.abc import Collection

from django.db.models import Q, QuerySet

from queries.models import BatchStatus, Block, Query, Sender, StepKind

# Blocks and queries that one path is planned for.
_MOST = 1000


def by_others(block: Block, batch: str | None = None) -> list[int]:
    """Return numbers of the blocks of the same connection, beside this one, whose hashes are wanted.

    Those for which the operator pays; with the identifier of a self-funded batch, those of that batch.
    """
    waiting = _wanting(block, batch).exclude(block=block)
    named = waiting.order_by().values_list("block__number", "timestamp").distinct()[:_MOST]
    # Only the next block's header says when a block ended.
    return sorted({number if timestamp is None else number + 1 for number, timestamp in named})


def by_queries(block: Block, numbers: Collection[int], batch: str | None = None) -> list[int]:
    """Return ids of the connection's queries that want the hashes of these blocks, as `by_others` names them."""
    here = _wanting(block, batch).filter(
        Q(block__number__in=numbers, timestamp=None)
        | Q(block__number__in=[number - 1 for number in numbers], timestamp__isnull=False)
    )
    return list(here.order_by("pk").values_list("pk", flat=True)[:_MOST])


def _wanting(block: Block, batch: str | None) -> QuerySet[Query]:
    who_pays = Q(batch__sender=Sender.OPERATOR) if batch is None else Q(batch=batch)
    return Query.objects.filter(
        who_pays,
        is_admitted=True,
        step__in=[StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED],
        block__destination_chain_id=block.destination_chain_id,
        block__source_chain_id=block.source_chain_id,
        batch__status__in=[BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS],
    )
