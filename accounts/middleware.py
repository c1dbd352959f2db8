"""Takes the API key out of a request before anything else sees it, so that nothing else can log or show it."""

from collections.abc import Callable
from urllib.parse import quote_plus, unquote_plus

from django.http import HttpRequest, HttpResponse
from pydantic import SecretStr

from config.logs import redact_keys

PARAMETER = "apiKey"

# The whole request target as servers hand it on beside QUERY_STRING: gunicorn's own workers the first, waitress and
# uWSGI the second. The third is the page that the request came from, which may have been opened with a key.
_URLS = ("RAW_URI", "REQUEST_URI", "HTTP_REFERER")


class ApiRequest(HttpRequest):
    """A request that went through `ApiKeyMiddleware`."""

    presented_key: SecretStr | None  # None: no key, or an empty one


class ApiKeyMiddleware:
    """Moves the key from the header `api-key`, else the query parameter `apiKey`, to `request.presented_key`.

    Must come first, before `request.GET` or `request.headers` are read from META. Of several parameters the first
    counts; all are removed. What else looks like a key, pasted into another parameter or the path, is redacted; what
    does not stays byte for byte. An answer to a request with a key is not to be stored, unless its view says how long
    it may be.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        _take_key(request)
        response = self.get_response(request)
        if request.presented_key:  # type: ignore[attr-defined]  # set by the line above the last
            response.headers.setdefault("Cache-Control", "no-store")
        return response


def _take_key(request: HttpRequest) -> None:
    meta = request.META
    from_header = meta.pop("HTTP_API_KEY", "")
    meta["QUERY_STRING"], from_query = _without_key(meta.get("QUERY_STRING", ""))
    for name in _URLS:
        if name in meta:
            path, mark, query = meta[name].partition("?")
            kept, _ = _without_key(query)
            meta[name] = _redacted(path) + (mark if kept else "") + kept
    # Decoded already, and by servers not only in META.
    request.path, request.path_info = redact_keys(request.path), redact_keys(request.path_info)
    meta["PATH_INFO"] = redact_keys(meta.get("PATH_INFO", ""))
    key = from_header or (from_query[0] if from_query else "")
    request.presented_key = SecretStr(key) if key else None  # type: ignore[attr-defined]  # this makes it an ApiRequest


def _without_key(query: str) -> tuple[str, list[str]]:
    """A query string without its keys, and the keys in it. Parameters are told apart as `QueryDict` does it."""
    kept, keys = [], []
    for part in query.split("&"):
        name, _, value = part.partition("=")
        # A misspelt one is a secret as well.
        if unquote_plus(name).lower() == PARAMETER.lower():
            keys.append(unquote_plus(value))
        else:
            kept.append(_redacted(part))
    return "&".join(kept), keys


def _redacted(part: str) -> str:
    """A part of a URL in its percent-encoded form."""
    text = unquote_plus(part)
    redacted = redact_keys(text)
    return part if redacted == text else quote_plus(redacted, safe=":/=")
