"""Amounts of money as people write them."""

from chains.encoding import in_units


def whole_units(amount: int, decimals: int = 18) -> str:
    """Return an amount of the smallest units as a decimal number of whole ones, exact, without needless zeros."""
    whole, remainder = divmod(amount, 10**decimals)
    fraction = f"{remainder:0{decimals}d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)


def shortened(amount: int, decimals: int = 18, places: int = 4, *, is_cost: bool = False) -> str:
    """Return an amount as `in_units` does, without needless zeros if it is exact."""
    written = in_units(amount, decimals, places, is_cost=is_cost)
    return written if amount % 10 ** (decimals - places) else written.rstrip("0").removesuffix(".")


def cost(wei: int) -> str:
    """Return a cost in wei, rounded up to 6 places, because gas costs little."""
    return shortened(wei, places=6, is_cost=True)


def gas_price(wei: int) -> str:
    """Return the price of a unit of gas in gwei, rounded up as costs are."""
    return shortened(wei, decimals=9, is_cost=True)


def limit(wei: int) -> str:
    """Return what may be spent, or is left of it, to the places of `cost`."""
    return shortened(wei, places=6)
