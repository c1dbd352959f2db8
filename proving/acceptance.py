"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it.

Each source chain of a batch is checked by itself: its queries are admitted as soon as it has answered, and one that is
down, or whose block is still to come, holds up no other.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter

from django.db.models import Q
from django.utils import timezone

from accounts import row_locks
from accounts.models import User
from chains import together
from chains.rpc import NodeUnavailable, RpcRefused
from chains.together import Outcome, Raised
from config.configured_chains import get_chains
from proving import assessment, connections, facts, heads, looks
from proving.assessment import Asked, Cost, Inquiry, Wait
from proving.facts import Fact
from proving.looks import Look
from proving.registry import deployments
from proving.spending import allowance, promised
from proving.spending.promised import Promise
from proving.spending.workload import Estimate, Part
from queries import leases, progress, submission, turns
from queries.leases import Lease
from queries.models import HEADER_COLUMNS, OPEN_STATUSES, Batch, Block, Query
from queries.rejection_codes import Rejection, RejectionCode

logger = logging.getLogger(__name__)

_HEADERS_PER_STATEMENT = 100


@dataclass(frozen=True)
class _Acceptance:
    estimated: Promise
    of_queries: Mapping[int, int] = field(default_factory=dict)
    """By a query's id: its part of that, in gas."""
    blocks: Sequence[Block] = ()
    """With their headers as they were read: whoever works on a block first can ask for more at once."""


def accept(batch_id: object) -> None:
    """Decide about the queries of a batch that are not admitted yet, or say what the decision waits for."""
    lease = leases.claim(Batch.objects.filter(status__in=OPEN_STATUSES), batch_id)
    if lease is not None:
        with looks.look("batch", batch=lease.row.pk, chain=lease.row.destination_chain_id) as look:
            _accept(lease, look)


def _accept(lease: Lease[Batch], look: Look) -> None:
    batch = lease.row
    try:
        waits: list[Wait] = []
        for source in undecided(batch.pk):
            decision = _decide(lease, source)
            if isinstance(decision, Wait):
                waits.append(decision)
                continue
            goes_on = together.share_work("decided", _Decided(lease, source, decision), _record_all)
            if not goes_on:
                look.outcome = "done"
                return lease.give_back(None)
        failing = bool(waits) and all(wait.until is None for wait in waits)
        pause = timezone.now() + leases.backoff(batch.attempts)
        due_at = min((wait.until or pause for wait in waits), default=None)
        lease.give_back(
            due_at,
            attempts=batch.attempts + 1 if failing else 0,
            waiting_for=" ".join(dict.fromkeys(wait.sentence for wait in waits)),
        )
        look.outcome = "fails" if failing else "waits" if waits else "done"
    except leases.LeaseLost:
        return None
    except Exception:
        pause = timezone.now() + leases.backoff(batch.attempts)
        sentence = "An error of this service, which has been logged."
        lease.release(pause, attempts=batch.attempts + 1, waiting_for=sentence)
        raise


def undecided(batch_id: str) -> list[int]:
    """The source chains whose queries are not admitted yet."""
    waiting = Query.objects.filter(batch=batch_id, is_admitted=False)
    return list(waiting.order_by("source_chain_id").values_list("source_chain_id", flat=True).distinct())


@dataclass(frozen=True)
class _Decided:
    lease: Lease[Batch]
    source: int
    decision: Rejection | _Acceptance


def _record_all(several: Sequence[_Decided]) -> Sequence[Outcome[bool]]:
    return leases.write_together(
        several, attrgetter("lease"), lambda going: [_record(one) for one in going], lock_first=_lock_users_and_blocks
    )


def _lock_users_and_blocks(several: Sequence[_Decided]) -> None:
    """One at a time for each user: two batches can't be promised the same rest. And the blocks that are lined up."""
    accepted = [one for one in several if isinstance(one.decision, _Acceptance)]
    if not accepted:
        return
    row_locks.lock(User.objects.filter(pk__in={one.lease.row.user_id for one in accepted}))
    admitted = Q()
    for one in accepted:
        admitted |= Q(batch=one.lease.row.pk, source_chain_id=one.source)
    row_locks.lock(Block.objects.filter(pk__in=Query.objects.filter(admitted).values("block")))


