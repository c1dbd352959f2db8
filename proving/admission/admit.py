"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it.

Each source chain of a batch is checked by itself: its queries are admitted as soon as it has answered, and one that is
down holds up no other. Of a source chain what exists is admitted, and a block or a time that is still to come holds up
nothing but the queries that name it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from django.db import connection
from django.db.models import Case, Count, F, Q, QuerySet, When
from django.db.models.functions import Now

from accounts.models import User
from chains import together
from chains.chains_file import Chain
from chains.rpc import NodeUnavailable, RpcRefused
from chains.together import Outcome, Raised
from config import logs
from config.configured_chains import get_chains
from database import due_rows, row_locks
from database.due_rows import Postponement
from proving import connections, facts, heads, job_runs, lanes
from proving.admission import feasibility
from proving.admission.feasibility import Ahead, Asked, Cost, Counted, Feasibility, Inquiry, Wait
from proving.budget import allowance, reservations
from proving.budget.reservations import Reservation
from proving.facts import Fact
from proving.gas_model.proof_gas import Estimate
from proving.lanes import HeldLane, LaneLost
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


def admit_all(lane: HeldLane, keys: Sequence[object]) -> int:
    """Decide about the queries of these batches that are not admitted yet, or say what the decision waits for.

    Return how many failed by an error of ours.
    """
    opened = Batch.objects.filter(status__in=OPEN_STATUSES)
    postponement = lane.write(partial(due_rows.postpone, opened, keys))
    return lanes.side_by_side([partial(_admit, lane, postponement, batch) for batch in postponement.rows])


def _admit(lane: HeldLane, postponement: Postponement[Batch], batch: Batch) -> None:
    with job_runs.job_run("batch", batch=batch.pk, chain=batch.destination_chain_id) as job_run:
        try:
            waits = _decide_all(lane, batch)
        except LaneLost:
            raise
        except Exception:
            waits = [Wait("An error of this service, which has been logged.", None)]
            _give_back(lane, postponement, batch, waits)
            raise
        failing = _give_back(lane, postponement, batch, waits)
        job_run.outcome = "fails" if failing else "waits" if waits else "done"


def _decide_all(lane: HeldLane, batch: Batch) -> list[Wait]:
    """Decide about each source chain, and return what is still waited for."""
    waits: list[Wait] = []
    unadmitted = together.share_work("unadmitted", batch.pk, _unadmitted)
    for source, questions in unadmitted.items():
        decision = _decide(lane, batch, source, questions)
        if isinstance(decision, Rejection) and decision.code in _BY_A_NODE:
            decision = _wait_instead(batch, decision) or decision
        if isinstance(decision, Wait):
            waits.append(decision)
            continue
        if not together.share_work("decided", _Decided(batch, source, decision), partial(_record_all, lane)):
            return []
        if len(unadmitted) > 1:
            batch.refresh_from_db(fields=["status", "estimated_gas", "estimated_wei", "fee"])
        if isinstance(decision, _Admission) and decision.ahead:
            waits.append(decision.ahead.wait)
    return waits


@dataclass(frozen=True)
class _GivenBack:
    """A batch that is due again after a pause; with None not at all."""

    batch: Batch
    pause: timedelta | None
    attempts: int
    waiting_for: str


def _give_back(lane: HeldLane, postponement: Postponement[Batch], batch: Batch, waits: Sequence[Wait]) -> bool:
    """Make the batch due again while something is waited for; return whether it fails."""
    failing = bool(waits) and all(wait.pause is None for wait in waits)
    backoff = due_rows.backoff(batch.attempts)
    pause = min((wait.pause or backoff for wait in waits), default=None)
    sentence = " ".join(dict.fromkeys(wait.sentence for wait in waits))
    given_back = _GivenBack(batch, pause, batch.attempts + 1 if failing else 0, sentence)
    together.share_work("give back", given_back, partial(_give_back_all, lane, postponement))
    return failing


