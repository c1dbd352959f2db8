"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it.

Each source chain of a batch is checked by itself: its queries are admitted as soon as it has answered, and one that is
down holds up no other. Of a source chain what exists is admitted, and a block or a time that is still to come holds up
nothing but the queries that name it.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from django.db import connection
from django.db.models import Case, Count, F, Q, QuerySet, When
from django.db.models.functions import Now

from accounts.models import User
from chains.chains_file import Chain
from chains.rpc import ChainError
from config import logs
from config.configured_chains import get_chains
from database import due_rows, row_locks
from database.due_rows import Postponement
from proving import connections, facts, heads, job_runs, lanes
from proving.admission import feasibility
from proving.admission.feasibility import Ahead, BlockFacts, Cost, Counted, Feasibility, Inquiry, Required, Wait
from proving.budget import allowance, reservations
from proving.budget.reservations import Reservation
from proving.connections import OpenConnection
from proving.facts import Fact
from proving.gas_model.proof_gas import Estimate
from proving.lanes import HeldLane
from proving.registry import deployments
from proving.transactions import signers
from queries import progress, submission
from queries.columns import Rejection, RejectionCode
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Block, Query, Sender, open_queries

logger = logging.getLogger(__name__)

_NOTHING = Reservation(0, 0)
# What may be that of a stale node, or of one of another chain: no reason to reject a batch that is accepted already, or
# that waits for a block.
_BY_A_NODE = {
    RejectionCode.BLOCK_TOO_OLD,
    RejectionCode.BLOCK_TOO_NEW,
    RejectionCode.FINALIZED_UNKNOWN,
    RejectionCode.HEADER_PROPERTY_MISSING,
    RejectionCode.PROOF_UNAVAILABLE,
    RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK,
}


@dataclass(frozen=True)
class _Admission:
    estimated: Reservation
    of_queries: Mapping[int, int] = field(default_factory=dict)
    """By a query's id: its part of that, or of what is to come, in gas."""
    blocks: Sequence[Block] = ()
    """The blocks with their headers as they were read, so that the first reconcile can ask for more at once."""
    ahead: Ahead | None = None
    """The blocks that are not admitted yet; None: all are."""
    coming: Reservation = _NOTHING
    """The estimate of `ahead`. The money must suffice for it too, or less would be proven than was paid for."""

    @property
    def needed(self) -> Reservation:
        return self.estimated + self.coming

    @property
    def up_to(self) -> int | None:
        """Return the highest block to admit, as `Batch.unadmitted` takes it."""
        return self.ahead.head if self.ahead else None


_Decision = Wait | Rejection | _Admission


def admit_all(lane: HeldLane, keys: Sequence[object]) -> int:
    """Decide about the queries of these batches that are not admitted yet, or say what the decision waits for.

    Batches of one destination. Return how many failed by an error of ours.
    """
    opened = Batch.objects.filter(status__in=OPEN_STATUSES)
    postponement = lane.write(partial(due_rows.postpone, opened, keys))

    def work(batches: Sequence[Batch]) -> None:
        began = time.monotonic()
        waits = _decide_all(lane, batches)
        lane.write(partial(_give_back, postponement, batches, waits))
        for batch in batches:
            outcome = "fails" if _fails(waits[batch.pk]) else "waits" if waits[batch.pk] else "done"
            job_runs.note("batch", outcome, began)

    def give_up(batch: Batch) -> None:
        wait = Wait("An error of this service, which has been logged.", None)
        lane.write(partial(_give_back, postponement, [batch], {batch.pk: [wait]}))
        job_runs.note("batch", "defect", time.monotonic())

    return lanes.work_on(postponement.rows, work, give_up) if postponement.rows else 0


