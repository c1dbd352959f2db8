"""Repeated broadcasts, replacements and cancellations of pending transactions, until they are mined."""

import logging
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from chains import rollups
from chains.chains_file import Chain
from chains.nodes import questions
from chains.nodes.node_errors import ChainError, ImplausibleGas, Reverted
from chains.nodes.questions import BlockIdentifier
from chains.nodes.rpc import RpcClient
from chains.prices import TRANSFER_LIMIT, GasPrices
from proving import money, stops
from proving.facts import proves_facts
from proving.models import (
    SignedTransaction,
    Signer,
    Transaction,
    TransactionState,
)
from proving.money import RISE_PERCENT, MarketFees, OfferedFees, market_fees
from proving.packing.packs import GAS_MARGIN
from proving.sending import gas_limits, signers, signing
from proving.sending.gas_limits import GasLimit, GasNeed
from proving.sending.signers import Unsent
from proving.sending.signing import is_to_unused_registry
from proving.working import counters
from proving.working.counters import ChainEvent
from proving.working.lanes import HeldLane
from queries.models import BatchStatus, Block, Sender, open_queries
from queries.waits import NODE_FAILS, wait

logger = logging.getLogger(__name__)

# A version is broadcast again after a block, but not within this time. So is one that nodes have refused for a known
# cause.
_MIN_RESEND_SECONDS = 5
# After a refusal without a known cause, the pause until the next broadcast doubles each time, up to the longest one.
_UNEXPLAINED, _LONGEST_UNEXPLAINED = timedelta(seconds=10), timedelta(minutes=5)

# Factor on a cancellation's estimated gas if the current price of data affects the estimate, and the highest multiple
# of the usual gas that is believed where it doesn't.
_DATA_MARGIN = 1.5
_MOST_TO_CANCEL = 4
# Maximum multiple of the market's fees to which the fees of a waiting transaction rise.
_MAX_TIMES_MARKET = 3
_TOO_DEAR: SignedTransaction | Unsent = Unsent(wait("replacement_fees_too_low"))


def push(chain: Chain, rpc: RpcClient, lane: HeldLane, tx: Transaction, prices: GasPrices, *, may_raise: bool) -> None:
    """Get a pending transaction mined: broadcast it again, replace it with higher fees and enough gas, or cancel it.

    Fees are raised only for the lowest open nonce, because all later nonces wait for it. A displaced transaction with
    an open nonce is only cancelled, and only after its facts were sent again, because nodes may still hold it.
    """
    version = newest = tx.newest
    tried_at = newest.refused_at or newest.broadcast_at
    is_due = tried_at is None or is_past(tried_at, _resend_pause(chain, tx))
    if not newest.hash or (newest.refused_at and not is_due) or stops.why_not_signed(tx, is_new=False):
        return
    if not holds_key(chain, tx.signer):
        pass  # chains.toml no longer has the key, so only stored bytes can be sent.
    elif not all(version.hash for version in tx.versions.all()):
        pass  # The next turn signs the version that a stop left unsigned.
    # Pruned bytes can't be broadcast again. Then only a cancellation uses up the nonce.
    elif not newest.is_cancellation and not (newest.raw and is_wanted(tx)):
        version = _replace(chain, rpc, lane, tx, newest, prices=prices, limit=None)
    elif may_raise and is_past(newest.created_at, raise_fees_after(chain)):
        limit = None if newest.is_cancellation else _limit_of(rpc, tx, prices)
        version = _replace(chain, rpc, lane, tx, newest, prices=prices, limit=limit)
        if version == newest and limit and limit.own:
            version = _replace(chain, rpc, lane, tx, newest, prices=prices, limit=limit.without_nodes)
    if tx.state == TransactionState.DISPLACED and (version.broadcast_at or not version.is_cancellation):
        return
    if is_due or version != newest:
        signing.broadcast(rpc, [version])


def _resend_pause(chain: Chain, tx: Transaction) -> timedelta:
    """Return the time from the last broadcast of the newest version to the next one."""
    refused_at = tx.newest.refused_at
    if refused_at and _is_unexplained(tx):
        began = max([tx.spent_at, *(version.broadcast_at for version in tx.versions.all() if version.broadcast_at)])
        # After n refusals, the pauses add up to 2 ** n - 1 times the first one.
        return min(_UNEXPLAINED + max(refused_at - began, timedelta()), _LONGEST_UNEXPLAINED)
    return timedelta(seconds=max(chain.block_seconds, _MIN_RESEND_SECONDS))


