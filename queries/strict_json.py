"""JSON from strangers. What `json.loads` accepts silently, or answers with a surprise, is a fault here (RFC 8259).

Written by hand: no library at hand reports duplicate keys and bounds their number, nesting and digits before it parses.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pydantic_core import PydanticCustomError

UNSUPPORTED = "unsupported"
INVALID = "invalid_request"


def invalid(message: str) -> PydanticCustomError:
    # A custom error formats its message as a template, and the echoed text may hold braces.
    return PydanticCustomError(INVALID, "{message}", {"message": message})


def unsupported(message: str) -> PydanticCustomError:
    return PydanticCustomError(UNSUPPORTED, "{message}", {"message": message})


_MAX_DIGITS = 1000
# A run of characters of numbers that is too long. It may also be inside a string.
_LONG = re.compile(rf"(?<![-+.0-9eE])[-+.0-9eE]{{{_MAX_DIGITS + 1}}}")


class NotJson(ValueError):
    """The text is not JSON; the message says where it stops being JSON."""


@dataclass
class Document:
    value: Any
    # Keys that appear twice in one object. `json` would keep the last value and drop the others silently.
    duplicate_keys: list[str] = field(default_factory=list)


class TooManyKeys(ValueError):
    """The document has more keys than any sensible request."""


def parse(text: bytes, *, max_keys: int) -> Document:
    """Parse UTF-8 JSON. Raises `NotJson`, also for absurd nesting, lone surrogates, NaN and enormous numbers.

    More than `max_keys` keys in all objects together raise `TooManyKeys`: naming what is wrong with each of a million
    keys would keep a processor busy for minutes. More lists and objects than could be values of them are `NotJson`,
    before they take 20 times the text's size in memory.
    """
    if text.count(b"[") + text.count(b"{") > max_keys + 1:
        raise NotJson("The body has too many lists and objects, or is nested too deeply.")
    duplicates: list[str] = []
    keys = 0

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal keys
        keys += len(pairs)
        if keys > max_keys:
            raise TooManyKeys
        result = dict(pairs)
        if len(result) < len(pairs):
            seen: set[str] = set()
            duplicates.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return result

    try:
        value = _loads(text.decode(), collect)
    except UnicodeDecodeError:
        raise NotJson("The body is not UTF-8.") from None
    except UnicodeEncodeError:
        raise NotJson("The body holds half of a surrogate pair, which is not a character.") from None
    except RecursionError:
        raise NotJson("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except _NotStandard as error:
        raise NotJson(f"The body is not JSON: {error}.") from None
    return Document(value, duplicates)


def _loads(text: str, collect: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> Any:
    # Only in this case, because calling Python for each of two million numbers takes longer than everything else.
    is_long = _LONG.search(text) is not None
    value = json.loads(
        text,
        object_pairs_hook=collect,
        parse_constant=_refuse_constant,
        parse_int=_parse_int if is_long else None,
        parse_float=_parse_float if is_long else None,
    )
    # An escaped half of a surrogate pair is not a character: it can't be stored, logged or sent.
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


class _NotStandard(Exception):
    """Something beyond RFC 8259 that Python's parser accepts or can't handle."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotStandard(f"{name} is not a JSON value")


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _NotStandard(f"a number of {len(digits)} digits is too long")
    return int(digits)


def _parse_float(digits: str) -> float:
    if len(digits) > _MAX_DIGITS:
        raise _NotStandard(f"a number of {len(digits)} digits is too long")
    return float(digits)
