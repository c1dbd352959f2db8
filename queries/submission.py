"""A submission by a program or a page, from its arrival to its answer.

A valid request is stored in one transaction. Once it is answered, nothing of it can be lost.

The transaction also checks what a user may have open, while it holds the user's row: so no two
submissions can take the same room. SQLite runs whole transactions one after another (`config.settings` says
how). While one stores, no other can write. So everything possible is prepared before it begins, and each process stores
one large batch at a time. Other databases hold up only who stores for the same user, or makes the same new blocks.
"""

import hashlib
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import transaction
from django.db.models import Count, FilteredRelation, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts import throttle
from accounts.models import ApiKey, User, own_or
from config.configured_chains import get_chains
from config.error_answers import Refused
from database import statements
from database.statements import CompiledQuery, QueryParameter, chunks
from queries import batch_request, webhooks
from queries.api_endpoint import ApiError
from queries.batch_request import BatchRequest, Part
from queries.models import (
    OPEN_STATUSES,
    Batch,
    Block,
    IdempotencyKey,
    Query,
    Sender,
    Step,
    StepKind,
    new_batch_id,
    stored,
)
from queries.progress import deadline_from

logger = logging.getLogger(__name__)

_ROWS_PER_STATEMENT = 500
# When a user who has too much open should try again: batches take minutes.
_RETRY_SECONDS = 60
# In accounts, slots and headers. Storing a larger batch holds the lock for a tenth of a second or more.
_LARGE = 500
# How long a large batch waits for the lock, on a thread that others need, and when the client should try again.
_LOCK_SECONDS = 0.5
BUSY_RETRY_SECONDS = 2
_large_lock = threading.Lock()


# --- The header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07) ----------------------------------------

# A client that doesn't know whether its request has arrived sends it again with the same key, and gets the batch that
# the first one made. The key is stored with the batch, in one transaction: neither is there without the other, wherever
# the process is killed. A request that was refused leaves no key.

IDEMPOTENCY_HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
"""The header of an answer that a former request has caused."""

_PLAIN = re.compile(r"[\x20-\x7e]{1,255}", re.ASCII)
# RFC 9651, section 3.3.3: a string, as the draft has it. Inside, a quote and a backslash have a backslash before them.
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"', re.ASCII)


@dataclass(frozen=True)
class Earlier:
    """A former request with the same key, which has made a batch."""

    batch_id: str
    body_hash: str

    def check(self, body: bytes) -> None:
        """Refuse another body than that of the former request. Raises `ApiError`: idempotency_key_reused."""
        if self.body_hash != _hash(body):
            raise ApiError(
                422,
                "idempotency_key_reused",
                f"Another request was sent with this {IDEMPOTENCY_HEADER}. It made a batch, and this one made none. "
                "Give each request a key of its own.",
            )


class AlreadyStored(Exception):
    """The `earlier` request with the same key has made a batch meanwhile."""

    def __init__(self, earlier: Earlier) -> None:
        super().__init__()
        self.earlier = earlier


@dataclass(frozen=True)
class Named:
    """A request that its client has given a key."""

    user_id: int
    key: str

    def find(self) -> Earlier | None:
        """Return the former request with this key, while it is remembered."""
        rows = IdempotencyKey.objects.filter(user=self.user_id, key=self.key, created_at__gt=_forgotten_before())
        row = rows.values_list("batch_id", "body_hash").first()
        return Earlier(*row) if row else None

    def remember(self, batch_id: str, body: bytes) -> None:
        """Remember the request, in the transaction that stores its batch. Raises `AlreadyStored`."""
        now = timezone.now()
        row = IdempotencyKey(
            user_id=self.user_id, key=self.key, body_hash=_hash(body), batch_id=batch_id, created_at=now
        )
        # If two requests come at once, the second waits for the transaction of the first, and then finds its row.
        IdempotencyKey.objects.bulk_create([row], ignore_conflicts=True)
        earlier = self.find()
        if earlier is None:
            forgotten = IdempotencyKey.objects.filter(
                user=self.user_id, key=self.key, created_at__lte=_forgotten_before()
            )
            if not forgotten.update(body_hash=row.body_hash, batch_id=batch_id, created_at=now):
                earlier = self.find()
        if earlier and earlier.batch_id != batch_id:
            raise AlreadyStored(earlier)


def read_idempotency_key(header: str | None, user_id: int) -> Named | None:
    """Read the key from its header. None: the client has given no key. Raises `ApiError`: invalid_idempotency_key."""
    if header is None:
        return None
    quoted = _QUOTED.fullmatch(header)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else header
    if not _PLAIN.fullmatch(key) or (header.startswith('"') and not quoted):
        raise ApiError(
            400,
            "invalid_idempotency_key",
            f"{IDEMPOTENCY_HEADER} is 1 to 255 printable ASCII characters, with or without quotes.",
        )
    return Named(user_id, key)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _forgotten_before() -> datetime:
    return timezone.now() - timedelta(days=IdempotencyKey.KEPT_DAYS)


