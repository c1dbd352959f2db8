"""Sentences of workers as pages say them: chains by their names, amounts in whole units, numbers in groups."""

import re

from config.chain_names import chain_name
from explorer.formatting.amounts import cost

_CHAIN = re.compile(r"\b[Cc]hain (\d{1,19})\b(?!\.\d| \()", re.ASCII)
_WEI = re.compile(r"\b(\d{1,3}(?:,\d{3})+|\d{7,}) wei\b", re.ASCII)
# No part of a command, a hexadecimal value, a decimal number, an address of a host or a time in seconds.
_NUMBER = re.compile(
    r"\bmanage\.py(?: [\w-]+)+|(?<![\w.,:/(-])(?<!\btime )(?P<number>\d{5,78})(?![\w:/-]|[.,]\d)", re.ASCII
)
_END = re.compile(r"(?<=[.!?]) (?=[A-Z0-9])")


def in_words(sentence: str, currency: str = "") -> str:
    """Return the sentence for people. Amounts in wei stay where no currency is named."""

    def named(found: re.Match[str]) -> str:
        chain = chain_name(int(found[1]))
        return chain.name if chain.is_configured else found[0]

    said = _CHAIN.sub(named, sentence)
    if currency:
        said = _WEI.sub(lambda found: f"{cost(int(found[1].replace(',', '')))} {currency}", said)
    return _NUMBER.sub(lambda found: f"{int(found['number']):,}" if found["number"] else found[0], said)


def first_and_rest(sentences: str) -> tuple[str, str]:
    """Split the first of several sentences from the others."""
    first, *rest = _END.split(sentences, maxsplit=1)
    return first, "".join(rest)
