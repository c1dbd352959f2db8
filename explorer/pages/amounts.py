"""Amounts of money as people write them, to the last digit."""

_WEI = 10**18


def whole_units(wei: int) -> str:
    """An amount in wei as a decimal number of whole units (10^18 wei), exact, without needless zeros."""
    whole, rest = divmod(wei, _WEI)
    fraction = f"{rest:018d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)
