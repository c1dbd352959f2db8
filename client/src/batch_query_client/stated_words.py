"""Words for a slot by its name, which states a call and the units of a token. Its sender says so: nothing is proven."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TOKEN_CALLS: Mapping[str, str] = {
    "balanceOf(address)": "balance of {}",
    "allowance(address,address)": "allowance of {} to {}",
    "totalSupply()": "total supply",
    "getVotes(address)": "votes of {}",
    "getCurrentVotes(address)": "votes of {}",
    "getPastVotes(address,uint256)": "past votes of {}",
    "getPriorVotes(address,uint256)": "past votes of {}",
    "getPastTotalSupply(uint256)": "past total supply",
    "balanceOfAt(address,uint256)": "past balance of {}",
    "totalSupplyAt(uint256)": "past total supply",
}
"""Calls whose answers are divided by the token's `decimals()`, in words. `{}` is an address among the keys."""
SYMBOL = r"^\$?[A-Za-z]{2}[A-Za-z0-9₮_+/-]{0,18}(\.[A-Za-z])?$"
"""Symbols that are shown: without spaces, and with letters at first. So none looks like an amount, such as 5k or e18,
like a name of the Internet, or like another part of a sentence, a file or a page. Anybody can give a token any of them.
"""
MOST_DECIMALS = 77
"""Decimal places of a number of 256 bits."""
BALANCE_SEED, ALLOWANCE_SEED = 0x87A211A2, 0x7F5E9F20
"""Seeds of Solady's ERC20. Its slots have addresses in them."""
_OF_BALANCE, _OF_ALLOWANCE = f"{BALANCE_SEED:024x}", f"{ALLOWANCE_SEED:024x}"


def symbol(name: Mapping[str, Any]) -> str:
    """Return the token's symbol that a slot's name states. Empty: it states none that is shown."""
    text = name.get("symbol")
    return text if isinstance(text, str) and re.fullmatch(SYMBOL, text) else ""


def stated_call(name: Mapping[str, Any] | None, shown: Callable[[str], str] = str) -> str:
    """Return the call that a slot's name states, such as `balanceOf 0x7099…79C8`. Empty: it states none.

    Its arguments are the keys, if there are as many. `shown` writes an argument.
    """
    if not name or not name.get("call"):
        return ""
    function, _, types = _signature(name).rstrip(")").partition("(")
    arguments = _arguments(name)
    if len(arguments) != len(list(filter(None, types.split(",")))):
        return str(name["call"])
    return " ".join([function, ", ".join(map(shown, arguments))]).strip()


def in_words(name: Mapping[str, Any] | None, shown: Callable[[str], str] = str) -> str:
    """Return what a slot's name states: `LEND balance of 0x7099…79C8`, or `slot said to be` and the call.

    Empty: it states no call.
    """
    if not (call := stated_call(name, shown)) or not name:
        return call
    words, arguments = TOKEN_CALLS.get(_signature(name)), _arguments(name)
    # Another key of the sender, such as a text, could look like another part of the sentence.
    is_by_address = all(re.fullmatch("0x[0-9a-fA-F]{40}", each) for each in arguments)
    if words is None or not symbol(name) or words.count("{}") != len(arguments) or not is_by_address:
        return f"slot said to be {call}"
    return f"{symbol(name)} {words.format(*map(shown, arguments))}"


def in_units(name: Mapping[str, Any], number: int) -> str:
    """Return an exact amount such as `1,000.5 LEND`. Empty: the slot's name states no decimals, or no symbol."""
    decimals = name.get("decimals")
    if type(decimals) is not int or not 0 <= decimals <= MOST_DECIMALS or not symbol(name):
        return ""
    whole, part = divmod(abs(number), 10**decimals)
    fraction = f".{part:0{decimals}d}".rstrip("0.") if decimals else ""
    return f"{'-' if number < 0 else ''}{whole:,}{fraction} {symbol(name)}"


def _signature(name: Mapping[str, Any]) -> str:
    """Return the stated call without the type of its answer. Empty: it states none."""
    function, end, _ = str(name.get("call") or "").partition(")")
    return function + end


def _arguments(name: Mapping[str, Any]) -> Sequence[str]:
    """Return the keys that may be arguments of the stated call. Escapes show marks that turn a text's direction."""
    keys = name["keys"] if isinstance(name.get("keys"), list | tuple) else ()
    return _of_solady(name) or [
        str(key) if isinstance(key, str) else json.dumps(key["key"]) if key["type"] == "string" else str(key["key"])
        for key in keys
        if isinstance(key, str) or (isinstance(key, dict) and {"key", "type"} <= key.keys())
    ]


def _of_solady(name: Mapping[str, Any]) -> Sequence[str]:
    """Return the addresses that the slot of a balance or an allowance has in it. Empty: it isn't Solady's."""
    from eth_utils.address import to_checksum_address  # noqa: PLC0415 (`bqs --help` loads this module)

    text = str(name.get("slot"))
    slot = f"{int(text, 16):064x}" if re.fullmatch("0x[0-9a-f]{1,64}", text) else ""
    match {**name, "call": _signature(name)}:
        case {"call": "balanceOf(address)", "keys": [{"index": "0"}]} if slot.endswith(_OF_BALANCE):
            return [to_checksum_address(f"0x{slot[:40]}")]
        case {"call": "allowance(address,address)", "keys": [{"key": str(owner), "type": "bytes"}]}:
            if slot.startswith(_OF_ALLOWANCE) and re.fullmatch("0x[0-9a-fA-F]{40}", owner):
                return [to_checksum_address(owner.lower()), to_checksum_address(f"0x{slot[24:]}")]
    return []
