"""Repeated broadcasts, replacements and cancellations of pending transactions, until they are mined."""

import logging
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from chains import rollups
from chains.chains_file import Chain
from chains.node_errors import Reverted
from chains.questions import BlockIdentifier
from chains.rpc import RpcClient
from proving import lanes, money, stops
from proving.lanes import ChainEvent, HeldLane
from proving.models import (
    CANCELLATION_GAS,
    SignedTransaction,
    Signer,
    Transaction,
    TransactionState,
    proves_facts,
)
from proving.money import RISE_PERCENT, OfferedFees, market_fees
from proving.transactions import signers, signing
from proving.transactions.signers import Unsent
from proving.transactions.signing import is_to_unused_registry
from queries.models import ADMITTED_STATUSES, BatchStatus, Block, Query, Sender

logger = logging.getLogger(__name__)

# A version is broadcast again after a block, but not within this time.
_MIN_RESEND_SECONDS = 5

# Factor on a cancellation's estimated gas if the current price of data affects the estimate.
_GAS_MARGIN = 1.5
# Maximum multiple of the market's fees to which the fees of a waiting transaction rise.
_MAX_TIMES_MARKET = 3


def push(chain: Chain, rpc: RpcClient, lane: HeldLane, tx: Transaction, *, may_raise: bool) -> None:
    """Get a pending transaction mined: broadcast it again, replace it with higher fees, or cancel it.

    Fees are raised only for the lowest open nonce, because all later nonces wait for it. A displaced transaction with
    an open nonce is only cancelled, and only after its facts were sent again, because nodes may still hold it.
    """
    newest, signer = tx.newest, tx.signer
    if not newest.hash or stops.why_not_signed(tx, is_new=False):
        return
    if not holds_key(chain, signer):
        pass  # chains.toml no longer has the key, so only stored bytes can be sent.
    elif not all(version.hash for version in tx.versions.all()):
        pass  # The next turn signs the version that a stop left unsigned.
    # Pruned bytes can't be broadcast again. Then only a cancellation uses up the nonce.
    elif not newest.is_cancellation and not (newest.raw and is_wanted(tx)):
        newest = _replace(chain, rpc, lane, tx, newest, cancel=True)
    elif may_raise and is_past(newest.created_at, patience(chain)):
        newest = _replace(chain, rpc, lane, tx, newest, cancel=newest.is_cancellation or _reverts(rpc, signer, tx))
    if tx.state == TransactionState.DISPLACED and (newest.broadcast_at or not newest.is_cancellation):
        return
    resend_after = timedelta(seconds=max(chain.block_seconds, _MIN_RESEND_SECONDS))
    if newest.broadcast_at is None or is_past(newest.broadcast_at, resend_after):
        signing.broadcast(rpc, [newest])


def is_wanted(tx: Transaction) -> bool:
    """Return whether a batch still needs the transaction's facts. A DONE batch does, because the chain may lose them.

    Nobody needs facts in a registry that is no longer used. DONE batches are reopened and proven to the new registry.
    """
    if is_to_unused_registry(tx):
        return False
    is_proof = tx.queries.exists()
    needing = tx.queries.exclude(batch__status=BatchStatus.REJECTED)
    if is_proof and (tx.extends_id is None or tx.state == TransactionState.DISPLACED):
        # If a node called a transaction displaced, its facts were sent again. If both are mined, they are paid twice.
        does_the_same = Q(extends=tx.extends_id) if tx.extends_id else proves_facts("queries__block")
        anew = Transaction.objects.filter(does_the_same, queries=OuterRef("pk"), pk__gt=tx.pk)
        is_sent_anew = Exists(anew.exclude(state=TransactionState.DISPLACED).exclude(succeeded=False))
        needing = needing.filter(Q(pk__in=tx.continued.values("pk")) | ~is_sent_anew)
    return not is_proof or needing.exists() or _carries_header_of_others(tx)


def _carries_header_of_others(tx: Transaction) -> bool:
    """Return whether a later pending transaction would revert without a header of this one, which no other carries."""
    carried = tx.accumulates.all()
    later = Transaction.objects.filter(pk__gt=tx.pk, signer__chain_id=tx.signer.chain_id)
    anew = later.exclude(state=TransactionState.DISPLACED).exclude(succeeded=False).filter(accumulates__in=carried)
    below = later.filter(state=TransactionState.PENDING, queries__block__in=carried).exclude(accumulates__in=carried)
    return below.exists() and not anew.exists()


def _raised(fee: int) -> int:
    """Return the lowest fee, in wei per gas, that nodes accept for a replacement of a transaction with this fee."""
    return fee * RISE_PERCENT // 100 + 1


def is_past(moment: datetime, pause: timedelta) -> bool:
    """Return whether the time is longer ago than the pause."""
    # A time in the future was stored while a clock was ahead. Nothing may wait for it.
    return abs(timezone.now() - moment) > pause


def holds_key(chain: Chain, signer: Signer) -> bool:
    """Return whether the configuration has the signer's key."""
    return signer.address in signing.senders(chain)


def patience(chain: Chain) -> timedelta:
    """Return how long a version may wait in the mempool before its fees are raised."""
    return timedelta(seconds=max(15, 4 * chain.block_seconds))


