"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it.

Each source chain of a batch is checked by itself: its queries are admitted as soon as it has answered, and one that is
down, or whose block is still to come, holds up no other.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter

from django.conf import settings
from django.utils import timezone

from accounts.models import User
from chains import rollups
from chains.chains_file import Chain
from chains.header import Header
from chains.rpc import NodeUnavailable, ProofRequest, RpcRefused
from config.configured_chains import get_chains, get_rpc
from proving import connections, facts, timestamps
from proving.connections import OpenConnection
from proving.facts import HeaderFact, TimeFact
from proving.heads import poll_seconds
from proving.paths import planning
from proving.paths.planning import TooFar
from proving.registry import deployments
from proving.spending import estimates, promised
from queries import leases, progress, submission, turns
from queries.chunks import chunks
from queries.leases import Lease
from queries.models import OPEN_STATUSES, Batch, Block, Query
from queries.rejection_codes import RejectionCode

logger = logging.getLogger(__name__)

# So many of the newest states every node keeps, archive or not. A refusal of one of these tells little.
_KEPT_BY_ALL = 128
# Headers, blocks or facts that are read between two extensions of the lease.
_PER_READ = 200


@dataclass(frozen=True)
class _Postponed:
    """Why these queries are not admitted yet, a sentence, and when to ask again; None: ever later, because it fails."""

    sentence: str
    until: datetime | None


@dataclass(frozen=True)
class _Refusal:
    code: RejectionCode
    reason: str
    retryable: bool


@dataclass(frozen=True)
class _Acceptance:
    estimated_gas: int
    estimated_wei: int


def accept(batch_id: object) -> None:
    """Decide about the queries of a batch that are not admitted yet, or say what the decision waits for."""
    lease = leases.claim(Batch.objects.filter(status__in=OPEN_STATUSES), batch_id)
    if lease is None:
        return None
    batch = lease.row
    try:
        waits: list[_Postponed] = []
        for source in undecided(batch.pk):
            decision = _decide(lease, source)
            if isinstance(decision, _Postponed):
                waits.append(decision)
                continue
            with lease.writing() as fresh:
                goes_on = _record(fresh, source, decision)
            if not goes_on:
                return lease.release(None)
        Batch.objects.filter(pk=batch.pk, lease_token=lease.token).update(
            waiting_for=" ".join(dict.fromkeys(wait.sentence for wait in waits))
        )
        failing = bool(waits) and all(wait.until is None for wait in waits)
        pause = timezone.now() + leases.backoff(batch.attempts)
        due_at = min((wait.until or pause for wait in waits), default=None)
        lease.release(due_at, attempts=batch.attempts + 1 if failing else 0)
    except leases.LeaseLost:
        return None
    except Exception:
        pause = timezone.now() + leases.backoff(batch.attempts)
        Batch.objects.filter(pk=batch.pk, lease_token=lease.token).update(
            waiting_for="An error of this service, which has been logged."
        )
        lease.release(pause, attempts=batch.attempts + 1)
        raise


def undecided(batch_id: str) -> list[int]:
    """The source chains whose queries are not admitted yet."""
    waiting = Query.objects.filter(batch=batch_id, is_admitted=False)
    return list(waiting.order_by("source_chain_id").values_list("source_chain_id", flat=True).distinct())


def _record(batch: Batch, source: int, decision: _Refusal | _Acceptance) -> bool:
    """Write the decision, in the caller's database transaction; whether the batch goes on."""
    if isinstance(decision, _Acceptance):
        # One at a time for each user: two batches can't be promised the same rest.
        User.objects.select_for_update().get(pk=batch.user_id)
        decision = _check_limits(batch, decision) or decision
    if isinstance(decision, _Refusal):
        progress.reject([batch.pk], code=decision.code, reason=decision.reason, retryable=decision.retryable)
        return False
    progress.admit(batch, source, estimated_gas=decision.estimated_gas, estimated_wei=decision.estimated_wei)
    turns.line_up(batch.user_id, batch.queries.filter(source_chain_id=source))
    return True


def _decide(lease: Lease[Batch], source: int) -> _Postponed | _Refusal | _Acceptance:
    destination = lease.row.destination_chain_id
    work = estimates.Workload()
    if exhausted := _check_limits(lease.row, _Acceptance(0, 0)):
        return exhausted  # Before any node is asked.
    try:
        connection = connections.open_connection(destination, source)
        head = connection.source_rpc.head()
        obstacle = (
            _check_heights(lease.row, source, head)
            or _find_blocks(lease, source, head)
            or _check_header_properties(lease, connection)
            or _check_proofs(lease, connection, head)
            or _count(work, lease, connection)
        )
        return obstacle or _check_cost(lease.row, work)
    except deployments.Unusable as why:
        return _Postponed(str(why), timezone.now() + timedelta(seconds=10))
    except (NodeUnavailable, RpcRefused) as error:
        logger.warning("batch %s waits: %s", lease.row.pk, error)
        return _Postponed(str(error), None)


