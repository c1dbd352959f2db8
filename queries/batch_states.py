"""Changes of the states of batches, queries and steps. No other module writes them. `proving` calls these functions.

Each function is one database transaction, or part of the caller's. It keeps the rows of batches, queries and steps
consistent, and does nothing if there is nothing to change. It locks the batches before it reads. Every row that is
written here belongs to a batch, so the rows can't change until the transaction ends.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from config import logs
from config.database import statements
from config.database.statements import chunks
from queries import clock, webhooks
from queries.columns import RejectionCode
from queries.models import (
    OPEN_STATUSES,
    Batch,
    BatchStatus,
    Query,
    QueryKind,
    Step,
    StepKind,
    StepStatus,
    Webhook,
    WebhookEvent,
)
from queries.waits import WaitReason

logger = logging.getLogger(__name__)

_ORDER = list(StepKind)
# Maximum rows that a statement names, because databases limit its parameters.
_CHUNK = 500


def admit(batches: Sequence[Batch]) -> None:
    """Accept batches after their checks against the chains, in the caller's database transaction.

    The caller has locked the batches and then read them, and has set `estimated_gas` and `estimated_wei`. The latter is
    the cost in wei at 5/4 of the current gas price. It becomes the fee if the request's fee is `auto`.
    """
    received = [batch for batch in batches if batch.status == BatchStatus.RECEIVED]
    for batch in received:
        if batch.fee_is_estimate:
            batch.fee = batch.estimated_wei or 0
        batch.status, batch.accepted_at, batch.rejection_code = BatchStatus.ACCEPTED, timezone.now(), ""
    columns = ("status", "accepted_at", "rejection_code", "estimated_gas", "estimated_wei", "fee")
    statements.update_each(received, columns)
    for batch in received:
        with logs.about(batch=batch.pk, chain=batch.destination_chain_id):
            logger.info("batch %s admitted, about %d gas", batch.pk, batch.estimated_gas)


def reject(batches: Collection[str], *, code: str, reason: WaitReason | str, retryable: bool) -> list[str]:
    """Reject the batches that are still open, and return their identifiers.

    `code` is a `RejectionCode`. An operator's reason is a sentence. `retryable` says whether submitting the same batch
    again can succeed.
    """
    changed: list[str] = []
    for chunk in chunks(sorted(batches), _CHUNK):
        open_now = Batch.objects.filter(pk__in=chunk, status__in=OPEN_STATUSES)
        if not open_now.exists():
            continue
        with transaction.atomic(savepoint=False):
            statements.lock(open_now)
            rejected = list(open_now.values_list("pk", flat=True))
            Batch.objects.filter(pk__in=rejected).update(
                status=BatchStatus.REJECTED,
                finished_at=timezone.now(),
                rejection_code=code,
                rejection_reason=str(reason),
                rejected_because=reason if isinstance(reason, WaitReason) else None,
                rejection_retryable=retryable,
                wait=None,
                due_at=None,
            )
            content = {"error": str(reason), "code": code, "retryable": retryable}
            receivers = webhooks.of(rejected).values()
            webhooks.tell(receivers, WebhookEvent.REJECTED, BatchStatus.REJECTED, **content)
        changed += rejected
        if rejected:
            logger.warning("rejected %s: %s (%s)", ", ".join(rejected), reason, code)
    return changed


def withdraw(batches: Collection[str], *, code: RejectionCode, reason: str) -> list[str]:
    """Reject the batches that are still open, without another try, and return their identifiers.

    Transactions that were sent for them are still paid and monitored.
    """
    # A program that repeats retryable submissions would undo the cancellation.
    return reject(batches, code=code, reason=reason, retryable=False)


@dataclass(frozen=True)
class Complete:
    """A completion of step `kind` for `queries` (ids) that are at this step.

    `transaction_hash` names the transaction that completed the step, if there was one.
    """

    queries: Collection[int]
    step: StepKind
    transaction_hash: str = ""


def complete(queries: Collection[int], kind: StepKind, *, transaction_hash: str = "") -> None:
    """Complete one step, like `complete_all`."""
    complete_all([Complete(queries, kind, transaction_hash)])


def complete_all(changes: Sequence[Complete]) -> dict[StepKind, set[int]]:
    """Complete steps in this order, and begin the following ones. Return for each step the blocks that completed it.

    Several steps of a query take no more statements than one.
    """
    blocks: dict[StepKind, set[int]] = defaultdict(set)
    for chunk in chunks(sorted({pk for change in changes for pk in change.queries}), _CHUNK):
        with transaction.atomic(savepoint=False):
            open_ones = Query.objects.filter(pk__in=chunk, step__isnull=False)
            # A rejected batch completes no more steps.
            opened = Batch.objects.filter(pk__in=open_ones.values("batch"), status__in=OPEN_STATUSES).only("status")
            opened = opened.annotate(is_told=Exists(Webhook.objects.filter(pk=OuterRef("pk"))))
            batches = {row.pk: row for row in opened.order_by("pk").select_for_update(of=("self",), no_key=True)}
            asking: dict[int, Query] = {}
            for query in open_ones.filter(batch__in=batches).only("kind", "block", "step", "batch"):
                query.batch, asking[query.pk] = batches[query.batch_id], query
            completed = _in_order(asking, changes)
            _write_steps(asking, completed)
            _advance_batches(asking, completed)
        for pk, (steps, _) in completed.items():
            if (block := asking[pk].block_id) is not None:
                for step, _ in steps:
                    blocks[step].add(block)
    return blocks


# The steps that a query completes, with transaction hashes, and the step that follows. None: the query is done.
_Completed = tuple[tuple[tuple[StepKind, str], ...], StepKind | None]


def _in_order(asking: Mapping[int, Query], changes: Sequence[Complete]) -> dict[int, _Completed]:
    completed: dict[int, _Completed] = {}
    for change in changes:
        following = _ORDER[_ORDER.index(change.step) + 1] if change.step != _ORDER[-1] else None
        for pk in change.queries:
            if (query := asking.get(pk)) is None:
                continue
            steps, at = completed.get(pk, ((), query.step))
            # A header query has no further step, because accumulating the header proves it.
            is_last = query.kind == QueryKind.HEADER and following == StepKind.FACTS_PROVEN
            if at == change.step:
                completed[pk] = ((*steps, (change.step, change.transaction_hash)), None if is_last else following)
    return completed


def _write_steps(asking: Mapping[int, Query], completed: Mapping[int, _Completed]) -> None:
    now = timezone.now()
    begun: list[tuple[int | str | None, ...]] = []
    ended: dict[tuple[StepKind, str], list[int]] = defaultdict(list)
    going_on: dict[StepKind | None, list[int]] = defaultdict(list)
    stored = connection.ops.adapt_datetimefield_value(now)
    for pk, ((first, *further), following) in completed.items():
        ended[first].append(pk)
        begun += [(pk, step, StepStatus.COMPLETED, stored, tx_hash) for step, tx_hash in further]
        if following:
            begun.append((pk, following, StepStatus.IN_PROGRESS, None, ""))
        going_on[following].append(pk)
    for (step, tx_hash), pks in ended.items():
        change: dict[str, object] = {
            "status": StepStatus.COMPLETED,
            "completed_at": now,
            "error": None,
        }
        if tx_hash:
            change["transaction_hash"] = tx_hash
        Step.objects.filter(query__in=pks, kind=step).update(**change)
    columns = ("query_id", "kind", "status", "completed_at", "transaction_hash")
    statements.insert(Step(started_at=now), columns, begun)
    for following, pks in going_on.items():
        Query.objects.filter(pk__in=pks).update(step=following)


def _advance_batches(asking: Mapping[int, Query], completed: Mapping[int, _Completed]) -> None:
    """Write the new states of these queries' batches, and create events for their webhooks."""
    queries = [asking[pk] for pk in completed]
    is_told = any(query.batch.is_told for query in queries)  # type: ignore[attr-defined]  # of the annotation
    receivers = webhooks.of({query.batch_id for query in queries}) if is_told else {}
    for kind in _ORDER:
        past = [pk for pk, (steps, _) in completed.items() if kind in dict(steps)]
        if receivers and past:
            _tell_of_step(receivers, past, kind)
    # A batch is in progress as soon as one of its queries has completed a step.
    accepted = {query.batch_id for query in queries if query.batch.status == BatchStatus.ACCEPTED}
    if accepted:
        Batch.objects.filter(pk__in=accepted, status=BatchStatus.ACCEPTED).update(status=BatchStatus.IN_PROGRESS)
    if ended := {asking[pk].batch_id for pk, (_, following) in completed.items() if following is None}:
        _finish(sorted(ended), receivers)