# --- From its arrival to the answer -----------------------------------------------------------------------------------


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
    `read_idempotency_key`, `Earlier.check`, `batch_request.parse`, `store`, `check_rate` and `count_request` raise.
    """
    with _counting(key.user):
        named = read_idempotency_key(named_by, key.user_id)
    earlier = named.find() if named else None
    if earlier:
        return _replayed(key.user, earlier, body_of)
    check_rate(key.user)
    try:
        with _counting(key.user):
            body = body_of()
            parsed = read(key.user, body)
            batch = store(parsed, body, key, named)
    except AlreadyStored as already:
        return _replayed(key.user, already.earlier, body_of)
    # Workers' lines have the batch and not the request.
    logger.info("batch %s is stored", batch.pk, extra={"batch": batch.pk})
    return Submitted(batch.pk, is_replayed=False)


def _replayed(user: User, earlier: Earlier, body_of: Callable[[], bytes]) -> Submitted:
    """Answer as an earlier request with the same key was answered."""
    count_request(user)
    earlier.check(body_of())
    return Submitted(earlier.batch_id, is_replayed=True)


@contextmanager
def _counting(user: User) -> Iterator[None]:
    """Count a request that is refused in this block. What is stored was counted with it, in one transaction."""
    try:
        yield
    except (DatabaseError, AlreadyStored):
        raise  # To count it would wait for the same lock once more; the other one is counted as an answer.
    except Exception:
        count_request(user)
        raise


# --- Storing ----------------------------------------------------------------------------------------------------------


def store(request: BatchRequest, body: bytes, key: ApiKey, named: Named | None = None) -> Batch:
    """Create the batch with its queries, each in its first step, due at once.

    It is counted with them. Raises what `count_request` and `count_queries` raise, `TooMuch` and `Busy`; with `named`,
    `AlreadyStored`.
    """
    parts = list(request.parts())
    batch = _new_batch(request, body, key, parts)
    places = [None if part.selector.number is None else (part.source, part.selector.number) for part in parts]
    queries = _query_values(parts)
    webhook = request.webhook and webhooks.prepared(batch, request.webhook)

    def write() -> None:
        with transaction.atomic():
            count_request(key.user)
            count_queries(key.user, batch.size)
            # The lock keeps the counts below right until this transaction ends.
            statements.lock(User.objects.filter(pk=key.user_id))
            _check_room(batch)
            statements.insert(batch, (), [()])
            if named:
                named.remember(batch.pk, body)
            if webhook:
                webhooks.store(webhook)
            blocks = ensure_blocks(request.destinationChainId, {place for place in places if place})
            statements.insert(
                Query(batch=batch),
                ("block_id", *_QUERY_COLUMNS),
                [(place and blocks[place], *query) for place, query in zip(places, queries, strict=True)],
            )
            statements.insert_for_each(
                Step(kind=StepKind.INITIAL_STATE, started_at=batch.created_at),
                "query_id",
                "FROM queries_query WHERE batch_id = %s",
                (batch.pk,),
            )
            transaction.on_commit(lambda: stored.send(Batch, batch=batch), robust=True)

    with _one_large_at_a_time(batch.size):
        statements.retried(write)
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
        created_at=now,
        deadline_at=deadline_from(now),
        due_at=now,
    )


def _kept(request: BatchRequest, body: bytes) -> str:
    """Return the request to store, without its webhook's URL and headers, which are sealed elsewhere."""
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


@contextmanager
def _one_large_at_a_time(size: int) -> Iterator[None]:
    """Hold the lock of large batches while the block runs. Raises `Busy`."""
    if size <= _LARGE:
        yield
        return
    if not _large_lock.acquire(timeout=_LOCK_SECONDS):
        raise Busy
    try:
        yield
    finally:
        _large_lock.release()


def why_no_room(request: BatchRequest, body: bytes, key: ApiKey) -> Refused | None:
    """Return why the request would be refused now for what the user has open. Stores nothing."""
    try:
        _check_room(_new_batch(request, body, key, list(request.parts())))
    except (TooMuch, TooLarge) as refused:
        return refused
    return None


_ROOM = CompiledQuery(
    lambda: (
        User.objects.filter(pk=QueryParameter("user"))
        .annotate(open=FilteredRelation("batches", condition=Q(batches__status__in=OPEN_STATUSES)))
        .values_list("max_open_batches", "max_open_queries")
        .annotate(open_batches=Count("open"), open_queries=Coalesce(Sum("open__size"), 0))
    )
)


def _check_room(batch: Batch) -> None:
    """Check that the user may have one more batch of this size open. Raises `TooMuch`, `TooLarge`."""
    row = _ROOM.first(user=batch.user_id)
    assert row is not None
    for (what, named, more, installations), own, now in zip(
        (
            ("batches", "batches", 1, settings.MAX_OPEN_BATCHES),
            ("queries", "accounts, slots and headers", batch.size, settings.MAX_OPEN_QUERIES),
        ),
        row[:2],
        row[2:],
        strict=True,
    ):
        if more > (most := own_or(own, installations)):
            raise TooLarge(f"You may have {most} {named} open at a time, and this batch alone would be {more}.")
        if now + more > most:
            raise TooMuch(
                f"too_many_open_{what}",
                f"This batch would raise the number of your open {named} from {now} to {now + more}. You may have "
                f"{most} open at a time. Send it again when some of your batches are done.",
                retry_after=_RETRY_SECONDS,
            )


