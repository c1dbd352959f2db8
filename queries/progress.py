"""Writes how far batches, queries and steps are. Nothing else does. `proving` calls it; pages and endpoints only read.

Each function is one database transaction, or part of the caller's. It does nothing where there is nothing to do, and
leaves the rows of batches, queries and steps consistent. It locks the batches before it reads, so what it has read
stays true until the transaction ends: all that is written here is of a batch.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from database import bulk_writes, row_locks
from database.chunks import chunks
from queries import clock, webhooks
from queries.models import (
    OPEN_STATUSES,
    Batch,
    BatchStatus,
    Query,
    Step,
    StepKind,
    StepStatus,
    Webhook,
    WebhookEvent,
)
from queries.rejection_codes import RejectionCode

logger = logging.getLogger(__name__)

_ORDER = list(StepKind)
# How many rows one statement names, because databases limit its parameters.
_CHUNK = 500


def admit(
    batch: Batch,
    source: int,
    *,
    estimated_gas: int,
    estimated_wei: int,
    of_queries: Mapping[int, int] | None = None,
    up_to: int | None = None,
) -> None:
    """Admit the queries about one source chain, after their check against the chains.

    The first such call accepts the batch.

    `estimated_gas` is in units of gas, and `estimated_wei` is what that costs at the present gas price. Calls add up.
    `of_queries` are the queries' parts of that gas, by their ids. `up_to` is as that of `Batch.unadmitted`: the other
    queries go on waiting.
    """
    with transaction.atomic(savepoint=False):
        fresh = Batch.objects.select_for_update(no_key=True).get(pk=batch.pk)
        if fresh.status not in OPEN_STATUSES:
            return
        _note_estimates(fresh.unadmitted(source), of_queries or {})
        fresh.unadmitted(source, up_to=up_to).update(is_admitted=True)
        fresh.estimated_gas = (fresh.estimated_gas or 0) + estimated_gas
        fresh.estimated_wei = (fresh.estimated_wei or 0) + estimated_wei
        if fresh.fee_is_estimate:
            fresh.fee += estimated_wei
        if fresh.status == BatchStatus.RECEIVED:
            fresh.status, fresh.accepted_at = BatchStatus.ACCEPTED, timezone.now()
        fresh.save(update_fields=["status", "accepted_at", "estimated_gas", "estimated_wei", "fee"])
    batch.estimated_gas, batch.estimated_wei, batch.fee = fresh.estimated_gas, fresh.estimated_wei, fresh.fee
    logger.info("batch %s: queries about chain %d admitted, about %d gas", batch.pk, source, estimated_gas)


def _note_estimates(queries: "QuerySet[Query]", of_queries: Mapping[int, int]) -> None:
    by_gas: dict[int, list[int]] = defaultdict(list)
    for pk, gas in of_queries.items():
        by_gas[gas].append(pk)
    # Most take the same: one statement does for them.
    usual = max(by_gas, key=lambda gas: len(by_gas[gas]), default=None)
    if usual is not None:
        queries.update(estimated_gas=usual)
    for gas in by_gas.keys() - {usual}:
        for chunk in chunks(by_gas[gas], _CHUNK):
            queries.filter(pk__in=chunk).update(estimated_gas=gas)


def reject(batches: Collection[str], *, code: RejectionCode, reason: str, retryable: bool) -> int:
    """Reject those of the batches that are still open, and return how many.

    `retryable`: whether sending the same batch again can help.
    """
    count = 0
    for chunk in chunks(sorted(batches), _CHUNK):
        open_now = Batch.objects.filter(pk__in=chunk, status__in=OPEN_STATUSES)
        if not open_now.exists():
            continue
        with transaction.atomic(savepoint=False):
            row_locks.lock(open_now)
            rejected = list(open_now.values_list("pk", flat=True))
            Batch.objects.filter(pk__in=rejected).update(
                status=BatchStatus.REJECTED,
                finished_at=timezone.now(),
                rejection_code=code,
                rejection_reason=reason,
                rejection_retryable=retryable,
                waiting_for="",
                due_at=None,
            )
            said = {"error": reason, "code": code, "retryable": retryable}
            told = webhooks.of(rejected).values()
            webhooks.tell(told, WebhookEvent.REJECTED, BatchStatus.REJECTED, **said)
        count += len(rejected)
        if rejected:
            logger.warning("rejected %s: %s (%s)", ", ".join(rejected), reason, code)
    return count


def cancel(batch: str, *, code: RejectionCode, reason: str) -> bool:
    """Reject the batch for good, if it is open. What was sent for it stays paid, and is followed."""
    # A program that sends what can be sent again would undo it.
    return bool(reject([batch], code=code, reason=reason, retryable=False))


def complete(queries: Collection[int], kind: StepKind, *, transaction_hash: str = "") -> set[int]:
    """Complete the step `kind` of those queries (ids) that are at it, and begin the next step.

    `transaction_hash` names the transaction that did it, if one did. Return the ids of the blocks that these queries
    are about.
    """
    now = timezone.now()
    change: dict[str, object] = {"status": StepStatus.COMPLETED, "completed_at": now, "last_error": ""}
    if transaction_hash:
        change["transaction_hash"] = transaction_hash
    following = _ORDER[_ORDER.index(kind) + 1] if kind != _ORDER[-1] else None
    blocks: set[int] = set()
    for chunk in chunks(sorted(queries), _CHUNK):
        with transaction.atomic(savepoint=False):
            lock_batches(chunk)
            at_step = list(
                Query.objects.filter(pk__in=chunk, step=kind, batch__status__in=OPEN_STATUSES)
                .order_by("pk")
                .values_list("pk", "address", "batch", "block")
            )
            if not at_step:
                continue
            completed = [pk for pk, *_ in at_step]
            goes_on: list[int] = []
            if following:
                # A header is proven with its accumulation.
                goes_on = [pk for pk, address, *_ in at_step if address or following != StepKind.ACCOUNT_ACCUMULATED]
            Step.objects.filter(query__in=completed, kind=kind).update(**change)
            if len(goes_on) < len(completed):
                Query.objects.filter(pk__in=completed).update(step=None)
            if following and goes_on:
                begun = Step(kind=following, started_at=now)
                bulk_writes.insert(begun, ("query_id",), [(pk,) for pk in goes_on])
                Query.objects.filter(pk__in=goes_on).update(step=following)
            batches = sorted({batch for _, _, batch, _ in at_step})
            told = webhooks.of(batches)
            _tell_of_step(told, completed, kind)
            if kind == _ORDER[0]:
                Batch.objects.filter(pk__in=batches, status=BatchStatus.ACCEPTED).update(status=BatchStatus.IN_PROGRESS)
            if len(goes_on) < len(completed):
                _finish(batches, told)
            blocks.update(block for *_, block in at_step if block is not None)
    return blocks


def note_transaction(
    queries: Collection[int], transaction_hash: str, *, instead_of: Collection[str] | None = None
) -> None:
    """Note which transaction will complete the queries' open step; with `instead_of`, only in place of one of these.

    No transaction completes INITIAL_STATE.
    """
    with transaction.atomic(savepoint=False):
        lock_batches(queries)
        for chunk in chunks(sorted(queries), _CHUNK):
            steps = _open_steps(chunk).exclude(kind=StepKind.INITIAL_STATE)
            if instead_of is not None:
                steps = steps.filter(transaction_hash__in=instead_of)
            steps.update(transaction_hash=transaction_hash)


def note_failure(queries: Collection[int], reason: str) -> None:
    """Count a failed attempt of the queries' open step, with the reason in a sentence."""
    for chunk in chunks(sorted(queries), _CHUNK):
        with transaction.atomic(savepoint=False):
            lock_batches(chunk)
            _open_steps(chunk).update(last_error=reason, attempts=F("attempts") + 1)


