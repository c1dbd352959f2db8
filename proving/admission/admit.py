"""RECEIVED -> ACCEPTED or REJECTED: checks requests against the chains before anything is spent on them.

A turn takes batches of one destination that ask the same source chains. Each source chain is asked once for all of
them; its queries are admitted as soon as it has answered, and one that is down holds up no other. Of a source chain
what exists is admitted, and a block or a time that is still to come holds up nothing but the queries that name it.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from django.db import connection
from django.db.models import Case, Count, F, Q, QuerySet, When
from django.db.models.functions import Now

from accounts.models import User
from chains.rpc import ChainError
from config import logs
from config.configured_chains import get_chains
from database import due_rows, row_locks
from database.due_rows import Postponement
from proving import connections, facts, heads, job_runs, lanes
from proving.admission import feasibility
from proving.admission.feasibility import Ahead, Asked, BatchPart, Cost, Counted, Feasibility, Inquiry, Required, Wait
from proving.budget import allowance, money
from proving.budget.money import Reservation
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


def admit_all(lane: HeldLane, keys: Sequence[object]) -> int:
    """Decide about the queries of these batches that are not admitted yet, or say what the decision waits for.

    Return how many failed by an error of ours.
    """
    opened = Batch.objects.filter(status__in=OPEN_STATUSES)
    postponement = lane.write(partial(due_rows.postpone, opened, keys))

    def work(batches: Sequence[Batch]) -> None:
        began = time.monotonic()
        waits = _decide_all(lane, batches)
        failing = _give_back(lane, postponement, batches, waits)
        for batch in batches:
            outcome = "fails" if batch.pk in failing else "waits" if waits[batch.pk] else "done"
            job_runs.note("batch", outcome, began)

    def give_up(batch: Batch) -> None:
        _give_back(
            lane, postponement, [batch], {batch.pk: [Wait("An error of this service, which has been logged.", None)]}
        )
        job_runs.note("batch", "defect", time.monotonic())

    return lanes.work_on(postponement.rows, work, give_up) if postponement.rows else 0


def _decide_all(lane: HeldLane, batches: Sequence[Batch]) -> dict[str, list[Wait]]:
    """Decide about each source chain of the batches, and return what each still waits for."""
    users = User.objects.in_bulk({batch.user_id for batch in batches})
    going = {batch.pk: batch for batch in batches}
    for batch in batches:
        # With the limits of its own.
        batch.user = users[batch.user_id]
    waits: dict[str, list[Wait]] = {batch.pk: [] for batch in batches}
    unadmitted = _unadmitted(list(going))
    sources = sorted({source for of_batch in unadmitted.values() for source in of_batch})
    for source in sources:
        asking = {pk: of_batch[source] for pk, of_batch in unadmitted.items() if pk in going and source in of_batch}
        decided: list[_Decided] = []
        decisions = _decide(lane, source, [(going[pk], asked) for pk, asked in asking.items()])
        for pk, decision in decisions.items():
            if isinstance(decision, Wait):
                waits[pk].append(decision)
                continue
            decided.append(_Decided(going[pk], source, decision))
            if isinstance(decision, _Admission) and decision.ahead:
                waits[pk].append(decision.ahead.wait)
        for pk in lane.write(partial(_record_all, decided)) if decided else ():
            # What was rejected waits for nothing more.
            del going[pk]
            waits[pk] = []
        if len(sources) > 1:
            for batch in going.values():
                batch.refresh_from_db(fields=["status", "estimated_gas", "estimated_wei", "fee"])
    return waits


def _give_back(
    lane: HeldLane, postponement: Postponement[Batch], batches: Sequence[Batch], waits: Mapping[str, Sequence[Wait]]
) -> set[str]:
    """Make batches due again while something is waited for; return which fail."""
    failing = {pk for pk, several in waits.items() if several and all(wait.pause is None for wait in several)}

    def write() -> None:
        for batch in batches:
            backoff = due_rows.backoff(batch.attempts)
            postponement.end(
                [batch],
                min((wait.pause or backoff for wait in waits[batch.pk]), default=None),
                attempts=batch.attempts + 1 if batch.pk in failing else 0,
                waiting_for=" ".join(dict.fromkeys(wait.sentence for wait in waits[batch.pk])),
                looked_at=Now(),
            )

    lane.write(write)
    return failing


@dataclass(frozen=True)
class _Decided:
    batch: Batch
    source: int
    decision: Rejection | _Admission

    @property
    def blocks(self) -> Sequence[Block]:
        return self.decision.blocks if isinstance(self.decision, _Admission) else ()


def _record_all(several: Sequence[_Decided]) -> list[str]:
    """Write the decisions inside the caller's database transaction. Return the batches that are rejected."""
    # So that two batches can't reserve the same rest of a limit.
    row_locks.lock(User.objects.filter(pk__in={one.batch.user_id for one in several}))
    batches = Batch.objects.filter(pk__in=[one.batch.pk for one in several])
    asked_for = Query.objects.filter(batch__in=batches, is_admitted=False)
    row_locks.lock(Block.objects.filter(pk__in=asked_for.values("block")))
    stored = {batch.pk: batch for batch in batches.order_by("pk").select_for_update(no_key=True)}
    for one in several:
        # With the limits of before: what counts against them is read while the users are locked.
        stored[one.batch.pk].user = one.batch.user
    used = _used_of_day(stored.values())
    waiting = Block.objects.filter(due_at__isnull=False).exclude(turn_of=None).order_by().values_list("turn_of")
    due = Counter(dict(waiting.annotate(Count("pk"))))
    rejected: list[str] = []
    fresh: list[Block] = []
    for one in several:
        if _record(one, stored[one.batch.pk], used, due):
            fresh += one.blocks
        else:
            rejected.append(one.batch.pk)
    _store_headers(fresh)
    return rejected