def _decide_all(lane: HeldLane, batches: Sequence[Batch]) -> dict[str, list[Wait]]:
    """Decide about each source chain of the batches, and return what each still waits for."""
    users = User.objects.in_bulk({batch.user_id for batch in batches})
    for batch in batches:
        batch.user = users[batch.user_id]
    waits: dict[str, list[Wait]] = {batch.pk: [] for batch in batches}
    going = {batch.pk: batch for batch in batches}
    unadmitted = _unadmitted(list(going))
    sources = sorted({source for asked in unadmitted.values() for source in asked})
    for source in sources:
        asking = [(batch, unadmitted[pk][source]) for pk, batch in going.items() if source in unadmitted[pk]]
        decided: list[_Decided] = []
        for pk, found in _decide(lane, source, asking).items():
            decision: _Decision = found
            if isinstance(decision, Rejection) and decision.code in _BY_A_NODE:
                decision = _wait_instead(going[pk], decision) or decision
            if isinstance(decision, Wait):
                waits[pk].append(decision)
            else:
                decided.append(_Decided(going[pk], source, decision))
        for one, goes_on in zip(decided, lane.write(partial(_record_all, decided)) if decided else (), strict=True):
            if not goes_on:
                del going[one.batch.pk]
                waits[one.batch.pk] = []
            elif isinstance(one.decision, _Admission) and one.decision.ahead:
                waits[one.batch.pk].append(one.decision.ahead.wait)
            if len(sources) > 1:
                one.batch.refresh_from_db(fields=["status", "estimated_gas", "estimated_wei", "fee"])
    return waits


def _fails(waits: Sequence[Wait]) -> bool:
    return bool(waits) and all(wait.pause is None for wait in waits)


def _give_back(
    postponement: Postponement[Batch], batches: Sequence[Batch], waits: Mapping[str, Sequence[Wait]]
) -> None:
    """Make each batch due again while something is waited for."""
    for batch in batches:
        these = waits[batch.pk]
        backoff = due_rows.backoff(batch.attempts)
        postponement.end(
            [batch],
            min((wait.pause or backoff for wait in these), default=None),
            attempts=batch.attempts + 1 if _fails(these) else 0,
            waiting_for=" ".join(dict.fromkeys(wait.sentence for wait in these)),
            looked_at=Now(),
        )


def _wait_instead(batch: Batch, rejection: Rejection) -> Wait | None:
    """Return a wait where the batch was found good before: some of it, or what is to come of it as far as it can be."""
    if batch.status != BatchStatus.RECEIVED:
        return Wait(rejection.reason, None)
    # Without a failure that is counted, by which the next look knows that the batch waited.
    is_awaited = batch.looked_at is not None and not batch.attempts
    return Wait(rejection.reason, timedelta(seconds=10)) if is_awaited else None


@dataclass(frozen=True)
class _Decided:
    batch: Batch
    source: int
    decision: Rejection | _Admission

    @property
    def blocks(self) -> Sequence[Block]:
        return self.decision.blocks if isinstance(self.decision, _Admission) else ()


def _record_all(several: Sequence[_Decided]) -> Sequence[bool]:
    """Write the decisions about batches, in the caller's database transaction. Return which of them go on."""
    # So that two batches can't reserve the same rest of a limit.
    row_locks.lock(User.objects.filter(pk__in={one.batch.user_id for one in several}))
    batches = Batch.objects.filter(pk__in=[one.batch.pk for one in several])
    asked_for = Query.objects.filter(batch__in=batches, is_admitted=False)
    row_locks.lock(Block.objects.filter(pk__in=asked_for.values("block")))
    stored = {batch.pk: batch for batch in batches.order_by("pk").select_for_update(no_key=True)}
    for one in several:
        # With the limits of before: what counts against them is read while the users are locked.
        stored[one.batch.pk].user = one.batch.user
    admitted = [_record(one, stored[one.batch.pk]) for one in several]
    _store_headers([block for one, goes_on in zip(several, admitted, strict=True) if goes_on for block in one.blocks])
    return admitted


def _wake_blocks(batch: Batch, queries: QuerySet[Query]) -> None:
    """Make the blocks of a batch's queries due, in its user's turns. Inside the caller's transaction.

    A block that is due for another user stays in that one's turns if fewer blocks are due for that user, who would get
    to it first.
    """
    user, asked_for = batch.user_id, Block.objects.filter(pk__in=queries.values("block"))
    if batch.is_self_funded:
        # Where something is paid for, a pause may be what keeps it from being sent again too soon: it isn't cut short.
        paid_for = open_queries(asked_for).filter(batch__sender=Sender.OPERATOR).values("block")
        waiting = list(asked_for.filter(pk__in=paid_for, due_at__isnull=False).values_list("pk", flat=True))
        # But who works on it just now is told.
        Block.objects.filter(pk__in=waiting).update(due_at=F("due_at") + due_rows.TICK)
        asked_for = asked_for.exclude(pk__in=waiting)
    due = Block.objects.filter(due_at__isnull=False).order_by()
    others = asked_for.filter(due_at__isnull=False).exclude(turn_of=user).exclude(turn_of=None).order_by()
    others_due = due.filter(turn_of__in=others.values("turn_of")).values_list("turn_of").annotate(Count("pk"))
    mine = due.filter(turn_of=user).count() + asked_for.count()
    nearer = [other for other, count in others_due if count <= mine]
    stays = When(due_at__isnull=False, turn_of__in=nearer, then=F("turn_of"))
    asked_for.update(turn_of=Case(stays, default=user), due_at=Now())


