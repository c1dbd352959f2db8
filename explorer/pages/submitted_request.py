"""The request of a batch as it was submitted, for everybody to see: without what is its sender's alone."""

import json
from typing import Any

from queries.models import Batch


def public_request(batch: Batch) -> dict[str, Any]:
    """The submitted JSON. Of a webhook only its presence is told: its URL and its headers may hold credentials."""
    body: dict[str, Any] = json.loads(batch.request)
    if "webhook" in body:
        body["webhook"] = None if body["webhook"] is None else {"url": "(not shown)"}
    return body


def as_text(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)
