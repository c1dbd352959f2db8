"""The HTTP API (docs/specification.md, "Endpoints"), and its endpoints that take batches and tell their status.

`config.urls` adds the endpoints of other packages; `queries.api_endpoint` has what all share. OpenAPI and the docs page
come from the same schemas. Errors have the form of `config.error_answers`, with `details` where a request has faults.
"""

import hashlib
import json
import logging
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, ValidationError
from pydantic import Field

from accounts.models import ApiKey
from config.configured_chains import get_chains
from config.error_answers import Refused, error_answer, refused_answer
from queries import batch_request, status, submission, submission_rate
from queries.api_endpoint import SUBMITTING_KEY, KeyAuth, body_of, errors
from queries.api_errors import ApiError

logger = logging.getLogger(__name__)

# Every other code is 429.
_REFUSED_STATUS = {"busy": 503, "storage_quota_exceeded": 403, "too_large_for_limit": 403}

_DESCRIPTION = """
Proves what chains held at given blocks or times (accounts, storage slots, block headers) to contracts on a destination
chain, which may be the same chain or another.

Send the key in the header `api-key`. The query parameter `apiKey` works as well, but a key in a URL ends up in
histories and in the logs of everything between you and this service, so this page doesn't build such URLs.
"""

api = NinjaAPI(
    title="Batch Query Service",
    version="1",
    description=_DESCRIPTION,
    docs_url="/api/docs",
    openapi_url="/api/openapi.json",
    urls_namespace="api",
)


def _key_and_status(request: HttpRequest, key_hash: str) -> status.Asked | None:
    return status.read(key_hash, request.GET.get("batchQueryId", ""))


class Submitted(Schema):
    internalId: str = Field(description="Identifier of the batch query, a ULID.")


class Status(Schema):
    queryStatus: str = Field(description="DONE, IN_PROGRESS or REJECTED.")
    error: str | None = Field(None, description="Why the batch was rejected, a sentence.")
    code: str | None = Field(None, description="Why the batch was rejected, a stable word.")
    retryable: bool | None = Field(None, description="Whether sending a rejected batch again can help.")
    info: list[str] | None = Field(None, description="What the batch waits for, in sentences.")


class Connection(Schema):
    originChainId: str
    destinationChainId: str


class Connections(Schema):
    connections: list[Connection]


def _request_schema() -> dict[str, Any]:
    """The body's schema with its definitions inlined: references would point into this object, not the document."""
    schema = batch_request.BatchRequest.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(item) for item in node]
        if not isinstance(node, dict):
            return node
        if reference := node.get("$ref"):
            return inline(definitions[reference.rsplit("/", 1)[1]])
        return {key: inline(value) for key, value in node.items()}

    resolved: dict[str, Any] = inline(schema)
    return resolved


_EXAMPLE = {
    "destinationChainId": "31337",
    "fee": "0",
    "data": {
        "31337": {
            "block:12": {
                "accounts": {"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266": {"props": ["BALANCE"], "slots": []}}
            }
        }
    },
}


@api.post(
    "/submit-batch-query",
    auth=SUBMITTING_KEY,
    response={200: Submitted, **errors(400, 401, 403, 411, 413, 415, 429, 503)},
    exclude_none=True,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _request_schema(), "example": _EXAMPLE}},
        }
    },
)
def submit_batch_query(request: HttpRequest) -> dict[str, str]:
    """Submit a batch query. The answer comes as soon as it is stored; proving happens in the background."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    submission_rate.check(key.user)
    try:
        body = body_of(request)
        parsed = batch_request.parse(body, get_chains(), max_queries=settings.MAX_QUERIES_PER_BATCH)
        batch = submission.store(parsed, body, key)
    except DatabaseError:
        raise  # To count it would wait for the same lock once more.
    except Exception as error:
        # What is stored was counted with it, in one transaction.
        submission_rate.count_request(key.user)
        if isinstance(error, batch_request.InvalidRequest):
            raise ApiError(400, error.code, error.sentence, faults=error.faults) from None
        raise
    # Workers' lines have the batch and not the request.
    logger.info("batch %s is stored", batch.pk, extra={"batch": batch.pk})
    return {"internalId": batch.pk}


_STATUS_HEADERS = {
    "ETag": {"description": "For If-None-Match.", "schema": {"type": "string"}},
    "Retry-After": {
        "description": "In seconds; while the status is IN_PROGRESS.",
        "schema": {"type": "integer", "minimum": 1},
    },
}


@api.get(
    "/batch-query-status",
    auth=KeyAuth(_key_and_status),
    response={200: Status, **errors(400, 401, 404, 503)},
    openapi_extra={
        "responses": {
            200: {"headers": _STATUS_HEADERS},
            304: {"description": "As the answer that had the ETag of If-None-Match.", "headers": _STATUS_HEADERS},
        }
    },
)
def batch_query_status(request: HttpRequest, batchQueryId: str) -> HttpResponse:
    """How far one of your batch queries is. RECEIVED and ACCEPTED are reported as IN_PROGRESS.

    While it is, the header Retry-After says after how many seconds to ask again. If-None-Match with the ETag of the
    last answer gets 304 without a body where nothing has changed.
    """
    batch: status.BatchStatusRow | None = request.auth.batch  # type: ignore[attr-defined]
    if not batch:
        raise ApiError(404, "not_found", "No query found")
    # Written as it is: to validate our own answer would take longer than to read it.
    body = json.dumps(batch.body()).encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    # A list may have it, and a proxy may have marked it as weak.
    if etag in request.headers.get("If-None-Match", ""):
        response = HttpResponse(status=304)
    else:
        response = HttpResponse(body, content_type="application/json; charset=utf-8")
    response.headers["ETag"] = etag
    if seconds := batch.poll_seconds():
        response.headers["Retry-After"] = str(seconds)
    return response


@api.get("/chain-connections", response=Connections)
def chain_connections(request: HttpRequest) -> dict[str, Any]:
    """Which source chains can be proven on which destination chains."""
    return {
        "connections": [
            {"originChainId": str(connection.source_id), "destinationChainId": str(connection.destination_id)}
            for connection in get_chains().connections
        ]
    }


@api.exception_handler(ApiError)
def _api_error(request: HttpRequest, error: ApiError) -> HttpResponse:
    return error.response()


@api.exception_handler(Refused)
def _refused(request: HttpRequest, refused: Refused) -> HttpResponse:
    """A submission that a limit refuses."""
    return refused_answer(_REFUSED_STATUS.get(refused.code, 429), refused)


@api.exception_handler(AuthenticationError)
def _unauthorized(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    # The answer is the same whether the key is missing, unknown, expired or revoked.
    return error_answer(401, "unauthorized", "A valid API key is needed, in the header api-key.")


@api.exception_handler(ValidationError)
def _invalid_parameters(request: HttpRequest, error: ValidationError) -> HttpResponse:
    names = ", ".join(str(detail["loc"][-1]) for detail in error.errors)
    return error_answer(400, batch_request.INVALID, f"The query parameter {names} is missing or malformed.")
