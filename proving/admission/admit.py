"""Admission: RECEIVED -> ACCEPTED or REJECTED. Batches are checked against their chains before any money is spent.

`admission_checks` has the reasons. A batch is decided when all its source chains have answered. A chain that doesn't
answer delays only the batches that name it. Blocks and times in the future delay no decision. Reconcile waits for
blocks, and this module finds the block of a time after the batch is accepted.
"""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from django.db.models import Count, F, Q, QuerySet
from django.db.models.functions import Now

from accounts.models import User
from chains.chains_file import Chain
from chains.nodes.node_errors import ChainError, NodeUnavailable
from config.configured_chains import get_chains, get_rpc
from config.database import due_rows, statements
from config.database.due_rows import Claim
from config.database.statements import chunks
from proving import money
from proving.admission import admission_checks, answers, cost
from proving.admission.admission_checks import SpendingAccount
from proving.admission.cost import SourceEstimate
from proving.working import counters, heads, lanes
from proving.working.ends import OUTCOMES, Done, End, Fails, Waits
from proving.working.lanes import HeldLane
from queries import batch_states, submission, waits
from queries.columns import AdmissionRejection, RejectionCode
from queries.models import (
    ADMITTED_STATUSES,
    OPEN_STATUSES,
    Batch,
    BatchStatus,
    Block,
    Query,
    QueryKind,
    Sender,
    open_queries,
)
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

# A batch is rejected after this number of consecutive checks that would reject it, over more than a minute. One check
# isn't enough, because its node may lag or belong to another chain.
_REJECTING_CHECKS = 7
# No proof shows these rejections, so they need all checks.
_SLOW_CODES = frozenset(
    {
        RejectionCode.PROOF_UNAVAILABLE,
        RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK,
        RejectionCode.TIMESTAMP_TOO_FAR_AHEAD,
    }
)
_UNUSABLE_SECONDS = 10
_LONGEST_PAUSE_SECONDS = 60
_BLOCKS_PER_STATEMENT = 500


def admit_all(lane: HeldLane, keys: Sequence[object]) -> int:
    """Decide about these batches, or store their waits. Find the blocks of times that have passed.

    Return the number of batches that failed because of an internal error.
    """
    opened = Batch.objects.select_related("user").filter(status__in=OPEN_STATUSES)
    claim = lane.write(partial(due_rows.claim, opened, keys))

    def work(batches: Sequence[Batch]) -> None:
        began = time.monotonic()
        ends: dict[str, End] = {}
        for some in _without_transactions_first([each for each in batches if each.status == BatchStatus.RECEIVED]):
            ends |= _admit(lane, some)
        ends |= _find_blocks(lane, [batch for batch in batches if batch.pk not in ends])
        _give_back(lane, claim, batches, ends)
        for batch in batches:
            counters.note_job_run("batch", OUTCOMES[type(ends.get(batch.pk, Done()))], began)

    def give_up(batch: Batch) -> None:
        _give_back(lane, claim, [batch], {batch.pk: Fails(wait("internal_error"))})
        counters.note_job_run("batch", "defect", time.monotonic())

    return lanes.work_on(lane, claim, claim.rows, work, give_up) if claim.rows else 0


