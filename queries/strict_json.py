"""A parser for untrusted JSON. Input that `json.loads` accepts silently or handles oddly is a fault here (RFC 8259).

No installed library reports duplicate keys, and limits their number, nesting and digits before parsing.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

UNSUPPORTED = "unsupported"
INVALID = "invalid_request"


def invalid(message: str) -> PydanticCustomError:
    # A custom error's message is a template, so quoted text with braces must not be part of it.
    return PydanticCustomError(INVALID, "{message}", {"message": message})


def unsupported(message: str) -> PydanticCustomError:
    return PydanticCustomError(UNSUPPORTED, "{message}", {"message": message})


# Maximum characters of a value that a fault shows.
_MAX_ECHO = 80
_KINDS = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}


def shortened(text: str) -> str:
    return text if len(text) <= _MAX_ECHO else text[: _MAX_ECHO - 1] + "…"


def shown(value: object) -> str:
    """Return a value for the sentence of a fault."""
    return repr(shortened(value)) if isinstance(value, str) else _KINDS.get(type(value), "a number")


def text_type(pattern: str, sentence: str) -> Any:
    """Return the validator of texts that match. In the sentence about others, the value takes the place of `{}`."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            raise invalid(sentence.format(shown(value)))
        return value

    return BeforeValidator(check, json_schema_input_type=Annotated[str, Field(pattern=pattern)])


_MAX_DIGITS = 1000
# Too many consecutive characters of numbers. They may also be inside a string.
_LONG = re.compile(rf"(?<![-+.0-9eE])[-+.0-9eE]{{{_MAX_DIGITS + 1}}}")


class NotJson(ValueError):
    """The text isn't JSON. The message says where the fault is."""


@dataclass
class Document:
    value: Any
    # Keys that an object has twice. `json` would silently keep only the last value.
    duplicate_keys: list[str] = field(default_factory=list)


class TooManyKeys(ValueError):
    """The document has more keys than allowed."""


def parse(text: bytes, *, max_keys: int) -> Document:
    """Parse UTF-8 JSON. Raises `NotJson`, also for too deep nesting, lone surrogates, NaN and enormous numbers.

    Raises `TooManyKeys` if all objects together have more than `max_keys` keys, because naming the faults of a million
    keys would take minutes. Raises `NotJson` if there are more lists and objects than keys, because they would take 20
    times the text's size in memory.
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
        raise NotJson("The body has half of a surrogate pair, which is not a character.") from None
    except RecursionError:
        raise NotJson("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except _NotStandard as error:
        raise NotJson(f"The body is not JSON: {error}.") from None
    return Document(value, duplicates)


def _loads(text: str, collect: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> Any:
    # Numbers are checked only if one may be too long, because two million calls of Python would take longest of all.
    is_long = _LONG.search(text) is not None
    value = json.loads(
        text,
        object_pairs_hook=collect,
        parse_constant=_refuse_constant,
        parse_int=_parse_int if is_long else None,
        parse_float=_parse_float if is_long else None,
    )
    # Half of an escaped surrogate pair isn't a character. It can't be stored, logged or sent.
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


class _NotStandard(Exception):
    """Input outside of RFC 8259 that Python's parser accepts, or that it can't handle."""


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
