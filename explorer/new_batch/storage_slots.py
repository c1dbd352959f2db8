"""Storage slots in the form: words of hexadecimal digits, and names as JSON, each on its own line."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError as WrongName

from explorer.new_batch.form_sentences import slot_fault
from queries import strict_json
from queries.storage_layout import NamedSlot

KINDS = (("mapping", "mapping"), ("string", "mapping by string"), ("array", "dynamic array"))
LAYOUTS = (("solidity", "Solidity"), ("vyper", "Vyper"), ("vyper-0.2.12", "Vyper up to 0.2.12"))
# Longer names are cut. As the request has them, they have fewer keys than this.
_MOST_OF_NAME, _MOST_KEYS = 2000, 64


def is_name(word: str) -> bool:
    return word.startswith("{")


def names_apart(text: str) -> tuple[list[str], str]:
    """Return the lines that are names, and the other lines."""
    lines = [line.strip() for line in text.splitlines()]
    return [line[:_MOST_OF_NAME] for line in lines if is_name(line)], "\n".join(
        line for line in lines if not is_name(line)
    )


def as_requested(words: Iterable[str]) -> Iterator[Any]:
    """Yield slots as the API's request has them. What is no JSON stays text, which the API refuses."""
    for word in words:
        try:
            yield strict_json.parse(word.encode(), max_keys=_MOST_KEYS).value if is_name(word) else word
        except (strict_json.NotJson, strict_json.TooManyKeys):
            yield word


def as_typed(slots: Iterable[Any]) -> tuple[str, ...]:
    """Return slots of a request as the form has them."""
    return tuple(slot if isinstance(slot, str) else json.dumps(slot, ensure_ascii=False) for slot in slots)


def named(kind: str, layout: str, base: str, key: str) -> str:
    """Return the name of a value's slot. Raises `ValidationError` with the form's field."""
    try:
        slot = int(base, 0)  # decimal, or hexadecimal after 0x
    except ValueError:
        slot = -1
    if not 0 <= slot < 1 << 256:
        raise slot_fault("slot_base", "base")
    keys: list[Any] = {"string": [{"key": key, "type": "string"}], "array": [{"index": key.strip()}]}.get(kind, [])
    name = {"slot": hex(slot), "keys": keys or key.split(), "layout": layout or "solidity"}
    try:
        NamedSlot.model_validate(name)
    except WrongName as wrong:
        raise slot_fault("slot_key", "key", reason=wrong.errors()[0]["msg"]) from None
    return as_typed([name])[0]