def _without_transactions_first(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """Divide batches by whether they name transactions, whose blocks may take long to read."""
    naming = Query.objects.filter(batch__in=batches).filter(Q(kind=QueryKind.ENTRY) | ~Q(block_of=""))
    slow = set(naming.order_by().values_list("batch", flat=True).distinct())
    for is_slow in (False, True):
        if some := [batch for batch in batches if (batch.pk in slow) is is_slow]:
            yield some


def _give_back(lane: HeldLane, claim: Claim[Batch], batches: Sequence[Batch], ends: Mapping[str, End]) -> None:
    """Make batches due again while they wait."""
    # Batches with the same end and the same counts are written by one statement.
    alike: dict[tuple[End, int, int], list[Batch]] = defaultdict(list)
    for batch in batches:
        end = ends.get(batch.pk, Done())
        attempts = batch.attempts + 1 if isinstance(end, Fails) else 0
        rejecting_checks = batch.rejecting_checks + 1 if isinstance(end, Fails) and end.code else 0
        alike[end, attempts, rejecting_checks].append(batch)

    def write() -> None:
        if len(batches) > 1:
            # The statements below lock batches in the order of their ends.
            statements.lock(Batch.objects.filter(pk__in=[batch.pk for batch in batches]))
        for (end, attempts, rejecting_checks), some in alike.items():
            pause: timedelta | None = None
            match end:
                case Waits():
                    pause = timedelta(seconds=end.seconds)
                case Fails():
                    pause = due_rows.backoff((rejecting_checks or attempts) - 1)
            claim.end(
                some,
                pause,
                attempts=attempts,
                rejecting_checks=rejecting_checks,
                rejection_code=end.code if isinstance(end, Fails) else "",
                wait=None if isinstance(end, Done) else end.reason,
                looked_at=Now(),
            )

    lane.write(write, is_last=len(batches) == len(claim.rows))


# --- The decision, when all sources have answered ---------------------------------------------------------------------


def _admit(lane: HeldLane, batches: Sequence[Batch]) -> dict[str, End]:
    """Accept or reject batches of one destination. Return the ends of all but accepted ones that name later times."""
    accounts = _spending_accounts(batches) if batches else {}
    batches = [batch for batch in batches if not _is_hopeless(lane, batch, accounts[batch.pk])]
    queries = Query.objects.filter(batch__in=batches)
    estimates = cost.ask_sources(batches, _with_numbers(queries))
    ends = {batch.pk: end for batch in batches if (end := _unanswered(batch, accounts[batch.pk], estimates[batch.pk]))}
    answered = {batch: estimates[batch.pk] for batch in batches if batch.pk not in ends}
    return ends | (lane.write(partial(_record_all, answered)) if answered else {})


def _spending_accounts(batches: Sequence[Batch]) -> dict[str, SpendingAccount | None]:
    """Return what each batch of one destination may spend now."""
    destination = get_chains().chain(batches[0].destination_chain_id)
    used = _used({batch.user_id for batch in batches if not batch.is_self_funded}, destination)
    return {batch.pk: _spending_account(batch, destination, used[batch.user_id]) for batch in batches}


def _is_hopeless(lane: HeldLane, batch: Batch, account: SpendingAccount | None) -> bool:
    """Reject a batch that fails independently of its source chains' answers. Return whether it does."""
    if rejection := next(admission_checks.rejections(account, ()), None):
        lane.write(partial(_reject, batch, rejection))
    return rejection is not None


def _used(users: Collection[int], destination: Chain) -> Counter[int]:
    """Return the wei that each user (id) has used or reserved in the last 24 hours."""
    return Counter({user: money.to_user(user, destination.id) for user in users})


def _spending_account(batch: Batch, destination: Chain, used: int) -> SpendingAccount | None:
    fee = None if batch.fee_is_estimate else batch.fee
    return None if batch.is_self_funded else SpendingAccount(destination, batch.user, fee, used)


def _reject(batch: Batch, rejection: AdmissionRejection) -> None:
    batch_states.reject([batch.pk], code=rejection.code, reason=rejection.reason, retryable=rejection.retryable)


def _with_numbers(queries: QuerySet[Query]) -> Iterator[Query]:
    """Yield stored queries, each with its block's number, source by source."""
    numbered = queries.annotate(number_of_block=F("block__number")).order_by("source_chain_id", "pk")
    for query in numbered.iterator(chunk_size=1000):
        query.block_number = query.number_of_block
        yield query


def _differences(account: SpendingAccount | None, estimates: Sequence[SourceEstimate]) -> list[ChainError]:
    """Return errors about chains that would have a batch rejected, and whose nodes tell different blocks or fees."""
    rejecting = {rejection.source for rejection in admission_checks.rejections(account, estimates)}
    sentences = [
        answers.difference(get_rpc(source.source), source.selected, source.rejecting)
        for source in estimates
        if source.selected and source.source in rejecting
    ]
    if account and None in rejecting:
        dearest = max((source.base_fee for source in estimates), default=0)
        sentences.append(get_rpc(account.destination.id).base_fee_doubt(dearest))
    return [NodeUnavailable(sentence) for sentence in sentences if sentence]


def _unanswered(
    batch: Batch, account: SpendingAccount | None, estimates: Sequence[SourceEstimate]
) -> Waits | Fails | None:
    """Return the waits for source chains that haven't answered. None if all have answered."""
    faults = [source.fault for source in estimates if source.fault] or _differences(account, estimates)
    if reason := waits.joined(map(waits.fault, faults)):
        logger.warning("chain %d: batch %s waits: %s", batch.destination_chain_id, batch.pk, faults[0].for_operators)
        return Fails(reason)
    lacking = [source for source in estimates if not source.selected]
    seconds = 0 if all(source.is_unread for source in lacking) else _UNUSABLE_SECONDS
    return Waits(waits.joined(reason for source in lacking for reason in source.waits), seconds) if lacking else None


def _record_all(estimates: Mapping[Batch, Sequence[SourceEstimate]]) -> dict[str, End]:
    """Store the decisions in the caller's database transaction. Return the ends, as `_admit` does."""
    destination = get_chains().chain(next(iter(estimates)).destination_chain_id)
    blocks = _selected_blocks(destination.id, [source for sources in estimates.values() for source in sources])
    # The lock keeps two batches from reserving the same part of a limit.
    statements.lock(User.objects.filter(pk__in={batch.user_id for batch in estimates}))
    batches = Batch.objects.filter(pk__in=[batch.pk for batch in estimates], status=BatchStatus.RECEIVED)
    of_queries = Q(pk__in=Query.objects.filter(batch__in=batches).values("block"))
    statements.lock(Block.objects.filter(of_queries | Q(pk__in=blocks.values())))
    locking = batches.select_related("user").order_by("pk").select_for_update(no_key=True, of=("self",))
    stored = {batch.pk: batch for batch in locking}
    used = _used({row.user_id for row in stored.values()}, destination)
    ends: dict[str, End] = {}
    admitted: list[Batch] = []
    for batch, sources in ((stored[row.pk], sources) for row, sources in estimates.items() if row.pk in stored):
        account = _spending_account(batch, destination, used[batch.user_id])
        if rejection := next(admission_checks.rejections(account, sources), None):
            ends[batch.pk] = _doubt(batch, rejection)
            continue
        for source in sources:
            _select(batch, source, blocks)
        total = admission_checks.total(sources)
        used[batch.user_id] += 0 if batch.is_self_funded else total.wei.bound
        batch.estimated_gas, batch.estimated_wei = total.gas.bound, total.wei.bound
        admitted.append(batch)
        if all(source.selected and not source.selected.times for source in sources):
            ends[batch.pk] = Done()
    if admitted:
        batch_states.admit(admitted)
        _wake_blocks(admitted)
    return ends


def _doubt(batch: Batch, rejection: AdmissionRejection) -> Fails | Done:
    """Reject a batch after one certain check, or enough consecutive ones. Until then, schedule another check."""
    if not _is_sure(batch, rejection) and batch.rejecting_checks + 1 < (most := _most_checks(rejection.reason)):
        soon = "rejected_in_a_minute" if most == _REJECTING_CHECKS else "rejected_in_half_a_minute"
        return Fails(wait(soon, reason=rejection.reason), code=rejection.code)
    _reject(batch, rejection)
    return Done()


def _is_sure(batch: Batch, rejection: AdmissionRejection) -> bool:
    if not rejection.is_certain or rejection.code in _SLOW_CODES:
        return False
    # A chain's only node must have told such a block in the check before, too.
    has_several = rejection.source is None or len(get_chains().chain(rejection.source).hosts) > 1
    return has_several or batch.rejection_code == rejection.code


def _most_checks(reason: WaitReason | str | None) -> int:
    # Half a minute is enough for block 0, because every node has it.
    is_of_genesis = isinstance(reason, WaitReason) and reason.told.code == "genesis_not_proven"
    return _REJECTING_CHECKS - is_of_genesis


def rejected_at(batch: Batch) -> datetime | None:
    """Return when a batch is rejected if all further checks end like the last. None: the last didn't reject it."""
    if batch.status != BatchStatus.RECEIVED or not batch.rejecting_checks or batch.looked_at is None:
        return None
    pauses = map(due_rows.backoff, range(batch.rejecting_checks - 1, _most_checks(batch.wait) - 1))
    return batch.looked_at + sum(pauses, timedelta())


def _selected_blocks(destination: int, sources: Iterable[SourceEstimate]) -> dict[tuple[int, int], int]:
    """Create the rows of blocks that tags and times select. Return their ids by source chain and number."""
    named = ((source.source, number) for source in sources for by, number in source.blocks.items() if by.number is None)
    return submission.ensure_blocks(destination, set(named))


def _select(batch: Batch, estimate: SourceEstimate, blocks: Mapping[tuple[int, int], int]) -> None:
    """Store the blocks of queries that name a time or a tag. A query then keeps its block."""
    for selector, number in estimate.blocks.items():
        if selector.number is None:
            naming = batch.queries.filter(source_chain_id=estimate.source, block=None)
            naming = naming.filter(timestamp=selector.timestamp, block_tag=selector.tag, block_of=selector.transaction)
            naming.update(block_id=blocks[estimate.source, number])


def _wake_blocks(batches: Sequence[Batch], *, only: Collection[int] | None = None) -> None:
    """Make blocks of the batches due in their users' queues. `only`: the ids of the blocks; None: all.

    Call it inside a database transaction that has locked the blocks. If a block is already due in another user's
    queue and that queue is shorter, the block stays there, because its turn comes sooner.
    """
    named = Query.objects.filter(batch__in=batches, block__isnull=False).order_by().values_list("batch", "block")
    blocks_of: dict[str, list[int]] = defaultdict(list)
    for pk, block in named.distinct() if only is None else [(batch.pk, block) for batch in batches for block in only]:
        blocks_of[pk].append(block)
    queued: dict[int, int | None] = {}  # id of the user whose queue has the due block
    # Blocks with paid transactions keep their pause, because it may prevent repeating a transaction too soon.
    paid_for: set[int] = set()
    for chunk in chunks(sorted({block for blocks in blocks_of.values() for block in blocks}), _BLOCKS_PER_STATEMENT):
        waiting = Block.objects.filter(pk__in=chunk, due_at__isnull=False)
        queued |= dict(waiting.values_list("pk", "queued_for"))
        paid = open_queries(waiting).filter(batch__sender=Sender.OPERATOR).values_list("block", flat=True)
        paid_for.update(paid if any(batch.is_self_funded for batch in batches) else ())
    due, woken = _due_by_user(), set[int]()
    for batch in batches:
        user = batch.user_id
        due[user] += batch.block_count
        nearer = {other for other, count in due.items() if other != user and count <= due[user]}
        for block in blocks_of[batch.pk]:
            if not (batch.is_self_funded and block in paid_for):
                woken.add(block)
                queued[block] = queued[block] if queued.get(block) in nearer else user
    by_user: dict[int | None, list[int]] = defaultdict(list)
    for block in sorted(woken):
        by_user[queued[block]].append(block)
    for queued_for, blocks in by_user.items():
        for chunk in chunks(blocks, _BLOCKS_PER_STATEMENT):
            Block.objects.filter(pk__in=chunk).update(queued_for=queued_for, due_at=Now())
    for chunk in chunks(sorted(paid_for - woken), _BLOCKS_PER_STATEMENT):
        # A worker that is processing the block notices the changed time.
        Block.objects.filter(pk__in=chunk).update(due_at=F("due_at") + due_rows.MILLISECOND)


def _due_by_user() -> Counter[int]:
    """Count the due blocks of each user (id)."""
    waiting = Block.objects.filter(due_at__isnull=False).exclude(queued_for=None).order_by().values_list("queued_for")
    return Counter(dict(waiting.annotate(Count("pk"))))


# --- Times in the future ----------------------------------------------------------------------------------------------


def _find_blocks(lane: HeldLane, batches: Sequence[Batch]) -> dict[str, End]:
    """Find the blocks of times in accepted batches. Return the waits of batches that still lack a block."""
    lacking = Query.objects.filter(batch__in=batches, batch__status__in=ADMITTED_STATUSES, block=None)
    estimates = cost.ask_sources(batches, _with_numbers(lacking), with_costs=False)
    ends: dict[str, End] = {}
    for batch in batches:
        sources = estimates.get(batch.pk, ())
        if any(source.blocks for source in sources):
            lane.write(partial(_take_blocks, batch, sources))
        if unselected := [end for source in sources if (end := _unselected(batch, source))]:
            reason = waits.joined(part for end in unselected if end.reason for part in end.reason.parts)
            pauses = [end.seconds for end in unselected if isinstance(end, Waits)]
            ends[batch.pk] = Fails(reason) if reason and not pauses else Waits(reason, min(pauses))
    return ends


def _unselected(batch: Batch, source: SourceEstimate) -> Waits | Fails | None:
    """Return the waits for a batch's blocks on one source chain. None if all of them are known."""
    if (selected := source.selected) is None:
        return _unanswered(batch, None, [source])
    if rejection := next(admission_checks.rejections(None, [source]), None):
        # Admission accepted the batch earlier, so this node must lag or belong to another chain.
        return Fails(wait("node_doubted", reason=rejection.reason))
    if not selected.times:
        return None
    seconds = min(min(selected.times) - selected.head.timestamp, _LONGEST_PAUSE_SECONDS)
    pause = max(heads.poll_seconds(selected.source), seconds)
    return Waits(answers.time_to_come(source.source, selected.times), pause)


def _take_blocks(batch: Batch, sources: Sequence[SourceEstimate]) -> None:
    blocks = _selected_blocks(batch.destination_chain_id, sources)
    statements.lock(Block.objects.filter(pk__in=blocks.values()))
    for source in sources:
        _select(batch, source, blocks)
    _wake_blocks([batch], only=blocks.values())
