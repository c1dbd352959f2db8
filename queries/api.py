"""The HTTP API (docs/specification.md, "Endpoints"), with the endpoints that take batches and return their status.

`config.urls` adds the endpoints of `api` and `explorer`. `queries.api_endpoint` has their shared parts. OpenAPI
comes from the same schemas. Errors have the form of `config.error_answers`, with `details` of faults in the
request.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Schema
from ninja.errors import AuthenticationError, ValidationError
from ninja.params import functions
from pydantic import Field

from accounts.models import ApiKey
from config.error_answers import Refused, error_answer, refused_answer
from queries import status, strict_json, submission
from queries.api_endpoint import (
    BATCH_REQUEST,
    CONDITIONAL,
    SUBMITTING_KEY,
    Api,
    ApiError,
    KeyAuth,
    body_of,
    conditional,
    errors,
    is_known,
    status_of,
)
from queries.batch_request import InvalidRequest

api = Api(
    title="Batch Query Service",
    version="1",
    docs_url=None,  # the page is `explorer.api_docs`
    openapi_url="/api/openapi.json",
    urls_namespace="api",
)


def _known_parameters_only(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse query parameters that the OpenAPI document doesn't name, or that are repeated, as fields of a body are."""

    @wraps(operation)
    def checked(request: HttpRequest, *arguments: Any, **values: Any) -> Any:
        # A probe may add what keeps a cache from answering it.
        if request.GET and request.path != "/healthz":
            known = _parameters(request.resolver_match.route, str(request.method))  # type: ignore[union-attr]
            if unknown := request.GET.keys() - known:
                names = ", ".join(sorted(name[:80] for name in unknown)[:10])
                of_path = f"Those of this path are: {', '.join(known)}." if known else "This path has none."
                raise ApiError(400, strict_json.INVALID, f"There is no query parameter {names} here. {of_path}")
            if repeated := [name for name, values in request.GET.lists() if len(values) > 1]:
                raise ApiError(400, strict_json.INVALID, f"The query parameter {repeated[0]} is given more than once.")
        return operation(request, *arguments, **values)

    return checked


@cache
def _parameters(route: str, method: str) -> Sequence[str]:
    """Return the names of the query parameters of a path and method. Each poll asks, so they are kept."""
    path = re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", f"/{route}")
    parameters = api.get_openapi_schema()["paths"][path]["get" if method == "HEAD" else method.lower()]["parameters"]
    return [parameter["name"] for parameter in parameters if parameter["in"] == "query"]


api.add_decorator(_known_parameters_only)

# Maximum seconds that a request may wait. Proxies and clients give up after half a minute or later.
_MOST_WAIT = 25
_LOOK_SECONDS = 0.5
# A waiting request occupies one of the process's eight threads.
_waiting = threading.BoundedSemaphore(2)


def _key_and_status(request: HttpRequest, key_hash: str) -> status.KeyAndBatch | None:
    return status.read(key_hash, request.GET.get("batchQueryId", ""))


_KEY_AND_STATUS = KeyAuth(_key_and_status)


class Submitted(Schema):
    internalId: str = Field(description="Identifier of the batch query, a ULID.")


class Status(Schema):
    queryStatus: status.QueryStatus
    label: str | None = Field(None, description="The batch's label. Left out: it has none.")
    error: str | None = Field(None, description="A sentence: why the service rejected the batch.")
    code: str | None = Field(None, description="A stable word: why the service rejected the batch.")
    retryable: bool | None = Field(None, description="Whether sending a rejected batch again can help.")
    info: list[str] | None = Field(None, description="Sentences about what the batch waits for.")


SUBMISSION = {
    **BATCH_REQUEST,
    "parameters": [
        {
            "in": "header",
            "name": submission.IDEMPOTENCY_HEADER,
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            "description": "A second request with the same key and the same body makes no second batch.",
        }
    ],
    "responses": {
        200: {
            "headers": {
                submission.REPLAYED: {
                    "description": "An earlier request with the same Idempotency-Key made this batch.",
                    "schema": {"type": "string", "enum": ["true"]},
                }
            }
        }
    },
}


