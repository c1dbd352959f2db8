"""Middleware for unusual requests: HEAD becomes GET, and large forms and texts with the character NUL are refused."""

from collections.abc import Callable

from django.conf import settings
from django.db import DataError
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.views import defaults

from config.error_answers import error_answer, is_of_api, wants_json

# Maximum bytes of a form, and of the same as JSON. A signature has up to 16,384 characters. Anybody may post a body,
# and reading 4 MiB may take more than a second and a hundred megabytes.
_MOST_OF_FORM = 64 * 1024
# Maximum characters of a request's cookies.
_MOST_OF_COOKIES = 16 * 1024


class UnusualRequestMiddleware:
    """Middleware that answers HEAD like GET, and refuses the character NUL and large forms.

    The web server omits the body of an answer to HEAD, because `META["REQUEST_METHOD"]` doesn't change. PostgreSQL
    refuses texts with NUL, so a view that accepted one would fail.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # None of our cookies has a backslash. Python takes the square of their number before 3.11.10 and 3.12.6, and
        # reads "\000" as NUL.
        request.META["HTTP_COOKIE"] = request.META.get("HTTP_COOKIE", "").replace("\\", "")[:_MOST_OF_COOKIES]
        # The API and the form of a batch have limits of their own.
        if request.path not in settings.API_PATHS and request.path not in settings.LARGE_FORM_PATHS:
            if int(request.META.get("CONTENT_LENGTH") or 0) > _MOST_OF_FORM:
                return _refusal(request, 413, "too_large", f"The body is larger than {_MOST_OF_FORM} bytes.")
            if request.content_type == "multipart/form-data":
                return _refusal(request, 415, "unsupported_media_type", "The body must not be multipart/form-data.")
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


def _refusal(
    request: HttpRequest,
    status: int = 400,
    code: str = "bad_request",
    sentence: str = "The request holds the character NUL. Leave it out.",
) -> HttpResponseBase:
    if is_of_api(request) or wants_json(request):
        return error_answer(status, code, sentence)
    return defaults.bad_request(request, ValueError(code))
