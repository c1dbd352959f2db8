"""Refuse bodies that are larger than their path takes, before anything reads them."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from config.error_answers import error_answer, wants_json

# In bytes: far more than the signature of a sign-in. To decode a form of megabytes would hold the interpreter, and with
# it all threads.
_MOST = 128 * 1024
# As multipart/form-data on `settings.LARGE_FORM_PATHS`: 10,000 addresses as CSV, each with its block and four
# properties, are 900,000.
_MOST_OF_LARGE_FORM = 1024 * 1024


class BodySizesMiddleware:
    """Stands before all that reads a body. The web server has read it already, and tells its length."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            length = int(request.META.get("CONTENT_LENGTH") or 0)
        except ValueError:
            length = 0  # As Django takes it.
        # What the API takes it tells apart by itself.
        if length <= _MOST or request.path in settings.API_PATHS:
            return self.get_response(request)
        is_large_form = request.path in settings.LARGE_FORM_PATHS
        # A megabyte of multipart/form-data is read in 2 ms, and one that is url-encoded takes 0.6 s.
        is_cheap = is_large_form and request.content_type == "multipart/form-data"
        if is_cheap and length <= _MOST_OF_LARGE_FORM:
            return self.get_response(request)
        if wants_json(request):
            return error_answer(413, "too_large", f"The body is larger than {_MOST} bytes.")
        if is_large_form:
            return HttpResponse(render_to_string("413.html"), status=413)
        text = f"The body is larger than {_MOST} bytes.\n"
        return HttpResponse(text, status=413, content_type="text/plain; charset=utf-8")