def reopen(queries: Collection[int], kind: StepKind, *, reason: str) -> None:
    """Take the queries (ids) back to step `kind`, and their batches back from DONE: what they relied on is gone.

    A chain was reorganised, or another registry is used now.
    """
    now = timezone.now()
    later = _ORDER[_ORDER.index(kind) + 1 :]
    for chunk in chunks(sorted(queries), _CHUNK):
        with transaction.atomic(savepoint=False):
            batches = _locked_batches(chunk)
            ids = list(
                Query.objects.filter(pk__in=chunk)
                .exclude(batch__status=BatchStatus.REJECTED)
                .values_list("pk", flat=True)
            )
            told = _told_of(webhooks.of(batches), ids, kind)
            Step.objects.filter(query__in=ids, kind__in=later).delete()
            Step.objects.filter(query__in=ids, kind=kind).update(
                status=StepStatus.IN_PROGRESS,
                started_at=now,
                completed_at=None,
                transaction_hash="",
                last_error=reason,
                went_back_at=now,
                went_back_because=reason,
            )
            Query.objects.filter(pk__in=ids).update(step=kind)
            taken_back = Query.objects.filter(batch=OuterRef("pk"), pk__in=ids)
            Batch.objects.filter(Exists(taken_back), pk__in=batches).update(went_back_at=now, went_back_because=reason)
            # It gets a new deadline, because the old one may have passed while it was DONE.
            back = Batch.objects.filter(pk__in=batches, status=BatchStatus.DONE).update(
                status=BatchStatus.IN_PROGRESS, finished_at=None, deadline_at=deadline_from(now)
            )
            webhooks.tell(told, WebhookEvent.WENT_BACK, BatchStatus.IN_PROGRESS, step=kind, reason=reason)
        logger.warning("%d queries went back to %s, %d batches were DONE: %s", len(ids), kind, back, reason)