def note_transaction(queries: "QuerySet[Query]", transaction_hash: str, *, instead_of: Collection[str] | None) -> None:
    """Note the transaction that will complete the queries' open steps. It replaces those in `instead_of`; None: any.

    INITIAL_STATE is completed without a transaction. The caller has locked the queries' batches.
    """
    steps = _open_steps(queries).exclude(kind=StepKind.INITIAL_STATE)
    shown = steps if instead_of is None else steps.filter(transaction_hash__in=instead_of)
    shown.update(transaction_hash=transaction_hash)


def note_failure(queries: Collection[int], reason: WaitReason) -> None:
    """Store on the queries' open steps why an attempt failed."""
    for chunk in chunks(sorted(queries), _CHUNK):
        with transaction.atomic(savepoint=False):
            lock_batches(chunk)
            _open_steps(chunk).update(error=reason)


def reopen(queries: Collection[int], kind: StepKind, *, reason: str) -> None:
    """Reopen step `kind` of the queries (ids), and their batches if they are DONE.

    The facts were lost: a chain was reorganized, or another registry is used now.
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
            receivers = _told_of(webhooks.of(batches), ids, kind)
            Step.objects.filter(query__in=ids, kind__in=later).delete()
            Step.objects.filter(query__in=ids, kind=kind).update(
                status=StepStatus.IN_PROGRESS,
                started_at=now,
                completed_at=None,
                transaction_hash="",
                error=None,
                went_back_at=now,
                went_back_because=reason,
            )
            Query.objects.filter(pk__in=ids).update(step=kind)
            taken_back = Query.objects.filter(batch=OuterRef("pk"), pk__in=ids)
            Batch.objects.filter(Exists(taken_back), pk__in=batches).update(went_back_at=now, went_back_because=reason)
            # The batch gets a new deadline, because the old one may have passed while it was DONE.
            back = Batch.objects.filter(pk__in=batches, status=BatchStatus.DONE).update(
                status=BatchStatus.IN_PROGRESS, finished_at=None, deadline_at=deadline_from(now), overdue_since=None
            )
            webhooks.tell(receivers, WebhookEvent.WENT_BACK, BatchStatus.IN_PROGRESS, step=kind, reason=reason)
        logger.warning("%d queries went back to %s, %d batches were DONE: %s", len(ids), kind, back, reason)


def move(queries: Collection[int], block_id: int, *, reason: str) -> None:
    """Give the queries (ids) another block and restart them, after a reorg has changed the block at their time."""
    for chunk in chunks(sorted(queries), _CHUNK):
        with transaction.atomic(savepoint=False):
            Query.objects.filter(pk__in=chunk).update(block=block_id, first_log=None)
            Query.objects.filter(pk__in=chunk, transaction_name__startswith="0x").update(transaction_index=None)
            reopen(chunk, StepKind.INITIAL_STATE, reason=reason)


def deadline_from(moment: datetime) -> datetime:
    """Return the deadline of a batch that begins to wait at this time, by the clock for deadlines."""
    return max(moment, clock.latest()) + timedelta(seconds=settings.BATCH_DEADLINE_SECONDS)


def lock_batches(queries: "Collection[int] | QuerySet[Query, int]") -> None:
    """Lock the batches of these queries (ids). Call this before several functions of this module in one transaction."""
    statements.lock(Batch.objects.filter(pk__in=Query.objects.filter(pk__in=queries).order_by().values("batch")))


def _open_steps(queries: "Sequence[int] | QuerySet[Query]") -> QuerySet[Step]:
    """Return the steps in progress, without those of rejected batches."""
    return Step.objects.filter(query__in=queries, status=StepStatus.IN_PROGRESS, query__batch__status__in=OPEN_STATUSES)


def _locked_batches(queries: Sequence[int]) -> list[str]:
    """Lock the batches of the queries if the database locks rows. Return their primary keys.

    Two workers may complete the last queries of a batch on two blocks. The second must see what the first committed, to
    make the batch DONE.
    """
    batches = Batch.objects.filter(Exists(Query.objects.filter(batch=OuterRef("pk"), pk__in=queries)))
    return list(batches.order_by("pk").select_for_update(no_key=True).values_list("pk", flat=True))


def _finish(batches: Sequence[str], receivers: Mapping[str, Webhook]) -> None:
    """Make batches without an open query DONE (docs/specification.md, "Rules that hold")."""
    open_queries = Query.objects.filter(batch=OuterRef("pk"), step__isnull=False)
    count = Batch.objects.filter(~Exists(open_queries), pk__in=batches, status=BatchStatus.IN_PROGRESS).update(
        status=BatchStatus.DONE, finished_at=timezone.now()
    )
    if not count:
        return
    finished = batches
    if count < len(batches):
        # All batches were open when they were locked, so the DONE ones were finished here.
        finished = list(Batch.objects.filter(pk__in=batches, status=BatchStatus.DONE).values_list("pk", flat=True))
    webhooks.tell([receivers[pk] for pk in finished if pk in receivers], WebhookEvent.DONE, BatchStatus.DONE)
    for pk in finished:
        logger.info("batch %s done", pk)


# --- Events of webhooks -----------------------------------------------------------------------------------------------


def _tell_of_step(receivers: Mapping[str, Webhook], completed: Sequence[int], kind: StepKind) -> None:
    """Create events about the step for batches whose last queries to complete it are these."""
    listening = {pk: webhook for pk, webhook in receivers.items() if WebhookEvent.STEP in webhook.events}
    past = [listening[pk] for pk in _past(kind, listening, completed)]
    webhooks.tell(past, WebhookEvent.STEP, BatchStatus.IN_PROGRESS, step=kind)


def _told_of(receivers: Mapping[str, Webhook], going_back: Sequence[int], kind: StepKind) -> list[Webhook]:
    """Return the webhooks that got an event about step `kind` or DONE, which the rollback of these queries undoes."""
    past = [receivers[pk] for pk in _past(kind, receivers, going_back)]
    done = set(Batch.objects.filter(pk__in=[webhook.pk for webhook in past], status=BatchStatus.DONE).values_list("pk"))
    return [webhook for webhook in past if (webhook.pk,) in done or WebhookEvent.STEP in webhook.events]


def _past(kind: StepKind, batches: Collection[str], queries: Sequence[int]) -> list[str]:
    """Return the `batches` of `queries` in which every query is past `kind`."""
    if not batches:
        return []
    not_past = Query.objects.filter(batch=OuterRef("pk"), step__in=_ORDER[: _ORDER.index(kind) + 1])
    asking = Query.objects.filter(pk__in=queries, batch__in=list(batches)).order_by().values("batch")
    return list(Batch.objects.filter(~Exists(not_past), pk__in=asking).order_by("pk").values_list("pk", flat=True))