def _wake_blocks(batch: Batch, queries: QuerySet[Query], due: Counter[int]) -> None:
    """Make the blocks of a batch's queries due, in its user's turns. Inside the caller's transaction.

    A block that is due for another user stays in that one's turns if fewer blocks are due for that user, who would get
    to it first. `due` counts them by user (id).
    """
    user, asked_for = batch.user_id, Block.objects.filter(pk__in=queries.values("block"))
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


def _record(decided: _Decided, batch: Batch, used: Counter[int], due: Counter[int]) -> bool:
    """Write the decision about the batch, as it is now, in the caller's database transaction; whether it goes on.

    What it takes of its user's day is added to what is `used`, and its blocks to those that are `due`.
    """
    source, decision = decided.source, decided.decision
    if isinstance(decision, _Admission):
        decision = _exceeded(batch, decision.needed, used) or decision
    if isinstance(decision, Rejection):
        progress.reject([batch.pk], code=decision.code, reason=decision.reason, retryable=decision.retryable)
        return False
    used[batch.user_id] += decision.estimated.wei
    _wake_blocks(batch, batch.unadmitted(source, up_to=decision.up_to), due)
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


def _used_of_day(batches: Iterable[Batch]) -> Counter[int]:
    """Return the wei that are used of their users' days, by user (id), on the one destination of the batches."""
    users = {(batch.user_id, batch.destination_chain_id) for batch in batches if not batch.is_self_funded}
    return Counter({user: money.to_user(user, destination) for user, destination in users})


def _exceeded(batch: Batch, needed: Reservation, used: Mapping[int, int]) -> Rejection | None:
    """Return why a limit of the day leaves no room. None holds for what others pay for."""
    if batch.is_self_funded:
        return None
    destination = get_chains().chain(batch.destination_chain_id)
    found = allowance.exceeded(batch.user, destination, needed, _before(batch), used[batch.user_id])
    return next(found, None)


def _too_large(batch: Batch, needed: Reservation) -> Rejection | None:
    """Return why the batch can never fit a limit of the day."""
    if batch.is_self_funded:
        return None
    destination = get_chains().chain(batch.destination_chain_id)
    return next(allowance.too_large(batch.user, destination, needed, _before(batch)), None)


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


_Decision = Wait | Rejection | _Admission


