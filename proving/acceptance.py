"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it."""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from accounts.models import User
from chains.header import Header
from chains.rpc import NodeUnavailable, RpcRefused
from config.chains import get_chains, get_rpc
from proving import costs, facts, registries, timestamps
from proving.facts import AccountFact, HeaderFact, SlotFact, TimeFact
from proving.heads import poll_seconds
from proving.registries import Deployed
from queries import leases, progress, submission
from queries.leases import Lease
from queries.models import Batch, BatchStatus, Block

logger = logging.getLogger(__name__)

# How far apart the blocks of one batch stand in the queue: a batch that comes later waits for the first few at most.
_PLACE_IN_QUEUE = timedelta(seconds=0.5)


@dataclass(frozen=True)
class _Wait:
    """The batch stays RECEIVED: a sentence, and when to look again."""

    sentence: str
    until: datetime


@dataclass(frozen=True)
class _Refusal:
    code: str
    reason: str
    retryable: bool


@dataclass(frozen=True)
class _Acceptance:
    estimated_gas: int
    estimated_wei: int


def accept(batch_id: object) -> None:
    """Decide about a received batch, or say what the decision waits for."""
    lease = leases.claim(Batch.objects.filter(status=BatchStatus.RECEIVED), batch_id)
    if lease is None:
        return
    batch = lease.row
    try:
        decision = _decide(lease)
        with lease.writing():
            due_at = _record(batch, decision)
        lease.release(due_at)
    except leases.LeaseLost:
        return
    except (NodeUnavailable, RpcRefused) as error:
        _wait_longer(lease, str(error))
    except Exception:
        _wait_longer(lease, "An error of this service, which has been logged.")
        raise


def _record(batch: Batch, decision: _Wait | _Refusal | _Acceptance) -> datetime | None:
    """Write the decision, in the caller's database transaction; returns when to look again."""
    if isinstance(decision, _Acceptance):
        decision = _check_budget(batch, decision)
    match decision:
        case _Wait():
            Batch.objects.filter(pk=batch.pk).update(waiting_for=decision.sentence)
            return decision.until
        case _Refusal():
            progress.reject([batch.pk], code=decision.code, reason=decision.reason, retryable=decision.retryable)
        case _Acceptance():
            progress.accept(batch, estimated_gas=decision.estimated_gas, estimated_wei=decision.estimated_wei)
            now = timezone.now()
            blocks = Block.objects.filter(pk__in=batch.queries.values("block")).order_by("pk")
            blocks.update(due_at=now)
            for place, pk in enumerate(blocks.values_list("pk", flat=True)):
                Block.objects.filter(pk=pk).update(queue_at=now + place * _PLACE_IN_QUEUE)
    return None


def _wait_longer(lease: Lease[Batch], why: str) -> None:
    pause = leases.backoff(lease.row.attempts)
    logger.warning("batch %s waits: %s Next try in %.0f s.", lease.row.pk, why, pause.total_seconds())
    Batch.objects.filter(pk=lease.row.pk, lease_token=lease.token).update(waiting_for=why)
    lease.release(timezone.now() + pause, attempts=lease.row.attempts + 1)


def _decide(lease: Lease[Batch]) -> _Wait | _Refusal | _Acceptance:
    batch = lease.row
    destination = batch.destination_chain_id
    sources = batch.queries.order_by("source_chain_id").values_list("source_chain_id", flat=True).distinct()
    work = costs.Work()
    for source in sources:
        registry = registries.find(destination, source)
        if registry is None:
            return _Wait(
                f"No facts registry is deployed on chain {destination} for chain {source}. The operator must run: "
                f"manage.py deploy_registry {destination} {source}",
                timezone.now() + timedelta(seconds=10),
            )
        head = get_rpc(source).head()
        undecided = (
            _check_heights(batch, source, head)
            or _find_blocks(lease, source, head)
            or _count(work, lease, registry, source, head.number)
        )
        if undecided is not None:
            return undecided
    return _check_cost(batch, work)


def _check_heights(batch: Batch, source: int, head: Header) -> _Wait | _Refusal | None:
    """Whether the highest of the blocks that are named by their numbers exists by now."""
    named = batch.queries.filter(source_chain_id=source).order_by("-block__number").exclude(block=None)
    highest = named.values_list("block__number", flat=True).first()
    ahead = 0 if highest is None else highest - head.number
    if ahead > settings.MAX_BLOCKS_AHEAD:
        return _Refusal(
            "block_too_far_ahead",
            f"Block {highest} of chain {source} is {ahead} blocks above the head {head.number}; a batch waits for at "
            f"most {settings.MAX_BLOCKS_AHEAD}. Send it again when the block is nearer.",
            retryable=True,
        )
    if ahead > 0:
        chain = get_chains().chain(source)
        return _Wait(
            f"Block {highest} of chain {source} does not exist yet; the head is {head.number}.",
            timezone.now() + timedelta(seconds=max(poll_seconds(chain), (ahead - 1) * chain.block_seconds)),
        )
    return None


