"""JSON from strangers: what `json.loads` silently accepts or answers with a surprise is a fault here (RFC 8259)."""

import json
from dataclasses import dataclass, field
from typing import Any, NoReturn


class NotJson(ValueError):
    """The text is not JSON; the message says where it stops being so."""


@dataclass
class Document:
    value: Any
    # Keys that stand twice in one object. `json` would keep the last value and drop the others unseen.
    duplicate_keys: list[str] = field(default_factory=list)


def parse(text: bytes) -> Document:
    """Parse UTF-8 JSON. Raises `NotJson`, also for absurd nesting, lone surrogates, NaN and enormous numbers."""
    duplicates: list[str] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            seen: set[str] = set()
            duplicates.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return result

    try:
        decoded = text.decode()
        value = json.loads(decoded, object_pairs_hook=collect, parse_constant=_refuse_constant)
        # An escaped half of a surrogate pair is no character: it can't be stored, logged or sent on.
        if "\\u" in decoded:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise NotJson("The body is not UTF-8.") from None
    except UnicodeEncodeError:
        raise NotJson("The body holds half of a surrogate pair, which is not a character.") from None
    except RecursionError:
        raise NotJson("The body is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except ValueError as error:
        raise NotJson(f"The body is not JSON: {error}.") from None
    return Document(value, duplicates)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
