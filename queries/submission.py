"""Stores a valid request as rows, in one transaction: from the answer on nothing of it can be lost.

What a user may have open and keep stored is bounded here, inside that transaction and one submission at a time.

SQLite has one lock for all who write. So what can be is prepared before the transaction begins, and of large batches
each process stores one at a time.
"""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby

from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Sum
from django.utils import timezone

from accounts.models import ApiKey, User
from config.error_answers import Refused
from queries import bulk_insert, submission_rate
from queries.batch_request import BatchRequest
from queries.chunks import chunks
from queries.models import OPEN_STATUSES, Batch, Block, Query, Step, StepKind, new_batch_id
from queries.progress import deadline_from

_ROWS_PER_STATEMENT = 500
# What rows and their indexes take in SQLite before anything is proven, beside the request's text and slots.
_BYTES_PER_BATCH, _BYTES_PER_QUERY, _BYTES_PER_BLOCK = 300, 520, 160
# As they are stored, however short they were sent: 0x and 64 digits, in quotes, with a comma and a space.
_BYTES_PER_SLOT = 70
_PAGE_BYTES = 4096
# When to try again where a user has too much open: batches take minutes.
_RETRY_SECONDS = 60
# In accounts, slots and headers. A large batch holds the lock for a tenth of a second and more.
_LARGE = 500
# How long a large batch waits for its turn, on a thread that others need, and when it is to be sent again.
_TURN_SECONDS = 0.5
BUSY_RETRY_SECONDS = 2
_large_turn = threading.Lock()


class Busy(Refused):
    """Another large batch is being stored by this process."""

    def __init__(self) -> None:
        super().__init__(
            "busy",
            "The service is storing other large batches. It stored nothing of this one; send it again in a moment.",
            retry_after=BUSY_RETRY_SECONDS,
        )


class TooMuch(Refused):
    """The user has as much as one user may have."""


def store(request: BatchRequest, body: bytes, key: ApiKey) -> Batch:
    """Create the batch with its queries, each in its first step, due at once.

    Raises `TooMuch`, `Busy`, and `Refused`: too_many_requests.
    """
    now = timezone.now()
    parts = list(request.parts())
    size = sum(part.size for part in parts)
    block_count = len({(part.source, part.selector) for part in parts})
    stored_bytes = (
        _BYTES_PER_BATCH
        + _in_pages(len(body))
        + sum(_BYTES_PER_QUERY + _in_pages(len(part.slots) * _BYTES_PER_SLOT) for part in parts)
        + block_count * _BYTES_PER_BLOCK
    )
    batch = Batch(
        pk=new_batch_id(),
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
    places = [None if part.selector.number is None else (part.source, part.selector.number) for part in parts]
    named = {place for place in places if place}
    columns = ("position", "source_chain_id", "timestamp", "address", "fields", "slots")
    queries = [
        (position, part.source, part.selector.timestamp, part.address, part.fields, json.dumps(part.slots))
        for position, part in enumerate(parts)
    ]
    with _turn(size), transaction.atomic():
        # Two at once can't both take what is left.
        user = User.objects.select_for_update(no_key=True).get(pk=key.user_id)
        submission_rate.count_queries(user.pk, size)
        _check_room(user, size, block_count, stored_bytes)
        User.objects.filter(pk=user.pk).update(stored_bytes=F("stored_bytes") + stored_bytes)
        batch.save(force_insert=True)
        blocks = find_blocks(request.destinationChainId, named)
        bulk_insert.insert(
            Query(batch=batch),
            ("block_id", *columns),
            [(place and blocks[place], *query) for place, query in zip(places, queries, strict=True)],
        )
        bulk_insert.insert(
            Step(kind=StepKind.INITIAL_STATE, started_at=now),
            ("query_id",),
            list(Query.objects.filter(batch=batch).values_list("pk")),
        )
    return batch


def _in_pages(length: int) -> int:
    """What a value of this length (bytes) takes: what it leaves free of a page is less than a page, and than itself."""
    return length + min(length, _PAGE_BYTES)


@contextmanager
def _turn(size: int) -> Iterator[None]:
    """While a batch of this size may be stored. Raises `Busy`."""
    if size <= _LARGE:
        yield
        return
    if not _large_turn.acquire(timeout=_TURN_SECONDS):
        raise Busy
    try:
        yield
    finally:
        _large_turn.release()


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
                f"This batch would raise the number of your open {named} from {open_now[what]} to "
                f"{open_now[what] + more}. A user may have {most} open at a time. Send it again when some of your "
                "batches are done.",
                retry_after=_RETRY_SECONDS,
            )
    most = settings.MAX_STORED_MEGABYTES
    if user.stored_bytes + stored_bytes > most * 1_000_000:
        raise TooMuch(
            "storage_quota_exceeded",
            f"Your batches take about {user.stored_bytes / 1e6:.1f} MB, and this one would add "
            f"{stored_bytes / 1e6:.1f} MB. A user may keep {most} MB. Ask the operator of this service for more.",
        )


def find_blocks(destination: int, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Primary key of the row of each (source chain id, block number), made where there is none."""
    ids: dict[tuple[int, int], int] = {}
    for source, pairs in groupby(sorted(wanted), key=lambda pair: pair[0]):
        numbers = [number for _, number in pairs]
        for chunk in chunks(numbers, _ROWS_PER_STATEMENT):
            # Two submissions may make the same row at once; the database lets one of them win, and both read it.
            bulk_insert.insert(
                Block(destination_chain_id=destination, source_chain_id=source),
                ("number",),
                [(number,) for number in chunk],
                ignore_conflicts=True,
            )
            found = Block.objects.filter(destination_chain_id=destination, source_chain_id=source, number__in=chunk)
            ids.update({(source, number): pk for number, pk in found.values_list("number", "pk")})
    return ids
