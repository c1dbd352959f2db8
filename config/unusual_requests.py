"""Middleware for unusual requests: HEAD becomes GET, and texts with the character NUL are refused."""

from collections.abc import Callable

from django.db import DataError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views import defaults

from config.error_answers import error_answer, is_of_api, wants_json


class UnusualRequestMiddleware:
    """Middleware that answers HEAD like GET, and refuses the character NUL.

    The web server omits the body of an answer to HEAD, because `META["REQUEST_METHOD"]` doesn't change. PostgreSQL
    refuses texts with NUL, so a view that accepted one would fail.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # A quoted cookie may contain any character, such as "\000". Error pages look up the session of its cookie too.
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
