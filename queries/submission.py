"""Stores a valid request as rows, in one transaction: from the answer on nothing of it can be lost.

What a user may have open and keep stored is bounded here, inside that transaction and one submission at a time.
"""

from collections.abc import Iterable
from itertools import groupby

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Sum
from django.utils import timezone

from accounts.models import ApiKey, User
from queries.batch_request import BatchRequest
from queries.chunks import chunks
from queries.models import OPEN_STATUSES, Batch, Block, Query, Step, StepKind
from queries.progress import deadline_from

_ROWS_PER_STATEMENT = 500
# What rows and their indexes take in SQLite beside the request's text, before anything is proven.
_BYTES_PER_QUERY, _BYTES_PER_BLOCK = 400, 130
# When to try again where a user has too much open: batches take minutes.
_RETRY_SECONDS = 60


class TooMuch(Exception):
    """A user has as much as one may have: a stable word, a sentence with the numbers, and when to try again (seconds).

    None: waiting doesn't help.
    """

    def __init__(self, code: str, sentence: str, retry_after: int | None = _RETRY_SECONDS) -> None:
        super().__init__(sentence)
        self.code, self.sentence, self.retry_after = code, sentence, retry_after


def store(request: BatchRequest, body: bytes, key: ApiKey) -> Batch:
    """Create the batch with its queries, each in its first step, due at once. Raises `TooMuch`."""
    now = timezone.now()
    parts = list(request.parts())
    size = sum(part.size for part in parts)
    block_count = len({(part.source, part.selector) for part in parts})
    stored_bytes = len(body) + len(parts) * _BYTES_PER_QUERY + block_count * _BYTES_PER_BLOCK
    with transaction.atomic():
        # Two at once can't both take what is left.
        user = User.objects.select_for_update(no_key=True).get(pk=key.user_id)
        _check_room(user, size, block_count, stored_bytes)
        User.objects.filter(pk=user.pk).update(stored_bytes=F("stored_bytes") + stored_bytes)
        batch = Batch.objects.create(
            user_id=key.user_id,
            api_key=key,
            destination_chain_id=request.destinationChainId,
            fee=request.fee,
            request=body.decode(),
            size=size,
            block_count=block_count,
            stored_bytes=stored_bytes,
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


def _check_room(user: User, size: int, block_count: int, stored_bytes: int) -> None:
    """Whether a user may have one batch more of this size."""
    open_now = Batch.objects.filter(user=user, status__in=OPEN_STATUSES).aggregate(
        batches=Count("pk"), queries=Sum("size", default=0), blocks=Sum("block_count", default=0)
    )
    for what, more, most, named in (
        ("batches", 1, settings.MAX_OPEN_BATCHES, "batches"),
        ("queries", size, settings.MAX_OPEN_QUERIES, "accounts, slots and headers"),
        ("blocks", block_count, settings.MAX_OPEN_BLOCKS, "blocks"),
    ):
        if open_now[what] + more > most:
            raise TooMuch(
                f"too_many_open_{what}",
                f"Of your {named}, {open_now[what]} are open, and this batch would add {more}: a user may have {most} "
                "open at a time. Send it again when some of your batches are done.",
            )
    most = settings.MAX_STORED_MEGABYTES
    if user.stored_bytes + stored_bytes > most * 1_000_000:
        raise TooMuch(
            "storage_quota_exceeded",
            f"Your batches take about {user.stored_bytes / 1e6:.1f} MB, and this one would add "
            f"{stored_bytes / 1e6:.1f} MB: a user may keep {most} MB. Ask the operator of this service for more.",
            retry_after=None,
        )


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
