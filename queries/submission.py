"""A submission from its arrival to what it is answered, whether a program or a page sends it.

A valid request is stored in one transaction. Once it is answered, nothing of it can be lost.

The transaction also checks what a user may have open and keep stored, while it holds the user's row: so no two
submissions can take the same room. SQLite runs whole transactions one after another (`config.settings.database` says
how). While one stores, no other can write. So everything possible is prepared before it begins, and each process stores
one large batch at a time. Other databases hold up only who stores for the same user, or makes the same new blocks.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import transaction
from django.db.models import Count, F, FilteredRelation, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.models import ApiKey, User
from accounts.user_limits import own_or
from config.configured_chains import get_chains
from config.error_answers import Refused
from database import bulk_writes, row_locks
from database.chunks import chunks
from database.compiled_queries import CompiledQuery, Given, GivenList
from queries import batch_request, idempotency, submission_rate, webhooks
from queries.batch_request import BatchRequest, Part
from queries.idempotency import Named
from queries.models import OPEN_STATUSES, Batch, Block, Query, Sender, Step, StepKind, new_batch_id
from queries.progress import deadline_from
from queries.signals import stored

logger = logging.getLogger(__name__)

_ROWS_PER_STATEMENT = 500
# The size of rows and their indexes in SQLite before anything is proven, besides the request's text and slots.
_BYTES_PER_BATCH, _BYTES_PER_QUERY, _BYTES_PER_BLOCK = 300, 520, 160
# URL and headers, and deliveries with their attempts.
_BYTES_PER_WEBHOOK = 30_000
# Slots are stored as 0x and 64 digits, in quotes, with a comma and a space.
_BYTES_PER_SLOT = 70
# What proving adds, counted from the start: nobody can be refused then. The proof of an account or of a slot has as
# many nodes as its tree has levels, each of up to 532 bytes, stored as twice as many digits. Measured as what SQLite's
# file grows by: 8,274 for an account of Mainnet, 4,198 for a slot of a tree of five levels, 8,294 for one of eight, as
# the largest contracts have. Headers have up to 650.
_BYTES_PER_PROOF, _BYTES_PER_HEADER = 8400, 900
# Of a proof, what is free again when its nodes are pruned: the row with its value stays.
PRUNED_BYTES_PER_PROOF = _BYTES_PER_PROOF - 400
_PAGE_BYTES = 4096
# When a user who has too much open should try again: batches take minutes.
_RETRY_SECONDS = 60
# In accounts, slots and headers. Storing a larger batch holds the lock for a tenth of a second or more.
_LARGE = 500
# How long a large batch waits for its turn, on a thread that others need, and when the client should try again.
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


@dataclass(frozen=True)
class Submitted:
    batch_id: str
    is_replayed: bool  # a former request with the same Idempotency-Key has made it


def submit(key: ApiKey, named_by: str | None, body_of: Callable[[], bytes]) -> Submitted:
    """Store what `body_of` reads as a batch of the key's user, and count it, or that it was refused.

    `named_by` is the header Idempotency-Key. Raises `InvalidRequest`, and `Refused` for all else: what `body_of`,
    `idempotency.read`, `Earlier.check`, `account_names.resolve`, `store` and `submission_rate` raise.
    """
    with _counting(key.user):
        named = idempotency.read(named_by, key.user_id)
    earlier = named.find() if named else None
    if earlier:
        return _replayed(key.user, earlier, body_of)
    submission_rate.check(key.user)
    try:
        with _counting(key.user):
            body = body_of()
            parsed = batch_request.parse(body, get_chains(), max_queries=settings.MAX_QUERIES_PER_BATCH)
            batch = store(parsed, body, key, named)
    except idempotency.AlreadyStored as already:
        return _replayed(key.user, already.earlier, body_of)
    # Workers' lines have the batch and not the request.
    logger.info("batch %s is stored", batch.pk, extra={"batch": batch.pk})
    return Submitted(batch.pk, is_replayed=False)


def _replayed(user: User, earlier: idempotency.Earlier, body_of: Callable[[], bytes]) -> Submitted:
    """Answer as an earlier request with the same key was answered."""
    submission_rate.count_request(user)
    earlier.check(body_of())
    return Submitted(earlier.batch_id, is_replayed=True)


@contextmanager
def _counting(user: User) -> Iterator[None]:
    """Count a request that is refused in this block. What is stored was counted with it, in one transaction."""
    try:
        yield
    except (DatabaseError, idempotency.AlreadyStored):
        raise  # To count it would wait for the same lock once more; the other one is counted as an answer.
    except Exception:
        submission_rate.count_request(user)
        raise


# --- Storing ----------------------------------------------------------------------------------------------------------


def store(request: BatchRequest, body: bytes, key: ApiKey, named: Named | None = None) -> Batch:
    """Create the batch with its queries, each in its first step, due at once.

    It counts in `submission_rate` with them, and raises what that raises, `TooMuch` and `Busy`. With `named` it raises
    `queries.idempotency.AlreadyStored`.
    """
    parts = list(request.parts())
    batch = _new_batch(request, body, key, parts)
    places = [None if part.selector.number is None else (part.source, part.selector.number) for part in parts]
    queries = _query_values(parts)
    webhook = request.webhook and webhooks.prepared(batch, request.webhook)

    def write() -> None:
        with transaction.atomic():
            submission_rate.count_request(key.user)
            submission_rate.count_queries(key.user, batch.size)
            # It locks the user: what is counted now stays so.
            User.objects.filter(pk=key.user_id).update(stored_bytes=F("stored_bytes") + batch.stored_bytes)
            _check_room(batch, counted=batch.stored_bytes)
            bulk_writes.insert(batch, (), [()])
            if named:
                named.remember(batch.pk, body)
            if webhook:
                webhooks.store(webhook)
            blocks = find_blocks(request.destinationChainId, {place for place in places if place})
            bulk_writes.insert(
                Query(batch=batch),
                ("block_id", *_QUERY_COLUMNS),
                [(place and blocks[place], *query) for place, query in zip(places, queries, strict=True)],
            )
            bulk_writes.insert_for_each(
                Step(kind=StepKind.INITIAL_STATE, started_at=batch.created_at),
                "query_id",
                "FROM queries_query WHERE batch_id = %s",
                (batch.pk,),
            )
            transaction.on_commit(lambda: stored.send(Batch, batch=batch), robust=True)

    with _turn(batch.size):
        row_locks.retried(write)
    batch._state.adding = False  # noqa: SLF001 (as `save` would have left it)
    return batch


def _new_batch(request: BatchRequest, body: bytes, key: ApiKey, parts: Sequence[Part]) -> Batch:
    now = timezone.now()
    block_count = len({(part.source, part.selector) for part in parts})
    return Batch(
        pk=new_batch_id(),
        user_id=key.user_id,
        api_key=key,
        destination_chain_id=request.destinationChainId,
        sender=Sender.SELF if request.is_self_funded else Sender.OPERATOR,
        # An estimate is added when there is one.
        fee=request.fee or 0,
        fee_is_estimate=request.fee is None,
        request=_kept(request, body),
        size=sum(part.size for part in parts),
        block_count=block_count,
        stored_bytes=(
            _BYTES_PER_BATCH
            + (_BYTES_PER_WEBHOOK if request.webhook else 0)
            + _in_pages(len(body))
            + sum(
                _BYTES_PER_QUERY + len(part.name.encode()) + _in_pages(len(part.slots) * _BYTES_PER_SLOT)
                for part in parts
            )
            + block_count * _BYTES_PER_BLOCK
            + _proof_bytes(parts, block_count)
        ),
        created_at=now,
        deadline_at=deadline_from(now),
        due_at=now,
    )


def _kept(request: BatchRequest, body: bytes) -> str:
    """Return the request as it is stored: where its webhook is sent, and with what, is sealed elsewhere."""
    if request.webhook is None:
        return body.decode()
    return json.dumps(json.loads(body) | {"webhook": {"url": "(not shown)"}}, ensure_ascii=False)


_QUERY_COLUMNS = ("position", "source_chain_id", "timestamp", "block_tag", "address", "name", "fields", "slots")


def _query_values(parts: Sequence[Part]) -> list[tuple[int | str | None, ...]]:
    return [
        (
            *(position, part.source, part.selector.timestamp, part.selector.tag),
            *(part.address, part.name, part.fields, json.dumps(part.slots)),
        )
        for position, part in enumerate(parts)
    ]


def _proof_bytes(parts: Iterable[Part], block_count: int) -> int:
    """Return how many bytes the headers and proofs take.

    Those of what will be rejected count too, and so do those that others have asked for.
    """
    proofs = sum(len(part.slots) + bool(part.address) for part in parts)
    return proofs * _BYTES_PER_PROOF + block_count * _BYTES_PER_HEADER


def _in_pages(length: int) -> int:
    """Return how many bytes a value takes at most.

    The unused rest of its last page is shorter than a page, and than the value.
    """
    return length + min(length, _PAGE_BYTES)


@contextmanager
def _turn(size: int) -> Iterator[None]:
    """Hold the turn of a large batch while the block runs. Raises `Busy`."""
    if size <= _LARGE:
        yield
        return
    if not _large_turn.acquire(timeout=_TURN_SECONDS):
        raise Busy
    try:
        yield
    finally:
        _large_turn.release()


def why_no_room(request: BatchRequest, body: bytes, key: ApiKey) -> Refused | None:
    """Return why the request would be refused now for what the user has open, and keeps stored. Stores nothing."""
    try:
        _check_room(_new_batch(request, body, key, list(request.parts())))
    except (TooMuch, submission_rate.TooLarge) as refused:
        return refused
    return None


_ROOM = CompiledQuery(
    lambda: (
        User.objects.filter(pk=Given("user"))
        .annotate(open=FilteredRelation("batches", condition=Q(batches__status__in=OPEN_STATUSES)))
        .values_list("stored_bytes", "max_stored_megabytes", "max_open_batches", "max_open_queries", "max_open_blocks")
        .annotate(
            open_batches=Count("open"),
            open_queries=Coalesce(Sum("open__size"), 0),
            open_blocks=Coalesce(Sum("open__block_count"), 0),
        )
    )
)


def _check_room(batch: Batch, *, counted: int = 0) -> None:
    """Check that the user may have one more batch of this size. Raises `TooMuch`, `TooLarge`.

    `counted` are the bytes that the user's row counts for it already.
    """
    row = _ROOM.first(user=batch.user_id)
    assert row is not None
    stored_bytes, own_megabytes, *now_and_own = row
    stored_bytes -= counted
    for what, more, installations, own, now, named in (
        ("batches", 1, settings.MAX_OPEN_BATCHES, now_and_own[0], now_and_own[3], "batches"),
        (
            "queries",
            batch.size,
            settings.MAX_OPEN_QUERIES,
            now_and_own[1],
            now_and_own[4],
            "accounts, slots and headers",
        ),
        ("blocks", batch.block_count, settings.MAX_OPEN_BLOCKS, now_and_own[2], now_and_own[5], "blocks"),
    ):
        if more > (most := own_or(own, installations)):
            raise submission_rate.TooLarge(
                f"You may have {most} {named} open at a time, and this batch alone would be {more}."
            )
        if now + more > most:
            raise TooMuch(
                f"too_many_open_{what}",
                f"This batch would raise the number of your open {named} from {now} to {now + more}. You may have "
                f"{most} open at a time. Send it again when some of your batches are done.",
                retry_after=_RETRY_SECONDS,
            )
    most = own_or(own_megabytes, settings.MAX_STORED_MEGABYTES)
    if stored_bytes + batch.stored_bytes > most * 1_000_000:
        raise TooMuch(
            "storage_quota_exceeded",
            f"Your batches take about {stored_bytes / 1e6:.1f} MB, and this one would add "
            f"{batch.stored_bytes / 1e6:.1f} MB. You may keep {most} MB. Ask the operator of this service for more.",
        )


_BLOCKS = CompiledQuery(
    lambda: Block.objects.filter(
        destination_chain_id=Given("destination"), source_chain_id=Given("source"), number__in=GivenList("numbers")
    ).values_list("number", "pk")
)


def find_blocks(destination: int, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return the primary key of each (source chain id, block number). Makes the rows that are missing."""
    ids: dict[tuple[int, int], int] = {}
    for source, pairs in groupby(sorted(wanted), key=lambda pair: pair[0]):
        numbers = [number for _, number in pairs]
        for chunk in chunks(numbers, _ROWS_PER_STATEMENT):
            # Another submission may have made the row already, or makes it now: then this one waits, and reads it. In
            # the order of numbers, so that no two wait for each other.
            bulk_writes.insert(
                Block(destination_chain_id=destination, source_chain_id=source),
                ("number",),
                [(number,) for number in chunk],
                ignore_conflicts=True,
            )
            rows = _BLOCKS.every(destination=destination, source=source, numbers=chunk)
            ids.update({(source, number): pk for number, pk in rows})
    return ids
