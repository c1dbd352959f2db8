"""Sends transactions so that each nonce is used once and none is left open, whenever the process is killed.

A transaction is signed and stored before it is broadcast, under the lease of its signer. From then on `tending` follows
it.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from django.utils import timezone

from chains import rollups
from chains.chains_file import Chain
from chains.rpc import RpcClient
from config.configured_chains import get_rpc
from proving.models import SignedTransaction, Signer, Transaction, TransactionState
from proving.spending import limits
from proving.spending.limits import Limit, Rest
from proving.transactions.fees import MarketFees, market_fees, most_for_gas
from proving.transactions.intents import CannotSend, Intent, SignerBusy, Stopped, TooDear, UnderWay
from proving.transactions.replacement import RISE_PERCENT
from proving.transactions.signing import broadcast, sender, sign
from proving.transactions.stop_switch import why_stopped
from queries import clock, leases
from queries.leases import Lease, LeaseLost

logger = logging.getLogger(__name__)

# Of the estimate, for what changes between estimating and mining (another's transaction that goes first).
_GAS_MARGIN = 1.15
# EIP-7825: no transaction may have more.
MAX_GAS = 16_777_216


@dataclass(frozen=True)
class _Simulated:
    """What an intent takes, beside gas on rollups in wei."""

    intent: Intent
    gas_limit: int
    data_fee: int


def submit_all(
    chain: Chain, intents: Sequence[Intent], *, and_store: Callable[[int], None] | None = None
) -> list[Transaction]:
    """Simulate, sign, store and broadcast with consecutive nonces. Returns the stored transactions, in their order:
    all, or none; or the first ones, where money doesn't suffice for the rest.

    `and_store(first_nonce)` runs in the database transaction that stores them. Raises `SignerBusy`, `UnderWay`,
    `CannotSend`, `chains.rpc.Reverted` when a simulation reverts, `NodeUnavailable`. After a return, or a kill at any
    later moment, `tending` takes care of the transactions.
    """
    rpc = get_rpc(chain.id)
    signer, _ = Signer.objects.get_or_create(chain_id=chain.id, address=sender(chain))
    lease = leases.claim(Signer.objects.all(), signer.pk)
    if lease is None:
        raise SignerBusy
    try:
        simulated = [_simulate(rpc, signer.address, intent) for intent in intents]
        fees, count = _affordable_fees(chain, rpc, lease, simulated)
        simulated = simulated[:count]
        pending_nonce = rpc.nonce(signer.address, "pending")
        rest = _rest_beside(chain, [one.intent for one in simulated])
        with lease.writing() as fresh:
            first_nonce = next_nonce(fresh, pending_nonce)
            sent = _store_signed(chain, fresh, first_nonce, simulated, fees, rest)
            # Due from the same moment: killed before the broadcast, whoever comes next does it.
            fresh.due_at = timezone.now()
            fresh.save(update_fields=["due_at"])
            if and_store:
                and_store(first_nonce)
        for _, version in sent:
            broadcast(rpc, version)
    except LeaseLost:
        raise SignerBusy from None
    finally:
        # `tending` follows it up at once, and knows when to do so again.
        lease.release(timezone.now())
    return [tx for tx, _ in sent]


def _rest_beside(chain: Chain, intents: Sequence[Intent]) -> Rest:
    """What the batches of these still have to do when these are done."""
    return limits.rest_of(
        chain,
        [pk for intent in intents for pk in intent.queries],
        proven={pk for intent in intents for pk in intent.proves()}.difference(intents[-1].continued),
        with_paths=any(intent.extends is not None for intent in intents),
    )


def _store_signed(  # noqa: PLR0917 (as many as there is to know)
    chain: Chain, signer: Signer, first_nonce: int, simulated: Sequence[_Simulated], fees: MarketFees, rest: Rest
) -> list[tuple[Transaction, SignedTransaction]]:
    """Store and sign those that their batches can pay for. Inside the caller's database transaction.

    Raises `UnderWay`, `Stopped`; `TooDear` where the first can't be paid for.
    """
    if any(one.intent.is_under_way(signer) for one in simulated):
        raise UnderWay
    stored = [_store(signer, first_nonce + place, one) for place, one in enumerate(simulated)]
    sent: list[tuple[Transaction, SignedTransaction]] = []
    for tx, bounds in zip(stored, limits.for_each(chain, stored, rest), strict=True):
        try:
            most = _most_for_gas(chain, tx, bounds, fees)
        except TooDear:
            if not sent:
                raise
            Transaction.objects.filter(pk__in=[unsent.pk for unsent in stored[len(sent) :]]).delete()
            break
        sent.append((tx, sign(chain, tx, fees.offer.at_most(most))))
        # The next one's limits count it.
        limits.share(tx)
    return sent


def _most_for_gas(chain: Chain, tx: Transaction, bounds: Collection[Limit], fees: MarketFees) -> int:
    """In wei for a unit. Raises `TooDear` where the limits of its batches and their users forbid the transaction."""
    if over := limits.why_over_budget(chain, tx):
        raise TooDear(*over)
    return most_for_gas(chain, bounds, fees)


def next_nonce(signer: Signer, pending_nonce: int) -> int:
    """The first nonce that neither the chain nor a stored transaction has; `pending_nonce` is the node's word."""
    last = signer.transactions.order_by("-nonce").values_list("nonce", flat=True).first()
    return max(pending_nonce, 0 if last is None else last + 1)


