"""Gets a transaction mined that isn't: broadcast again, replaced with higher fees, or cancelled."""

import logging
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef
from django.utils import timezone

from chains import rollups
from chains.chains_file import Chain
from chains.rpc import BlockIdentifier, Reverted, RpcClient
from proving import stops
from proving.budget import cost_allocation, limits, reservations
from proving.budget.limits import Limit, Rest
from proving.lanes import HeldLane
from proving.models import (
    CANCELLATION_GAS,
    FactsRegistry,
    SignedTransaction,
    Signer,
    Transaction,
    TransactionState,
)
from proving.transactions import signers
from proving.transactions.fees import OfferedFees, market_fees
from proving.transactions.intents import Refused, is_wanted, show
from proving.transactions.signing import broadcast, senders, sign
from queries import progress
from queries.models import OPEN_STATUSES, Batch, Block, Query, Sender

logger = logging.getLogger(__name__)

# A version is broadcast again after a block, and not before.
_MIN_RESEND_SECONDS = 5

# Nodes replace a pending transaction only if both fees rise by at least 10 %.
RISE_PERCENT = 113
# Of the estimate of a cancellation's gas, where that depends on the present price of data.
_GAS_MARGIN = 1.5
# Fees rise above the market while a transaction waits, but not without end.
_MAX_TIMES_MARKET = 3


def push(chain: Chain, rpc: RpcClient, lane: HeldLane, tx: Transaction, *, may_raise: bool) -> None:
    """Get a transaction mined that isn't: broadcast it again, replace it with higher fees, or cancel it.

    Only the lowest open nonce's fees are raised: the others wait for it, whatever they offer.
    """
    newest, signer = tx.newest, tx.signer
    if stops.why_not_signed(tx, is_new=False):
        return
    if not _holds_key(chain, signer):
        pass  # The configuration names its key no more: the stored bytes are all there is.
    elif not newest.is_cancellation and not (newest.raw and is_wanted(tx)):
        newest = _replace(chain, rpc, lane, tx, newest, cancel=True)
    elif may_raise and _is_past(newest.created_at, _patience(chain)):
        newest = _replace(chain, rpc, lane, tx, newest, cancel=newest.is_cancellation or _reverts(rpc, signer, tx))
        if not newest.is_cancellation and _is_stuck(chain, rpc, signer, tx, newest):
            newest = _replace(chain, rpc, lane, tx, newest, cancel=True)
    resend_after = timedelta(seconds=max(chain.block_seconds, _MIN_RESEND_SECONDS))
    if newest.broadcast_at is None or _is_past(newest.broadcast_at, resend_after):
        broadcast(rpc, [newest])


def _is_stuck(chain: Chain, rpc: RpcClient, signer: Signer, tx: Transaction, newest: SignedTransaction) -> bool:
    """Return whether its batches' money allows no replacement that would be mined now, while others wait for it.

    Others may be batches of its own that could pay, and share it with one that can't.
    """
    fees = market_fees(rpc)
    if not newest.max_fee_per_gas < fees.base_and_tip <= chain.max_fee_per_gas:
        return False
    needed = max(fees.base_and_tip, _raised(newest.max_fee_per_gas))
    bounds = _limits(chain, tx, _rest_beside(chain, tx))
    if _left_today(chain, tx) < needed:
        return _holds_up_others(signer, tx)
    too_low = [limit.batches for limit in bounds if limit.price < needed]
    return bool(too_low) and _holds_up_others(signer, tx, poor=frozenset[str]().union(*too_low))


def _holds_up_others(signer: Signer, tx: Transaction, poor: Collection[str] | None = None) -> bool:
    """Return whether nonces are behind it, or others wait for the header that it brings or for the registry's trust.

    Its own batches count as others too if only those of `poor` can't pay.
    """
    if signer.transactions.filter(state=TransactionState.PENDING, nonce__gt=tx.nonce).exists():
        return True
    blocks = Block.objects.filter(queries__transactions=tx)
    if tx.extends_id is not None:
        blocks = Block.objects.filter(
            Exists(
                FactsRegistry.objects.filter(
                    pk=tx.extends_id,
                    destination_chain_id=OuterRef("destination_chain_id"),
                    source_chain_id=OuterRef("source_chain_id"),
                )
            )
        )
    paying = Batch.objects.filter(queries__transactions=tx) if poor is None else poor
    # A self-funded batch waits for nothing of ours: to cancel for it would cost money.
    waiting = Query.objects.filter(
        block__in=blocks,
        is_admitted=True,
        step__isnull=False,
        batch__status__in=OPEN_STATUSES,
        batch__sender=Sender.OPERATOR,
    )
    return waiting.exclude(batch__in=paying).exists()


def _raised(fee: int) -> int:
    """Return the least that nodes take instead of a fee (wei per gas)."""
    return fee * RISE_PERCENT // 100 + 1


def _is_past(moment: datetime, pause: timedelta) -> bool:
    # A moment that lies ahead is that of a clock that was ahead: it must not be waited for.
    return abs(timezone.now() - moment) > pause


def _holds_key(chain: Chain, signer: Signer) -> bool:
    return signer.address in senders(chain)


def _patience(chain: Chain) -> timedelta:
    """Return how long a version may wait in the mempool before its fees are raised."""
    return timedelta(seconds=max(15, 4 * chain.block_seconds))


def _reverts(rpc: RpcClient, signer: Signer, tx: Transaction) -> bool:
    """Return whether it reverts upon the newest block, and upon the pending one too.

    The pending block may hold the transaction itself: a change of attesters can't be made twice. It is asked because it
    alone vouches for the head.
    """
    blocks: tuple[BlockIdentifier, ...] = ("latest", "pending")
    for block in blocks:
        try:
            rpc.estimate_gas(signer.address, tx.to or None, bytes(tx.data), block)
        except Reverted:
            continue
        return False
    return True