def _record(decided: _Decided, batch: Batch) -> bool:
    """Write the decision about the batch, as it is now, in the caller's database transaction; whether it goes on."""
    source, decision = decided.source, decided.decision
    if isinstance(decision, _Admission):
        decision = _beyond(allowance.exceeded, batch, decision.needed) or decision
    if isinstance(decision, Rejection):
        progress.reject([batch.pk], code=decision.code, reason=decision.reason, retryable=decision.retryable)
        return False
    _wake_blocks(batch, batch.unadmitted(source, up_to=decision.up_to))
    with logs.about(batch=batch.pk, chain=batch.destination_chain_id):
        progress.admit(
            batch,
            source,
            estimated_gas=decision.estimated.gas,
            estimated_wei=decision.estimated.wei,
            of_queries=decision.of_queries,
            up_to=decision.up_to,
        )
    return True


def _beyond(
    limits: Callable[[User, Chain, Reservation, Reservation], Iterator[Rejection]], batch: Batch, needed: Reservation
) -> Rejection | None:
    """Return the first of the `limits` from `allowance` that leaves no room. None holds for what others pay for."""
    if batch.is_self_funded:
        return None
    destination = get_chains().chain(batch.destination_chain_id)
    return next(limits(batch.user, destination, needed, _before(batch)), None)


def _before(batch: Batch) -> Reservation:
    """Return the estimate of what was admitted of the batch before."""
    return Reservation(batch.estimated_gas or 0, batch.estimated_wei or 0)


def _store_headers(blocks: Sequence[Block]) -> None:
    """Store the headers of blocks that have none yet. Only a block's own reconcile may replace a stored header."""
    # Statements of Django's, one for each of 2,000 blocks, would hold the database's lock for long.
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE queries_block SET hash = %s, header_rlp = %s, state_root = %s, timestamp = %s "
            "WHERE id = %s AND hash = ''",
            [
                (block.hash, bytes(block.header_rlp or b""), block.state_root, block.timestamp, block.pk)
                for block in blocks
            ],
        )


def _decide(lane: HeldLane, source: int, asking: "_OfBatches") -> dict[str, _Decision]:
    """Decide about the queries of batches, by their ids, about one source chain."""
    destination = get_chains().chain(asking[0][0].destination_chain_id)
    found: dict[str, _Decision] = {}
    for batch, _ in asking:  # Before any node is asked.
        if not batch.is_self_funded and (no_signer := signers.why_none(destination)):
            found[batch.pk] = Rejection(RejectionCode.NO_SIGNER, no_signer, retryable=False)
        elif exhausted := _beyond(allowance.exceeded, batch, _NOTHING):
            found[batch.pk] = exhausted
    left = [(batch, questions) for batch, questions in asking if batch.pk not in found]
    if not left:
        return found
    try:
        connection = connections.open_unless_stopped(destination.id, source)
        decided: Mapping[str, _Decision | ChainError] = _decide_by_chains(lane, connection, left)
    except deployments.Unusable as why:
        decided = {batch.pk: Wait(str(why), timedelta(seconds=10)) for batch, _ in left}
    except ChainError as error:
        decided = {batch.pk: error for batch, _ in left}
    for pk, decision in decided.items():
        if isinstance(decision, ChainError):
            logger.warning("batch %s waits: %s", pk, decision.for_operators)
        found[pk] = Wait(str(decision), None) if isinstance(decision, ChainError) else decision
    return found


