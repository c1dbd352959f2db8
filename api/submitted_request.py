"""The submitted request of a batch, without the parts that only its sender may see."""

import json
import re
from typing import Any

from accounts.form_input import is_hidden
from batch_query_client.combining_marks import with_few_marks
from queries.models import Batch

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def public_request(batch: Batch) -> dict[str, Any]:
    """Return the submitted JSON. A webhook's URL and headers are replaced, because they may hold credentials.

    The label is the present one.
    """
    body: dict[str, Any] = json.loads(batch.request)
    if "webhook" in body:
        body["webhook"] = None if body["webhook"] is None else {"url": "(not shown)"}
    if "label" in body:  # a former one may have been a mistake
        body["label"] = batch.label
    return body


def as_text(body: dict[str, Any]) -> str:
    """Return the request as JSON in which nothing is hidden, and no character has many combining marks."""
    text = json.dumps(body, indent=2, ensure_ascii=False)
    text = with_few_marks(text, _escaped)
    return _NOT_ASCII.sub(lambda match: _escaped(match[0]) if is_hidden(match[0]) else match[0], text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]