def _record(decided: _Decided) -> bool:
    """Write the decision, in the caller's database transaction; whether the batch goes on."""
    batch, source, decision = decided.lease.row, decided.source, decided.decision
    if isinstance(decision, _Acceptance):
        destination = get_chains().chain(batch.destination_chain_id)
        decision = next(allowance.exceeded(batch.user, destination, decision.estimated, _before(batch)), decision)
    if isinstance(decision, Rejection):
        progress.reject([batch.pk], code=decision.code, reason=decision.reason, retryable=decision.retryable)
        return False
    estimated = decision.estimated
    progress.admit(
        batch, source, estimated_gas=estimated.gas, estimated_wei=estimated.wei, of_queries=decision.of_queries
    )
    _store_headers(decision.blocks)
    turns.line_up(batch.user_id, batch.queries.filter(source_chain_id=source))
    return True


def _before(batch: Batch) -> Promise:
    """What of it was admitted before is estimated at."""
    return Promise(batch.estimated_gas or 0, batch.estimated_wei or 0)


def _store_headers(blocks: Sequence[Block]) -> None:
    """Of blocks that have none yet. Where a block has one, nothing but its own reconcile may replace it."""
    if blocks:
        without = Block.objects.filter(hash="")
        without.bulk_update(blocks, HEADER_COLUMNS, batch_size=_HEADERS_PER_STATEMENT)


def _decide(lease: Lease[Batch], source: int) -> Wait | Rejection | _Acceptance:
    batch = lease.row
    batch.user = together.share_work("user", batch.user_id, _users)
    destination = get_chains().chain(batch.destination_chain_id)
    if exhausted := next(allowance.exceeded(batch.user, destination, Promise(0, 0), _before(batch)), None):
        return exhausted  # Before any node is asked.
    try:
        connection = connections.open_unless_paused(batch.destination_chain_id, source)
        chain, rpc = connection.source_rpc.chain, connection.source_rpc
        inquiry = Inquiry(connection, lease.extend, lambda: heads.recent(chain, rpc).latest)
        questions = _read(batch, source)
        if questions.times:
            # What a time selects is only known when its block is found. All else is asked side by side.
            obstacle = _too_early(inquiry, questions) or _find_blocks(lease, inquiry, questions.times)
            if obstacle:
                return obstacle
            questions = _read(batch, source)
        return _decide_about_blocks(batch, inquiry, questions)
    except deployments.Unusable as why:
        return Wait(str(why), timezone.now() + timedelta(seconds=10))
    except (NodeUnavailable, RpcRefused) as error:
        logger.warning("batch %s waits: %s", batch.pk, error)
        return Wait(str(error), None)


def _users(ids: Sequence[int]) -> list[User]:
    """With the limits of their own."""
    found = User.objects.in_bulk(ids)
    return [found[pk] for pk in ids]


@dataclass(frozen=True)
class _Questions:
    """What a batch's queries ask of one source chain."""

    asked: Sequence[Asked]
    queries: Mapping[int, Mapping[int, Sequence[Fact]]]  # by the block's number, and by id: what each asks for
    blocks: Mapping[int, Block]  # of these, by number
    times: Sequence[int]  # whose blocks are not found yet, unix seconds, falling


def _read(batch: Batch, source: int) -> _Questions:
    queries = batch.queries.filter(source_chain_id=source)
    blocks = Block.objects.filter(pk__in=queries.values("block")).defer("header_rlp").in_bulk()
    wanted: dict[int, dict[int, Sequence[Fact]]] = defaultdict(dict)
    times: set[int] = set()
    for query in queries.iterator(chunk_size=1000):
        if query.block_id is not None:
            wanted[blocks[query.block_id].number][query.pk] = facts.of(query)
        else:
            assert query.timestamp is not None, "a query without a block names a time"
            times.add(query.timestamp)
    asked = [Asked.once(number, wanted[number].values()) for number in sorted(wanted)]
    return _Questions(asked, wanted, {block.number: block for block in blocks.values()}, sorted(times, reverse=True))


