"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from accounts.models import User
from chains.rpc import NodeUnavailable, RpcRefused
from config.chains import get_chains, get_rpc
from proving import costs, facts, registries
from proving.heads import poll_seconds
from proving.registries import Deployed
from queries import leases, progress
from queries.leases import Lease
from queries.models import Batch, BatchStatus, Block, Query

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
    blocks = list(Block.objects.filter(pk__in=batch.queries.values("block")).order_by("source_chain_id", "number"))
    sources = {block.source_chain_id for block in blocks}
    deployed = {source: registries.find(batch.destination_chain_id, source) for source in sources}
    for source, registry in deployed.items():
        if registry is None:
            return _Wait(
                f"No facts registry is deployed on chain {batch.destination_chain_id} for chain {source}. The operator "
                f"must run: manage.py deploy_registry {batch.destination_chain_id} {source}",
                timezone.now() + timedelta(seconds=10),
            )
    missing = _Missing()
    for source, registry in deployed.items():
        assert registry is not None, "checked just now"
        of_source = [block for block in blocks if block.source_chain_id == source]
        undecided = _check_heights(source, of_source) or missing.count(lease, registry, of_source)
        if undecided is not None:
            return undecided
    return _check_cost(batch, missing)


def _check_heights(source: int, blocks: list[Block]) -> _Wait | _Refusal | None:
    """Whether the blocks, in the order of their numbers, exist by now."""
    chain = get_chains().chain(source)
    head, highest = get_rpc(source).head().number, blocks[-1].number
    ahead = highest - head
    if ahead > settings.MAX_BLOCKS_AHEAD:
        return _Refusal(
            "block_too_far_ahead",
            f"Block {highest} of chain {source} is {ahead} blocks above the head {head}; a batch waits for at most "
            f"{settings.MAX_BLOCKS_AHEAD}. Send it again when the block is nearer.",
            retryable=True,
        )
    if ahead > 0:
        return _Wait(
            f"Block {highest} of chain {source} does not exist yet; the head is {head}.",
            timezone.now() + timedelta(seconds=max(poll_seconds(chain), (ahead - 1) * chain.block_seconds)),
        )
    return None


@dataclass
class _Missing:
    """What the registries don't hold yet of a batch."""

    headers: int = 0
    accounts: int = 0

    def count(self, lease: Lease[Batch], registry: Deployed, blocks: list[Block]) -> _Refusal | None:
        """Count what is missing of blocks of one source chain; refuses those that are too old to be added."""
        source, destination = blocks[0].source_chain_id, blocks[0].destination_chain_id
        rpc = get_rpc(destination)
        head = get_rpc(source).head().number
        calls = [registry.contract.state_root(block.number) for block in blocks]
        for block, root in zip(blocks, rpc.eth_calls(calls), strict=True):
            queries = Query.objects.filter(batch=lease.row, block=block)
            if isinstance(root, bytes) and any(root):
                wanted = [(query.address, field) for query in queries for field in query.account_fields]
                view = facts.read(rpc, registry.contract, block.number, wanted, at="latest")
                self.accounts += len({address for (address, _), word in view.facts.items() if word is None})
                lease.extend()
            elif (reason := registries.too_old(block, head)) is not None:
                return _Refusal("block_too_old", reason, retryable=False)
            else:
                # Facts are only stored below a state root: without it there is none.
                self.headers += 1
                self.accounts += queries.values("address").distinct().count()
        return None


def _check_cost(batch: Batch, missing: _Missing) -> _Refusal | _Acceptance:
    destination = get_chains().chain(batch.destination_chain_id)
    gas = costs.estimate_gas(headers=missing.headers, accounts=missing.accounts)
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
