"""The present API of the hosted service that this one replaces, over the same batches (docs/using/api.md)."""

import json
import re
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db.models import Max
from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Router, Schema
from pydantic import Field

from accounts import read_rate
from accounts.models import ApiKey
from api.batches import own_batch
from config.json_objects import iso
from queries import batch_request, query_rows, strict_json, submission
from queries.api import SUBMISSION
from queries.api_endpoint import PRESENT_REQUEST, READING_KEY, SUBMITTING_KEY, ApiError, body_of, errors
from queries.batch_request import AUTO, InvalidRequest
from queries.models import BatchStatus, Step, StepKind, StepStatus

router = Router(tags=["Present API"])

# Names of Satellite's fields, and ours.
_HEADER_NAMES = {"OMMERS_HASH": "UNCLES_HASH", "BENEFICIARY": "COINBASE", "NUMBER": "BLOCK_NUMBER"}
_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_DESTINATION, _OURS = "destination_chain_id", "destinationChainId"


class SubmittedRequest(Schema):
    status: str = Field(description="RECEIVED.")
    request_id: str = Field(description="Identifier of the batch query, a ULID.")


class PresentQuery(Schema):
    internal_id: str = Field(description="The batch's identifier and the query's number, from 1.")
    status: str = Field(description="COMPLETED, once it is readable; FAILED; or IN_PROGRESS.")
    typ: str = Field(description="ACCOUNT, TRANSACTION or HEADER.")
    created_at: str
    completed_at: str | None


class PresentQueries(Schema):
    queries: list[PresentQuery]


class PresentAction(Schema):
    typ: StepKind
    status: StepStatus
    created_at: str
    completed_at: str | None
    transaction_hash: str | None


class PresentActions(Schema):
    actions: list[PresentAction]


@router.post(
    "/submit-request",
    operation_id="submit_request",
    auth=SUBMITTING_KEY,
    response={200: SubmittedRequest, **errors(400, 401, 403, 411, 413, 415, 422, 429, 503)},
    openapi_extra={**SUBMISSION, **PRESENT_REQUEST},
)
def submit_request(request: HttpRequest) -> HttpResponse:
    """Submit a batch query as `/submit-batch-query` does.

    The destination is named `destination_chain_id`. Without a `fee`, the fee is `auto`. Fields of headers may have
    Satellite's names.
    """
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    named_by = request.headers.get(submission.IDEMPOTENCY_HEADER)
    try:
        submitted = submission.submit(key, named_by, lambda: _translated(body_of(request)))
    except InvalidRequest as invalid:
        for place, fault in enumerate(invalid.faults):
            invalid.faults[place] = replace(fault, path=fault.path.replace(f"/{_OURS}", f"/{_DESTINATION}"))
        raise
    answer = {"status": BatchStatus.RECEIVED.value, "request_id": submitted.batch_id}
    return JsonResponse(answer, headers=submitted.headers)


def _translated(body: bytes) -> bytes:
    """Return the body of `/submit-batch-query` that means the same. What is malformed is left to its validation."""
    try:
        document = strict_json.parse(body, max_keys=batch_request.most_keys(settings.MAX_QUERIES_PER_BATCH))
    except (strict_json.NotJson, strict_json.TooManyKeys):
        return body
    if document.duplicate_keys or not isinstance(document.value, dict):
        return body
    # A self-funded batch takes no fee.
    value: dict[str, Any] = {**({} if "sender" in document.value else {"fee": AUTO}), **document.value}
    if not {_DESTINATION, _OURS} <= value.keys():
        value[_OURS] = value.pop(_DESTINATION, None)
    for *_, block in batch_request.blocks(value):
        if isinstance(block, dict) and isinstance(block.get("header"), list):
            block["header"] = [_HEADER_NAMES.get(str(name), name) for name in block["header"]]
    return json.dumps(value).encode()


@router.get(
    "/get_queries/{request_id}",
    operation_id="get_queries",
    auth=READING_KEY,
    response={200: PresentQueries, **errors(401, 404, 429, 503)},
)
def get_queries(request: HttpRequest, request_id: str) -> HttpResponse | dict[str, Any]:
    """List all queries of one of your batch queries.

    A query that is COMPLETED can be read. Other queries of a rejected batch are FAILED.
    """
    batch = own_batch(request, request_id)
    if refusal := read_rate.refusal_of_items(request, batch.queries.count()):
        return refusal
    pending = "FAILED" if batch.status == BatchStatus.REJECTED else "IN_PROGRESS"
    ends = Step.objects.filter(query__batch=batch, query__step=None).values("query").annotate(Max("completed_at"))
    completed = dict(ends.values_list("query", "completed_at__max"))
    rows = batch.queries.order_by("position").values_list("pk", "position", "kind", "step")
    return {
        "queries": [
            {
                "internal_id": f"{batch.pk}-{position + 1}",
                "status": pending if step else "COMPLETED",
                "typ": kind,
                "created_at": batch.created_at.isoformat(),
                "completed_at": iso(completed.get(pk)),
            }
            for pk, position, kind, step in rows
        ]
    }


@router.get(
    "/get_actions/{query_id}",
    operation_id="get_actions",
    auth=READING_KEY,
    response={200: PresentActions, **errors(401, 404, 503)},
)
def get_actions(request: HttpRequest, query_id: str) -> dict[str, Any]:
    """List the steps that a query has begun. `query_id` is its `internal_id` in `/get_queries`."""
    batch_id, _, number = query_id.partition("-")
    batch = own_batch(request, batch_id)
    if not _NUMBER.fullmatch(number) or not (queries := query_rows.from_number(batch, int(number), 1)):
        raise ApiError(404, "not_found", "No query found")
    (steps,) = query_rows.steps_of(queries).values()
    return {
        "actions": [
            {
                "typ": step.kind,
                "status": step.status,
                "created_at": iso(step.started_at),
                "completed_at": iso(step.completed_at),
                "transaction_hash": step.transaction_hash or None,
            }
            for step in steps
        ]
    }
