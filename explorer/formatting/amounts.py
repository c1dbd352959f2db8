"""Amounts of money as people write them."""

_WEI = 10**18


def whole_units(wei: int) -> str:
    """Return an amount in wei as a decimal number of whole units (10^18 wei), exact, without needless zeros."""
    whole, fraction_wei = divmod(wei, _WEI)
    fraction = f"{fraction_wei:018d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)


def rounded(amount: int, decimals: int = 18, places: int = 4) -> str:
    """Return an amount of the smallest units as a decimal number of whole ones.

    It is rounded to some places, with commas for thousands.

    One that is not 0 never looks as if it were: then it is exact.
    """
    whole, remainder = divmod(amount, 10**decimals)
    if not remainder:
        return f"{whole:,}"
    exact = f"{remainder:0{decimals}d}".rstrip("0")
    if len(exact) <= places:
        return f"{whole:,}.{exact}"
    parts = (amount * 10**places + 10**decimals // 2) // 10**decimals
    if not parts:
        return f"0.{exact}"
    return f"{parts // 10**places:,}.{parts % 10**places:0{places}d}"


def cost(wei: int) -> str:
    """Return an amount in wei as `rounded` does, to 6 places, because gas costs little."""
    return rounded(wei, places=6)
