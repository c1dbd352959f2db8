"""Shared parts of the API's endpoints: the key, the body, and the form of errors.

Each module has a `Router` for its endpoints, and `config.urls` adds the routers to the API.
"""

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.http.response import HttpResponseBase
from django.template import loader
from django.views import defaults
from ninja import NinjaAPI, Schema
from ninja.openapi.schema import OpenAPISchema
from ninja.security import APIKeyHeader
from pydantic import Field

from accounts import keys
from accounts.models import ApiKey, User
from chains.chains_file import ChainsError
from config.database.statements import CompiledQuery
from config.error_answers import (
    Refused,
    error_answer,
    is_of_api,
    prefers_html,
    wants_json,
    why_unavailable,
    with_retry_after,
)
from queries import batch_request, database_check
from queries.batch_request import BodyFault, InvalidRequest
from queries.columns import RejectionCode
from queries.strict_json import INVALID, UNSUPPORTED


class ApiError(Refused):
    """An error that ends a request to the API with an error answer."""

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        faults: Sequence[BodyFault] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(code, sentence, retry_after=retry_after)
        self.status, self.faults = status, faults

    def response(self) -> HttpResponse:
        details = [{"path": fault.path, "message": fault.message, "code": fault.code} for fault in self.faults]
        return error_answer(self.status, self.code, self.sentence, details=details, retry_after=self.retry_after)


# The HTTP status by code. It is 429 for other codes.
_STATUS_BY_CODE = {
    **dict.fromkeys((INVALID, UNSUPPORTED, "invalid_idempotency_key"), 400),
    **dict.fromkeys(("read_only_key", "too_large_for_limit"), 403),
    **dict.fromkeys(("idempotency_key_reused", "slots_unknown", "call_failed", *RejectionCode), 422),
    **dict.fromkeys(("busy", "names_unavailable", "chain_unavailable"), 503),
}


def status_of(refused: Refused | InvalidRequest) -> int:
    """Return the HTTP status for a refused submission or estimate."""
    return refused.status if isinstance(refused, ApiError) else _STATUS_BY_CODE.get(refused.code, 429)


_SENTENCES = {
    400: ("bad_request", "The request is malformed."),
    403: ("forbidden", "The request is not allowed."),
    404: ("not_found", "There is nothing at this path."),
    405: ("method_not_allowed", "This path does not accept this method."),
    500: (
        "internal_error",
        "Something went wrong here; it has been logged. Nothing was stored unless you received an id.",
    ),
}


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer any exception: 503 if nothing can be stored or chains.toml can't be used, else 500."""
    # Django calls this function while it handles the exception.
    error = sys.exception()
    code, why = "storage_unavailable", error and why_unavailable(error)
    if isinstance(error, ChainsError):
        code, why = "chain_unavailable", "This service's chains file is unusable until the operator corrects it."
    if not why:
        return defaults.server_error(request)
    if is_of_api(request) or wants_json(request):
        sentence = f"{why} Try again later."
        response: HttpResponse = error_answer(503, code, sentence, retry_after=database_check.RETRY_SECONDS)
    else:
        response = HttpResponse(loader.render_to_string("503.html", {"why": why}), status=503)
        with_retry_after(response, database_check.RETRY_SECONDS)
    response.headers["Cache-Control"] = "no-store"
    return response


class JsonErrorsMiddleware:
    """Converts error answers of Django and libraries from HTML or plain text to JSON.

    Those are on the API's paths, and on paths that are nowhere if a program asks.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        is_json = response.get("Content-Type", "").startswith("application/json")
        # No path of the API ends with a slash. A path with a slash gets an API error, too.
        has_slash = request.path.endswith("/") and request.path[:-1] in settings.API_PATHS
        is_lost = response.status_code == HTTPStatus.NOT_FOUND and (
            wants_json(request) or not (request.resolver_match or prefers_html(request))
        )
        if response.status_code < 400 or is_json or not (has_slash or is_lost or is_of_api(request)):
            return response
        code, sentence = _SENTENCES.get(response.status_code, _SENTENCES[400])
        answer = error_answer(response.status_code, code, sentence)
        # Headers of other middleware stay, because browsers need the CORS headers to read the error.
        for name, value in response.items():
            if name not in {"Content-Type", "Content-Length", "Content-Encoding"}:
                answer[name] = value
        # Without this header the web server would close the connection.
        answer["Content-Length"] = str(len(answer.content))
        return answer


_REF = "#/components/schemas/"

_causes = tomllib.loads((Path(__file__).parent / "error_codes.toml").read_text("utf-8"))
ERROR_CODES = tuple((int(status), code, cause) for status, codes in _causes.items() for code, cause in codes.items())
"""Status, code and cause of every error (docs/specification.md, "Errors")."""
_CODES = "\n".join(f"- {status} `{code}`: {when}" for status, code, when in ERROR_CODES)
_INTRODUCTION = f"""
Proves what chains held at given blocks or times (accounts, storage slots, block headers) to contracts on a destination
chain, which may be the same chain or another.