@api.post(
    "/submit-batch-query",
    operation_id="submit_batch_query",
    tags=["Batch queries"],
    auth=SUBMITTING_KEY,
    response={200: Submitted, **errors(400, 401, 403, 411, 413, 415, 422, 429, 503)},
    openapi_extra=SUBMISSION,
)
def submit_batch_query(request: HttpRequest) -> HttpResponse:
    """Submit a batch query. The answer comes as soon as the service has stored it. The service proves it in the
    background.
    """
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    submitted = submission.submit(key, request.headers.get(submission.IDEMPOTENCY_HEADER), lambda: body_of(request))
    return JsonResponse({"internalId": submitted.batch_id}, headers=submitted.headers)


@api.get(
    "/batch-query-status",
    operation_id="get_batch_query_status",
    tags=["Batch queries"],
    auth=_KEY_AND_STATUS,
    response={200: Status, **errors(400, 401, 404, 503)},
    openapi_extra=CONDITIONAL,
)
def batch_query_status(
    request: HttpRequest,
    batchQueryId: str,
    wait: int = functions.Query(0, ge=0, le=_MOST_WAIT, description="Maximum seconds to wait for a change."),
) -> HttpResponse:
    """Return the progress of one of your batch queries. RECEIVED and ACCEPTED are reported as IN_PROGRESS.

    If the status is IN_PROGRESS, the header Retry-After says when to ask again, in seconds. With the last answer's ETag
    in If-None-Match, the answer is 304 without a body if nothing has changed.

    With `wait`, the answer comes when `queryStatus` changes, or after these seconds. The change counts from the answer
    with the ETag in If-None-Match, or from IN_PROGRESS. The answer may come earlier without a change, for example if
    many requests wait.
    """
    batch = _batch_of(request.auth)  # type: ignore[attr-defined]
    answer = batch.answer()
    is_news = not is_known(request, answer.etag) if request.headers.get("If-None-Match") else not batch.is_open
    is_head = request.META["REQUEST_METHOD"] == "HEAD"  # its answer has only headers
    if wait and not is_news and not is_head and _has_waited(batch, wait):
        # The key may have been revoked meanwhile.
        key_and_batch = _KEY_AND_STATUS(request)
        if key_and_batch is None:
            raise AuthenticationError
        batch = _batch_of(key_and_batch)
        answer = batch.answer()
    # The answer isn't validated, because that would take longer than reading the status.
    return conditional(request, json.dumps(answer.body).encode(), answer.etag, batch.poll_seconds())


def _batch_of(key_and_batch: status.KeyAndBatch) -> status.BatchStatusRow:
    if not key_and_batch.batch:
        raise ApiError(404, "not_found", "No query found")
    return key_and_batch.batch


def _has_waited(batch: status.BatchStatusRow, seconds: int) -> bool:
    """Wait until the batch's `queryStatus` changes or time is up. Return False at once if too many requests wait."""
    if not _waiting.acquire(blocking=False):
        return False
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until and status.of_batch(batch.id) == batch.query_status:
            time.sleep(_LOOK_SECONDS)
    finally:
        _waiting.release()
    return True


@api.exception_handler(ApiError)
def _api_error(request: HttpRequest, error: ApiError) -> HttpResponse:
    return error.response()


@api.exception_handler(InvalidRequest)
def _invalid_body(request: HttpRequest, invalid: InvalidRequest) -> HttpResponse:
    return ApiError(status_of(invalid), invalid.code, invalid.sentence, faults=invalid.faults).response()


@api.exception_handler(Refused)
def _refused(request: HttpRequest, refused: Refused) -> HttpResponse:
    """Answer a refused request."""
    return refused_answer(status_of(refused), refused)


@api.exception_handler(AuthenticationError)
def _unauthorized(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    # The answer is the same whether the key is missing, unknown, expired or revoked.
    sentence = "A valid API key is needed, in the header api-key or the query parameter apiKey."
    return error_answer(401, "unauthorized", sentence)


@api.exception_handler(ValidationError)
def _invalid_parameters(request: HttpRequest, error: ValidationError) -> HttpResponse:
    names = ", ".join(str(detail["loc"][-1]) for detail in error.errors)
    # The service's own messages are clearer than pydantic's, and don't quote the request.
    causes = dict.fromkeys(detail["msg"] for detail in error.errors if detail["type"] == strict_json.INVALID)
    sentence = f"The query parameter {names} is missing or malformed{': ' if causes else ''}{'; '.join(causes)}."
    return error_answer(400, strict_json.INVALID, sentence)
