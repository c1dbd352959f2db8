"""What the endpoints of the API share, in whatever package they are: the key, the body, and the form of errors.

An endpoint belongs to a `Router` of its module, and `config.urls` adds that to the API.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from ninja import Schema
from ninja.security import APIKeyHeader
from pydantic import Field

from accounts import keys
from accounts.models import ApiKey, User
from database.compiled_queries import CompiledQuery
from queries.api_errors import ApiError

Found = TypeVar("Found")


class KeyAuth(APIKeyHeader, Generic[Found]):
    """`request.auth` becomes what `read` finds, by the request and `keys.digest` of the key. None: no valid key."""

    param_name = "api-key"

    def __init__(self, read: Callable[[HttpRequest, str], Found | None]) -> None:
        super().__init__()
        self._read = read

    def _get_key(self, request: HttpRequest) -> str | None:
        # `accounts.middleware` took the key out of the request, from the header or from the query string.
        presented = getattr(request, "presented_key", None)
        return presented.get_secret_value() if presented else None

    def authenticate(self, request: HttpRequest, key: str | None) -> Found | None:
        return self._read(request, keys.digest(key)) if key else None


def _key(_: HttpRequest, key_hash: str) -> ApiKey | None:
    return keys.authenticate_hash(key_hash)


_LIMITS = ("max_batches_per_minute", "max_queries_per_minute")
_SUBMITTING = CompiledQuery(
    lambda: keys.working().values_list(*keys.TOLD_FIRST, *(f"user__{limit}" for limit in _LIMITS))
)


def _submitting_key(_: HttpRequest, key_hash: str) -> ApiKey | None:
    found = keys.authenticate_and_read(_SUBMITTING, key_hash)
    if found is None:
        return None
    key, limits = found
    key.user = User.from_db(None, ("id", *_LIMITS), (key.user_id, *limits))
    return key


KEY = KeyAuth(_key)
"""`request.auth` is the `ApiKey`, with its `user_id`."""

SUBMITTING_KEY = KeyAuth(_submitting_key)
"""The same as `KEY`; its `user` also has what `queries.submission_rate` asks for."""


class Detail(Schema):
    path: str = Field(description="JSON pointer (RFC 6901) into the request's body.")
    message: str
    code: str


class Error(Schema):
    error: str = Field(description="A sentence.")
    code: str = Field(description="A stable word.")
    details: list[Detail] | None = Field(None, description="Every fault of the request's body.")


def errors(*statuses: int) -> Mapping[Any, type[Error]]:
    """Return the error answers of an endpoint, for its `response`."""
    return dict.fromkeys(statuses, Error)


READ = ["GET", "HEAD"]
"""The methods of an endpoint whose headers alone are asked for too."""

ETAG: Mapping[str, Any] = {"ETag": {"description": "For If-None-Match.", "schema": {"type": "string"}}}


def conditional_on(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `openapi_extra` of an endpoint that answers by `conditional`, with these headers."""
    known = {"description": "As the answer that had the ETag of If-None-Match.", "headers": headers}
    return {"responses": {200: {"headers": headers}, 304: known}}


_RETRY_AFTER = {"description": "In seconds; while the batch is open.", "schema": {"type": "integer", "minimum": 1}}
CONDITIONAL = conditional_on({**ETAG, "Retry-After": _RETRY_AFTER})
"""For the `openapi_extra` of an endpoint about a batch that answers by `conditional`."""


def is_known(request: HttpRequest, etag: str) -> bool:
    """Return whether the client has the answer with this ETag."""
    # A list may have it, and a proxy may have made another out of it.
    return etag.removeprefix("W/") in request.headers.get("If-None-Match", "")


JSON = "application/json; charset=utf-8"


def conditional(
    request: HttpRequest, content: bytes, etag: str, retry_after: int | None = None, *, content_type: str = JSON
) -> HttpResponse:
    """Answer with `content`, or with 304 and without it where the client has it. `retry_after` is in seconds."""
    known = is_known(request, etag)
    response = HttpResponse(status=304) if known else HttpResponse(content, content_type=content_type)
    response.headers["ETag"] = etag
    if retry_after:
        response.headers["Retry-After"] = str(retry_after)
    return response


def body_of(request: HttpRequest) -> bytes:
    """Return the request's body. Raises `ApiError`."""
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise ApiError(415, "unsupported_encoding", "The body must not be compressed.")
    if request.content_type == "multipart/form-data":
        raise ApiError(415, "unsupported_media_type", "The body must be JSON.")
    if "Content-Length" not in request.headers and "Transfer-Encoding" in request.headers:
        raise ApiError(411, "length_required", "The body's length must be announced with Content-Length.")
    try:
        return request.body  # Django compares Content-Length with the limit before it reads.
    except RequestDataTooBig:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        raise ApiError(413, "too_large", f"The body is larger than {limit} bytes.") from None
    except UnreadablePostError:
        raise ApiError(400, "incomplete", "The body ended before its announced length.") from None