def _check_heights(batch: Batch, source: int, head: Header) -> _Postponed | _Refusal | None:
    """Whether the highest of the blocks that are named by their numbers exists by now."""
    named = batch.queries.filter(source_chain_id=source).order_by("-block__number").exclude(block=None)
    highest = named.values_list("block__number", flat=True).first()
    ahead = 0 if highest is None else highest - head.number
    if ahead > settings.MAX_BLOCKS_AHEAD:
        return _Refusal(
            RejectionCode.BLOCK_TOO_FAR_AHEAD,
            f"Block {highest} of chain {source} is {ahead} blocks above the head {head.number}; a batch waits for at "
            f"most {settings.MAX_BLOCKS_AHEAD}. Send it again when the block is nearer.",
            retryable=True,
        )
    if ahead > 0:
        chain = get_chains().chain(source)
        return _Postponed(
            f"Block {highest} of chain {source} does not exist yet; the head is {head.number}.",
            timezone.now() + timedelta(seconds=max(poll_seconds(chain), (ahead - 1) * chain.block_seconds)),
        )
    return None


def _find_blocks(lease: Lease[Batch], source: int, head: Header) -> _Postponed | _Refusal | None:
    """Give the queries that name a time their block, as soon as there is a block after that time."""
    chain = get_chains().chain(source)
    unfound = lease.row.queries.filter(source_chain_id=source, block=None)
    named = unfound.order_by("-timestamp").values_list("timestamp", flat=True).distinct()
    times = [time for time in named if time is not None]
    if not times:
        return None
    ahead = times[0] - head.timestamp
    if ahead > settings.MAX_BLOCKS_AHEAD * chain.block_seconds:
        return _Refusal(
            RejectionCode.TIMESTAMP_TOO_FAR_AHEAD,
            f"The time {times[0]} is {ahead} s after the newest block of chain {source}. Try again when it is near.",
            retryable=True,
        )
    if ahead >= 0:
        return _Postponed(
            f"No block of chain {source} is later than the time {times[0]} yet, so it may still get a later block.",
            timezone.now() + timedelta(seconds=max(poll_seconds(chain), ahead)),
        )
    for time in times:
        number = timestamps.block_at(get_rpc(source), time, head, extend_lease=lease.extend)
        if number is None:
            return _Refusal(
                RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK,
                f"The time {time} is before the first block of chain {source}.",
                False,
            )
        with lease.writing():
            blocks = submission.find_blocks(lease.row.destination_chain_id, {(source, number)})
            unfound.filter(timestamp=time).update(block_id=blocks[source, number])
    return None


def _check_header_properties(lease: Lease[Batch], connection: OpenConnection) -> _Refusal | None:
    """Whether the blocks' headers have the properties that are asked for."""
    source = connection.config.source_id
    asking = lease.row.queries.filter(source_chain_id=source, address="").select_related("block").order_by("position")
    for chunk in chunks(list(asking), _PER_READ):
        numbers = [query.block.number for query in chunk if query.block is not None]
        for query, header in zip(chunk, connection.source_rpc.known_headers(numbers), strict=True):
            if lacking := facts.lacking(header, query.header_fields):
                return _Refusal(
                    RejectionCode.HEADER_PROPERTY_MISSING, facts.why_lacking(source, header, lacking), retryable=False
                )
        lease.extend()
    return None


def _check_proofs(lease: Lease[Batch], connection: OpenConnection, head: Header) -> _Refusal | None:
    """Whether some node still serves proofs at the oldest block that needs them: many keep only the newest states."""
    accounts = lease.row.queries.filter(source_chain_id=connection.config.source_id).exclude(address="")
    oldest = accounts.order_by("block__number").values_list("block__number", "address").first()
    if oldest is None or oldest[0] > head.number - _KEPT_BY_ALL:
        return None
    number, address = oldest
    header = connection.source_rpc.known_header(number)
    (answer,) = connection.source_rpc.proofs([ProofRequest(number, header.hash, address)])
    lease.extend()
    if not isinstance(answer, RpcRefused) or answer.may_pass:
        return None
    return _Refusal(
        RejectionCode.PROOF_UNAVAILABLE,
        f"No node of chain {connection.config.source_id} serves proofs at block {number}. {answer}",
        True,
    )


def _count(work: estimates.Workload, lease: Lease[Batch], connection: OpenConnection) -> _Refusal | None:
    """Count what the registry does not hold yet; refuses blocks that are too far from those that it can trust."""
    batch, contract = lease.row, connection.registry.contract
    ids = batch.queries.filter(source_chain_id=connection.config.source_id).values("block")
    wanting_hash: set[int] = set()
    for blocks in chunks(list(Block.objects.filter(pk__in=ids).order_by("number")), _PER_READ):
        roots = connection.destination_rpc.eth_calls([contract.state_root(block.number) for block in blocks])
        lease.extend()
        for block, root in zip(blocks, roots, strict=True):
            is_known = isinstance(root, bytes) and any(root)
            queries = batch.queries.filter(block=block)
            missing = list(dict.fromkeys(fact for query in queries for fact in facts.of(query)))
            if is_known:
                missing = _not_held(lease, connection, block, missing)
            of_header = [fact for fact in missing if isinstance(fact, HeaderFact | TimeFact)]
            # Without a state root no fact is stored; and fields of a header need the header again, and its hash.
            if missing and (not is_known or of_header):
                # It is the header after it that binds when a block ended.
                wanting_hash.add(block.number + any(isinstance(fact, TimeFact) for fact in missing))
            work.add(missing, header=bool(missing and (not is_known or of_header)))
    try:
        path_gas = planning.estimate(connection, wanting_hash, extend_lease=lease.extend)
    except planning.StatesRefused as refused:
        chain = connection.config.source_id
        return _Refusal(
            RejectionCode.PROOF_UNAVAILABLE,
            f"No node of chain {chain} serves the states that lead to so old a block. {refused}",
            True,
        )
    if isinstance(path_gas, TooFar):
        return _Refusal(RejectionCode.BLOCK_TOO_OLD, path_gas.sentence, retryable=False)
    work.path_gas = path_gas
    return None


