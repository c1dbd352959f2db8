"""A middleware that takes the API key out of a request first, so that nothing else can log or show it.

No library is used, because libraries leave the key in the request, where logs and debug pages show it.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from pydantic import SecretStr

from config.logs import redact_keys
from config.query_strings import read_query, redacted

# Other variables with URLs. Gunicorn passes the whole request target in RAW_URI, other servers in REQUEST_URI. The
# referring page may have been opened with a key.
_URLS = ("RAW_URI", "REQUEST_URI", "HTTP_REFERER")


class ApiRequest(HttpRequest):
    """A request that went through `ApiKeyMiddleware`."""

    presented_key: SecretStr | None  # None: no key, or an empty one


class ApiKeyMiddleware:
    """Moves the key from the header `api-key`, else the query parameter `apiKey`, to `request.presented_key`.

    This middleware must come first, before anything reads `request.GET` or `request.headers` from META. The first of
    several parameters counts, and all are removed. Other text that looks like a key, in a parameter or in the path, is
    redacted. Everything else stays unchanged, byte for byte. No cache may store the answer to a request with a key,
    unless its view sets Cache-Control.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        _take_key(request)
        response = self.get_response(request)
        if request.presented_key:  # type: ignore[attr-defined]  # `_take_key` sets it
            response.headers.setdefault("Cache-Control", "no-store")
        return response


def _take_key(request: HttpRequest) -> None:
    meta = request.META
    from_header = meta.pop("HTTP_API_KEY", "")
    from_query = read_query(meta.get("QUERY_STRING", ""))
    meta["QUERY_STRING"] = from_query.without_keys
    for name in _URLS:
        if name in meta:
            path, mark, query = meta[name].partition("?")
            kept = read_query(query).without_keys
            meta[name] = redacted(path) + (mark if kept else "") + kept
    # Servers also pass the path decoded.
    request.path, request.path_info = redact_keys(request.path), redact_keys(request.path_info)
    meta["PATH_INFO"] = redact_keys(meta.get("PATH_INFO", ""))
    key = from_header or from_query.first_key
    request.presented_key = SecretStr(key) if key else None  # type: ignore[attr-defined]  # this makes it an ApiRequest
