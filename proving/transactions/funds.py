"""Whether the operator's money suffices: the signer's balance, the cap on gas prices and the chain's daily limit."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from chains.chains_file import Chain
from proving.budget import reservations
from proving.models import Signer, Transaction
from proving.transactions.fees import MarketFees
from proving.transactions.replacement import RISE_PERCENT

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Funds:
    """The money that can be spent, in wei."""

    cap: int
    """On a unit of gas, with room for one replacement under the chain's own."""
    balance: int
    free: int
    """The part of the balance that pending transactions can't cost."""
    left_today: int | None
    """The rest of the chain's daily limit; None where there is none."""


@dataclass(frozen=True)
class Costs:
    """The gas limit of a transaction, and what it costs beside gas on rollups in wei."""

    gas_limit: int
    data_fee: int

    def at(self, price: int) -> int:
        """Return the cost in wei, at this price in wei per gas."""
        return self.gas_limit * price + self.data_fee


@dataclass(frozen=True)
class Affordable:
    """The number of first transactions that can be paid for, and the maximum for a unit of their gas, in wei."""

    count: int
    price: int


@dataclass(frozen=True)
class Balance:
    """A signer's past balance, in wei, and the ids of transactions that it may have paid for since."""

    wei: int
    pending: frozenset[int]


def of(chain: Chain, balance: Balance, pending: Collection[int]) -> Funds:
    """Count the funds, in the database transaction that reserves some of them: no other may reserve the same.

    `pending` are the signer's transactions (ids) as they are there.
    """
    costs = 0
    if unpaid := balance.pending.union(pending):
        rows = Transaction.objects.filter(pk__in=unpaid).defer("data")
        costs = sum(tx.cost for tx in rows.prefetch_related("versions"))
    left = None if chain.daily_limit_wei is None else chain.daily_limit_wei - reservations.on_chain(chain.id)
    cap = chain.max_fee_per_gas * 100 // RISE_PERCENT
    return Funds(cap, balance.wei, balance.wei - costs, left)


def affordable(costs: Sequence[Costs], market: MarketFees, funds: Funds) -> Affordable:
    """Return how many of these transactions, in their order, can be paid for, and the price.

    Only the first lowers the price to what the daily limit leaves.
    """
    count, price = 0, min(market.offer.max_fee_per_gas, funds.cap)
    gas, data_fees = 0, 0
    for one in costs:
        gas, data_fees = gas + one.gas_limit, data_fees + one.data_fee
        by_limit = price if funds.left_today is None else max(0, funds.left_today - data_fees) // gas
        is_less = by_limit < (price if count else market.base_and_tip)
        if is_less or funds.free < gas * min(price, by_limit) + data_fees:
            break
        count, price = count + 1, min(price, by_limit)
    return Affordable(count, price)


@dataclass(frozen=True)
class Lack:
    """A sentence for the operator that says why not even the first transaction may be sent."""

    sentence: str
    is_signers: bool  # another signer may have what this one lacks


def why_too_little(chain: Chain, signer: Signer, first: Costs, market: MarketFees, funds: Funds) -> Lack | None:
    """Return why the first transaction can't be paid for; None if it may be sent."""
    who = f"The signer {signer.address} on chain {chain.id} holds {chain.amount(funds.balance)}"
    if funds.balance < chain.minimum_signer_balance_wei:
        least = f"{who}, less than the {chain.minimum_signer_balance} at which it stops. Its operator must fund it."
        return Lack(least, is_signers=True)
    if market.base_and_tip > funds.cap:
        dear = f"Gas on chain {chain.id} costs more than the cap of {chain.max_fee_per_gas_gwei} gwei."
        return Lack(dear, is_signers=False)
    can_pay = affordable([first], market, funds)
    if can_pay.count:
        return None
    needed = first.at(can_pay.price)
    if funds.free < needed:
        reserved_too = chain.amount(funds.balance - funds.free + needed)
        poor = f"{who}, less than the {reserved_too} that it may have to pay. Its operator must fund it."
        return Lack(poor, is_signers=True)
    used_up = (
        f"The operator's limit of {chain.daily_limit} {chain.native_currency} in 24 hours on chain {chain.id} leaves "
        f"{chain.amount(max(0, funds.left_today or 0))}, and {chain.amount(first.at(market.base_and_tip))} are needed."
    )
    return Lack(used_up, is_signers=False)


def show(signer: Signer, notice: str) -> None:
    """Tell the operator what is lacking, on pages and in the log; or, with an empty one, that nothing is any more."""
    if notice == signer.notice:
        return
    logger.warning("%s", notice or f"the signer {signer.address} on chain {signer.chain_id} sends again")
    Signer.objects.filter(pk=signer.pk).update(notice=notice)