def _find_blocks(lease: Lease[Batch], source: int, head: Header) -> _Wait | _Refusal | None:
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
            "timestamp_too_far_ahead",
            f"The time {times[0]} is {ahead} s after the newest block of chain {source}. Try again when it is near.",
            retryable=True,
        )
    if ahead >= 0:
        return _Wait(
            f"No block of chain {source} is later than the time {times[0]} yet, so it may still get a later block.",
            timezone.now() + timedelta(seconds=max(poll_seconds(chain), ahead)),
        )
    for time in times:
        number = timestamps.block_at(get_rpc(source), time, head)
        if number is None:
            return _Refusal(
                "timestamp_before_first_block", f"The time {time} is before the first block of chain {source}.", False
            )
        with lease.writing():
            blocks = submission.find_blocks(lease.row.destination_chain_id, {(source, number)})
            unfound.filter(timestamp=time).update(block_id=blocks[source, number])
    return None


def _count(work: costs.Work, lease: Lease[Batch], registry: Deployed, source: int, head: int) -> _Refusal | None:
    """Count what the registry does not hold yet; refuses blocks that are too old to be added."""
    batch = lease.row
    rpc = get_rpc(batch.destination_chain_id)
    ids = batch.queries.filter(source_chain_id=source).values("block")
    blocks = list(Block.objects.filter(pk__in=ids).order_by("number"))
    roots = rpc.eth_calls([registry.contract.state_root(block.number) for block in blocks])
    for block, root in zip(blocks, roots, strict=True):
        is_known = isinstance(root, bytes) and any(root)
        wanted = list(dict.fromkeys(fact for query in batch.queries.filter(block=block) for fact in facts.of(query)))
        missing: Collection[facts.Fact] = wanted
        if is_known:
            view = facts.read(rpc, registry.contract, block.number, wanted, at="latest")
            missing = [fact for fact, word in view.facts.items() if word is None]
            lease.extend()
        of_header = [fact for fact in missing if isinstance(fact, HeaderFact | TimeFact)]
        # Without a state root no fact is stored; and fields of a header need the header again, and its hash.
        if (not is_known or of_header) and (reason := registries.too_old(block, head)) is not None:
            return _Refusal("block_too_old", reason, retryable=False)
        work.headers += bool(missing) and bool(not is_known or of_header)
        work.header_fields += sum(isinstance(fact, HeaderFact) for fact in missing)
        work.times += sum(isinstance(fact, TimeFact) for fact in missing)
        with_slots = {fact.address for fact in missing if isinstance(fact, SlotFact)}
        work.first_slots += len(with_slots)
        work.slots += sum(isinstance(fact, SlotFact) for fact in missing) - len(with_slots)
        work.accounts += len({fact.address for fact in missing if isinstance(fact, AccountFact | SlotFact)})
    return None


def _check_cost(batch: Batch, work: costs.Work) -> _Refusal | _Acceptance:
    destination = get_chains().chain(batch.destination_chain_id)
    gas = work.estimate_gas()
    fees = get_rpc(destination.id).fees()
    cost = gas * (fees.base_fee + fees.priority_fee)
    if cost > batch.fee and not destination.test_network:
        return _Refusal(
            "fee_too_low",
            f"Proving this batch is estimated at {gas} gas, {cost} wei at the present gas price, which is more than "
            f"its fee of {batch.fee} wei.",
            retryable=True,
        )
    return _Acceptance(gas, cost)


def _check_budget(batch: Batch, acceptance: _Acceptance) -> _Refusal | _Acceptance:
    """Inside the database transaction that accepts, and one at a time for each user: two can't spend the same rest."""
    if get_chains().chain(batch.destination_chain_id).test_network:
        return acceptance
    User.objects.select_for_update().get(pk=batch.user_id)
    spent = costs.gas_in_last_day(batch.user_id)
    if spent + acceptance.estimated_gas <= settings.DAILY_GAS_BUDGET:
        return acceptance
    return _Refusal(
        "budget_exceeded",
        f"A user's batches may use {settings.DAILY_GAS_BUDGET} gas in 24 hours, of which {spent} are used or promised; "
        f"this batch is estimated at {acceptance.estimated_gas} gas.",
        retryable=True,
    )
