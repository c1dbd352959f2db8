"""What the market asks for a unit of gas (EIP-1559)."""

from dataclasses import dataclass

from chains.rpc import Fees, RpcClient


@dataclass(frozen=True)
class OfferedFees:
    """EIP-1559 fees of a transaction, in wei per gas."""

    max_fee_per_gas: int
    max_priority_fee_per_gas: int

    def at_most(self, limit: int) -> "OfferedFees":
        return OfferedFees(min(self.max_fee_per_gas, limit), min(self.max_priority_fee_per_gas, limit))


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