def _give_back_all(lane: HeldLane, postponement: Postponement[Batch], several: Sequence[_GivenBack]) -> Sequence[None]:
    def write() -> None:
        for one in several:
            said = {"waiting_for": one.waiting_for, "looked_at": Now()}
            postponement.end([one.batch], one.pause, attempts=one.attempts, **said)

    lane.write(write)
    return [None] * len(several)


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


def _record_all(lane: HeldLane, several: Sequence[_Decided]) -> Sequence[Outcome[bool]]:
    return lanes.write_together(lane, several, _record_together)


def _record_together(several: Sequence[_Decided]) -> Sequence[bool]:
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


def _decide(lane: HeldLane, batch: Batch, source: int, questions: "_Questions") -> Wait | Rejection | _Admission:
    batch.user = together.share_work("user", batch.user_id, _users)
    destination = get_chains().chain(batch.destination_chain_id)
    if not batch.is_self_funded and (no_signer := signers.why_none(destination)):
        return Rejection(RejectionCode.NO_SIGNER, no_signer, retryable=False)
    if exhausted := _beyond(allowance.exceeded, batch, _NOTHING):
        return exhausted  # Before any node is asked.
    try:
        connection = connections.open_unless_stopped(batch.destination_chain_id, source)
        chain, rpc = connection.source_rpc.chain, connection.source_rpc
        inquiry = Inquiry(connection, batch.deadline_at, lambda: None, lambda: heads.recent(chain, rpc).latest)
        # What a time or a tag selects is only known when its block is found. All else is asked side by side.
        if questions.unfound:
            if refusal := _find_blocks(lane, batch, inquiry, questions):
                return refusal
            (unadmitted,) = _unadmitted([batch.pk])
            questions = unadmitted[source]
        return _decide_about_blocks(batch, inquiry, questions)
    except deployments.Unusable as why:
        return Wait(str(why), timedelta(seconds=10))
    except (NodeUnavailable, RpcRefused) as error:
        logger.warning("batch %s waits: %s", batch.pk, error.for_operators)
        return Wait(str(error), None)


def _users(ids: Sequence[int]) -> list[User]:
    """Return the users in the order of `ids`, with the limits of their own."""
    found = User.objects.in_bulk(ids)
    return [found[pk] for pk in ids]


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
    def asked(self) -> list[Asked]:
        return [Asked.once(number, asking.values()) for number, asking in self.at.items()]

    def divided(self, head: int) -> "tuple[_Questions, list[_Asking]]":
        """Return the questions about blocks up to `head`, and what is asked for at each block or time to come."""
        existing = {number: asking for number, asking in self.at.items() if number <= head}
        coming = [asking for number, asking in self.at.items() if number > head]
        return _Questions(existing, self.blocks, {}), [*coming, *self.unfound.values()]


def _unadmitted(batches: Sequence[str]) -> list[dict[int, _Questions]]:
    """Return, for each of the batches, what its queries ask for that are not admitted yet, by the source chain."""
    queries = Query.objects.filter(batch__in=batches, is_admitted=False).order_by("source_chain_id", "pk")
    blocks = Block.objects.filter(pk__in=queries.order_by().values("block")).defer("header_rlp").in_bulk()
    found: dict[str, dict[int, _Questions]] = {batch: {} for batch in batches}
    for query in queries.iterator(chunk_size=1000):
        questions = found[query.batch_id].setdefault(query.source_chain_id, _Questions({}, {}, {}))
        questions.add(query, blocks.get(query.block_id or 0))
    return [{source: one.sorted() for source, one in found[batch].items()} for batch in batches]


