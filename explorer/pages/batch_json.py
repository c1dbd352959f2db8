"""A batch's page for programs: the same content in JSON, in the API's spelling."""

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

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
}
_IN_WEI = {"fee", "spent", "estimated_wei"}


def as_json(page: BatchPage) -> dict[str, Any]:
    """Names in camel case; amounts of wei as decimal strings, since JSON numbers lose digits; times in ISO 8601.

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
    """The fields of a dataclass."""
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