def _is_unexplained(tx: Transaction) -> bool:
    """Return whether nodes refuse the newest version, and nothing on the chain shows why."""
    return bool(tx.newest.refused_at and tx.error and tx.error.code == NODE_FAILS)


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


def raise_fees_after(chain: Chain) -> timedelta:
    """Return how long a version may wait in the mempool before its fees are raised."""
    return timedelta(seconds=max(15, 4 * chain.block_seconds))


def _limit_of(rpc: RpcClient, tx: Transaction, prices: GasPrices) -> GasLimit | None:
    """Return the gas limit that the transaction needs now. Where nodes' estimates can't be believed, return its own.

    None: it reverts on the newest block, and on the pending one too. It may revert only on the pending block, if that
    contains the transaction itself and it can't run twice. It may revert only on the newest block, if only the pending
    block vouches for the head. Raises `ChainError`.
    """
    blocks: tuple[BlockIdentifier, ...] = ("latest", "pending")
    data, to = bytes(tx.data), tx.to or None
    least_limit, before = prices.least_limit(tx.to, data), prices.before_execution(tx.to, data)
    # Nodes that refuse a transaction may want more gas than Ethereum's.
    is_bounded = tx.expected_gas and not tx.newest.refused_at and not rollups.charges_gas_for_data(rpc)
    expected = max(least_limit, tx.expected_gas)
    need = GasNeed(
        [questions.gas_estimate(tx.signer.address, to, data, block, least=before) for block in blocks],
        max(tx.expected_gas, tx.gas_limit) if is_bounded else None,
        before,
        least_limit,
        lambda: int(expected * GAS_MARGIN),
    )
    estimates = rpc.ask(need.questions)
    if all(isinstance(estimate, Reverted) for estimate in estimates):
        return None
    for estimate in estimates:
        if isinstance(estimate, ChainError) and not isinstance(estimate, Reverted | ImplausibleGas):
            raise estimate
    (limit,) = gas_limits.decide(rpc, prices, [need], [estimates])
    return limit if isinstance(limit, GasLimit) else GasLimit(tx.newest.gas, tx.newest.gas)


