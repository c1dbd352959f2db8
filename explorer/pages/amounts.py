"""Amounts of money as people write them."""

_WEI = 10**18


def whole_units(wei: int) -> str:
    """An amount in wei as a decimal number of whole units (10^18 wei), exact, without needless zeros."""
    whole, rest = divmod(wei, _WEI)
    fraction = f"{rest:018d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)


def rounded(amount: int, decimals: int = 18) -> str:
    """An amount of the smallest units as a decimal number of whole ones, to 4 decimals, with commas for thousands.

    One that is not 0 never looks as if it were: then it is exact.
    """
    whole, rest = divmod(amount, 10**decimals)
    if not rest:
        return f"{whole:,}"
    of_ten_thousand = (amount * 10_000 + 10**decimals // 2) // 10**decimals
    if not of_ten_thousand:
        return f"0.{rest:0{decimals}d}".rstrip("0")
    exact = f"{rest:0{decimals}d}".rstrip("0")
    if len(exact) <= 4:
        return f"{whole:,}.{exact}"
    return f"{of_ten_thousand // 10_000:,}.{of_ten_thousand % 10_000:04d}"
