"""Gets a transaction mined that isn't: broadcast again, replaced with higher fees, or cancelled by an empty one."""

import logging
from datetime import datetime, timedelta

from django.utils import timezone

from chains.chains_file import Chain
from chains.rpc import Block as BlockName
from chains.rpc import Reverted, RpcClient
from proving.models import SignedTransaction, Signer, Transaction, TransactionState
from proving.spending import limits
from proving.transactions.fees import OfferedFees, market_fees
from proving.transactions.intents import Stopped
from proving.transactions.purpose import is_wanted, show
from proving.transactions.signing import broadcast, sender, sign
from proving.transactions.stop_switch import why_stopped
from queries.leases import Lease

logger = logging.getLogger(__name__)

# Nodes replace a pending transaction only if both fees rise by at least 10 %.
RISE_PERCENT = 113
# Fees rise above the market while a transaction waits, but not without end.
_MAX_TIMES_MARKET = 3


def push(chain: Chain, rpc: RpcClient, lease: Lease[Signer], tx: Transaction, *, may_raise: bool) -> None:
    """Get a transaction mined that isn't: broadcast it, again, or empty, or with higher fees.

    Only the lowest open nonce's fees are raised: the others wait for it, whatever they offer.
    """
    newest = tx.newest
    if why_stopped(chain.id):
        return
    if not _holds_key(chain, lease.row):
        pass  # The key of the configuration was exchanged: the stored bytes are all there is.
    elif not newest.is_empty and not is_wanted(tx):
        newest = _replace(chain, rpc, lease, tx, newest, empty=True)
    elif may_raise and _is_past(newest.created_at, _patience(chain)):
        newest = _replace(chain, rpc, lease, tx, newest, empty=newest.is_empty or _reverts(rpc, lease.row, tx))
        if not newest.is_empty and _is_stuck(chain, rpc, lease.row, tx, newest):
            newest = _replace(chain, rpc, lease, tx, newest, empty=True)
    resend_after = timedelta(seconds=max(chain.block_seconds, 5))
    if newest.broadcast_at is None or _is_past(newest.broadcast_at, resend_after):
        broadcast(rpc, newest)


def _is_stuck(chain: Chain, rpc: RpcClient, signer: Signer, tx: Transaction, newest: SignedTransaction) -> bool:
    """Whether its batches' money allows no fee by which it would be mined now, while others wait behind it."""
    fees = market_fees(rpc)
    behind = signer.transactions.filter(state=TransactionState.PENDING, nonce__gt=tx.nonce)
    return (
        newest.max_fee_per_gas < fees.base_and_tip <= chain.max_fee_per_gas
        and _most_for_replacement(chain, tx) < fees.base_and_tip
        and behind.exists()
    )


def _is_past(moment: datetime, pause: timedelta) -> bool:
    # A moment that lies ahead is that of a clock that was ahead: it must not be waited for.
    return abs(timezone.now() - moment) > pause


def _holds_key(chain: Chain, signer: Signer) -> bool:
    return sender(chain) == signer.address


def _patience(chain: Chain) -> timedelta:
    """How long a version may wait in the mempool before its fees are raised."""
    return timedelta(seconds=max(15, 4 * chain.block_seconds))


def _reverts(rpc: RpcClient, signer: Signer, tx: Transaction) -> bool:
    """Upon the newest block, and upon the pending one, in which it may be itself: a change of attesters can't be twice.

    The pending one is asked too because it alone vouches for the head.
    """
    blocks: tuple[BlockName, ...] = ("latest", "pending")
    for block in blocks:
        try:
            rpc.estimate_gas(signer.address, tx.to or None, bytes(tx.data), block)
        except Reverted:
            continue
        return False
    return True


def _replace(
    chain: Chain, rpc: RpcClient, lease: Lease[Signer], tx: Transaction, newest: SignedTransaction, *, empty: bool
) -> SignedTransaction:
    """A new version under the same nonce with fees that nodes take for a replacement, where the limits leave room."""
    market = market_fees(rpc).offer
    limit = min(chain.max_fee_per_gas, _MAX_TIMES_MARKET * market.max_fee_per_gas)
    # An empty one is small, and without it the nonce stays open: it may go above what a proof may cost.
    limit = max(2 * chain.max_fee_per_gas, limit) if empty else min(limit, _most_for_replacement(chain, tx))
    required = OfferedFees(
        newest.max_fee_per_gas * RISE_PERCENT // 100 + 1, newest.max_priority_fee_per_gas * RISE_PERCENT // 100 + 1
    )
    priority = max(market.max_priority_fee_per_gas, required.max_priority_fee_per_gas)
    highest = min(limit, max(market.max_fee_per_gas, required.max_fee_per_gas, priority))
    if highest < max(required.max_fee_per_gas, required.max_priority_fee_per_gas):
        return newest
    with lease.writing():
        try:
            version = sign(chain, tx, OfferedFees(highest, min(priority, highest)), empty=empty)
        except Stopped:
            return newest
        limits.share(Transaction.objects.defer("data").get(pk=tx.pk))
        show(tx, version.hash)
    if empty and not newest.is_empty:
        logger.info("%s is no longer wanted: replaced by an empty transaction", newest.hash)
    return version


def _most_for_replacement(chain: Chain, tx: Transaction) -> int:
    """In wei for a unit of gas. What was spent since the transaction was stored leaves less for it."""
    queries = list(tx.queries.values_list("pk", flat=True))
    rest = limits.rest_of(chain, queries, with_ways=tx.extends_id is not None)
    (bounds,) = limits.for_each(chain, [tx], rest)
    prices = [limit.price for limit in bounds]
    if chain.daily_limit_wei is not None:
        others = limits.promised_on(chain.id) - tx.cost
        prices.append(max(0, chain.daily_limit_wei - others - tx.data_fee) // tx.gas_limit)
    return min(prices, default=chain.max_fee_per_gas)