def ensure_blocks(destination: int, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Make the rows of blocks that are missing. Return the primary key of each (source chain id, block number)."""
    ids: dict[tuple[int, int], int] = {}
    for source, pairs in groupby(sorted(wanted), key=lambda pair: pair[0]):
        numbers = [number for _, number in pairs]
        for chunk in chunks(numbers, _ROWS_PER_STATEMENT):
            # Another submission may have made the row already, or makes it now: then this one waits, and reads it. In
            # the order of numbers, so that no two wait for each other.
            statements.insert(
                Block(destination_chain_id=destination, source_chain_id=source),
                ("number",),
                [(number,) for number in chunk],
                ignore_conflicts=True,
            )
            rows = Block.objects.filter(destination_chain_id=destination, source_chain_id=source, number__in=chunk)
            ids.update({(source, number): pk for number, pk in rows.values_list("number", "pk")})
    return ids


# --- Rates of submissions and estimates of a user ------------------------------------------------------------------

# Refused requests count too: refusing one may cost as much as storing one. Accounts, slots and headers count only once
# they are stored, or estimated. Status polls don't count: they come every few seconds, and must cost no write.
REQUESTS, QUERIES = "submissions", "submitted queries"


@dataclass(frozen=True)
class Rate:
    """A kind of request that is counted by itself. The same limits hold for each."""

    verb: str
    requests: str
    queries: str


SUBMISSIONS = Rate("submit", REQUESTS, QUERIES)
ESTIMATES = Rate("estimate", "estimates", "estimated queries")


class TooLarge(Refused):
    """It is more than the user may ever submit in a minute."""

    def __init__(self, sentence: str) -> None:
        super().__init__("too_large_for_limit", f"{sentence} Ask the operator of this service for more.")


def check_rate(user: User) -> None:
    """Check that the user may submit now. It writes nothing.

    Raises `TooLarge`, and `Refused`: too_many_requests where the user has to wait anyway.
    """
    batches, queries = _batches(user), _queries(user)
    if not batches or not queries:
        raise TooLarge("You may submit no batches.")
    # A request holds at least one query, so there is nothing to do once the queries are used up.
    limits = ((QUERIES, queries), (REQUESTS, batches))
    seconds = next(filter(None, (throttle.seconds_to_wait(what, user.pk, most) for what, most in limits)), 0)
    _refuse_for(user, seconds, SUBMISSIONS)


def count_request(user: User, rate: Rate = SUBMISSIONS) -> None:
    """Count one request of the user. Raises `TooLarge`, and `Refused`: too_many_requests."""
    if not (most := _batches(user)):
        raise TooLarge("You may submit no batches.")
    _refuse_for(user, throttle.take(rate.requests, user.pk, most), rate)


def count_queries(user: User, queries: int, rate: Rate = SUBMISSIONS) -> None:
    """Count the accounts, slots and headers that a request asks for.

    Raises `TooLarge`, and `Refused`: too_many_requests.
    """
    if queries > (most := _queries(user)):
        raise TooLarge(
            f"This batch has {queries} accounts, slots and headers, and you may submit {most} in a minute. Send it in "
            "parts."
        )
    _refuse_for(user, throttle.take(rate.queries, user.pk, most, queries), rate)


def read(user: User, body: bytes, rate: Rate = SUBMISSIONS) -> BatchRequest:
    """Return the request in `body`. Each letter of its names counts as a query, because it takes about as long.

    A name may be longer than the user has queries in a minute: it then takes all of them. Raises what
    `batch_request.parse` raises, and `Refused`: too_many_requests.
    """

    def count_letters(letters: int) -> None:
        # Beside the queries: the letters of a batch must not leave too little for the batch itself.
        most = _queries(user)
        _refuse_for(user, throttle.take("letters of names", user.pk, most, min(letters, most)), rate)

    most = settings.MAX_QUERIES_PER_BATCH
    return batch_request.parse(body, get_chains(), max_queries=most, count_letters=count_letters)


def _batches(user: User) -> int:
    return own_or(user.max_batches_per_minute, settings.MAX_BATCHES_PER_MINUTE)


def _queries(user: User) -> int:
    return own_or(user.max_queries_per_minute, settings.MAX_QUERIES_PER_MINUTE)


def _refuse_for(user: User, seconds: int, rate: Rate) -> None:
    if seconds:
        raise Refused(
            "too_many_requests",
            f"You may {rate.verb} {_batches(user)} batches a minute, faulty ones included, with {_queries(user)} "
            "accounts, slots and headers in them.",
            retry_after=seconds,
        )