def _replace(
    chain: Chain, rpc: RpcClient, lane: HeldLane, tx: Transaction, newest: SignedTransaction, *, cancel: bool
) -> SignedTransaction:
    """Sign a new version under the same nonce, with fees that nodes take for a replacement, if limits leave room."""
    market = market_fees(rpc).offer
    cancel_with = _cancellation_gas(rpc, tx.signer, newest) if cancel else None
    market_limit = min(chain.max_fee_per_gas, _MAX_TIMES_MARKET * market.max_fee_per_gas)
    if cancel_with is None:
        _ask_data_fee_again(rpc, tx)
    rest = {} if cancel else _rest_beside(chain, tx)
    required = OfferedFees(_raised(newest.max_fee_per_gas), _raised(newest.max_priority_fee_per_gas))
    priority = max(market.max_priority_fee_per_gas, required.max_priority_fee_per_gas)
    # Inside, because others send meanwhile, within the same limits.
    with signers.locked(chain), lane.writing():
        if cancel_with is None:
            limit = min(market_limit, _most_for_replacement(chain, tx, rest))
        else:
            limit = _most_for_cancellation(
                chain, cancel_with, reservations.on_chain(chain.id) - tx.reserved + tx.data_fee
            )
        highest = min(limit, max(market.max_fee_per_gas, required.max_fee_per_gas, priority))
        if highest < max(required.max_fee_per_gas, required.max_priority_fee_per_gas):
            return newest
        version = sign(chain, tx, OfferedFees(highest, min(priority, highest)), cancel_with=cancel_with)
        if isinstance(version, Refused):
            return newest
        # What is raised is what was found dearer; a cancellation carries none of it.
        Transaction.objects.filter(pk=tx.pk).update(data_fee=tx.data_fee, expected_data_fee=tx.expected_data_fee)
        cost_allocation.divide(cost_allocation.weights_of(Transaction.objects.defer("data").get(pk=tx.pk)))
        progress.lock_batches(tx.queries.values_list("pk", flat=True))
        show(tx, version.hash)
    if cancel and not newest.is_cancellation:
        logger.info("%s is no longer wanted: cancelled", newest.hash)
    return version


def fill(chain: Chain, rpc: RpcClient, lane: HeldLane, signer: Signer, *, nonce: int, now: datetime) -> None:
    """Use up a nonce that no stored transaction has, if the daily limit leaves room: what is behind it waits for it."""
    if stops.why_signer_is_stopped(chain.id, signer.address) or not _holds_key(chain, signer):
        return
    market = market_fees(rpc).offer
    gas = _cancellation_gas(rpc, signer)
    with signers.locked(chain), lane.writing():
        limit = _most_for_cancellation(chain, gas, reservations.on_chain(chain.id))
        if limit < market.max_priority_fee_per_gas or signer.transactions.filter(nonce=nonce).exists():
            return
        tx = Transaction.objects.create(
            signer=signer, nonce=nonce, to=signer.address, data=b"", gas_limit=gas, created_at=now, spent_at=now
        )
        version = sign(chain, tx, market.at_most(limit), cancel_with=gas)
        if isinstance(version, Refused):
            tx.delete()
            return
    broadcast(rpc, [version])


def _cancellation_gas(rpc: RpcClient, signer: Signer, newest: SignedTransaction | None = None) -> int:
    """Return the gas that it takes to do nothing: more on some rollups, because the data's gas is a part of it."""
    least = newest.gas if newest and newest.is_cancellation else CANCELLATION_GAS
    estimate = rpc.estimate_gas(signer.address, signer.address, b"")
    # Where data has become dearer since, the one before may be refused for ever.
    return max(least, int(estimate * _GAS_MARGIN) if estimate > CANCELLATION_GAS else estimate)


def _most_for_cancellation(chain: Chain, gas: int, others: int) -> int:
    """Return the most to pay in wei per gas: one raise above the chain's cap, within its daily limit beside `others`.

    It may cost more than the fee and the user's limit leave: until the nonce is used nobody's transactions are mined.
    """
    most = _raised(chain.max_fee_per_gas)
    if chain.daily_limit_wei is None:
        return most
    return min(most, max(0, chain.daily_limit_wei - others) // gas)


def _ask_data_fee_again(rpc: RpcClient, tx: Transaction) -> None:
    """Raise the data fee if data has become dearer on the chain below. The row is written later."""
    now = rollups.data_cost(rpc, len(bytes(tx.data)), tx.gas_limit).wei
    tx.data_fee = tx.expected_data_fee = max(tx.data_fee, now)


def _rest_beside(chain: Chain, tx: Transaction) -> Rest:
    queries = list(tx.queries.values_list("pk", flat=True))
    return limits.rest_of(chain, queries, with_paths=tx.extends_id is not None)


def _most_for_replacement(chain: Chain, tx: Transaction, rest: Rest) -> int:
    """Return the most to pay in wei per gas. What was spent since the transaction was stored leaves less for it."""
    return min([_left_today(chain, tx), *(limit.price for limit in _limits(chain, tx, rest))])


def _limits(chain: Chain, tx: Transaction, rest: Rest) -> list[Limit]:
    (bounds,) = limits.for_each(chain, cost_allocation.weights_of(tx), rest)
    return bounds


def _left_today(chain: Chain, tx: Transaction) -> int:
    """Return what the chain's cap and its daily limit leave, in wei per gas."""
    if chain.daily_limit_wei is None:
        return chain.max_fee_per_gas
    others = reservations.on_chain(chain.id) - tx.reserved
    return min(chain.max_fee_per_gas, max(0, chain.daily_limit_wei - others - tx.data_fee) // tx.gas_limit)
