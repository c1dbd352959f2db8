"""Takes the API key out of a request before anything else sees it, so that nothing else can log or show it."""

from collections.abc import Callable
from urllib.parse import unquote_plus

from django.http import HttpRequest, HttpResponse
from pydantic import SecretStr

PARAMETER = "apiKey"

# The whole request target as servers hand it on beside QUERY_STRING: gunicorn the first, uWSGI the second. The third is
# the page that the request came from, which may have been opened with a key.
_URLS = ("RAW_URI", "REQUEST_URI", "HTTP_REFERER")


class ApiRequest(HttpRequest):
    """A request that went through `ApiKeyMiddleware`."""

    presented_key: SecretStr | None  # None: no key, or an empty one


class ApiKeyMiddleware:
    """Moves the key from the header `api-key`, else the query parameter `apiKey`, to `request.presented_key`.

    Must come first, before `request.GET` or `request.headers` are read from META. Of several parameters the first
    counts; all are removed and the others stay byte for byte. An answer to a request with a key is not to be stored,
    unless its view says how long it may be.
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
    query, from_query = _without_key(meta.get("QUERY_STRING", ""))
    if from_query:
        meta["QUERY_STRING"] = query
    for name in _URLS:
        path, mark, url_query = meta.get(name, "").partition("?")
        query, found = _without_key(url_query)
        if found:
            meta[name] = path + (mark if query else "") + query
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
            kept.append(part)
    return "&".join(kept), keys