def move(queries: Collection[int], block_id: int, *, reason: str) -> None:
    """Give the queries (ids) another block and start them again: a reorg has moved the time that they name."""
    for chunk in chunks(sorted(queries), _CHUNK):
        with transaction.atomic(savepoint=False):
            Query.objects.filter(pk__in=chunk).update(block=block_id)
            reopen(chunk, StepKind.INITIAL_STATE, reason=reason)


def deadline_from(moment: datetime) -> datetime:
    """Return the deadline of a batch that begins to wait at this moment, by the clock that decides what is overdue."""
    return max(moment, clock.last_read() or moment) + timedelta(seconds=settings.BATCH_DEADLINE_SECONDS)


def lock_batches(queries: "Collection[int] | QuerySet[Query, int]") -> None:
    """Lock the batches of these queries (ids): all at once before several of these functions, in one transaction."""
    row_locks.lock(Batch.objects.filter(pk__in=Query.objects.filter(pk__in=queries).order_by().values("batch")))


def _open_steps(queries: Sequence[int]) -> QuerySet[Step]:
    """Return the steps in progress, without those of rejected batches."""
    return Step.objects.filter(query__in=queries, status=StepStatus.IN_PROGRESS, query__batch__status__in=OPEN_STATUSES)


def _locked_batches(queries: Sequence[int]) -> list[str]:
    """Lock the batches of the queries, where the database locks rows; their primary keys.

    Two workers may complete the last queries of one batch on two blocks. The second must see what the first has
    committed, and makes the batch DONE.
    """
    batches = Batch.objects.filter(Exists(Query.objects.filter(batch=OuterRef("pk"), pk__in=queries)))
    return list(batches.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))


def _finish(batches: Sequence[str], told: Mapping[str, Webhook]) -> None:
    """Make the batches DONE that have no open query (docs/specification.md, "Rules that hold")."""
    open_queries = Query.objects.filter(batch=OuterRef("pk"), step__isnull=False)
    done = Batch.objects.filter(~Exists(open_queries), pk__in=batches, status=BatchStatus.IN_PROGRESS)
    finished = list(done.order_by("pk").values_list("pk", flat=True))
    if not finished:
        return
    Batch.objects.filter(pk__in=finished).update(status=BatchStatus.DONE, finished_at=timezone.now())
    webhooks.tell([told[pk] for pk in finished if pk in told], WebhookEvent.DONE, BatchStatus.DONE)
    for pk in finished:
        logger.info("batch %s done", pk)


# --- What webhooks are told -------------------------------------------------------------------------------------------


def _tell_of_step(told: Mapping[str, Webhook], completed: Sequence[int], kind: StepKind) -> None:
    """Tell of the step where these queries, which have just completed it, were the last of their batch."""
    listening = {pk: webhook for pk, webhook in told.items() if WebhookEvent.STEP in webhook.events}
    past = [listening[pk] for pk in _past(kind, listening, completed)]
    webhooks.tell(past, WebhookEvent.STEP, BatchStatus.IN_PROGRESS, step=kind)


def _told_of(told: Mapping[str, Webhook], going_back: Sequence[int], kind: StepKind) -> list[Webhook]:
    """Return the webhooks that were told of the step `kind`, or of DONE, which the rollback of these queries undoes."""
    past = [told[pk] for pk in _past(kind, told, going_back)]
    done = set(Batch.objects.filter(pk__in=[webhook.pk for webhook in past], status=BatchStatus.DONE).values_list("pk"))
    return [webhook for webhook in past if (webhook.pk,) in done or WebhookEvent.STEP in webhook.events]


def _past(kind: StepKind, batches: Collection[str], queries: Sequence[int]) -> list[str]:
    """Return the `batches` of `queries` in which every query is past `kind`."""
    if not batches:
        return []
    left = Query.objects.filter(batch=OuterRef("pk"), step__in=_ORDER[: _ORDER.index(kind) + 1])
    asking = Query.objects.filter(pk__in=queries, batch__in=list(batches)).order_by().values("batch")
    return list(Batch.objects.filter(~Exists(left), pk__in=asking).order_by("pk").values_list("pk", flat=True))
