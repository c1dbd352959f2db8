"""RECEIVED -> ACCEPTED or REJECTED: checks a request against the chains before anything is spent on it."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from chains.rpc import NodeUnavailable, RpcRefused
from config.chains import get_chains, get_rpc
from proving import costs, facts, registries
from proving.heads import poll_seconds
from queries import leases, progress
from queries.leases import Lease
from queries.models import Batch, BatchStatus, Block, Query

logger = logging.getLogger(__name__)


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
        decision = _decide(batch)
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
    """Write the decision; returns when to look again."""
    match decision:
        case _Wait():
            Batch.objects.filter(pk=batch.pk).update(waiting_for=decision.sentence)
            return decision.until
        case _Refusal():
            progress.reject([batch.pk], code=decision.code, reason=decision.reason, retryable=decision.retryable)
        case _Acceptance():
            progress.accept(batch, estimated_gas=decision.estimated_gas, estimated_wei=decision.estimated_wei)
            Block.objects.filter(pk__in=batch.queries.values("block")).update(due_at=timezone.now())
    return None


def _wait_longer(lease: Lease[Batch], why: str) -> None:
    pause = leases.backoff(lease.row.attempts)
    logger.warning("batch %s waits: %s Next try in %.0f s.", lease.row.pk, why, pause.total_seconds())
    Batch.objects.filter(pk=lease.row.pk, lease_token=lease.token).update(waiting_for=why)
    lease.release(timezone.now() + pause, attempts=lease.row.attempts + 1)


def _decide(batch: Batch) -> _Wait | _Refusal | _Acceptance:
    blocks = list(Block.objects.filter(pk__in=batch.queries.values("block")).order_by("source_chain_id", "number"))
    for undecided in _check_blocks(batch, blocks):
        return undecided
    return _check_cost(batch, blocks)


def _check_blocks(batch: Batch, blocks: list[Block]) -> Iterator[_Wait | _Refusal]:
    """What keeps the batch from being accepted, if anything does: a refusal first, then a wait."""
    heads = {source: get_rpc(source).head().number for source in {block.source_chain_id for block in blocks}}
    waits = []
    for block in blocks:
        chain = get_chains().chain(block.source_chain_id)
        head = heads[chain.id]
        ahead = block.number - head
        if ahead > settings.MAX_BLOCKS_AHEAD:
            yield _Refusal(
                "block_too_far_ahead",
                f"Block {block.number} of chain {chain.id} is {ahead} blocks above the head {head}; a batch waits for "
                f"at most {settings.MAX_BLOCKS_AHEAD}. Send it again when the block is nearer.",
                retryable=True,
            )
        registry = registries.find(batch.destination_chain_id, chain.id)
        if registry is None:
            waits.append(
                _Wait(
                    f"No facts registry is deployed on chain {batch.destination_chain_id} for chain {chain.id}. The "
                    f"operator must run: manage.py deploy_registry {batch.destination_chain_id} {chain.id}",
                    timezone.now() + timedelta(seconds=10),
                )
            )
        elif ahead > 0:
            waits.append(
                _Wait(
                    f"Block {block.number} of chain {chain.id} does not exist yet; the head is {head}.",
                    timezone.now() + timedelta(seconds=max(poll_seconds(chain), (ahead - 1) * chain.block_seconds)),
                )
            )
        elif (refusal := registries.too_old(registry, block, head)) is not None:
            yield _Refusal("block_too_old", refusal, retryable=False)
    yield from waits


def _check_cost(batch: Batch, blocks: list[Block]) -> _Refusal | _Acceptance:
    destination = get_chains().chain(batch.destination_chain_id)
    estimate = _estimate(batch, blocks)
    fees = get_rpc(destination.id).fees()
    cost = estimate * (fees.base_fee + fees.priority_fee)
    if destination.test_network:
        return _Acceptance(estimate, cost)
    if cost > batch.fee:
        return _Refusal(
            "fee_too_low",
            f"Proving this batch is estimated at {estimate} gas, {cost} wei at the present gas price, which is more "
            f"than its fee of {batch.fee} wei.",
            retryable=True,
        )
    spent = costs.gas_in_last_day(batch.api_key)
    if spent + estimate > settings.DAILY_GAS_BUDGET:
        return _Refusal(
            "budget_exceeded",
            f"This key may use {settings.DAILY_GAS_BUDGET} gas in 24 hours, of which {spent} are used; this batch is "
            f"estimated at {estimate} gas.",
            retryable=True,
        )
    return _Acceptance(estimate, cost)


def _estimate(batch: Batch, blocks: list[Block]) -> int:
    """Gas for what the registries don't hold yet."""
    rpc = get_rpc(batch.destination_chain_id)
    headers = accounts = 0
    for block in blocks:
        registry = registries.find(batch.destination_chain_id, block.source_chain_id)
        assert registry is not None, "checked before"
        queries = Query.objects.filter(batch=batch, block=block)
        wanted = [(query.address, field) for query in queries for field in query.account_fields]
        view = facts.read(rpc, registry.contract, block.number, wanted, at="latest")
        missing = Counter(address for (address, _), word in view.facts.items() if word is None)
        accounts += len(missing)
        headers += bool(missing) and not any(view.state_root)
    return costs.estimate_gas(headers=headers, accounts=accounts)