def _decide_by_chains(
    lane: HeldLane, connection: OpenConnection, asking: "_OfBatches"
) -> dict[str, _Decision | ChainError]:
    """Ask both chains what all of these batches take, and decide about each. Raises `ChainError` where none can be."""
    rpc = connection.source_rpc
    found: dict[str, _Decision | ChainError] = {}
    # The block that a time or a tag selects must be found first.
    if any(questions.unfound for _, questions in asking):
        found |= _find_blocks(lane, connection, asking)
        unadmitted = _unadmitted([batch.pk for batch, _ in asking if batch.pk not in found])
        asking = [(batch, unadmitted[batch.pk][rpc.chain.id]) for batch, _ in asking if batch.pk in unadmitted]
    asked = [one for _, questions in asking for one in questions.asked]
    seen = heads.remembered(rpc.chain, rpc)
    # A later block may have come since that was read.
    may_exist = seen is not None and all(one.number <= seen.latest.number for one in asked)
    blocks = feasibility.look_up(connection, asked, seen.latest if seen and may_exist else None)
    going: list[_Existing] = []
    for batch, questions in asking:
        is_awaited = batch.looked_at is not None
        ahead = feasibility.ahead(questions.at, questions.times, rpc.chain, blocks.head, is_awaited=is_awaited)
        existing, rest = questions.divided(blocks.head.number)
        if isinstance(ahead, Rejection):
            found[batch.pk] = ahead
        elif ahead and not existing.at:
            found[batch.pk] = ahead.wait
        else:
            going.append(_Existing(batch, existing, rest, ahead))
    inquiries = [Inquiry(one.questions.asked, one.batch.deadline_at) for one in going]
    return found | _decide_about_existing(connection, going, feasibility.check(connection, inquiries, blocks))


_Asking = Mapping[int, Sequence[Fact]]
"""By the ids of queries: what each asks for."""


@dataclass(frozen=True)
class _Questions:
    """The requests of a batch's queries about one source chain that are not admitted yet."""

    at: dict[int, dict[int, Sequence[Fact]]]  # by the block's number, rising
    blocks: dict[int, Block]  # the same
    unfound: dict[int | str, dict[int, Sequence[Fact]]]  # by the time (unix s) or the tag whose block is not found yet

    def add(self, query: Query, block: Block | None) -> None:
        """Add what a query asks for, about this block if that is found."""
        if block is None:
            named = query.block_tag if query.timestamp is None else query.timestamp
            self.unfound.setdefault(named, {})[query.pk] = facts.of(query)
        else:
            # Each batch has its own, on which it notes the header that it has seen.
            self.blocks.setdefault(block.number, copy(block))
            self.at.setdefault(block.number, {})[query.pk] = facts.of(query)

    def sorted(self) -> "_Questions":
        return _Questions(dict(sorted(self.at.items())), self.blocks, self.unfound)

    @property
    def times(self) -> list[int]:
        return [time for time in self.unfound if isinstance(time, int)]

    @property
    def asked(self) -> list[BlockFacts]:
        return [BlockFacts.once(number, asking.values()) for number, asking in self.at.items()]

    def divided(self, head: int) -> "tuple[_Questions, list[_Asking]]":
        """Return the questions about blocks up to `head`, and what is asked for at each block or time to come."""
        existing = {number: asking for number, asking in self.at.items() if number <= head}
        coming = [asking for number, asking in self.at.items() if number > head]
        return _Questions(existing, self.blocks, {}), [*coming, *self.unfound.values()]


_OfBatches = Sequence[tuple[Batch, _Questions]]
"""What batches ask of one source chain."""


@dataclass(frozen=True)
class _Existing:
    """The part of a batch whose blocks exist."""

    batch: Batch
    questions: _Questions
    rest: Sequence[_Asking]
    """What is asked for at each block or time to come."""
    ahead: Ahead | None
    """The wait for these. None: all exist."""


def _unadmitted(batches: Sequence[str]) -> dict[str, dict[int, _Questions]]:
    """Return, for each of the batches, what its queries ask for that are not admitted yet, by the source chain."""
    queries = Query.objects.filter(batch__in=batches, is_admitted=False).order_by("source_chain_id", "pk")
    blocks = Block.objects.filter(pk__in=queries.order_by().values("block")).defer("header_rlp").in_bulk()
    found: dict[str, dict[int, _Questions]] = {batch: {} for batch in batches}
    for query in queries.iterator(chunk_size=1000):
        questions = found[query.batch_id].setdefault(query.source_chain_id, _Questions({}, {}, {}))
        questions.add(query, blocks.get(query.block_id or 0))
    return {batch: {source: one.sorted() for source, one in asked.items()} for batch, asked in found.items()}


