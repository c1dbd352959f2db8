"""Formatting of amounts of money."""

from chains.encoding import in_units


def whole_units(amount: int, decimals: int = 18) -> str:
    """Return an amount, given in the smallest units, exactly in whole units, without trailing zeros."""
    whole, remainder = divmod(abs(amount), 10**decimals)
    fraction = f"{remainder:0{decimals}d}".rstrip("0")
    return ("-" if amount < 0 else "") + (f"{whole}.{fraction}" if fraction else str(whole))


def in_groups(number: str) -> str:
    """Return a decimal number with commas for thousands."""
    whole, point, fraction = number.partition(".")
    digits = whole.removeprefix("-")
    return f"{'-' if digits != whole else ''}{int(digits):,}{point}{fraction}"


def shortened(amount: int, decimals: int = 18, places: int = 4, *, is_cost: bool = False) -> str:
    """Return the text of `in_units`, without trailing zeros if it is exact."""
    written = in_units(amount, decimals, places, is_cost=is_cost)
    return written if amount % 10 ** (decimals - places) else written.rstrip("0").removesuffix(".")


def cost(wei: int) -> str:
    """Return a cost, given in wei, rounded up to 6 decimal places. Gas is cheap, so 4 are too few."""
    return shortened(wei, places=6, is_cost=True)


def gas_price(wei: int) -> str:
    """Return a gas price, given in wei, in gwei. It is rounded up like a cost."""
    return shortened(wei, decimals=9, is_cost=True)


def limit(wei: int) -> str:
    """Return a limit, or the remainder of one, with the same number of decimal places as `cost`."""
    return shortened(wei, places=6)
