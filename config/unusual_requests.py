"""Requests that views need not handle: HEAD, which becomes GET, and texts with NUL, which PostgreSQL refuses."""

from collections.abc import Callable

from django.db import DataError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views import defaults

from config.error_answers import error_answer, is_of_api, wants_json


class UnusualRequestMiddleware:
    """Middleware that answers HEAD like GET, and refuses the character NUL.

    The web server leaves out the body of the answer, because `META["REQUEST_METHOD"]` stays HEAD. A view may accept a
    NUL in a text, but a query to PostgreSQL with it fails.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # A cookie in quotes may hold any character, as in "\000". Error pages look up its session too.
        if any("\0" in value for value in request.COOKIES.values()):
            return _refusal(request)
        method = request.method
        if method == "HEAD":
            request.method = "GET"
        response = self.get_response(request)
        request.method = method
        if response.status_code == 405 and "GET" in (allowed := response.headers.get("Allow", "").split(", ")):
            response.headers["Allow"] = ", ".join(sorted({*allowed, "HEAD"}))
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        return _refusal(request) if isinstance(error, DataError) and "NUL" in str(error) else None


def _refusal(request: HttpRequest) -> HttpResponseBase:
    if is_of_api(request) or wants_json(request):
        return error_answer(400, "bad_request", "The request holds the character NUL. Leave it out.")
    return defaults.bad_request(request, ValueError("NUL"))