def _find_blocks(lane: HeldLane, connection: OpenConnection, asking: _OfBatches) -> dict[str, Rejection | ChainError]:
    """Give the queries that name a time or a tag their blocks, except times that may still get a later one.

    Return why a block can't be found, by the ids of batches.
    """
    rpc, source = connection.source_rpc, connection.config.source_id
    named = list(dict.fromkeys(one for _, questions in asking for one in questions.unfound))
    times = [one for one in named if isinstance(one, int)]
    seen = heads.recent(rpc.chain, rpc)
    if any(moment >= seen.latest.timestamp for moment in times):
        # A later block may have come since that was read.
        seen = heads.read(rpc.chain, rpc)
    past = [moment for moment in times if moment < seen.latest.timestamp]
    numbers: dict[int | str, int | Rejection | ChainError] = {
        one: feasibility.block_of_tag(rpc, one, seen.latest, seen.finalized) for one in named if isinstance(one, str)
    }
    numbers |= zip(past, feasibility.blocks_of_times(rpc, past, seen.latest), strict=True)
    refused: dict[str, Rejection | ChainError] = {}
    for batch, questions in asking:
        here = {one: numbers[one] for one in questions.unfound if one in numbers}
        at = {one: number for one, number in here.items() if isinstance(number, int)}
        for why in here.values():
            if not isinstance(why, int):
                refused.setdefault(batch.pk, why)
        if batch.pk in refused or not at:
            continue
        blocks = submission.find_blocks(batch.destination_chain_id, {(source, number) for number in at.values()})
        # All queries of a tag at once: they have one block, wherever we are killed.
        with lane.writing():
            for one, number in at.items():
                naming = Q(block_tag=one) if isinstance(one, str) else Q(timestamp=one)
                batch.unadmitted(source).filter(naming, block=None).update(block_id=blocks[source, number])
    return refused


def _decide_about_existing(
    connection: OpenConnection, several: Sequence[_Existing], checked: Sequence[Feasibility]
) -> dict[str, _Decision | ChainError]:
    found: dict[str, _Decision | ChainError] = {}
    good: list[tuple[_Existing, Required, Estimate]] = []
    for one, feasible in zip(several, checked, strict=True):
        if obstacle := next(iter(feasible.obstacles), None):
            found[one.batch.pk] = obstacle
        else:
            assert feasible.required is not None, "nothing stands in the way"
            good.append((one, feasible.required, feasibility.to_come(one.rest, feasible.tries)))
    wanted = [(estimate, required.fees) for _, required, coming in good for estimate in (required.estimate, coming)]
    costs = iter(feasibility.costs(connection.destination_rpc, wanted))
    for one, required, coming in good:
        now, later = next(costs), next(costs)
        if isinstance(now, ChainError):
            found[one.batch.pk] = now
        elif isinstance(later, ChainError):
            found[one.batch.pk] = later
        else:
            found[one.batch.pk] = _decide_about_costs(one, required, coming, now, later)
    return found


def _decide_about_costs(
    one: _Existing, required: Required, coming: Estimate, now: Cost, later: Cost
) -> Rejection | _Admission:
    admission = _Admission(
        now.bound,
        _parts(one.questions, required.estimate, one.rest, coming),
        _with_headers(one.questions, required.counted),
        one.ahead,
        later.bound,
    )
    # What can never fit is said before what a higher fee would help.
    return (
        _beyond(allowance.too_large, one.batch, admission.needed)
        or _fee_too_low(one.batch, admission.needed, now, required.estimate.path_gas)
        or admission
    )


def _parts(questions: _Questions, estimate: Estimate, rest: Sequence[_Asking], coming: Estimate) -> dict[int, int]:
    """Return by a query's id what it takes of the one estimate or the other, in gas."""
    parts = {pk: 0 for asking in questions.at.values() for pk in asking}
    for shares in estimate.shares:
        parts |= shares.divided(questions.at[shares.missing.number])
    for shares in coming.shares:
        parts |= shares.divided(rest[shares.missing.number])
    return parts


def _with_headers(questions: _Questions, counted: Counted) -> list[Block]:
    """Return the blocks that have no header yet, with theirs as it was read."""
    fresh = [block for number, block in questions.blocks.items() if not block.hash and number in counted.headers]
    for block in fresh:
        block.take(counted.headers[block.number])
    return fresh


def _fee_too_low(batch: Batch, needed: Reservation, costs: Cost, path_gas: int) -> Rejection | None:
    destination = get_chains().chain(batch.destination_chain_id)
    if destination.test_network or batch.fee_is_estimate or batch.is_self_funded:
        return None
    # Gas may have been dearer than it was estimated at when the first of its queries were admitted.
    before = Reservation(batch.estimated_gas or 0, max(batch.estimated_wei or 0, reservations.caused_by(batch)))
    return allowance.fee_too_low(batch.fee, needed + before, path_gas=path_gas, data_wei=costs.data.wei)
