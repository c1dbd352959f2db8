"""Pruning of data that is older than `config.settings` keeps it, by workers and by `manage.py prune`.

Each chunk is a short database transaction in the lane HOUSE. So other transactions get their turn, one process prunes
at a time, and after a kill no chunk is half done.

A batch has all of its proof bundles or none. So a batch is marked first (`Batch.proofs_pruned_at`), and then has no
bundles. The nodes of a block's proofs are emptied, and its tries deleted, when all batches with that block are marked.
Proven values stay, with the receipts that they are in.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db.models import Exists, Model, OuterRef, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from accounts.models import AccountEvent, SignInNonce, ThrottleCount
from config.database import due_rows, statements
from config.database.statements import chunks
from proving.models import (
    AccountProof,
    BeaconAnchor,
    BlockTrie,
    JumpLeaves,
    SignedTransaction,
    Signer,
    SlotProof,
    Transaction,
    TransactionState,
)
from proving.working import lanes
from proving.working.lanes import HeldLane, LaneKind, LaneLost, LaneName
from queries import clock
from queries.models import (
    OPEN_STATUSES,
    Batch,
    Block,
    IdempotencyKey,
    Pruning,
    Query,
    Step,
    Webhook,
    WebhookDelivery,
    WebhookEvent,
)

logger = logging.getLogger(__name__)

# Maximum rows of one chunk. Rows of proofs and transactions are long, and rows of leaves and tries very long.
_ROWS, _PROOFS, _TRANSACTIONS, _BATCHES, _LEAVES, _TRIES = 1000, 200, 20, 50, 20, 20
# Maximum blocks in one statement.
_BLOCKS = 500
# Seconds of one run, seconds between two runs, and the pause when nothing is left to prune.
_TURN_SECONDS, _PAUSE_SECONDS, _REST = 1.0, 2.0, due_rows.LONGEST


def prune_when_due(lane: HeldLane) -> None:
    """Prune for a short time if that is due, and make it due again. A worker calls this."""
    row, _ = lane.write(partial(Pruning.objects.get_or_create, pk=1, defaults={"due_at": Now()}))
    if not due_rows.due(Pruning.objects.filter(pk=row.pk)).exists():
        return
    pruned = _prune(lane, seconds=_TURN_SECONDS)
    pause = _REST if pruned.is_complete else timedelta(seconds=_PAUSE_SECONDS)
    lane.write(partial(Pruning.objects.update, due_at=Now() + pause))
    _log(pruned.counts)


def prune_now() -> Mapping[str, int] | None:
    """Prune all old data. Return the number of rows of each kind. None if another process is pruning."""
    # If this process pauses, another may take the lane. The chunks that were pruned until then stay pruned.
    with suppress(LaneLost), lanes.hold(LaneName(LaneKind.HOUSE)) as lane:
        if lane is not None:
            pruned = _prune(lane)
            _log(pruned.counts)
            return pruned.counts
    return None


@dataclass(frozen=True)
class _PruningRun:
    counts: Mapping[str, int]
    """The number of pruned rows by kind."""
    is_complete: bool
    """True if no old row is left."""


def _prune(lane: HeldLane, *, seconds: float | None = None) -> _PruningRun:
    """Prune for these seconds, or until nothing is left. Raises `LaneLost`."""
    ends = None if seconds is None else time.monotonic() + seconds
    counts: Counter[str] = Counter()
    for kind in KINDS:
        if (days := getattr(settings, kind.keep) if isinstance(kind.keep, str) else kind.keep) is None:
            continue
        while True:
            if ends is not None and time.monotonic() >= ends:
                return _PruningRun(counts, is_complete=False)
            changed = lane.write(partial(_prune_chunk, kind, days))
            counts[kind.name] += changed
            if not changed:
                break
    return _PruningRun(counts, is_complete=True)


def _prune_chunk(kind: "Kind", days: int) -> int:
    # The cautious clock of deadlines is used, because pruned rows can't be restored.
    return kind.prune(clock.earliest() - timedelta(days=days))


def _log(counts: Mapping[str, int]) -> None:
    if summary := ", ".join(f"{count} {name}" for name, count in counts.items() if count):
        logger.info("pruned %s", summary)


@dataclass(frozen=True)
class Kind:
    """A kind of data, and the age at which it is pruned."""

    name: str  # name for people, plural
    keep: str | int  # name of a setting, or a number of days
    prune: Callable[[datetime], int]
    """Prunes a chunk of older rows, in the caller's transaction. Returns the number of rows; 0: none is left."""