def _store(signer: Signer, nonce: int, simulated: _Simulated) -> Transaction:
    intent = simulated.intent
    tx = Transaction.objects.create(
        signer=signer,
        nonce=nonce,
        to=intent.to,
        data=intent.data,
        gas_limit=simulated.gas_limit,
        data_fee=simulated.data_fee,
        expected_data_fee=simulated.data_fee,
        accumulates=intent.accumulates,
        extends_id=intent.extends,
        leads_to=intent.leads_to,
        spent_at=clock.believable(),
    )
    tx.queries.set(intent.queries)
    tx.continued.set(intent.continued)
    return tx


def _affordable_fees(
    chain: Chain, rpc: RpcClient, lease: Lease[Signer], simulated: Sequence[_Simulated]
) -> tuple[MarketFees, int]:
    """What to offer now, and how many of these can be paid for.

    Raises `CannotSend` when the operator has stopped it, or the cap, the daily limit or the signer's balance forbids
    the first; `TooDear` where others may ask for less.
    """
    if stopped := why_stopped(chain.id):
        raise Stopped(stopped)
    signer = lease.row
    # Room for one replacement under the cap.
    limit = chain.max_fee_per_gas * 100 // RISE_PERCENT
    market = market_fees(rpc)
    balance = rpc.balance(signer.address)
    pending = signer.transactions.filter(state=TransactionState.PENDING).defer("data").prefetch_related("versions")
    free = balance - sum(tx.cost for tx in pending)
    # What the day's limit leaves can't change meanwhile: whoever spends it holds this lease.
    left = None if chain.daily_limit_wei is None else chain.daily_limit_wei - limits.promised_on(chain.id)
    price = min(market.offer.max_fee_per_gas, limit)
    count, gas, beside = 0, 0, 0
    for one in simulated:
        gas, beside = gas + one.gas_limit, beside + one.data_fee
        by_limit = price if left is None else max(0, left - beside) // gas
        is_less = by_limit < (price if count else market.base_and_tip)
        if is_less or free < gas * min(price, by_limit) + beside:
            break
        count, price = count + 1, min(price, by_limit)
    who = f"The signer {signer.address} on chain {chain.id} holds {chain.amount(balance)}"
    needed = simulated[0].gas_limit * price + simulated[0].data_fee
    notice = ""
    if balance < chain.minimum_signer_balance_wei:
        notice = f"{who}, less than the {chain.minimum_signer_balance} at which it stops. Its operator must fund it."
    elif market.base_and_tip > limit:
        notice = f"Gas on chain {chain.id} costs more than the cap of {chain.max_fee_per_gas_gwei} gwei."
    elif not count and free < needed:
        notice = (
            f"{who}, less than the {chain.amount(balance - free + needed)} that it may have to pay. Its operator must "
            "fund it."
        )
    elif not count:
        needed = simulated[0].gas_limit * market.base_and_tip + simulated[0].data_fee
        notice = (
            f"The operator's limit of {chain.daily_limit} {chain.native_currency} in 24 hours on chain {chain.id} "
            f"leaves {chain.amount(max(0, left or 0))}, and {chain.amount(needed)} are needed."
        )
    if notice != signer.notice:
        logger.warning("%s", notice or f"the signer {signer.address} on chain {chain.id} sends again")
        Signer.objects.filter(pk=signer.pk).update(notice=notice)
    if notice:
        # What the others ask for may be cheaper.
        raise TooDear(notice, limits.largest(simulated[0].intent.queries))
    return replace(market, offer=market.offer.at_most(price)), count


def _simulate(rpc: RpcClient, sender: str, intent: Intent) -> _Simulated:
    estimate = rpc.estimate_gas(sender, intent.to or None, intent.data)
    if estimate > MAX_GAS:
        raise CannotSend(f"A transaction would need {estimate} gas, and none may have more than {MAX_GAS} (EIP-7825).")
    gas_limit = min(MAX_GAS, int(estimate * _GAS_MARGIN))
    return _Simulated(intent, gas_limit, rollups.data_cost(rpc, len(intent.data), gas_limit).wei)
