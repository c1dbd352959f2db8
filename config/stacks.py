"""The middleware that only pages need.

A request to the API has no session, no form, no page and no static file, and each middleware that looks for one takes
its time. So `pages_only` lets requests to `settings.API_PATHS` pass it by. What the API answers has the same headers.
"""

from typing import Any, cast

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware
from django_htmx.middleware import HtmxMiddleware
from whitenoise.middleware import WhiteNoiseMiddleware


def pages_only(middleware: type[Any]) -> type[Any]:
    """The middleware, for all paths but the API's."""

    def answer(self: Any, request: HttpRequest) -> Any:
        if request.path in settings.API_PATHS:
            return self.get_response(request)
        return middleware.__call__(self, request)

    return cast(type[Any], type(middleware.__name__, (middleware,), {"__call__": answer}))


class ContentSecurityPolicy(CSPMiddleware):
    """For the API, whose answers all have the same policy, it is made once."""

    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        self._of_api = build_policy()

    def __call__(self, request: HttpRequest) -> Any:
        if request.path not in settings.API_PATHS:
            return super().__call__(request)
        response = cast(HttpResponse, self.get_response(request))
        response.headers[HEADER] = self._of_api
        return response


WhiteNoise = pages_only(WhiteNoiseMiddleware)
Session = pages_only(SessionMiddleware)
Csrf = pages_only(CsrfViewMiddleware)
Authentication = pages_only(AuthenticationMiddleware)
Message = pages_only(MessageMiddleware)
Htmx = pages_only(HtmxMiddleware)