# --- Proofs and steps of batches --------------------------------------------------------------------------------------


def _settled(before: datetime) -> QuerySet[Batch]:
    """Return batches that ended before this time and can't be rolled back any more."""
    in_work = Query.objects.filter(batch=OuterRef("pk"), block__due_at__isnull=False)
    closed = Batch.objects.exclude(status__in=OPEN_STATUSES).filter(finished_at__lt=before)
    return closed.filter(~Exists(in_work)).order_by("finished_at")


def _prune_proofs(before: datetime) -> int:
    return _mark_batches(before) or _empty_proofs()


def _mark_batches(before: datetime) -> int:
    """Mark batches whose bundles are no longer available."""
    settled = _settled(before).filter(proofs_pruned_at=None, proofs_gone_at=None)
    chosen = list(settled.values_list("pk", flat=True)[:_BATCHES])
    statements.lock(Batch.objects.filter(pk__in=chosen))
    # A reorganisation may have rolled back some batches before they were locked.
    return settled.filter(pk__in=chosen).update(proofs_pruned_at=timezone.now())


def _empty_proofs() -> int:
    """Empty proofs of the batch that was marked first, or store that it has none left."""
    marked = Batch.objects.filter(proofs_gone_at=None).exclude(proofs_pruned_at=None)
    batch = marked.order_by("finished_at").values_list("pk", flat=True).first()
    if batch is None:
        return 0
    blocks = Query.objects.filter(batch=batch).exclude(block=None).order_by("block").values_list("block", flat=True)
    for some in chunks(list(blocks.distinct()), _BLOCKS):
        # Blocks that another batch's bundles need are kept until that batch is pruned.
        free = sorted(set(some) - _needed(some))
        for model, block in ((SlotProof, "account__block"), (AccountProof, "block")):
            # An index has this order.
            full = model.objects.exclude(nodes=[]).filter(**{f"{block}__in": free})
            rows = list(full.order_by("account" if model is SlotProof else "block").values_list("pk", block)[:_PROOFS])
            if rows and (emptied := model.objects.filter(pk__in=_unneeded(rows)).update(nodes=[])):
                return emptied
        tries = BlockTrie.objects.filter(block__in=free).order_by("block").values_list("pk", "block")[:_TRIES]
        if tries and (deleted := BlockTrie.objects.filter(pk__in=_unneeded(tries)).delete()[0]):
            return deleted
    Batch.objects.filter(pk=batch).update(proofs_gone_at=timezone.now())
    return 1


def _unneeded(rows: Iterable[tuple[int, int]]) -> list[int]:
    """Return the proofs that no batch needs. `rows` has the primary keys of proofs and of their blocks."""
    blocks = {block for _, block in rows}
    # A batch that is accepted later waits for these locks, and then sees that the proofs are gone.
    statements.lock(Block.objects.filter(pk__in=blocks))
    needed = _needed(blocks)
    return [pk for pk, block in rows if block not in needed]


def _needed(blocks: Collection[int]) -> set[int]:
    """Return the blocks that the bundles of a batch need."""
    queries = Query.objects.filter(block__in=blocks, batch__proofs_pruned_at=None)
    return {block for block in queries.order_by().values_list("block", flat=True).distinct() if block is not None}