def _too_early(inquiry: Inquiry, questions: _Questions) -> Wait | Rejection | None:
    """Whether what is named exists by now: the highest of the blocks, and a block after the last of the times."""
    highest, latest = max(questions.blocks, default=None), max(questions.times, default=None)
    obstacle = assessment.too_early(highest, latest, inquiry.source, inquiry.head())
    if isinstance(obstacle, Wait):
        # It may have come since that was read.
        head = heads.read(inquiry.source, inquiry.connection.source_rpc).latest
        obstacle = assessment.too_early(highest, latest, inquiry.source, head)
    return obstacle


def _find_blocks(lease: Lease[Batch], inquiry: Inquiry, times: Iterable[int]) -> Rejection | None:
    """Give the queries that name a time their block."""
    batch, source = lease.row, inquiry.source.id
    unfound = batch.queries.filter(source_chain_id=source, block=None)
    head = inquiry.head()
    for time in times:
        number = assessment.block_of_time(inquiry, time, head)
        if isinstance(number, Rejection):
            return number
        # Before the batch is locked, as `accounts.row_locks` says.
        blocks = submission.find_blocks(batch.destination_chain_id, {(source, number)})
        with lease.writing():
            unfound.filter(timestamp=time).update(block_id=blocks[source, number])
    return None


def _decide_about_blocks(batch: Batch, inquiry: Inquiry, questions: _Questions) -> Wait | Rejection | _Acceptance:
    destination, rpc = get_chains().chain(batch.destination_chain_id), inquiry.connection.destination_rpc
    assessed = assessment.assess(
        inquiry,
        questions.asked,
        heights=lambda: _too_early(inquiry, questions),
        # Whoever works on its blocks needs them next.
        beside=lambda: heads.recent(destination, rpc),
    )
    for obstacle in assessed.obstacles:
        if isinstance(obstacle, Raised):
            raise obstacle.error
        return obstacle
    counted, estimate, fees = assessed.counted, assessed.estimate, assessed.fees
    assert counted is not None, "nothing stands in the way"
    assert estimate is not None, "same"
    assert fees is not None, "same"
    fresh = [block for number, block in questions.blocks.items() if not block.hash and number in counted.headers]
    for block in fresh:
        block.take(counted.headers[block.number])
    costs = assessment.cost(rpc, estimate, fees)
    # What can never fit is said before what a higher fee would help.
    too_large = next(allowance.too_large(batch.user, destination, costs.bound, _before(batch)), None)
    of_queries = {pk: 0 for asking in questions.queries.values() for pk in asking}
    for number, shares in estimate.shares.items():
        of_queries |= shares.divided(questions.queries[number])
    return too_large or _fee_too_low(batch, estimate, costs) or _Acceptance(costs.bound, of_queries, fresh)


def _fee_too_low(batch: Batch, estimate: Estimate, costs: Cost) -> Rejection | None:
    if get_chains().chain(batch.destination_chain_id).test_network or batch.fee_is_estimate:
        return None
    # Gas may have been dearer than it was estimated at when the first of its source chains was admitted.
    before = max(batch.estimated_wei or 0, promised.caused_by(batch))
    gas, wei = costs.gas.bound + (batch.estimated_gas or 0), costs.wei.bound + before
    if wei <= batch.fee:
        return None
    path_gas = estimate.parts.get(Part.PATHS)
    path = f", {path_gas.bound} of it for the path to blocks that are old" if path_gas else ""
    beside = f" and {costs.data.wei} wei for its data" if costs.data.wei else ""
    return Rejection(
        RejectionCode.FEE_TOO_LOW,
        f"Proving this batch is estimated at {gas} gas{path}{beside}, {wei} wei at a gas price a quarter above the "
        f"present one, which is more than its fee of {batch.fee} wei.",
        retryable=True,
    )
