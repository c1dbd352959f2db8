"""RECEIVED -> ACCEPTED or REJECTED: checks batches against their chains before anything is spent on them.

A batch is admitted once, when all its source chains have answered: one that is down delays the batches that name it,
and no others. What is still to come keeps nothing back. Blocks wait for themselves; a time whose block is still to come
is looked for here, after the batch is accepted.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db.models import Case, Count, F, Q, When
from django.db.models.functions import Now

from accounts.models import User
from chains.chains_file import Chain
from chains.node_errors import ChainError
from config import logs
from config.configured_chains import get_chains
from database import due_rows, statements
from database.due_rows import Postponement
from proving import batch_estimate, block_selection, connections, facts, heads, lanes, money, source_estimate
from proving.block_selection import Inquiry, Requests
from proving.deployments import Unusable
from proving.facts import Fact
from proving.lanes import HeldLane
from proving.source_estimate import BatchPart, Cost, SourceEstimate
from proving.transactions import signers
from queries import progress, submission, waits
from queries.batch_request import Selector
from queries.columns import Rejection, RejectionCode
from queries.models import ADMITTED_STATUSES, OPEN_STATUSES, Batch, BatchStatus, Block, Query, Sender, open_queries
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

# What nodes say rejects a batch when so many looks in a row would, which takes more than a minute. One node may be
# stale, or of another chain.
_LOOKS = 7
_UNUSABLE = timedelta(seconds=10)
_LONGEST_PAUSE_SECONDS = 60


@dataclass(frozen=True)
class _End:
    """How a turn ends for a batch. With no pause it fails: it is looked at ever later."""

    reasons: tuple[WaitReason, ...] = ()
    pause: timedelta | None = None
    code: RejectionCode | None = None
    """The code by which it is rejected if further looks would reject it, too."""


_DONE = _End()


def admit_all(lane: HeldLane, keys: Sequence[object]) -> int:
    """Decide about these batches, or say what the decision waits for. Find the blocks of times that have come.

    Return how many failed by an error of ours.
    """
    opened = Batch.objects.filter(status__in=OPEN_STATUSES)
    postponement = lane.write(partial(due_rows.postpone, opened, keys))

    def work(batches: Sequence[Batch]) -> None:
        began = time.monotonic()
        ends = _admit(lane, [batch for batch in batches if batch.status == BatchStatus.RECEIVED])
        ends |= _find_blocks(lane, [batch for batch in batches if ends.get(batch.pk, _DONE) == _DONE])
        _give_back(lane, postponement, batches, ends)
        for batch in batches:
            end = ends.get(batch.pk, _DONE)
            lanes.note_job_run("batch", "done" if end == _DONE else "waits" if end.pause else "fails", began)

    def give_up(batch: Batch) -> None:
        fault = _End((wait("internal_error"),))
        _give_back(lane, postponement, [batch], {batch.pk: fault})
        lanes.note_job_run("batch", "defect", time.monotonic())

    return lanes.work_on(postponement.rows, work, give_up) if postponement.rows else 0


def _give_back(
    lane: HeldLane, postponement: Postponement[Batch], batches: Sequence[Batch], ends: Mapping[str, _End]
) -> None:
    """Make batches due again while something is waited for."""

    def write() -> None:
        for batch in batches:
            end = ends.get(batch.pk, _DONE)
            looks = _looks(batch, end)
            also = {"rejection_code": end.code or ""} if end != _DONE else {}
            fails = end != _DONE and end.pause is None
            postponement.end(
                [batch],
                due_rows.backoff(looks - 1) if fails else end.pause,
                attempts=looks if fails else 0,
                wait=_joined(end.reasons),
                waiting_for="",
                looked_at=Now(),
                **also,
            )

    lane.write(write)


def _joined(reasons: Iterable[WaitReason]) -> WaitReason | None:
    """Return the reason, or several as one: a batch may wait for several source chains."""
    different = tuple(dict.fromkeys(reasons))
    return wait("several", reasons=different) if len(different) > 1 else next(iter(different), None)


def _looks(batch: Batch, end: _End) -> int:
    """Return how many looks in a row have failed by now, or would have rejected the batch."""
    return batch.attempts + 1 if bool(batch.rejection_code) == bool(end.code) else 1


# --- Once, when all sources have answered -----------------------------------------------------------------------------


def _admit(lane: HeldLane, batches: Sequence[Batch]) -> dict[str, _End]:
    """Accept or reject batches of one destination; return what the others wait for."""
    going = _not_refused(lane, batches) if batches else []
    estimates = _estimate(going)
    ends = {batch.pk: end for batch in going if (end := _unanswered(batch, estimates[batch.pk]))}
    answered = {batch: estimates[batch.pk] for batch in going if batch.pk not in ends}
    return ends | (lane.write(partial(_record_all, answered)) if answered else {})


def _not_refused(lane: HeldLane, batches: Sequence[Batch]) -> list[Batch]:
    """Return the batches that are worth asking nodes about. Reject the others: no answer could let them in."""
    destination = get_chains().chain(batches[0].destination_chain_id)
    users = User.objects.in_bulk({batch.user_id for batch in batches if not batch.is_self_funded})
    used = {user: money.to_user(user, destination.id) for user in users}
    no_signer = signers.why_none(destination)
    going: list[Batch] = []
    for batch in batches:
        rejection = None
        if not batch.is_self_funded:
            batch.user = users[batch.user_id]
            rejection = next(_too_dear(batch, destination, Cost(), used[batch.user_id]), None)
            rejection = Rejection(RejectionCode.NO_SIGNER, no_signer, retryable=False) if no_signer else rejection
        if rejection is None:
            going.append(batch)
        else:
            lane.write(partial(_reject, batch, rejection))
    return going


def _reject(batch: Batch, one: Rejection) -> None:
    progress.reject([batch.pk], code=one.code, reason=one.reason, retryable=one.retryable)


def _estimate(batches: Sequence[Batch]) -> dict[str, list[SourceEstimate]]:
    """Ask each source chain once about all batches that name it."""
    by_id = {batch.pk: batch for batch in batches}
    found: dict[str, list[SourceEstimate]] = {pk: [] for pk in by_id}
    for source, asked in sorted(_requests(batches).items()):
        parts = [BatchPart(requests, by_id[pk].deadline_at) for pk, requests in asked.items()]
        inquire = partial(_inquiry, batches[0].destination_chain_id, source)
        for pk, one in zip(asked, source_estimate.of_source(source, inquire, parts), strict=True):
            found[pk].append(one)
    return found


def _requests(batches: Sequence[Batch]) -> Mapping[int, Mapping[str, Requests]]:
    """Return what batches ask, by source chain and the batch's id."""
    found: dict[int, dict[str, dict[Selector, dict[Fact, None]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    asked = Query.objects.filter(batch__in=batches).order_by("pk")
    numbers = dict(Block.objects.filter(pk__in=asked.order_by().values("block")).values_list("pk", "number"))
    for query in asked.iterator(chunk_size=1000):
        number = numbers.get(query.block_id or 0) if query.timestamp is None else None
        selector = Selector(number, query.timestamp, "" if query.block_id else query.block_tag)
        found[query.source_chain_id][query.batch_id][selector].update(dict.fromkeys(facts.of(query)))
    return found


def _inquiry(destination: int, source: int) -> Inquiry:
    opened = connections.open_unless_stopped(destination, source)
    return Inquiry(opened, heads.recent(opened.source_rpc.chain, opened.source_rpc).latest)


def _unanswered(batch: Batch, estimates: Sequence[SourceEstimate]) -> _End | None:
    """Return what a batch waits for whose source chains haven't all answered."""
    faults = [one.fault for one in estimates if one.fault]
    if faults:
        logger.warning("batch %s waits: %s", batch.pk, faults[0].for_operators)
        return _End(tuple(map(waits.fault, faults)))
    unusable = [reason for one in estimates if not one.cost and not one.rejections for reason in one.waits]
    return _End(tuple(unusable), _UNUSABLE) if unusable else None


def _record_all(several: Mapping[Batch, Sequence[SourceEstimate]]) -> dict[str, _End]:
    """Write the decisions inside the caller's database transaction. Return what the others wait for."""
    destination = get_chains().chain(next(iter(several)).destination_chain_id)
    blocks = _selected_blocks(destination.id, [one for estimates in several.values() for one in estimates])
    # So that two batches can't reserve the same rest of a limit.
    statements.lock(User.objects.filter(pk__in={batch.user_id for batch in several}))
    batches = Batch.objects.filter(pk__in=[batch.pk for batch in several], status=BatchStatus.RECEIVED)
    of_queries = Q(pk__in=Query.objects.filter(batch__in=batches).values("block"))
    statements.lock(Block.objects.filter(of_queries | Q(pk__in=blocks.values())))
    locking = batches.select_related("user").order_by("pk").select_for_update(no_key=True, of=("self",))
    stored = {batch.pk: batch for batch in locking}
    used = Counter({user: money.to_user(user, destination.id) for user in {one.user_id for one in stored.values()}})
    due = _due_by_user()
    ends: dict[str, _End] = {}
    for batch, estimates in ((stored[one.pk], estimates) for one, estimates in several.items() if one.pk in stored):
        cost = batch_estimate.total(estimates)
        rejections = [one for of_source in estimates for one in of_source.rejections]
        rejections += _too_dear(batch, destination, cost, used[batch.user_id])
        if rejections:
            ends[batch.pk] = _doubt(batch, rejections[0])
            continue
        for of_source in estimates:
            _select(batch, of_source, blocks)
        used[batch.user_id] += 0 if batch.is_self_funded else cost.wei.bound
        _wake_blocks(batch, due)
        with logs.about(batch=batch.pk, chain=destination.id):
            progress.admit(batch, estimated_gas=cost.gas.bound, estimated_wei=cost.wei.bound)
    return ends


def _too_dear(batch: Batch, destination: Chain, cost: Cost, used: int) -> Iterator[Rejection]:
    """Yield why limits or the fee leave no room. None holds for what others pay for."""
    if batch.is_self_funded:
        return
    fee = None if batch.fee_is_estimate else batch.fee
    yield from batch_estimate.too_dear(batch.user, destination, cost, fee, used)


def _doubt(batch: Batch, rejection: Rejection) -> _End:
    """Reject a batch if enough looks would have, or say that it is looked at again."""
    end = _End((wait("rejected_in_a_minute", reason=rejection.reason),), code=rejection.code)
    if _looks(batch, end) < _LOOKS:
        return end
    _reject(batch, rejection)
    return _DONE


def _selected_blocks(destination: int, estimates: Iterable[SourceEstimate]) -> dict[tuple[int, int], int]:
    """Return the ids of blocks that tags and times select, by their source chain and number. It makes those rows."""
    named = ((one.source, number) for one in estimates for by, number in one.blocks.items() if by.number is None)
    return submission.find_blocks(destination, set(named))


def _select(batch: Batch, estimate: SourceEstimate, blocks: Mapping[tuple[int, int], int]) -> None:
    """Give the queries that name a time or a tag their blocks. They stay these."""
    for selector, number in estimate.blocks.items():
        if selector.number is None:
            naming = batch.queries.filter(source_chain_id=estimate.source, block=None)
            naming = naming.filter(timestamp=selector.timestamp, block_tag=selector.tag)
            naming.update(block_id=blocks[estimate.source, number])


def _wake_blocks(batch: Batch, due: Counter[int], *, only: Iterable[int] | None = None) -> None:
    """Make the blocks of a batch due, or `only` those with these ids, in its user's turns.

    Inside the caller's transaction.

    A block that is due for another user stays in that one's turns if fewer blocks are due for that user, who would get
    to it first. `due` counts them by user (id).
    """
    user, asked_for = batch.user_id, Block.objects.filter(pk__in=batch.queries.values("block"))
    if only is not None:
        asked_for = Block.objects.filter(pk__in=only)
    if batch.is_self_funded:
        # Where something is paid for, a pause may be what keeps it from being sent again too soon: it isn't cut short.
        paid_for = open_queries(asked_for).filter(batch__sender=Sender.OPERATOR).values("block")
        waiting = list(asked_for.filter(pk__in=paid_for, due_at__isnull=False).values_list("pk", flat=True))
        # But who works on it just now is told.
        Block.objects.filter(pk__in=waiting).update(due_at=F("due_at") + due_rows.TICK)
        asked_for = asked_for.exclude(pk__in=waiting)
    due[user] += batch.block_count
    nearer = [other for other, count in due.items() if other != user and count <= due[user]]
    stays = When(due_at__isnull=False, turn_of__in=nearer, then=F("turn_of"))
    asked_for.update(turn_of=Case(stays, default=user), due_at=Now())


def _due_by_user() -> Counter[int]:
    """Count the blocks that are due for each user (id)."""
    waiting = Block.objects.filter(due_at__isnull=False).exclude(turn_of=None).order_by().values_list("turn_of")
    return Counter(dict(waiting.annotate(Count("pk"))))


# --- Times that were still to come ------------------------------------------------------------------------------------


def _find_blocks(lane: HeldLane, batches: Sequence[Batch]) -> dict[str, _End]:
    """Find blocks that times select, in accepted batches. Return what the batches wait for that lack some."""
    by_id = {batch.pk: batch for batch in batches}
    lacking = Query.objects.filter(batch__in=by_id, batch__status__in=ADMITTED_STATUSES, block=None)
    asked: dict[tuple[str, int], set[Selector]] = defaultdict(set)
    for batch, source, time_, tag in lacking.values_list("batch", "source_chain_id", "timestamp", "block_tag"):
        asked[batch, source].add(Selector(None, time_, tag))
    ends: dict[str, list[_End]] = defaultdict(list)
    for (pk, source), selectors in asked.items():
        if end := _find_blocks_of(lane, by_id[pk], source, selectors):
            ends[pk].append(end)
    return {pk: _soonest(several) for pk, several in ends.items()}


def _soonest(ends: Sequence[_End]) -> _End:
    pauses = [end.pause for end in ends if end.pause is not None]
    return _End(tuple(reason for end in ends for reason in end.reasons), min(pauses, default=None))


def _find_blocks_of(lane: HeldLane, batch: Batch, source: int, selectors: Iterable[Selector]) -> _End | None:
    try:
        inquiry = _inquiry(batch.destination_chain_id, source)
        found = block_selection.select(inquiry, dict.fromkeys(selectors, ()))
    except Unusable as why:
        return _End((why.reason,), _UNUSABLE)
    except ChainError as error:
        return _End((waits.fault(error),))
    if found.fault:
        return _End((waits.fault(found.fault),))
    if found.blocks:
        lane.write(partial(_take_blocks, batch, SourceEstimate(source, blocks=found.blocks)))
    if found.rejections:
        # It was found good before, so this is the word of a node that is behind, or of another chain.
        return _End((wait("node_doubted", reason=found.rejections[0].reason),))
    if not found.times:
        return None
    seconds = min(min(found.times) - inquiry.head.timestamp, _LONGEST_PAUSE_SECONDS)
    pause = timedelta(seconds=max(heads.poll_seconds(inquiry.source), seconds))
    return _End((block_selection.time_to_come(source, found.times),), pause)


def _take_blocks(batch: Batch, found: SourceEstimate) -> None:
    blocks = _selected_blocks(batch.destination_chain_id, [found])
    statements.lock(Block.objects.filter(pk__in=blocks.values()))
    _select(batch, found, blocks)
    _wake_blocks(batch, _due_by_user(), only=blocks.values())
