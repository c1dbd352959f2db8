"""Filters in the addresses of pages and files: the API's query parameters, with sentences for people."""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from django.core.exceptions import BadRequest
from django.http import HttpResponse, QueryDict
from pydantic import BaseModel, ValidationError

from chains.encoding import fault
from explorer.formatting import csv_lines
from queries import labels
from queries.strict_json import shown

# Number of a page, or an identifier of a row.
PAGE = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
Filters = TypeVar("Filters", bound=BaseModel)
# Sentences by the filter's name, and of names that are none.
_FAULT_SENTENCES = {
    "": "There is no filter called {}.",
    "account": "The account {}.",
    "block": "The block must be a number, in decimal digits.",
    "status": "There is no such status.",
    "label": labels.FAULT,
    "property": "There is no such property.",
    "slot": "The slot must be 0x and up to 64 hexadecimal digits.",
    "transaction": "The transaction must be a hash, or an index in decimal digits.",
    "log": "The log must be an index, in decimal digits.",
    "timestamp": "The time must be a number of seconds since 1970, in decimal digits.",
    **dict.fromkeys(("sourceChainId", "source"), "The source chain must be a chain id, in decimal digits."),
    **dict.fromkeys(("destinationChainId", "chain"), "The destination chain must be a chain id, in decimal digits."),
    **dict.fromkeys(("since", "until"), "A day is written as 2026-01-31."),
    **dict.fromkeys(("before", "after", "cursor", "page", "slots", "deliveries"), "There is no such page of the list."),
    "state": "There is no such state of queries.",
    "sort": "There is no such order of queries.",
    "of": "The list is of everybody, or your own.",
}


class UnreadableFilters(Exception):
    """Filters can't be read. `faults` has sentences by their names."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__()
        self.faults = faults


def typed(query: QueryDict) -> dict[str, str]:
    """Return the texts of the filters by their names, without empty ones. Repeated ones make one that can't be read."""
    texts = {name: ", ".join(filter(None, map(str.strip, values))) for name, values in query.lists()}
    return {name[:80]: typed for name, text in texts.items() if (typed := text.replace("\0", "")[:100])}


def known(query: QueryDict, name: str, is_known: Callable[[str], object], fault: str = "") -> str:
    """Return the text of one filter, empty without one. Raises `BadRequest` if it isn't known.

    `fault` is the key of the sentence, if it isn't the name.
    """
    text = typed(query).get(name, "")
    if text and not is_known(text):
        raise BadRequest(_FAULT_SENTENCES[fault or name])
    return text


def read(model: type[Filters], texts: Mapping[str, str]) -> Filters:
    """Return the filters, of a model that forbids others. Raises `UnreadableFilters`."""
    try:
        return model.model_validate(texts)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_context=False, include_input=False)
        names = dict.fromkeys(str(error["loc"][0]) for error in errors)
        faults = {
            name: _FAULT_SENTENCES[name].format(fault(texts.get("account", "")))
            if name in _FAULT_SENTENCES
            else _FAULT_SENTENCES[""].format(shown(name))
            for name in names
        }
        raise UnreadableFilters(faults) from None


def refusing_file(faults: Mapping[str, str], name: str, status: int = 400) -> HttpResponse:
    """Return a file that holds the sentences alone."""
    response = csv_lines.file(map(csv_lines.line, [["error"], *([sentence] for sentence in faults.values())]), name)
    response.status_code = status
    return response