def _prune_steps(before: datetime) -> int:
    """Mark a batch and delete all its steps. Its page shows the times of all steps or of none."""
    settled = _settled(before).filter(steps_gone_at=None)
    batch = settled.values_list("pk", flat=True).first()
    statements.lock(Batch.objects.filter(pk=batch))
    now = timezone.now()
    # A reorganisation may have rolled back the batch before it was locked.
    if not settled.filter(pk=batch).update(steps_pruned_at=now, steps_gone_at=now):
        return 0
    return max(1, Step.objects.filter(query__batch=batch).delete()[0])


# --- Transactions -----------------------------------------------------------------------------------------------------


def _prune_calldata(before: datetime) -> int:
    final = Transaction.objects.filter(state=TransactionState.FINAL, spent_at__lt=before, pruned_at=None)
    chosen = list(final.order_by("spent_at").values_list("pk", flat=True)[:_TRANSACTIONS])
    statements.lock(Signer.objects.filter(pk__in=Transaction.objects.filter(pk__in=chosen).values("signer")))
    SignedTransaction.objects.filter(transaction__in=chosen).update(raw=b"")
    return Transaction.objects.filter(pk__in=chosen).update(data=b"", pruned_at=timezone.now())


# --- Webhooks ---------------------------------------------------------------------------------------------------------


def _prune_webhooks(before: datetime) -> int:
    """Delete ended deliveries. Delete webhooks without deliveries if their batch can have no further event."""
    ended = WebhookDelivery.objects.filter(ended_at__lt=before)
    deliveries = WebhookDelivery.objects.filter(webhook=OuterRef("pk"))
    if oldest := _first(ended.order_by("ended_at")):
        tests = _first(ended.filter(pk__in=oldest, event=WebhookEvent.TEST), column="webhook")
        # The condition is checked again, because a user may have requested that a delivery be sent again.
        deleted: int = ended.filter(pk__in=oldest).delete()[0]
        return deleted + Webhook.objects.filter(~Exists(deliveries), pk__in=tests).delete()[0]
    over = Webhook.objects.filter(~Exists(deliveries), batch__in=_settled(before).order_by())
    return over.filter(pk__in=_first(over)).delete()[0]


# --- Other rows -------------------------------------------------------------------------------------------------------


def _first(rows: QuerySet[Any], most: int = _ROWS, column: str = "pk") -> list[Any]:
    return list(rows.values_list(column, flat=True)[:most])


def _older(model: type[Model], column: str, most: int = _ROWS) -> Callable[[datetime], int]:
    def delete(before: datetime) -> int:
        oldest = _first(model._default_manager.filter(**{f"{column}__lt": before}).order_by(column), most)
        return model._default_manager.filter(pk__in=oldest).delete()[0]

    return delete


KINDS = (
    Kind("proofs", "KEEP_PROOFS_DAYS", _prune_proofs),
    Kind("steps", "KEEP_STEPS_DAYS", _prune_steps),
    Kind("transactions' calldata", "KEEP_CALLDATA_DAYS", _prune_calldata),
    Kind("roots of old blocks", 90, _older(JumpLeaves, "used_at", _LEAVES)),
    Kind("beacon blocks that jumps begin at", 90, _older(BeaconAnchor, "used_at")),
    Kind("webhooks and deliveries", 30, _prune_webhooks),
    Kind("account events", AccountEvent.KEPT_DAYS, _older(AccountEvent, "at")),
    Kind("idempotency keys", IdempotencyKey.KEPT_DAYS, _older(IdempotencyKey, "created_at")),
    # Sign-ins and requests remove most of these rows when they expire.
    Kind("sessions", 1, _older(Session, "expire_date")),
    Kind("sign-in nonces", 1, _older(SignInNonce, "expires_at")),
    Kind("throttle counts", 1, _older(ThrottleCount, "began_at")),
)
