"""What the market asks for a unit of gas (EIP-1559), and what the limits allow."""

from collections.abc import Collection
from dataclasses import dataclass
from operator import attrgetter

from chains.chains_file import Chain
from chains.rpc import Fees, RpcClient
from proving.budget.limits import Limit
from proving.transactions.intents import NotPaid


@dataclass(frozen=True)
class OfferedFees:
    """EIP-1559 fees of a transaction, in wei per gas."""

    max_fee_per_gas: int
    max_priority_fee_per_gas: int

    def at_most(self, limit: int) -> "OfferedFees":
        return OfferedFees(min(self.max_fee_per_gas, limit), min(self.max_priority_fee_per_gas, limit))


def most_for_gas(chain: Chain, bounds: Collection[Limit], fees: "MarketFees") -> int | NotPaid:
    """Return the most to pay in wei per gas, by the chain's cap and the limits. `NotPaid` if that is too little."""
    if too_low := [limit for limit in bounds if limit.price < fees.least]:
        batches = frozenset[str]().union(*(limit.batches for limit in too_low))
        return NotPaid(min(too_low, key=attrgetter("price")).sentence(chain, fees.least), batches)
    return min([chain.max_fee_per_gas, *(limit.price for limit in bounds)])


@dataclass(frozen=True)
class MarketFees:
    """The market's fees for a unit of gas, in wei: the present one, and an offer that holds for some blocks."""

    base_and_tip: int
    offer: OfferedFees
    least: int
    """The least offer for the next block, whatever this one does to the base fee (EIP-1559)."""


def market_fees(rpc: RpcClient) -> MarketFees:
    return market_of(rpc.fees())


def market_of(fees: Fees) -> MarketFees:
    # The base fee can double within six full blocks; what is not needed is not paid.
    offer = OfferedFees(2 * fees.base_fee + fees.priority_fee, fees.priority_fee)
    return MarketFees(fees.base_fee + fees.priority_fee, offer, fees.base_fee * 9 // 8 + fees.priority_fee)
