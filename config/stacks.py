"""The middleware that only pages need, or that can be had for less.

A request to the API has no session, no page and no static file, and each middleware that looks for one takes
its time. So `pages_only` lets requests to the API pass it by. What the API answers has the same headers.
"""

from collections.abc import Callable
from typing import Any, cast

from csp.constants import HEADER
from csp.utils import build_policy
from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse
from django.middleware.gzip import GZipMiddleware
from django_htmx.middleware import HtmxMiddleware
from whitenoise.middleware import WhiteNoiseMiddleware

from config.error_answers import is_of_api


def pages_only(middleware: type[Any]) -> type[Any]:
    """Return the middleware for all paths but the API's."""

    def answer(self: Any, request: HttpRequest) -> Any:
        if is_of_api(request):
            return self.get_response(request)
        return middleware.__call__(self, request)

    return cast(type[Any], type(middleware.__name__, (middleware,), {"__call__": answer}))


class ContentSecurityPolicy:
    """The same as csp's middleware, which makes the policy anew for each answer. Here all have one, without nonce."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response, self._policy = get_response, build_policy()

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        # Django's own pages about errors have styles inside.
        if not (settings.DEBUG and response.status_code in {404, 500}):
            response.headers[HEADER] = self._policy
        return response


class PageCompression(GZipMiddleware):
    """Compresses the pages that visitors get, and nothing else.

    Files are stored compressed, or are large and take long. What is shown to one person, such as a webhook's URL, is
    not compressed: the length, beside what somebody else has put into the request, would tell of it (BREACH).
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:  # type: ignore[override]
        is_anybodys = request.method == "GET" and settings.SESSION_COOKIE_NAME not in request.COOKIES
        if is_anybodys and response.headers.get("Content-Type", "").startswith("text/html"):
            return super().process_response(request, response)  # type: ignore[return-value]
        return response


Compression = pages_only(PageCompression)
WhiteNoise = pages_only(WhiteNoiseMiddleware)
Session = pages_only(SessionMiddleware)
Authentication = pages_only(AuthenticationMiddleware)
Message = pages_only(MessageMiddleware)
Htmx = pages_only(HtmxMiddleware)
