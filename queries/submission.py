"""Submissions by programs and pages, from arrival to answer.

A valid request is stored in one transaction. After the answer nothing of it can be lost.

The transaction also checks the user's limits of open batches and queries. It holds the user's row, so simultaneous
submissions can't exceed a limit together. SQLite runs one writing transaction at a time (`config.settings` says how).
So everything possible is prepared before the transaction begins, and each process stores one large batch at a time. In
other databases, only submissions of the same user or of the same new blocks wait.
"""

import hashlib
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection, transaction
from django.db.models import Count, FilteredRelation, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts import throttle
from accounts.models import ApiKey, User, own_or
from config.configured_chains import get_chains
from config.database import statements
from config.database.statements import CompiledQuery, QueryParameter, chunks
from config.error_answers import Refused
from queries import batch_request, webhooks
from queries.batch_request import BatchRequest
from queries.batch_states import deadline_from
from queries.columns import early_checks
from queries.models import (
    OPEN_STATUSES,
    Batch,
    Block,
    IdempotencyKey,
    Sender,
    Step,
    StepKind,
    new_batch_id,
    stored,
)

logger = logging.getLogger(__name__)

_ROWS_PER_STATEMENT = 500
# Seconds until a user with too much open should try again. Batches take minutes.
_RETRY_SECONDS = 60
# Number of accounts, slots, headers, transactions and logs. Storing a larger batch holds the lock for a tenth of a
# second or more.
_LARGE = 500
# Seconds that a large batch waits for the lock, while it occupies a thread, and seconds until the client's next try.
_LOCK_SECONDS = 0.5
BUSY_RETRY_SECONDS = 2
_large_lock = threading.Lock()


# --- The header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header-07) ----------------------------------------

# A client that doesn't know whether its request has arrived sends it again with the same key, and gets the batch of the
# first request. One transaction stores the key and the batch, so a killed process leaves either both or neither. A
# refused request leaves no key.

IDEMPOTENCY_HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
"""The header of an answer that a former request has caused."""

_PLAIN = re.compile(r"[\x20-\x7e]{1,255}", re.ASCII)
# A string of RFC 9651, section 3.3.3, as the draft requires. A backslash escapes quotes and backslashes in it.
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"', re.ASCII)


@dataclass(frozen=True)
class Earlier:
    """A former request with the same key, and the batch that it created."""

    batch_id: str
    body_hash: str

    def check(self, body: bytes) -> None:
        """Check that the body equals the earlier one. Raises `Refused` (idempotency_key_reused) otherwise."""
        if self.body_hash != _hash(body):
            raise Refused(
                "idempotency_key_reused",
                f"Another request was sent with this {IDEMPOTENCY_HEADER}. That request made a batch, and this one "
                f"made none. Give each request its own key.",
            )


class AlreadyStored(Exception):
    """The `earlier` request with the same key has created a batch meanwhile."""

    def __init__(self, earlier: Earlier) -> None:
        super().__init__()
        self.earlier = earlier