def _decide(lane: HeldLane, source: int, cases: Sequence[tuple[Batch, _Questions]]) -> dict[str, _Decision]:
    """Decide about what these batches ask of one source chain."""
    destination = get_chains().chain(cases[0][0].destination_chain_id)
    decisions: dict[str, _Decision] = {}
    no_signer = signers.why_none(destination)
    used = _used_of_day(batch for batch, _ in cases)
    for batch, _ in cases:
        # Before any node is asked.
        if no_signer and not batch.is_self_funded:
            decisions[batch.pk] = Rejection(RejectionCode.NO_SIGNER, no_signer, retryable=False)
        elif exhausted := _exceeded(batch, _NOTHING, used):
            decisions[batch.pk] = exhausted
    going = [(batch, questions) for batch, questions in cases if batch.pk not in decisions]
    if not going:
        return decisions
    try:
        connection = connections.open_unless_stopped(destination.id, source)
        head = heads.recent(connection.source_rpc.chain, connection.source_rpc).latest
        decisions |= _decide_about_blocks(Inquiry(connection, head), _found_blocks(lane, connection, going, decisions))
    except deployments.Unusable as why:
        decisions |= {batch.pk: Wait(str(why), timedelta(seconds=10)) for batch, _ in going}
    except ChainError as error:
        decisions |= {batch.pk: _unanswered(batch, error) for batch, _ in going}
    return {batch.pk: _wait_instead(batch, decisions[batch.pk]) for batch, _ in cases}


def _wait_instead(batch: Batch, decision: _Decision) -> _Decision:
    """Wait where the batch was found good before: some of it, or what is to come of it as far as it can be."""
    if not isinstance(decision, Rejection) or decision.code not in _BY_A_NODE:
        return decision
    if batch.status != BatchStatus.RECEIVED:
        return Wait(decision.reason, None)
    # Without a failure that is counted, by which the next look knows that the batch waited.
    is_awaited = batch.looked_at is not None and not batch.attempts
    return Wait(decision.reason, timedelta(seconds=10)) if is_awaited else decision


def _unanswered(batch: Batch, error: ChainError) -> Wait:
    logger.warning("batch %s waits: %s", batch.pk, error.for_operators)
    return Wait(str(error), None)


def _unadmitted(batches: Sequence[str]) -> dict[str, dict[int, _Questions]]:
    """Return, for each of the batches, what its queries ask for that are not admitted yet, by the source chain."""
    queries = Query.objects.filter(batch__in=batches, is_admitted=False).order_by("source_chain_id", "pk")
    blocks = Block.objects.filter(pk__in=queries.order_by().values("block")).defer("header_rlp").in_bulk()
    found: dict[str, dict[int, _Questions]] = {batch: {} for batch in batches}
    for query in queries.iterator(chunk_size=1000):
        questions = found[query.batch_id].setdefault(query.source_chain_id, _Questions({}, {}, {}))
        questions.add(query, blocks.get(query.block_id or 0))
    return {batch: {source: one.sorted() for source, one in found[batch].items()} for batch in batches}


def _found_blocks(
    lane: HeldLane,
    connection: OpenConnection,
    cases: Sequence[tuple[Batch, _Questions]],
    decisions: dict[str, _Decision],
) -> list[tuple[Batch, _Questions]]:
    """Return the cases with the blocks that times and tags select, found one batch after the other.

    What keeps one from being found is the decision about its batch.
    """
    source, found = connection.config.source_id, dict[str, _Questions]()
    for batch, questions in cases:
        if not questions.unfound:
            found[batch.pk] = questions
            continue
        try:
            refusal = _find_blocks(lane, batch, connection, questions)
        except ChainError as error:
            decisions[batch.pk] = _unanswered(batch, error)
            continue
        if refusal:
            decisions[batch.pk] = refusal
        else:
            found[batch.pk] = _unadmitted([batch.pk])[batch.pk][source]
    return [(batch, found[batch.pk]) for batch, _ in cases if batch.pk in found]


