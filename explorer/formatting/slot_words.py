"""Names of storage slots in words. Nothing proves the call, the part and the decimals that a batch's sender states."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from batch_query_client import stated_words
from batch_query_client.namespaces import namespace

# A longer key is shortened.
MOST_OF_KEY = 20
ADDRESS_ENDS, WORD_ENDS = (6, 4), (10, 6)
"""Characters shown at both ends of long values, such as 0x7099…79C8 and 0xb15fd088…74143c."""
_ADDRESS_LENGTH = 42
# Maximum keys in a title.
_MOST_IN_TITLE = 4


@dataclass(frozen=True)
class PathPiece:
    """A piece of a path: a variable's slot, a key, or what stands between keys."""

    text: str
    is_key: bool = False
    """It is shortened if it is long."""


def path(name: Mapping[str, Any]) -> Iterator[PathPiece]:
    """Yield a name as a path, such as 0x2[0x7099…79C8][element 5].1 from a mapping to a struct's member."""
    yield PathPiece(name["slot"], is_key=True)
    if known := namespace(int(name["slot"], 16)):
        yield PathPiece(f" ({known})")
    for key in name["keys"]:
        if isinstance(key, str):
            yield from (PathPiece("["), PathPiece(key, is_key=True), PathPiece("]"))
        elif "member" in key:
            yield PathPiece(f".{key['member']}")
        elif "index" in key:
            of = f" of {key['length']}" if key.get("length") else ""
            size = f", {key['size']} bytes" if key.get("size", "32") != "32" else ""
            yield PathPiece(f"[element {key['index']}{of}{size}]")
        else:
            kind = "" if key["type"] == "string" else f"{key['type']} "
            yield from (PathPiece(f"[{kind}"), PathPiece(_text(key), is_key=True), PathPiece("]"))


def _text(key: Mapping[str, str]) -> str:
    # Escapes show what text would hide, such as marks that turn its direction.
    return json.dumps(key["key"]) if key["type"] == "string" else key["key"]


def ends(value: str) -> tuple[int, int]:
    return ADDRESS_ENDS if len(value) == _ADDRESS_LENGTH else WORD_ENDS


def in_short(value: str) -> str:
    """Return a key as plain text, by its ends if it is long."""
    start, end = ends(value)
    return f"{value[:start]}…{value[-end:]}" if len(value) > MOST_OF_KEY else value


def stated(name: Mapping[str, Any] | None) -> str:
    """Return what the sender states: `LEND balance of 0x7099…79C8`, or `slot said to be` and a call. Empty: nothing."""
    return stated_words.in_words(name, in_short)


def title(slot: str, name: Mapping[str, Any] | None) -> str:
    """Return a slot in words for titles: as its sender says, by its path, or by a short number."""
    if words := stated(name):
        return f"{words[0].upper()}{words[1:]}" if words.startswith("slot ") else words
    if name and 0 < len(name["keys"]) <= _MOST_IN_TITLE:
        return f"Slot {''.join(in_short(each.text) if each.is_key else each.text for each in path(name))}"
    return f"Slot {in_short(f'{int(slot, 16):#x}')}"
