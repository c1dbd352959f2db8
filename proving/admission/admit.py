"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it.

Each source chain of a batch is checked by itself: its queries are admitted as soon as it has answered, and one that is
down holds up no other. Of a source chain what exists is admitted, and a block or a time that is still to come holds up
nothing but the queries that name it.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from operator import attrgetter

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from accounts.models import User
from chains import together
from chains.chains_file import Chain
from chains.rpc import NodeUnavailable, RpcRefused
from chains.together import Outcome, Raised
from config.configured_chains import get_chains
from database import leases, row_locks
from database.leases import Lease
from proving import connections, facts, heads, job_runs
from proving.admission import feasibility
from proving.admission.feasibility import Ahead, Asked, Cost, Counted, Feasibility, Inquiry, Wait
from proving.budget import allowance, reservations
from proving.budget.reservations import Reservation
from proving.facts import Fact
from proving.gas_model.proof_gas import Estimate
from proving.job_runs import JobRun
from proving.registry import deployments
from proving.transactions import signers
from queries import progress, submission, turns
from queries.error_codes import Rejection, RejectionCode
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Block, Query

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


def admit(batch_id: object) -> None:
    """Decide about the queries of a batch that are not admitted yet, or say what the decision waits for."""
    lease = leases.claim(Batch.objects.filter(status__in=OPEN_STATUSES), batch_id)
    if lease is not None:
        with job_runs.job_run("batch", batch=lease.row.pk, chain=lease.row.destination_chain_id) as job_run:
            _admit(lease, job_run)


def _admit(lease: Lease[Batch], job_run: JobRun) -> None:
    batch = lease.row
    try:
        waits: list[Wait] = []
        unadmitted = together.share_work("unadmitted", batch.pk, _unadmitted)
        for source, questions in unadmitted.items():
            decision = _decide(lease, source, questions)
            if isinstance(decision, Rejection) and decision.code in _BY_A_NODE:
                decision = _wait_instead(batch, decision) or decision
            if isinstance(decision, Wait):
                waits.append(decision)
                continue
            goes_on = together.share_work("decided", _Decided(lease, source, decision), _record_all)
            if not goes_on:
                job_run.outcome = "done"
                return lease.give_back(None)
            if isinstance(decision, _Admission) and decision.ahead:
                waits.append(decision.ahead.wait)
        failing = bool(waits) and all(wait.pause is None for wait in waits)
        backoff = leases.backoff(batch.attempts)
        lease.give_back(
            min((wait.pause or backoff for wait in waits), default=None),
            attempts=batch.attempts + 1 if failing else 0,
            waiting_for=" ".join(dict.fromkeys(wait.sentence for wait in waits)),
            looked_at=Now(),
        )
        job_run.outcome = "fails" if failing else "waits" if waits else "done"
    except leases.LeaseLost:
        return None
    except Exception:
        sentence = "An error of this service, which has been logged."
        pause = leases.backoff(batch.attempts)
        lease.release(pause, attempts=batch.attempts + 1, waiting_for=sentence, looked_at=Now())
        raise


def _wait_instead(batch: Batch, rejection: Rejection) -> Wait | None:
    """Return a wait where the batch was found good before: some of it, or what is to come of it as far as it can be."""
    if batch.status != BatchStatus.RECEIVED:
        return Wait(rejection.reason, None)
    # Without a failure that is counted, by which the next look knows that the batch waited.
    is_awaited = batch.looked_at is not None and not batch.attempts
    return Wait(rejection.reason, timedelta(seconds=10)) if is_awaited else None


def undecided(batches: Collection[str]) -> dict[str, list[int]]:
    """Return, by the batch, the source chains whose queries are not admitted yet."""
    waiting = Query.objects.filter(batch__in=batches, is_admitted=False).order_by("source_chain_id")
    found: dict[str, list[int]] = {batch: [] for batch in batches}
    for batch, source in waiting.values_list("batch", "source_chain_id").distinct():
        found[batch].append(source)
    return found


@dataclass(frozen=True)
class _Decided:
    lease: Lease[Batch]
    source: int
    decision: Rejection | _Admission

    @property
    def blocks(self) -> Sequence[Block]:
        return self.decision.blocks if isinstance(self.decision, _Admission) else ()


def _record_all(several: Sequence[_Decided]) -> Sequence[Outcome[bool]]:
    # With the limits of before: what counts against them is read while the users are locked.
    users = {one.lease: one.lease.row.user for one in several}

    def record(going: Sequence[_Decided]) -> Sequence[bool]:
        admitted = [_record(one, users[one.lease]) for one in going]
        _store_headers([block for one, goes_on in zip(going, admitted, strict=True) if goes_on for block in one.blocks])
        return admitted

    return leases.write_together(several, attrgetter("lease"), record, lock_first=_lock_users_and_blocks)


def _lock_users_and_blocks(several: Sequence[_Decided]) -> None:
    """Lock the users, so that two batches can't reserve the same rest of a limit, and the blocks that are lined up."""
    accepted = [one for one in several if isinstance(one.decision, _Admission)]
    if not accepted:
        return
    row_locks.lock(User.objects.filter(pk__in={one.lease.row.user_id for one in accepted}))
    admitted = Q()
    for one in accepted:
        admitted |= Q(batch=one.lease.row.pk, source_chain_id=one.source, is_admitted=False)
    row_locks.lock(Block.objects.filter(pk__in=Query.objects.filter(admitted).values("block")))


def _record(decided: _Decided, user: User) -> bool:
    """Write the decision, in the caller's database transaction; whether the batch goes on."""
    batch, source, decision = decided.lease.row, decided.source, decided.decision
    batch.user = user
    if isinstance(decision, _Admission):
        decision = _beyond(allowance.exceeded, batch, decision.needed) or decision
    if isinstance(decision, Rejection):
        progress.reject([batch.pk], code=decision.code, reason=decision.reason, retryable=decision.retryable)
        return False
    turns.line_up(batch, batch.unadmitted(source, up_to=decision.up_to))
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


def _decide(lease: Lease[Batch], source: int, questions: "_Questions") -> Wait | Rejection | _Admission:
    batch = lease.row
    batch.user = together.share_work("user", batch.user_id, _users)
    destination = get_chains().chain(batch.destination_chain_id)
    if not batch.is_self_funded and (no_signer := signers.why_none(destination)):
        return Rejection(RejectionCode.NO_SIGNER, no_signer, retryable=False)
    if exhausted := _beyond(allowance.exceeded, batch, _NOTHING):
        return exhausted  # Before any node is asked.
    try:
        connection = connections.open_unless_stopped(batch.destination_chain_id, source)
        chain, rpc = connection.source_rpc.chain, connection.source_rpc
        inquiry = Inquiry(connection, batch.deadline_at, lease.extend, lambda: heads.recent(chain, rpc).latest)
        # What a time or a tag selects is only known when its block is found. All else is asked side by side.
        if questions.unfound:
            if refusal := _find_blocks(lease, inquiry, questions):
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


def _find_blocks(lease: Lease[Batch], inquiry: Inquiry, questions: _Questions) -> Rejection | None:
    """Give the queries that name a time or a tag their blocks, except times that may still get a later one."""
    batch, source = lease.row, inquiry.source
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
        # Before the batch is locked, as `database.row_locks` says.
        blocks = submission.find_blocks(batch.destination_chain_id, {(source.id, number)})
        naming = Q(block_tag=named) if isinstance(named, str) else Q(timestamp=named)
        with lease.writing():
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
