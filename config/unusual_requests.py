"""Middleware for unusual requests: HEAD, NUL, large and malformed forms, another name of this machine, a wrong host."""

import re
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import BadRequest, DisallowedHost
from django.db import DataError
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseNotModified,
    HttpResponseRedirect,
    UnreadablePostError,
)
from django.http.response import HttpResponseBase
from django.template import loader

from config.error_answers import error_answer, is_of_api, wants_json

_THIS_MACHINE = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::(?P<port>[0-9]+))?")
# Maximum bytes of a form, and of the same as JSON. A signature has up to 16,384 characters. Anybody may post a body,
# and reading 4 MiB may take more than a second and a hundred megabytes.
_MOST_OF_FORM = 64 * 1024
# Maximum characters of a request's cookies.
_MOST_OF_COOKIES = 16 * 1024
# Characters of a wrong host that are told, as many as a name has (RFC 1035).
_MOST_OF_HOST = 255
_NUL = "The request has the character NUL. Leave it out."


class UnusualRequestMiddleware:
    """Middleware that answers HEAD like GET, refuses NUL and large forms, and takes other names of this machine.

    The web server omits the body of an answer to HEAD, because `META["REQUEST_METHOD"]` doesn't change. PostgreSQL
    refuses texts with NUL, so a view that accepted one would fail.

    If `BASE_URL` is http://127.0.0.1:8000, pages at http://localhost:8000 redirect to it, because cookies and sign-in
    messages are bound to it. The API and probes are answered there. Only exact names count, so that no name of others
    that leads to this machine is believed.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        request.META["HTTP_COOKIE"] = _own_cookies(request.META.get("HTTP_COOKIE", ""))
        try:
            request.get_host()
        except DisallowedHost:
            if not _names_this_machine(request):
                raise
            if _is_for_people(request):
                return HttpResponseRedirect(settings.BASE_URL + request.get_full_path())
            request.META["HTTP_HOST"] = urlsplit(settings.BASE_URL).netloc
        # The API and the form of a batch have limits of their own.
        if request.path in settings.LARGE_FORM_PATHS:
            _read_form(request)
        elif request.path not in settings.API_PATHS:
            if int(request.META.get("CONTENT_LENGTH") or 0) > _MOST_OF_FORM:
                return _refusal(request, f"The body is larger than {_MOST_OF_FORM} bytes.", 413, "too_large")
            if request.content_type == "multipart/form-data":
                return _refusal(request, "The body must not be multipart/form-data.", 415, "unsupported_media_type")
        method = request.method
        if method == "HEAD":
            request.method = "GET"
        response = self.get_response(request)
        request.method = method
        if response.status_code == 405 and "GET" in (allowed := response.headers.get("Allow", "").split(", ")):
            response.headers["Allow"] = ", ".join(sorted({*allowed, "HEAD"}))
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponseBase | None:
        return _refusal(request, _NUL) if isinstance(error, DataError) and "NUL" in str(error) else None


class AnyVersionMiddleware:
    """Middleware that answers a GET with `If-None-Match: *` by 304 if there is an answer 200 (RFC 9110, 13.1.2).

    The client requests a representation only if there is none, whichever it may have. Views compare ETags.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        has_any = request.META.get("HTTP_IF_NONE_MATCH", "").strip() == "*"
        if not has_any or response.status_code != 200 or request.method not in {"GET", "HEAD"}:
            return response
        headers = {name: value for name, value in response.items() if not name.startswith("Content-")}
        not_modified = HttpResponseNotModified(headers=headers)
        not_modified.cookies = response.cookies
        response.close()
        return not_modified


def _read_form(request: HttpRequest) -> None:
    """Read the form, before the CSRF check does. Raises `BadRequest` where Django's parser fails."""
    try:
        with suppress(UnreadablePostError):
            request.POST  # noqa: B018 (it is read, and kept)
    except TypeError:
        raise BadRequest("A part of the form numbers only some pieces of a parameter (RFC 2231).") from None


def _own_cookies(header: str) -> str:
    """Return the service's own cookies. Other programs on this host may set any number of others."""
    names = (settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME)
    own = (cookie for cookie in header.split(";") if cookie.partition("=")[0].strip() in names)
    # None of ours has a backslash. Python takes the square of their number before 3.11.10 and 3.12.6, and reads "\000"
    # as NUL.
    return ";".join(own).replace("\\", "")[:_MOST_OF_COOKIES]


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a malformed request. The answer to a request for a wrong host names the right address."""
    if isinstance(exception, DisallowedHost):
        # Some clients send a name's umlauts as UTF-8, and WSGI has each byte as a character.
        name = request.META.get("HTTP_HOST", "").encode("latin-1").decode(errors="replace")
        address, host = settings.BASE_URL, name[:_MOST_OF_HOST]
        return _refusal(request, f"This service is at {address}, and not at {host}.", address=address, host=host)
    return _refusal(request, str(exception) if isinstance(exception, BadRequest) else "The request is malformed.")


def _names_this_machine(request: HttpRequest) -> bool:
    """Return whether the request's host is another name of this machine with the port of `BASE_URL`, which names it."""
    hosts = request.META.get("HTTP_HOST", ""), urlsplit(settings.BASE_URL).netloc
    matches = [_THIS_MACHINE.fullmatch(host.lower()) for host in hosts]
    ports = {match["port"] or ("443" if request.is_secure() else "80") for match in matches if match}
    return all(matches) and len(ports) == 1


def _is_for_people(request: HttpRequest) -> bool:
    """Return whether the request gets a page: not one of the API, of a probe, or of a file."""
    is_file = "." in request.path
    return request.method in {"GET", "HEAD"} and not (
        is_of_api(request) or wants_json(request) or is_file or request.path in settings.PROBED_PATHS
    )


def _refusal(
    request: HttpRequest,
    sentence: str,
    status: int = 400,
    code: str = "bad_request",
    *,
    address: str = "",
    host: str = "",
) -> HttpResponse:
    """Return the error answer. A page has the status 400, and names the right `address` and the wrong `host`."""
    if is_of_api(request) or wants_json(request):
        return error_answer(status, code, sentence)
    return HttpResponse(
        loader.render_to_string("400.html", {"sentence": sentence, "address": address, "host": host}), status=400
    )