def _not_held(
    lease: Lease[Batch], connection: OpenConnection, block: Block, wanted: Sequence[facts.Fact]
) -> list[facts.Fact]:
    """Of facts of one block: those that the registry does not hold yet."""
    missing: list[facts.Fact] = []
    for chunk in chunks(wanted, _PER_READ):
        view = facts.read(connection.destination_rpc, connection.registry.contract, block.number, chunk, at="latest")
        missing += [fact for fact, word in view.facts.items() if word is None]
        lease.extend()
    return missing


def _check_cost(batch: Batch, work: estimates.Workload) -> _Refusal | _Acceptance:
    destination = get_chains().chain(batch.destination_chain_id)
    rpc = get_rpc(destination.id)
    data = rollups.data_cost(rpc, work.data_bytes, work.gas)
    gas = work.gas + data.gas
    fees = rpc.fees()
    # Room for two blocks that raise the base fee: it is signed only where the fee suffices for the next one.
    cost = gas * (fees.base_fee * 5 // 4 + fees.priority_fee) + data.wei
    # Gas may have been dearer than it was estimated at when the first of its source chains was admitted.
    before = max(batch.estimated_wei or 0, promised.caused_by(batch))
    total_gas, total = gas + (batch.estimated_gas or 0), cost + before
    if total > batch.fee and not destination.test_network:
        path = f", {work.path_gas} of it for the path to blocks that are old" if work.path_gas else ""
        beside = f" and {data.wei} wei for its data" if data.wei else ""
        return _Refusal(
            RejectionCode.FEE_TOO_LOW,
            f"Proving this batch is estimated at {total_gas} gas{path}{beside}, {total} wei at a gas price a quarter "
            f"above the present one, which is more than its fee of {batch.fee} wei.",
            retryable=True,
        )
    return _Acceptance(gas, cost)


def _check_limits(batch: Batch, acceptance: _Acceptance) -> _Refusal | None:
    """Whether what the user's batches may cause in a day leaves room for this, too."""
    destination = get_chains().chain(batch.destination_chain_id)
    for limit in _limits(batch, destination):
        needed = limit.needed(acceptance)
        if limit.promised + needed <= limit.most and (needed or limit.promised < limit.most):
            continue
        if needed > limit.most:
            return _Refusal(
                RejectionCode.TOO_LARGE_FOR_BUDGET,
                f"This batch is estimated at {limit.shown(needed)}, and {limit.rule} {limit.shown(limit.most)} in 24 "
                "hours. Send it in parts.",
                retryable=False,
            )
        said = f"; this batch is estimated at {limit.shown(needed)}." if needed else "."
        return _Refusal(
            RejectionCode.BUDGET_EXCEEDED,
            f"{limit.rule[0].upper()}{limit.rule[1:]} {limit.shown(limit.most)} in 24 hours, of which "
            f"{limit.shown(limit.promised)} are used or promised{said}",
            retryable=True,
        )
    return None


@dataclass(frozen=True)
class _DailyLimit:
    rule: str  # the beginning of a sentence
    most: int
    promised: int
    needed: Callable[[_Acceptance], int]
    shown: Callable[[int], str]


def _limits(batch: Batch, destination: Chain) -> Iterator[_DailyLimit]:
    """In gas over all destinations that cost real money, and in the currency of this one."""
    if not destination.test_network:
        costly = [chain.id for chain in get_chains().destinations() if not chain.test_network]
        yield _DailyLimit(
            "a user's batches may use",
            settings.DAILY_GAS_BUDGET,
            promised.to_user(batch.user_id, costly).gas,
            attrgetter("estimated_gas"),
            "{} gas".format,
        )
    if (most := destination.daily_limit_per_user_wei) is not None:
        yield _DailyLimit(
            f"a user's batches may cost, on chain {destination.id},",
            most,
            promised.to_user(batch.user_id, [destination.id]).wei,
            attrgetter("estimated_wei"),
            destination.amount,
        )
    if (most := destination.daily_limit_wei) is not None:
        # What others have used up is waited for.
        yield _DailyLimit(
            f"all batches together may cost, on chain {destination.id},",
            most,
            0,
            attrgetter("estimated_wei"),
            destination.amount,
        )