@dataclass(frozen=True)
class Named:
    """A request with an Idempotency-Key."""

    user_id: int
    key: str

    def find(self) -> Earlier | None:
        """Return the former request with this key. None: there is none, or the key has expired."""
        rows = IdempotencyKey.objects.filter(user=self.user_id, key=self.key, created_at__gt=_forgotten_before())
        row = rows.values_list("batch_id", "body_hash").first()
        return Earlier(*row) if row else None

    def remember(self, batch_id: str, body: bytes) -> None:
        """Store the key in the transaction that stores the batch. Raises `AlreadyStored`."""
        now = timezone.now()
        row = IdempotencyKey(
            user_id=self.user_id, key=self.key, body_hash=_hash(body), batch_id=batch_id, created_at=now
        )
        # The second of two simultaneous requests waits for the first one's transaction, and then finds its row.
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
    """Read the key from its header. None: there is no key. Raises `Refused`: invalid_idempotency_key."""
    if header is None:
        return None
    quoted = _QUOTED.fullmatch(header)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else header
    if not _PLAIN.fullmatch(key) or (header.startswith('"') and not quoted):
        raise Refused(
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
    """The process is storing another large batch."""

    def __init__(self) -> None:
        super().__init__(
            "busy",
            "The service is storing other large batches. The service stored nothing; send the batch again in a moment.",
            retry_after=BUSY_RETRY_SECONDS,
        )


class TooMuch(Refused):
    """The user has reached a limit of open batches or queries."""


@dataclass(frozen=True)
class Submission:
    batch_id: str
    is_replayed: bool  # a former request with the same Idempotency-Key created it

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        return {REPLAYED: "true"} if self.is_replayed else {}


def submit(key: ApiKey, named_by: str | None, body_of: Callable[[], bytes]) -> Submission:
    """Store the body as a batch of the key's user, and count the request, even if it is refused.

    `named_by` is the header Idempotency-Key. Raises `InvalidRequest`, and the `Refused` errors of `body_of`,
    `read_idempotency_key`, `Earlier.check`, `batch_request.parse`, `store`, `check_rate` and `count_request`.
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
    # Log lines of workers name the batch, but not the request. This line has both.
    logger.info("batch %s is stored", batch.pk, extra={"batch": batch.pk})
    return Submission(batch.pk, is_replayed=False)


def _replayed(user: User, earlier: Earlier, body_of: Callable[[], bytes]) -> Submission:
    """Return the answer of an earlier request with the same key."""
    count_request(user)
    earlier.check(body_of())
    return Submission(earlier.batch_id, is_replayed=True)


@contextmanager
def _counting(user: User) -> Iterator[None]:
    """Count a request that is refused in this block. The transaction that stores a batch counts the others."""
    try:
        yield
    except (DatabaseError, AlreadyStored):
        raise  # Counting would wait for the same lock; `_replayed` counts the latter.
    except Exception:
        count_request(user)
        raise


# --- Storing ----------------------------------------------------------------------------------------------------------


def store(request: BatchRequest, body: bytes, key: ApiKey, named: Named | None = None) -> Batch:
    """Create the batch with its queries, due at once, and count them. Each query is in its first step.

    Raises `TooMuch`, `Busy`, and the errors of `count_request` and `count_queries`. With `named`, also raises
    `AlreadyStored`.
    """
    batch, queries = unsaved(request, key), request.queries
    batch.request = _kept(request, body)
    numbered = {(query.source_chain_id, query.block_number) for query in queries if query.block_number is not None}
    webhook = request.webhook and webhooks.prepared(batch, request.webhook)

    def write() -> None:
        with transaction.atomic():
            count_request(key.user)
            count_queries(key.user, batch.size)
            # The lock keeps the counts below valid until this transaction ends.
            if connection.features.has_select_for_update:
                _LOCKED_USER.all(user=key.user_id)
            _check_room(batch)
            batch.save(force_insert=True)
            if named:
                named.remember(batch.pk, body)
            if webhook:
                webhooks.store(webhook)
            blocks = ensure_blocks(request.destinationChainId, numbered)
            for query in queries:
                if query.block_number is not None:
                    query.block_id = blocks[query.source_chain_id, query.block_number]
            statements.insert_all(queries)
            statements.insert_for_each(
                Step(kind=StepKind.INITIAL_STATE, started_at=batch.created_at),
                "query_id",
                "FROM queries_query WHERE batch_id = %s",
                (batch.pk,),
            )
            transaction.on_commit(lambda: stored.send(Batch, batch=batch), robust=True)

    with _one_large_at_a_time(batch.size):
        statements.retried(write)
    return batch


def unsaved(request: BatchRequest, key: ApiKey) -> Batch:
    """Return the batch of the request's queries that a submission would store now, without the body."""
    now = timezone.now()
    batch = Batch(
        pk=new_batch_id(),
        user_id=key.user_id,
        api_key=key,
        destination_chain_id=request.destinationChainId,
        sender=Sender.SELF if request.is_self_funded else Sender.OPERATOR,
        # With the fee `auto`, the estimate follows later.
        fee=request.fee or 0,
        fee_is_estimate=request.fee is None,
        label=request.label,
        size=request.size,
        block_count=sum(map(len, request.data.values())),
        created_at=now,
        deadline_at=deadline_from(now),
        due_at=now,
    )
    for query in request.queries:
        query.batch_id = batch.pk
    return batch


def _kept(request: BatchRequest, body: bytes) -> str:
    """Return the request to store, without the webhook's URL and headers, which are stored encrypted."""
    if request.webhook is None:
        return body.decode()
    return json.dumps(json.loads(body) | {"webhook": {"url": "(not shown)"}}, ensure_ascii=False)


@contextmanager
def _one_large_at_a_time(size: int) -> Iterator[None]:
    """Hold the lock for large batches while the block runs. Raises `Busy`."""
    if size <= _LARGE:
        yield
        return
    if not _large_lock.acquire(timeout=_LOCK_SECONDS):
        raise Busy
    try:
        yield
    finally:
        _large_lock.release()


def why_no_room(batch: Batch) -> Refused | None:
    """Return why the user's limits would refuse the unsaved batch now, or None. Stores nothing."""
    try:
        _check_room(batch)
    except (TooMuch, TooLarge) as refused:
        return refused
    return None


_USER = User.objects.filter(pk=QueryParameter("user"))
_LOCKED_USER = CompiledQuery(lambda: _USER.select_for_update(no_key=True).values_list("pk"))
_ROOM = CompiledQuery(
    lambda: (
        _USER.annotate(open=FilteredRelation("batches", condition=Q(batches__status__in=OPEN_STATUSES)))
        .values_list("max_open_batches", "max_open_queries")
        .annotate(open_batches=Count("open"), open_queries=Coalesce(Sum("open__size"), 0))
    )
)


def _check_room(batch: Batch) -> None:
    """Check that the user's limits allow one more open batch of this size. Raises `TooMuch`, `TooLarge`."""
    row = _ROOM.first(user=batch.user_id)
    assert row is not None
    for (what, named, more, installations), own, now in zip(
        (
            ("batches", "batches", 1, settings.MAX_OPEN_BATCHES),
            ("queries", "accounts, slots, headers, transactions and logs", batch.size, settings.MAX_OPEN_QUERIES),
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
    """Create missing rows of blocks. Return the primary key of each (source chain id, block number)."""
    ids: dict[tuple[int, int], int] = {}
    for source, pairs in groupby(sorted(wanted), key=lambda pair: pair[0]):
        numbers = [number for _, number in pairs]
        for chunk in chunks(numbers, _ROWS_PER_STATEMENT):
            # Another submission may have created the row, or creates it now. Then this one waits and reads the row. The
            # numbers are sorted, so that submissions don't wait for each other in a circle.
            rows = statements.insert(
                Block(destination_chain_id=destination, source_chain_id=source),
                ("number",),
                [(number,) for number in chunk],
                ignore_conflicts=True,
                returning="number, id",
            )
            if len(rows) < len(chunk):
                known = Block.objects.filter(destination_chain_id=destination, source_chain_id=source, number__in=chunk)
                rows = list(known.values_list("number", "pk"))
            ids.update({(source, number): pk for number, pk in rows})
    return ids


# --- Rates of submissions and estimates of a user ------------------------------------------------------------------

# Refused requests count too, because refusing one may cost as much as storing one. Accounts, slots and headers count
# only when stored or estimated. Status polls don't count: they come every few seconds, and mustn't cost a write.
REQUESTS, QUERIES = "submissions", "submitted queries"


@dataclass(frozen=True)
class Rate:
    """A kind of request that is counted separately, with the same limits as other kinds."""

    verb: str
    requests: str
    queries: str
    most: int | None = None
    """Maximum accounts, slots, headers, transactions and logs of one request, if fewer than a batch may have."""
    needs_payer: bool = True
    """False if nothing is sent for such a request, so that its fee may be left out."""

    def of_key(self, key: ApiKey) -> "Rate":
        """Return the rate that requests with this key count for. Readers take no room from the owner's own requests."""
        if not key.is_read_only:
            return self
        readers = "by read-only keys"
        return replace(self, requests=f"{self.requests} {readers}", queries=f"{self.queries} {readers}")


SUBMISSIONS = Rate("submit", REQUESTS, QUERIES)
ESTIMATES = Rate("estimate", "estimates", "estimated queries")
SHOWN_PROOFS = Rate("ask for proofs of", "requests for proofs", "queries with proofs", most=100, needs_payer=False)


class TooLarge(Refused):
    """The request exceeds the user's limit for a whole minute."""

    def __init__(self, sentence: str) -> None:
        super().__init__("too_large_for_limit", f"{sentence} Ask the operator of this service for more.")


def check_rate(user: User) -> None:
    """Check that the user may submit now, without writing.

    Raises `TooLarge`, and `Refused`: too_many_requests if the user has to wait.
    """
    batches, queries = _batches(user), _queries(user)
    if not batches or not queries:
        raise TooLarge("You may submit no batches.")
    # A request has at least one query, so a user without remaining queries must wait.
    seconds = throttle.seconds_to_wait(QUERIES, user.pk, queries, also=(REQUESTS, batches))
    _refuse_for(user, seconds, SUBMISSIONS)


def count_request(user: User, rate: Rate = SUBMISSIONS) -> None:
    """Count one request of the user. Raises `TooLarge`, and `Refused`: too_many_requests."""
    if not (most := _batches(user)):
        raise TooLarge("You may submit no batches.")
    _refuse_for(user, throttle.take(rate.requests, user.pk, most), rate)


def count_queries(user: User, queries: int, rate: Rate = SUBMISSIONS) -> None:
    """Count the accounts, slots, headers, transactions and logs of a request.

    Raises `TooLarge`, and `Refused`: too_many_requests.
    """
    if queries > (most := _queries(user)):
        raise TooLarge(
            f"This batch has {queries} accounts, slots, headers, transactions and logs, and you may submit {most} in a "
            "minute. Send it in parts."
        )
    _refuse_for(user, throttle.take(rate.queries, user.pk, most, queries), rate)


def read_counted(key: ApiKey, body_of: Callable[[], bytes], rate: Rate) -> BatchRequest:
    """Return a request about which only questions are asked, and count it and its queries.

    Raises the errors of `body_of`, `count_request`, `read` and `count_queries`.
    """
    rate = rate.of_key(key)
    count_request(key.user, rate)
    request = read(key.user, body_of(), rate)
    count_queries(key.user, request.size, rate)
    return request


def read(user: User, body: bytes, rate: Rate = SUBMISSIONS) -> BatchRequest:
    """Return the request in `body`. Each letter of its names counts like a query, because it takes about as long.

    A name that is longer than the user's limit of queries takes the whole limit. Raises the errors of
    `batch_request.parse`, and `Refused`: too_many_requests.
    """

    def count_letters(letters: int) -> None:
        # Letters are counted separately from queries, so that they don't take room from the batch's own queries.
        most = _queries(user)
        _refuse_for(user, throttle.take("letters of names", user.pk, most, min(letters, most)), rate)

    most = min(rate.most or settings.MAX_QUERIES_PER_BATCH, settings.MAX_QUERIES_PER_BATCH)
    return batch_request.parse(
        body,
        get_chains(),
        max_queries=most,
        count_letters=count_letters,
        needs_payer=rate.needs_payer,
        early_checks=[check() for check in early_checks],
    )


def _batches(user: User) -> int:
    return own_or(user.max_batches_per_minute, settings.MAX_BATCHES_PER_MINUTE)


def _queries(user: User) -> int:
    return own_or(user.max_queries_per_minute, settings.MAX_QUERIES_PER_MINUTE)


def _refuse_for(user: User, seconds: int, rate: Rate) -> None:
    if seconds:
        raise Refused(
            "too_many_requests",
            f"You may {rate.verb} {_batches(user)} batches a minute, faulty ones included, with {_queries(user)} "
            "accounts, slots, headers, transactions and logs in them.",
            retry_after=seconds,
        )