def _reverts(rpc: RpcClient, signer: Signer, tx: Transaction) -> bool:
    """Return whether the transaction reverts on the newest block, and on the pending one too.

    It may revert only on the pending block, if that contains the transaction itself and it can't run twice. It may
    revert only on the newest block, if only the pending block vouches for the head.
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
    """Store a new version with the same nonce and with fees that nodes accept for a replacement, within the limits.

    Cancel the transaction if its batches' money or the daily limit is too low for higher fees and others wait for it.
    Return the version to broadcast.
    """
    market = market_fees(rpc)
    gas = _cancellation_gas(rpc, tx.signer, newest)
    if not cancel:
        _ask_data_fee_again(rpc, tx)
    required = OfferedFees(_raised(newest.max_fee_per_gas), _raised(newest.max_priority_fee_per_gas))
    priority = max(market.offer.max_priority_fee_per_gas, required.max_priority_fee_per_gas)
    offer = OfferedFees(max(market.offer.max_fee_per_gas, required.max_fee_per_gas, priority), priority)
    raised = offer.at_most(_MAX_TIMES_MARKET * market.offer.max_fee_per_gas)
    least = max(required.max_fee_per_gas, required.max_priority_fee_per_gas)
    tx.refresh_from_db(fields=["versions"])
    # The lock is needed because other workers may send within the same limits.
    with signers.locked(chain), lane.writing():
        portions = money.weights_of(tx)[tx]
        if not cancel:
            may_rise = least <= raised.max_fee_per_gas
            version = signing.reserve_version(chain, tx, raised, portions, least=least) if may_rise else None
            is_stuck = newest.max_fee_per_gas < market.base_and_tip <= chain.max_fee_per_gas
            cancel = isinstance(version, Unsent) and is_stuck and _others_wait(tx, version.batches or portions)
        if cancel:
            version = signing.reserve_cancellation(chain, tx, offer, portions, least=least, gas=gas)
        if isinstance(version, SignedTransaction):
            is_first = cancel and not newest.is_cancellation
            lanes.count(chain.id, ChainEvent.CANCELLED if is_first else ChainEvent.REPLACED)
    if not isinstance(version, SignedTransaction):
        return newest
    signing.sign_and_store(chain, lane, [version])
    if cancel and not newest.is_cancellation:
        logger.info("%s is no longer wanted, or can't be paid for: cancelled", newest.hash)
    return version


def _others_wait(tx: Transaction, poor: Collection[str]) -> bool:
    """Return whether later nonces, or batches outside of `poor`, wait for the transaction, its header or its path."""
    if tx.signer.transactions.filter(state=TransactionState.PENDING, nonce__gt=tx.nonce).exists():
        return True
    blocks = Block.objects.filter(queries__transactions=tx)
    if tx.extends is not None:
        chains = {
            "destination_chain_id": tx.extends.destination_chain_id,
            "source_chain_id": tx.extends.source_chain_id,
        }
        blocks = Block.objects.filter(**chains)
    # Self-funded batches don't wait for the operator's transactions, so they don't justify a paid cancellation.
    waiting = Query.objects.filter(
        block__in=blocks,
        step__isnull=False,
        batch__status__in=ADMITTED_STATUSES,
        batch__sender=Sender.OPERATOR,
    )
    return waiting.exclude(batch__in=poor).exists()


def fill(chain: Chain, rpc: RpcClient, lane: HeldLane, signer: Signer, *, nonce: int, now: datetime) -> None:
    """Use up a nonce that no stored transaction has, within the daily limit, because later nonces wait for it."""
    if stops.why_signer_is_stopped(chain.id, signer.address) or not holds_key(chain, signer):
        return
    market = market_fees(rpc).offer
    gas = _cancellation_gas(rpc, signer)
    with signers.locked(chain), lane.writing():
        if signer.transactions.filter(nonce=nonce).exists():
            return
        tx = Transaction.objects.create(
            signer=signer, nonce=nonce, to=signer.address, data=b"", gas_limit=gas, created_at=now, spent_at=now
        )
        least = market.max_priority_fee_per_gas
        version = signing.reserve_cancellation(chain, tx, market, Counter(), least=least, gas=gas)
        if isinstance(version, Unsent):
            tx.delete()
            return
        lanes.count(chain.id, ChainEvent.NONCE_FILLED)
    signing.send_reserved(rpc, lane, [version])


def _cancellation_gas(rpc: RpcClient, signer: Signer, newest: SignedTransaction | None = None) -> int:
    """Return the gas limit of a cancellation. It is higher on rollups that charge gas for data."""
    least = newest.gas if newest and newest.is_cancellation else CANCELLATION_GAS
    estimate = rpc.estimate_gas(signer.address, signer.address, b"")
    # The estimate is repeated each time. If data becomes more expensive, nodes would refuse the earlier gas limit.
    return max(least, int(estimate * _GAS_MARGIN) if estimate > CANCELLATION_GAS else estimate)


def _ask_data_fee_again(rpc: RpcClient, tx: Transaction) -> None:
    """Raise the data fee if data has become more expensive on the chain below. `reserve_version` saves the row."""
    now = rollups.data_cost(rpc, len(bytes(tx.data)), tx.gas_limit).wei
    tx.data_fee = tx.expected_data_fee = max(tx.data_fee, now)
