"""Stores a valid request as rows, in one transaction: from the answer on nothing of it can be lost."""

from collections.abc import Iterable
from itertools import groupby

from django.db import transaction
from django.utils import timezone

from accounts.models import ApiKey
from queries.batch_request import BatchRequest
from queries.chunks import chunks
from queries.models import Batch, Block, Query, Step, StepKind
from queries.progress import deadline_from

_ROWS_PER_STATEMENT = 500


def store(request: BatchRequest, body: bytes, key: ApiKey) -> Batch:
    """Create the batch with its queries, each in its first step, due at once."""
    now = timezone.now()
    parts = list(request.parts())
    with transaction.atomic():
        batch = Batch.objects.create(
            user_id=key.user_id,
            api_key=key,
            destination_chain_id=request.destinationChainId,
            fee=request.fee,
            request=body.decode(),
            created_at=now,
            deadline_at=deadline_from(now),
            due_at=now,
        )
        named = {(part.source, part.selector.number) for part in parts if part.selector.number is not None}
        blocks = find_blocks(request.destinationChainId, named)
        queries = Query.objects.bulk_create(
            [
                Query(
                    batch=batch,
                    source_chain_id=part.source,
                    timestamp=part.selector.timestamp,
                    block_id=None if part.selector.number is None else blocks[part.source, part.selector.number],
                    position=position,
                    address=part.address,
                    fields=part.fields,
                    slots=part.slots,
                )
                for position, part in enumerate(parts)
            ],
            batch_size=_ROWS_PER_STATEMENT,
        )
        Step.objects.bulk_create(
            [Step(query=query, kind=StepKind.INITIAL_STATE, started_at=now) for query in queries],
            batch_size=_ROWS_PER_STATEMENT,
        )
    return batch


def find_blocks(destination: int, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Primary key of the row of each (source chain id, block number), made where there is none."""
    ids: dict[tuple[int, int], int] = {}
    for source, pairs in groupby(sorted(wanted), key=lambda pair: pair[0]):
        numbers = [number for _, number in pairs]
        for chunk in chunks(numbers, _ROWS_PER_STATEMENT):
            # Two submissions may make the same row at once; the database lets one of them win, and both read it.
            Block.objects.bulk_create(
                [Block(destination_chain_id=destination, source_chain_id=source, number=number) for number in chunk],
                ignore_conflicts=True,
            )
            rows = Block.objects.filter(destination_chain_id=destination, source_chain_id=source, number__in=chunk)
            ids.update({(source, number): pk for number, pk in rows.values_list("number", "pk")})
    return ids
