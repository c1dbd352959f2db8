"""Refuse what no view takes, before anything parses it: a target or a body too large, multipart where no form is."""

from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from config.error_answers import error_answer, wants_json

# In bytes: far more than the signature of a sign-in. To decode a form of megabytes would hold the interpreter, and with
# it all threads.
_MOST = 128 * 1024
# As multipart/form-data on `settings.LARGE_FORM_PATHS`, which is read in 2 ms; url-encoded it takes 0.6 s. 10,000
# addresses as CSV, each with its block and four properties, are 900,000.
_MOST_OF_LARGE_FORM = 1024 * 1024

# Of the target of a request, in bytes: specification, "Errors". nginx has the same bound.
_MOST_OF_TARGET = 8 * 1024

_NOT_HERE = "This address takes no multipart/form-data. Send a form url-encoded, and to the API JSON."


class RequestBodiesMiddleware:
    """Stands before the check against forged requests, which is the first to parse a form.

    The web server has read the body already, and tells its length.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return _refusal(request) or self.get_response(request)


def _refusal(request: HttpRequest) -> HttpResponse | None:
    if len(request.META.get("REQUEST_URI", "")) > _MOST_OF_TARGET:
        return _refuse(request, 414, "uri_too_long", f"The request line is longer than {_MOST_OF_TARGET} bytes.")
    # Django parses the bodies of no other method.
    is_multipart = request.method == "POST" and request.content_type == "multipart/form-data"
    if is_multipart and request.path not in settings.LARGE_FORM_PATHS:
        return _refuse(request, 415, "unsupported_media_type", _NOT_HERE)
    # The API tells by itself what it takes.
    if request.path in settings.API_PATHS:
        return None
    if _length(request) > (most := _MOST_OF_LARGE_FORM if is_multipart else _MOST):
        return _refuse(request, 413, "too_large", f"The body is larger than {most} bytes.")
    if is_multipart and _has_too_many_parts(request):
        return _refuse(request, 413, "too_large", "The form has too many parts.")
    return None


def _length(request: HttpRequest) -> int:
    try:
        return int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return 0  # As Django takes it.


def _has_too_many_parts(request: HttpRequest) -> bool:
    """Count what Django's parser may take for parts: it splits at each of these bytes.

    Django bounds the fields and the files, and skips parts without a name uncounted, which take it as long.
    """
    boundary = (request.content_params or {}).get("boundary", "")
    try:
        return request.body.count(b"--" + boundary.encode()) > settings.DATA_UPLOAD_MAX_NUMBER_FIELDS
    except RequestDataTooBig:
        return True


def _refuse(request: HttpRequest, status: int, code: str, sentence: str) -> HttpResponse:
    if request.path in settings.API_PATHS or wants_json(request):
        return error_answer(status, code, sentence)
    if request.path in settings.LARGE_FORM_PATHS:
        return HttpResponse(render_to_string("413.html"), status=status)
    return HttpResponse(f"{sentence}\n", status=status, content_type="text/plain; charset=utf-8")
