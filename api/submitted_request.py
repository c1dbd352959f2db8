"""The request of a batch as everybody may see it, without what only its sender may see."""

import json
from typing import Any

from queries.models import Batch


def public_request(batch: Batch) -> dict[str, Any]:
    """Return the submitted JSON. Only the presence of a webhook is shown: its URL and headers may hold credentials."""
    body: dict[str, Any] = json.loads(batch.request)
    if "webhook" in body:
        body["webhook"] = None if body["webhook"] is None else {"url": "(not shown)"}
    return body


def as_text(body: dict[str, Any]) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)