def _find_blocks(lane: HeldLane, batch: Batch, inquiry: Inquiry, questions: _Questions) -> Rejection | None:
    """Give the queries that name a time or a tag their blocks, except times that may still get a later one."""
    source = inquiry.source
    seen = heads.recent(source, inquiry.connection.source_rpc)
    if any(time >= seen.latest.timestamp for time in questions.times):
        # A later block may have come since that was read.
        seen = heads.read(source, inquiry.connection.source_rpc)
    # All queries of a tag at once: they have one block, wherever we are killed.
    for named in questions.unfound:
        if isinstance(named, str):
            number = feasibility.block_of_tag(inquiry, named, seen.latest, seen.finalized)
        elif named < seen.latest.timestamp:
            number = feasibility.block_of_time(inquiry, named, seen.latest)
        else:
            continue
        if isinstance(number, Rejection):
            return number
        blocks = submission.find_blocks(batch.destination_chain_id, {(source.id, number)})
        naming = Q(block_tag=named) if isinstance(named, str) else Q(timestamp=named)
        with lane.writing():
            batch.unadmitted(source.id).filter(naming, block=None).update(block_id=blocks[source.id, number])
    return None


def _ahead(batch: Batch, inquiry: Inquiry, questions: _Questions) -> Ahead | Rejection | None:
    head = inquiry.head()
    if feasibility.ahead(questions.at, questions.times, inquiry.source, head):
        # It may have come since that was read.
        head = heads.read(inquiry.source, inquiry.connection.source_rpc).latest
    is_awaited = batch.looked_at is not None
    return feasibility.ahead(questions.at, questions.times, inquiry.source, head, is_awaited=is_awaited)


def _decide_about_blocks(batch: Batch, inquiry: Inquiry, questions: _Questions) -> Wait | Rejection | _Admission:
    """Decide about the blocks that exist. Of those to come, nothing can be asked but when they come."""
    found = None if questions.unfound else _check(inquiry, questions, lambda: _ahead(batch, inquiry, questions))
    coming = _ahead(batch, inquiry, questions) if found is None else next(iter(found.obstacles), None)
    if isinstance(coming, Rejection):
        return coming
    if not isinstance(coming, Ahead):
        assert found is not None, "it was asked"
        return _decide_about_existing(batch, inquiry, questions, found)
    existing, rest = questions.divided(coming.head)
    if not existing.at:
        return coming.wait
    admission = _decide_about_existing(batch, inquiry, existing, _check(inquiry, existing, lambda: None), rest)
    return replace(admission, ahead=coming) if isinstance(admission, _Admission) else admission


def _check(inquiry: Inquiry, questions: _Questions, heights: Callable[[], Ahead | Rejection | None]) -> Feasibility:
    destination_rpc = inquiry.connection.destination_rpc
    # The reconcile of its blocks needs the destination's newest block next.
    beside = partial(heads.recent, destination_rpc.chain, destination_rpc)
    return feasibility.check(inquiry, questions.asked, heights=heights, beside=beside)


def _decide_about_existing(
    batch: Batch, inquiry: Inquiry, questions: _Questions, found: Feasibility, rest: Sequence[_Asking] = ()
) -> Rejection | _Admission:
    """Decide about the part of a batch whose blocks exist; `rest` is still to come."""
    for obstacle in found.obstacles:
        if isinstance(obstacle, Raised):
            raise obstacle.error
        assert isinstance(obstacle, Rejection), "all of it exists"
        return obstacle
    assert found.required is not None, "nothing stands in the way"
    estimate = found.required.estimate
    rpc = inquiry.connection.destination_rpc
    coming = feasibility.to_come(rest, found.tries)
    costs, of_coming = (feasibility.cost(rpc, one, found.required.fees) for one in (estimate, coming))
    admission = _Admission(
        costs.bound,
        _parts(questions, estimate, rest, coming),
        _with_headers(questions, found.required.counted),
        coming=of_coming.bound,
    )
    # What can never fit is said before what a higher fee would help.
    return (
        _beyond(allowance.too_large, batch, admission.needed)
        or _fee_too_low(batch, admission.needed, costs, estimate.path_gas)
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
