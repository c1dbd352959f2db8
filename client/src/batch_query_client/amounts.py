"""View functions that answer an amount: neither an address nor bytes, whatever part of a slot's word it is."""

from collections.abc import Mapping
from typing import Any

_FUNCTIONS = frozenset(
    (
        *("balanceOf", "balanceOfAt", "allowance", "totalSupply", "totalSupplyAt", "totalAssets", "totalShares"),
        *("scaledBalanceOf", "scaledTotalSupply", "principalBalanceOf", "sharesOf", "getTotalShares", "liquidity"),
        *("votes", "getVotes", "getPastVotes", "getPastTotalSupply", "getCurrentVotes", "getPriorVotes"),
        *("stakeOf", "stakedOf", "stakedBalanceOf", "lockedBalanceOf", "depositOf", "debtOf", "sqrtPriceX96"),
    )
)


def is_amount(name: Mapping[str, Any] | None) -> bool:
    """Return whether a slot's name states the call of such a function."""
    return str((name or {}).get("call")).partition("(")[0] in _FUNCTIONS
