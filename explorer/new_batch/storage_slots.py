"""Storage slots in the form: words of hexadecimal digits, and names as JSON, each on its own line."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import ValidationError as WrongName

from explorer.new_batch.form_sentences import FIELD_SENTENCES, slot_fault
from queries import strict_json
from queries.batch_request import body_fault
from queries.storage_layout import MOST_OF_NAME, NamedSlot, read_number

KINDS = (("mapping", "mapping"), ("string", "mapping by string"), ("array", "dynamic array"))
LAYOUTS = (("solidity", "Solidity"), ("vyper", "Vyper"), ("vyper-0.2.12", "Vyper up to 0.2.12"))
# Maximum lists and objects of what is read as a name. A name has 18. Deeper ones could not be written again.
_MOST_BRACKETS = 64
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


def is_name(word: str) -> bool:
    return word.startswith("{")


def faults(words: Iterable[str]) -> Iterator[str]:
    """Yield sentences about names that the request would not have as they are typed."""
    for word in filter(is_name, words):
        if len(word) > MOST_OF_NAME:
            yield FIELD_SENTENCES["slots_too_long"].format(most=MOST_OF_NAME, count=len(word))
        elif document := _document(word):
            yield from (FIELD_SENTENCES["slots_twice"].format(key=key[:80]) for key in document.duplicate_keys)


def as_requested(words: Iterable[str]) -> Iterator[Any]:
    """Yield slots as the API's request has them. What is no JSON stays text, which the API refuses."""
    for word in words:
        document = _document(word) if is_name(word) else None
        yield document.value if document else word


def _document(word: str) -> strict_json.Document | None:
    brackets = Counter(_TEXT.sub("", word))
    if brackets["["] + brackets["{"] > _MOST_BRACKETS:
        return None
    try:
        return strict_json.parse(word.encode(), max_keys=len(word))
    except strict_json.NotJson:
        return None


def as_typed(slots: Iterable[Any]) -> tuple[str, ...]:
    """Return slots of a request as the form has them."""
    return tuple(slot if isinstance(slot, str) else json.dumps(slot, ensure_ascii=False) for slot in slots)


def named(kind: str, layout: str, base: str, key: str) -> str:
    """Return the name of a value's slot. Raises `ValidationError` with the form's field."""
    if (slot := read_number(base.strip())) is None:
        raise slot_fault("slot_base", "base")
    keys: list[Any] = {"string": [{"key": key, "type": "string"}], "array": [{"index": key.strip()}]}.get(kind, [])
    name = {"slot": hex(slot), "keys": keys or key.split(), "layout": layout or "solidity"}
    try:
        NamedSlot.model_validate(name)
    except WrongName as wrong:
        raise slot_fault("slot_key", "key", reason=body_fault(wrong.errors()[0]).message) from None
    return as_typed([name])[0]