def _replace(
    chain: Chain,
    rpc: RpcClient,
    lane: HeldLane,
    tx: Transaction,
    newest: SignedTransaction,
    *,
    prices: GasPrices,
    limit: GasLimit | None,
) -> SignedTransaction:
    """Store a new version with the same nonce, and with the gas and fees that nodes accept now, within the limits.

    `limit` is the gas limit that it needs. None: cancel the transaction. Cancel it too if its batches' money or the
    daily limit is too low, also for the gas limit without nodes, and others wait for it. Return the version to
    broadcast.
    """
    market, to_cancel = market_fees(rpc), _cancellation_gas(rpc, tx.signer, prices, newest)
    cancel = limit is None
    gas, is_hopeless = newest.gas, False
    if limit is not None:
        _ask_data_fee_again(rpc, tx)
        # A false estimate lowers no gas limit, unless no block has room for it.
        is_hopeless = newest.gas < limit.takes or newest.gas > prices.max_gas >= limit.gas
        gas = limit.gas if is_hopeless else newest.gas
    is_same = (newest.is_cancellation and newest.gas >= to_cancel) if cancel else not is_hopeless
    if (fees := _fees(chain, market, tx, newest, gas, is_same=is_same)) is None:
        return newest
    offer, least = fees
    most = chain.max_fee_per_gas if is_hopeless else _MAX_TIMES_MARKET * market.offer.max_fee_per_gas
    raised = offer.at_most(min(most, market.limit_for(gas), rpc.balance(tx.signer.address) // gas))
    tx.refresh_from_db(fields=["versions"])
    # The lock is needed because other workers may send within the same limits.
    with signers.locked(chain), lane.writing():
        portions = money.parts_of(gas, money.weights_of(tx)[tx])
        if not cancel:
            version = _TOO_DEAR
            if least <= raised.max_fee_per_gas:
                version = signing.reserve_version(chain, tx, raised, portions, least=least, gas=gas)
            is_cheap = newest.max_fee_per_gas < market.base_and_tip <= chain.max_fee_per_gas
            is_stuck = is_hopeless or (is_cheap and version is not _TOO_DEAR)
            is_stuck = is_stuck and not (limit and limit.own)
            cancel = isinstance(version, Unsent) and is_stuck and _others_wait(tx, version.batches or portions)
        if cancel:
            to_pay = offer.at_most(market.limit_for(to_cancel))
            version = signing.reserve_cancellation(chain, tx, to_pay, portions, least=least, gas=to_cancel)
        if isinstance(version, SignedTransaction):
            is_first = cancel and not newest.is_cancellation
            counters.count(chain.id, ChainEvent.CANCELLED if is_first else ChainEvent.REPLACED)
    if not isinstance(version, SignedTransaction):
        return newest
    signing.sign_and_store(chain, lane, [version])
    if cancel and not newest.is_cancellation:
        logger.info("%s is no longer needed, or too expensive: cancelled", newest.hash)
    return version


def _fees(
    chain: Chain, market: MarketFees, tx: Transaction, newest: SignedTransaction, gas: int, *, is_same: bool
) -> tuple[OfferedFees, int] | None:
    """Return the fees to offer instead of the newest version's, and the lowest maximum fee. None: that version stays.

    If nodes refuse the newest version without a known cause, another version that `is_same` but for its fees doesn't
    offer more: a node that limits what a transaction may cost would refuse it too. It offers what a new transaction
    does, if the operator has raised the minimum priority fee; or if this is less and no node has an earlier version.
    """
    if is_same and _is_unexplained(tx):
        present, versions = market.offer_for(gas), tx.versions.all()
        lowest = min(version.max_fee_per_gas for version in versions)
        is_less = not tx.was_taken and _raised(present.max_fee_per_gas) <= lowest
        is_tip_raised = max(version.max_priority_fee_per_gas for version in versions) < chain.min_priority_fee
        return (present, market.least) if is_less or is_tip_raised else None
    required = OfferedFees(_raised(newest.max_fee_per_gas), _raised(newest.max_priority_fee_per_gas))
    priority = max(market.offer.max_priority_fee_per_gas, required.max_priority_fee_per_gas)
    offer = OfferedFees(max(market.offer.max_fee_per_gas, required.max_fee_per_gas, priority), priority)
    return offer, max(required.max_fee_per_gas, required.max_priority_fee_per_gas)


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
    return open_queries(blocks).filter(batch__sender=Sender.OPERATOR).exclude(batch__in=poor).exists()


def fill(
    chain: Chain, rpc: RpcClient, lane: HeldLane, signer: Signer, prices: GasPrices, *, nonce: int, now: datetime
) -> None:
    """Use up a nonce that no stored transaction has, within the daily limit, because later nonces wait for it."""
    if stops.why_signer_is_stopped(chain.id, signer.address) or not holds_key(chain, signer):
        return
    gas = _cancellation_gas(rpc, signer, prices)
    market = market_fees(rpc).offer_for(gas)
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
        counters.count(chain.id, ChainEvent.NONCE_FILLED)
    signing.send_reserved(rpc, lane, [version])


def _cancellation_gas(
    rpc: RpcClient, signer: Signer, prices: GasPrices, newest: SignedTransaction | None = None
) -> int:
    """Return the gas limit of a cancellation. It is higher on rollups that charge gas for data."""
    earlier = newest if newest and newest.is_cancellation else None
    least = earlier.gas if earlier else TRANSFER_LIMIT
    # Other chains charge gas for data too, if nodes refuse a cancellation with less.
    has_bound = not (earlier and earlier.refused_at) and not rollups.charges_gas_for_data(rpc)
    most = _MOST_TO_CANCEL * TRANSFER_LIMIT if has_bound else None
    try:
        estimate = rpc.estimate_gas(signer.address, signer.address, b"", least=prices.transfer_to_self, most=most)
    except ImplausibleGas:
        return least
    # The estimate is repeated each time. If data becomes more expensive, nodes would refuse the earlier gas limit.
    return max(least, int(estimate * _DATA_MARGIN) if estimate > TRANSFER_LIMIT else estimate)


def _ask_data_fee_again(rpc: RpcClient, tx: Transaction) -> None:
    """Raise the data fee if data has become more expensive on the chain below. `reserve_version` saves the row."""
    now = rollups.data_cost(rpc, len(bytes(tx.data)), tx.gas_limit).wei
    tx.data_fee = tx.expected_data_fee = max(tx.data_fee, now)
