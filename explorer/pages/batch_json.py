"""A batch's page for programs: the same content in JSON, in the API's spelling."""

from dataclasses import fields, is_dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from explorer.pages.batch_page import BatchPage
from explorer.pages.query_cards import ShownStep

# What only the page needs.
_LEFT_OUT = {
    "meaning",
    "meanings",
    "snippets",
    "rows",
    "only",
    "is_configured",
    "first_slot",
    "note",
    "filters",
    "sent_at",
    "mined_at",
}
_IN_WEI = {"fee", "spent", "estimated_wei", "gas_price"}


def as_json(page: BatchPage) -> dict[str, Any]:
    """Return the page as JSON.

    Names are in camel case; amounts of wei are decimal strings, since JSON numbers lose digits; times are in ISO 8601.

    Programs get one flat object, whatever the page is made of.
    """
    header, queries, rejection = _object(page.header), _object(page.queries), page.rejection
    return {
        "internalId": header.pop("id"),
        **header,
        **_object(page.costs),
        **_object(page.progress),
        "rejectionCode": rejection.code if rejection else "",
        "rejectionReason": rejection.reason if rejection else "",
        "rejectionRetryable": bool(rejection and rejection.retryable),
        "sources": _value(page.sources),
        "queries": queries.pop("cards"),
        **queries,
    }


def _object(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass."""
    body = {
        _camel(field.name): _amount(field.name, getattr(value, field.name))
        for field in fields(value)
        if field.name not in _LEFT_OUT
    }
    if isinstance(value, ShownStep):
        body["seconds"] = value.took.total_seconds() if value.took is not None else None
        # Clients of the first form of this answer read it here.
        body["transactionHash"] = value.transaction.hash if value.transaction else ""
    return body


def _value(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value


def _amount(name: str, value: Any) -> Any:
    return str(value) if name in _IN_WEI and value is not None else _value(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


# --- Described --------------------------------------------------------------------------------------------------------

_PLAIN: dict[Any, dict[str, str]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
}


def schemas(reference: str) -> dict[str, Any]:
    """Return the JSON schemas of `as_json` by name. The first is the whole. `reference` is put before a name."""
    found: dict[str, Any] = {BatchPage.__name__: {}}

    def schema(kind: Any, name: str = "") -> dict[str, Any]:
        if name in _IN_WEI and kind is not NoneType and not isinstance(kind, UnionType):
            return {"type": "string", "description": "Wei, decimal."}
        if kind in _PLAIN:
            return _PLAIN[kind]
        if isinstance(kind, UnionType):
            return {"anyOf": [schema(one, name) for one in get_args(kind)]}
        if get_origin(kind) is tuple:
            return {"type": "array", "items": schema(get_args(kind)[0])}
        if kind.__name__ not in found:
            found[kind.__name__] = {}
            found[kind.__name__] = _object_schema(properties(kind))
        return {"$ref": f"{reference}{kind.__name__}"}

    def properties(kind: Any) -> dict[str, Any]:
        hints = get_type_hints(kind)
        told = {
            _camel(field.name): schema(hints[field.name], field.name)
            for field in fields(kind)
            if field.name not in _LEFT_OUT
        }
        if kind is ShownStep:
            told |= {"seconds": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "transactionHash": schema(str)}
        return told

    hints = get_type_hints(BatchPage)
    header, queries = properties(hints["header"]), properties(hints["queries"])
    found[BatchPage.__name__] = _object_schema(
        {
            "internalId": header.pop("id"),
            **header,
            **properties(hints["costs"]),
            **properties(hints["progress"]),
            "rejectionCode": schema(str),
            "rejectionReason": schema(str),
            "rejectionRetryable": schema(bool),
            "sources": schema(hints["sources"]),
            "queries": queries.pop("cards"),
            **queries,
        }
    )
    return found


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