Send the key in the header `api-key`; [the page of your keys](/keys) has it. The query parameter `apiKey` works as well,
but a key in a URL ends up in histories and in the logs of everything between you and this service.

Every error is an `Error`, with one of these codes:

{_CODES}
"""

TAGS = {
    "Batch queries": "To submit batch queries, follow and cancel them.",
    "Present API": "Batch queries in the form of the hosted service's present API.",
    "Facts": "What facts registries hold.",
    "Webhooks": "Notifications about a batch query's progress.",
    "Chains": "Supported chains.",
    "Explorer": "Public data, without a key.",
    "Health": "Whether the service works.",
}

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


def body_of_schema(name: str, example: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the `openapi_extra` of operations whose body has this schema."""
    content = {"application/json": {"schema": {"$ref": _REF + name}, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


BATCH_REQUEST = body_of_schema("BatchRequest", _EXAMPLE)
"""For `openapi_extra` of operations that take a batch query."""
PRESENT_REQUEST = body_of_schema(
    "PresentRequest", {"destination_chain_id": _EXAMPLE["destinationChainId"], "data": _EXAMPLE["data"]}
)


class Api(NinjaAPI):
    """The API, with a complete OpenAPI description."""

    def __init__(self, **kwargs: Any) -> None:
        tags = [{"name": name, "description": description} for name, description in TAGS.items()]
        super().__init__(description=_INTRODUCTION, openapi_extra={"tags": tags}, **kwargs)

    def get_openapi_schema(self, **_: Any) -> OpenAPISchema:
        """Return the OpenAPI document. Callers mustn't change it."""
        return self._document

    @cached_property
    def _document(self) -> OpenAPISchema:
        # The document is built only once, because building it takes as long as a hundred requests.
        document = super().get_openapi_schema()
        request = batch_request.BatchRequest.model_json_schema(ref_template=_REF + "{model}")
        schemas = document["components"]["schemas"] | request.pop("$defs") | {"BatchRequest": request}
        # The present API has another name for the destination.
        schemas["PresentRequest"] = json.loads(
            json.dumps(request).replace("destinationChainId", "destination_chain_id")
        )
        used = _used(document["paths"], schemas)
        document["components"]["schemas"] = {name: _tidied(schemas[name]) for name in sorted(used)}
        for path in document["paths"].values():
            for operation in path.values():
                for parameter in operation["parameters"]:
                    _complete(parameter["schema"])
        return document


def _complete(schema: dict[str, Any]) -> None:
    """Simplify the schema of a query parameter in place. Parameters can't be null."""
    schema.pop("title", None)
    schema.pop("description", None)
    if choices := [choice for choice in schema.pop("anyOf", ()) if choice != {"type": "null"}]:
        schema |= choices[0]


def _tidied(node: Any, keyword: str = "") -> Any:
    """Return a schema without titles, with one pattern for all keys of an object, so that no other key is allowed.

    It has no defaults, because type generators would make optional members mandatory.
    """
    if isinstance(node, list):
        return [_tidied(each) for each in node]
    if not isinstance(node, dict):
        return node
    schema = {name: _tidied(child, name) for name, child in node.items()}
    if keyword != "properties":
        schema.pop("title", None)
        schema.pop("default", None)
    for pattern, values in schema.pop("patternProperties", {}).items():
        schema |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    return schema


def _used(paths: Any, schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of the schemas that the paths refer to, directly or indirectly."""
    used: set[str] = set()
    text = json.dumps(paths)
    while new_names := set(re.findall(rf'"{_REF}(\w+)"', text)) - used:
        used |= new_names
        text = json.dumps([schemas[name] for name in new_names])
    return used


Authenticated = TypeVar("Authenticated")


class KeyAuth(APIKeyHeader, Generic[Authenticated]):
    """Set `request.auth` to the result of `read` for the request and `keys.digest` of its key. None: no valid key."""

    param_name = "api-key"

    def __init__(self, read: Callable[[HttpRequest, str], Authenticated | None]) -> None:
        super().__init__()
        self._read = read

    def _get_key(self, request: HttpRequest) -> str | None:
        # `accounts.middleware` took the key out of the request, from the header or from the query string.
        presented = getattr(request, "presented_key", None)
        return presented.get_secret_value() if presented else None

    def authenticate(self, request: HttpRequest, key: str | None) -> Authenticated | None:
        return self._read(request, keys.digest(key)) if key else None


def _key(_: HttpRequest, key_hash: str, *, reads_only: bool = False) -> ApiKey | None:
    return keys.authenticate_hash(key_hash, reads_only=reads_only)


_LIMITS = ("max_batches_per_minute", "max_queries_per_minute")
_WITH_LIMITS = CompiledQuery(
    lambda: keys.working().values_list(*keys.OWN_COLUMNS, *(f"user__{limit}" for limit in _LIMITS))
)


def _key_with_limits(_: HttpRequest, key_hash: str, *, reads_only: bool = False) -> ApiKey | None:
    row = keys.authenticate_and_read(_WITH_LIMITS, key_hash, reads_only=reads_only)
    if row is None:
        return None
    row.key.user = User.from_db(None, ("id", *_LIMITS), (row.key.user_id, *row.columns))
    return row.key


KEY = KeyAuth(_key)
"""A key with full access: `request.auth` is the `ApiKey`, with its `user_id`."""

READING_KEY = KeyAuth(partial(_key, reads_only=True))
"""A key with any access. An endpoint that changes nothing may use it."""

SUBMITTING_KEY = KeyAuth(_key_with_limits)
"""The same as `KEY`. Its `user` also has the limits that `queries.submission` needs."""

ESTIMATING_KEY = KeyAuth(partial(_key_with_limits, reads_only=True))
"""A key like that of `SUBMITTING_KEY`, or a read-only key."""


class Detail(Schema):
    path: str = Field(description="JSON pointer (RFC 6901) into the request's body.")
    message: str
    code: str


class Error(Schema):
    error: str = Field(description="A sentence.")
    code: str = Field(description="A stable word.")
    details: list[Detail] | None = Field(None, description="Every fault of the request's body.")


def errors(*statuses: int) -> Mapping[Any, type[Error]]:
    """Return an endpoint's error answers, for its `response`."""
    return dict.fromkeys(statuses, Error)


ETAG: Mapping[str, Any] = {"ETag": {"description": "For If-None-Match.", "schema": {"type": "string"}}}


def conditional_on(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `openapi_extra` of an endpoint that uses `conditional` and answers with these headers."""
    known = {"description": "Same as the answer with the ETag in If-None-Match.", "headers": headers}
    return {"responses": {200: {"headers": headers}, 304: known}}


_RETRY_AFTER = {"description": "In seconds; while the batch is open.", "schema": {"type": "integer", "minimum": 1}}
CONDITIONAL = conditional_on({**ETAG, "Retry-After": _RETRY_AFTER})
"""For the `openapi_extra` of an endpoint about a batch that answers by `conditional`."""


# Proxies that compress put these behind an ETag, within its quotes: Apache -gzip, Jetty --gzip.
_OF_COMPRESSED = ("", "-gzip", "--gzip", "-br", "-zstd")


def is_known(request: HttpRequest, etag: str) -> bool:
    """Return whether the client already has the answer with this ETag."""
    # If-None-Match may be a list, and a proxy may have made the ETag weak.
    known, opaque = request.headers.get("If-None-Match", ""), etag.removeprefix("W/").strip('"')
    return any(f'"{opaque}{ending}"' in known for ending in _OF_COMPRESSED)


JSON = "application/json; charset=utf-8"


def conditional(
    request: HttpRequest, content: bytes, etag: str = "", retry_after: int | None = None, *, content_type: str = JSON
) -> HttpResponse:
    """Answer with `content`, or with 304 if the client already has it. `retry_after` is in seconds.

    Without an `etag`, the answer has that of its content.
    """
    etag = etag or f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    known = is_known(request, etag)
    response = HttpResponse(status=304) if known else HttpResponse(content, content_type=content_type)
    response.headers["ETag"] = etag
    return with_retry_after(response, retry_after)


def body_of(request: HttpRequest) -> bytes:
    """Return the request's body. Raises `ApiError`."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise ApiError(415, "unsupported_encoding", "The body must not be compressed.")
    if request.content_type == "multipart/form-data":
        raise ApiError(415, "unsupported_media_type", "The body must be JSON.")
    if "Content-Length" not in request.headers and "Transfer-Encoding" in request.headers:
        raise ApiError(411, "length_required", "The body's length must be announced with Content-Length.")
    try:
        return request.body  # Django compares Content-Length with the limit before reading.
    except RequestDataTooBig:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        raise ApiError(413, "too_large", f"The body is larger than {limit} bytes.") from None
    except UnreadablePostError:
        raise ApiError(400, "incomplete", "The body ended before its announced length.") from None
