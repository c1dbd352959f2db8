"""Sends transactions so that each nonce is used once and none is left open, whenever the process is killed.

A transaction is signed and stored before it is broadcast, under the lease of its signer. From then on `tending` follows
it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from django.db import transaction
from django.utils import timezone

from chains import rollups
from chains.chains_file import Chain
from chains.rpc import RpcClient
from config.configured_chains import get_rpc
from proving.models import SignedTransaction, Signer, Transaction
from proving.spending import limits, shares
from proving.spending.limits import Rest
from proving.transactions import funds
from proving.transactions.fees import MarketFees, market_fees, most_for_gas
from proving.transactions.funds import Costs
from proving.transactions.intents import Intent, NotPaid, Refused, Sent, SignerBusy, UnderWay, Unsent
from proving.transactions.signing import broadcast, sender, sign
from proving.transactions.stop_switch import why_stopped
from queries import clock, leases
from queries.leases import Lease, LeaseLost

# Of the estimate, for what changes between estimating and mining (another's transaction that goes first).
_GAS_MARGIN = 1.15
# EIP-7825: no transaction may have more.
MAX_GAS = 16_777_216


@dataclass(frozen=True)
class _Simulated:
    intent: Intent
    costs: Costs


def submit_all(
    chain: Chain, intents: Sequence[Intent], *, and_store: Callable[[int], None] | None = None
) -> Sent | Unsent:
    """Simulate, sign, store and broadcast with consecutive nonces.

    `and_store(first_nonce)` runs in the database transaction that stores them. Raises `chains.rpc.Reverted` when a
    simulation reverts, `NodeUnavailable`, `RpcRefused`. After a return, or a kill at any later moment, `tending` takes
    care of the transactions.
    """
    signer, _ = Signer.objects.get_or_create(chain_id=chain.id, address=sender(chain))
    lease = leases.claim(Signer.objects.all(), signer.pk)
    if lease is None:
        return SignerBusy()
    try:
        return _submit_all(chain, lease, intents, and_store)
    except LeaseLost:
        return SignerBusy()
    finally:
        # `tending` follows it up at once, and knows when to do so again.
        lease.release(timezone.now())


def _submit_all(
    chain: Chain, lease: Lease[Signer], intents: Sequence[Intent], and_store: Callable[[int], None] | None
) -> Sent | Unsent:
    rpc = get_rpc(chain.id)
    simulated = _simulate(rpc, lease.row.address, intents)
    if isinstance(simulated, Refused):
        return simulated
    offer = _offer(chain, rpc, lease.row, simulated)
    if not isinstance(offer, _Offer):
        return offer
    simulated = simulated[: offer.count]
    pending_nonce = rpc.nonce(lease.row.address, "pending")
    rest = _rest_beside(chain, [one.intent for one in simulated])
    with lease.writing() as fresh:
        first_nonce = next_nonce(fresh, pending_nonce)
        stored = _store_signed(chain, fresh, first_nonce, simulated, offer.fees, rest)
        if isinstance(stored, Unsent):
            # What can be paid for is only known of stored ones; none of them may remain without a signature.
            transaction.set_rollback(True)
            return stored
        # Due from the same moment: killed before the broadcast, whoever comes next does it.
        fresh.due_at = timezone.now()
        fresh.save(update_fields=["due_at"])
        if and_store:
            and_store(first_nonce)
    for _, version in stored:
        broadcast(rpc, version)
    return Sent([tx for tx, _ in stored])


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
) -> list[tuple[Transaction, SignedTransaction]] | Unsent:
    """Store and sign those that their batches can pay for. Inside the caller's database transaction.

    Where it is `Unsent`, the caller must roll back.
    """
    if any(one.intent.is_under_way(signer) for one in simulated):
        return UnderWay()
    stored = [_store(signer, first_nonce + place, one) for place, one in enumerate(simulated)]
    sent: list[tuple[Transaction, SignedTransaction]] = []
    # Reading what each query takes is what takes long here.
    weights = {tx: shares.weights_of(tx) for tx in stored}
    for tx, bounds in zip(stored, limits.for_each(chain, weights, rest), strict=True):
        over = limits.why_over_budget(chain, tx, weights[tx])
        most = NotPaid(*over) if over else most_for_gas(chain, bounds, fees)
        if isinstance(most, NotPaid):
            if not sent:
                return most
            Transaction.objects.filter(pk__in=[unsent.pk for unsent in stored[len(sent) :]]).delete()
            break
        version = sign(chain, tx, fees.offer.at_most(most))
        if isinstance(version, Refused):
            return version
        sent.append((tx, version))
        # The next one's limits count it.
        shares.divide(tx, weights[tx])
    return sent


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
        gas_limit=simulated.costs.gas_limit,
        data_fee=simulated.costs.data_fee,
        expected_data_fee=simulated.costs.data_fee,
        accumulates=intent.accumulates,
        extends_id=intent.extends,
        leads_to=intent.leads_to,
        spent_at=clock.believable(),
    )
    tx.queries.set(intent.queries)
    tx.continued.set(intent.continued)
    return tx


@dataclass(frozen=True)
class _Offer:
    """What to offer for gas now, and how many transactions the operator's money pays for."""

    fees: MarketFees
    count: int


def _offer(chain: Chain, rpc: RpcClient, signer: Signer, simulated: Sequence[_Simulated]) -> _Offer | Refused | NotPaid:
    """For one at least. Tells the operator where money is lacking."""
    if stopped := why_stopped(chain.id):
        return Refused(stopped)
    market = market_fees(rpc)
    has = funds.read(chain, rpc, signer)
    costs = [one.costs for one in simulated]
    notice = funds.why_too_little(chain, signer, costs[0], market, has)
    funds.show(signer, notice)
    if notice:
        # What the others ask for may be cheaper.
        return NotPaid(notice, shares.largest(simulated[0].intent.queries))
    can_pay = funds.affordable(costs, market, has)
    return _Offer(replace(market, offer=market.offer.at_most(can_pay.price)), can_pay.count)


def _simulate(rpc: RpcClient, sender: str, intents: Sequence[Intent]) -> list[_Simulated] | Refused:
    simulated: list[_Simulated] = []
    for intent in intents:
        estimate = rpc.estimate_gas(sender, intent.to or None, intent.data)
        if estimate > MAX_GAS:
            return Refused(
                f"A transaction would need {estimate} gas, and none may have more than {MAX_GAS} (EIP-7825)."
            )
        gas_limit = min(MAX_GAS, int(estimate * _GAS_MARGIN))
        data_fee = rollups.data_cost(rpc, len(intent.data), gas_limit).wei
        simulated.append(_Simulated(intent, Costs(gas_limit, data_fee)))
    return simulated
