"""Refuse multipart bodies where no form needs them, and those of too many parts, before anything parses them.

Django bounds the fields and the files of a form. It skips parts without a name uncounted, and each takes it as long.
"""

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from django.template.loader import render_to_string

from config.error_answers import error_answer, wants_json

_NOT_HERE = "This address takes no multipart/form-data. Send a form url-encoded, and to the API JSON."


class FormBodiesMiddleware:
    """Stands before the check against forged requests, which is the first to parse a form."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # Django parses the bodies of no other method.
        if request.method == "POST" and request.content_type == "multipart/form-data":
            if request.path not in settings.LARGE_FORM_PATHS:
                return _unsupported(request)
            try:
                is_too_much = _parts(request) > settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
            except RequestDataTooBig:
                is_too_much = True
            except UnreadablePostError:
                return HttpResponse("The body ended early.\n", status=400, content_type="text/plain; charset=utf-8")
            if is_too_much:
                return HttpResponse(render_to_string("413.html"), status=413)
        return self.get_response(request)


def _parts(request: HttpRequest) -> int:
    """Return the maximum number of parts that Django's parser finds, which splits at each of these bytes.

    Raises `RequestDataTooBig` and `UnreadablePostError`.
    """
    boundary = (request.content_params or {}).get("boundary", "")
    return request.body.count(b"--" + boundary.encode())


def _unsupported(request: HttpRequest) -> HttpResponse:
    if request.path in settings.API_PATHS or wants_json(request):
        return error_answer(415, "unsupported_media_type", _NOT_HERE)
    return HttpResponse(f"{_NOT_HERE}\n", status=415, content_type="text/plain; charset=utf-8")