def _find_blocks(lane: HeldLane, batch: Batch, connection: OpenConnection, questions: _Questions) -> Rejection | None:
    """Give the queries that name a time or a tag their blocks, except times that may still get a later one."""
    rpc, source = connection.source_rpc, connection.source_rpc.chain
    seen = heads.recent(source, rpc)
    if any(time >= seen.latest.timestamp for time in questions.times):
        # A later block may have come since that was read.
        seen = heads.read(source, rpc)
    # All queries of a tag at once: they have one block, wherever we are killed.
    for named in questions.unfound:
        if isinstance(named, str):
            number = feasibility.block_of_tag(rpc, named, seen.latest, seen.finalized)
        elif named < seen.latest.timestamp:
            number = feasibility.block_of_time(rpc, named, seen.latest)
        else:
            continue
        if isinstance(number, Rejection):
            return number
        blocks = submission.find_blocks(batch.destination_chain_id, {(source.id, number)})
        naming = Q(block_tag=named) if isinstance(named, str) else Q(timestamp=named)
        with lane.writing():
            batch.unadmitted(source.id).filter(naming, block=None).update(block_id=blocks[source.id, number])
    return None


def _decide_about_blocks(inquiry: Inquiry, cases: Sequence[tuple[Batch, _Questions]]) -> dict[str, _Decision]:
    """Decide about the blocks that exist. Of those to come, nothing can be asked but when they come."""
    source = inquiry.source
    if any(feasibility.ahead(asked.at, asked.times, source, inquiry.head) for _, asked in cases):
        # It may have come since that was read.
        inquiry = replace(inquiry, head=heads.read(source, inquiry.connection.source_rpc).latest)
    decisions: dict[str, _Decision] = {}
    existing: list[_Existing] = []
    for batch, asked in cases:
        is_awaited = batch.looked_at is not None
        coming = feasibility.ahead(asked.at, asked.times, source, inquiry.head, is_awaited=is_awaited)
        if isinstance(coming, Rejection):
            decisions[batch.pk] = coming
            continue
        here, rest = asked.divided(inquiry.head.number) if coming else (asked, [])
        if coming and not here.at:
            decisions[batch.pk] = coming.wait
        else:
            existing.append(_Existing(batch, here, coming, rest))
    if existing:
        found = feasibility.check(inquiry, [BatchPart(one.questions.asked, one.batch.deadline_at) for one in existing])
        decisions |= _decide_about_existing(inquiry, list(zip(existing, found, strict=True)))
    return decisions


@dataclass(frozen=True)
class _Existing:
    """The part of a batch whose blocks exist."""

    batch: Batch
    questions: _Questions
    ahead: Ahead | None
    rest: Sequence[_Asking]
    """The parts that are still to come."""


def _decide_about_existing(inquiry: Inquiry, cases: Sequence[tuple[_Existing, Feasibility]]) -> dict[str, _Decision]:
    decisions: dict[str, _Decision] = {}
    estimates: list[tuple[_Existing, Required, Estimate]] = []
    for one, found in cases:
        obstacle = next(iter(found.obstacles), None)
        if found.required is None or obstacle is not None:
            assert obstacle is not None, "it is known what is required"
            decisions[one.batch.pk] = _unanswered(one.batch, obstacle) if isinstance(obstacle, ChainError) else obstacle
        else:
            estimates.append((one, found.required, feasibility.to_come(one.rest, found.tries)))
    costs = feasibility.costs(
        inquiry.connection.destination_rpc,
        [(part, required.fees) for _, required, coming in estimates for part in (required.estimate, coming)],
    )
    for (one, required, coming), cost, of_coming in zip(estimates, costs[::2], costs[1::2], strict=True):
        admission = _Admission(
            cost.bound,
            _parts(one.questions, required.estimate, one.rest, coming),
            _with_headers(one.questions, required.counted),
            one.ahead,
            of_coming.bound,
        )
        # What can never fit is said before what a higher fee would help.
        decisions[one.batch.pk] = (
            _too_large(one.batch, admission.needed)
            or _fee_too_low(one.batch, admission.needed, cost, required.estimate.path_gas)
            or admission
        )
    return decisions


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
    caused = money.caused_by(batch) if batch.estimated_wei else 0
    before = Reservation(batch.estimated_gas or 0, max(batch.estimated_wei or 0, caused))
    return allowance.fee_too_low(batch.fee, needed + before, path_gas=path_gas, data_wei=costs.data.wei)
