"""The submitted request of a batch, without the parts that only its sender may see."""

import json
from typing import Any

from queries.models import Batch


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
    return json.dumps(body, indent=2, ensure_ascii=False)
