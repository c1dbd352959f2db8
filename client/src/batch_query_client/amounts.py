"""The answer that a slot's name states: its type, and whether it is an amount."""

import re
from collections.abc import Mapping
from typing import Any

_BITS_OF_WORD, _BITS_OF_ADDRESS = 256, 160
_TYPED_CALL = re.compile(r"[^)]+\)\((address|bool|bytes(?:[1-9]|[12][0-9]|3[0-2])|u?int[0-9]{1,3})\)", re.ASCII)
# View functions that answer an amount.
_FUNCTIONS = frozenset(
    (
        *("balanceOf", "balanceOfAt", "allowance", "totalSupply", "totalSupplyAt", "totalAssets", "totalShares"),
        *("scaledBalanceOf", "scaledTotalSupply", "principalBalanceOf", "sharesOf", "getTotalShares", "liquidity"),
        *("votes", "getVotes", "getPastVotes", "getPastTotalSupply", "getCurrentVotes", "getPriorVotes"),
        *("stakeOf", "stakedOf", "stakedBalanceOf", "lockedBalanceOf", "depositOf", "debtOf", "sqrtPriceX96"),
    )
)


def answer_type(name: Mapping[str, Any] | None) -> str:
    """Return the type that the stated call returns, such as int256. Empty: it states none."""
    match = _TYPED_CALL.fullmatch(str((name or {}).get("call")))
    return match[1] if match else ""


def is_amount(name: Mapping[str, Any] | None) -> bool:
    """Return whether the answer is an amount: neither an address nor bytes, whatever part of a slot's word it is."""
    if kind := answer_type(name):
        return kind.startswith(("uint", "int"))
    return str((name or {}).get("call")).partition("(")[0] in _FUNCTIONS


def typed(offset: int, size: int, form: str, kind: str) -> tuple[int, int, str]:
    """Return a part of a word, by its offset and size in bits and its form, as a type of the answer reads it."""
    is_word = (size, form) == (_BITS_OF_WORD, "unsigned")
    if kind == "bool":
        return offset, size, "bool"
    if kind == "address":
        return offset, min(size, _BITS_OF_ADDRESS), "unsigned"
    if kind.startswith("int") and is_word:
        return offset, size, "signed"
    if kind.startswith("bytes") and is_word:
        bits = 8 * int(kind.removeprefix("bytes"))
        return _BITS_OF_WORD - bits, bits, "left"
    return offset, size, form
