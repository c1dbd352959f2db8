"""What the views share: people get pages, programs get JSON, and nothing of either is stored on the way.

A request whose body is JSON, or that prefers JSON to HTML, gets JSON. Errors are `{"error": sentence, "code": stable
word}` then.
"""

import json
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache

from accounts.models import User
from accounts.refused import Refused
from config.logs import redact_keys

_P = ParamSpec("_P")

Given = Callable[[str], str]

# Far more than a message and a signature; JSON may take 20 times its size in memory.
_MAX_JSON_BYTES = 512 * 1024


def signed_in(
    view: Callable[Concatenate[HttpRequest, User, _P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, _P], HttpResponse]:
    """Calls the view with the user; others are sent to sign in. No answer is stored anywhere."""

    @wraps(view)
    @never_cache
    def checked(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponse:
        if request.user.is_authenticated:
            response = view(request, request.user, *args, **kwargs)
        elif wants_json(request):
            response = error_answer(401, "not_signed_in", "Sign in first.")
        else:
            # What was posted is lost on the way, and an address that takes only posts can't be returned to.
            back = request.get_full_path() if request.method == "GET" else reverse("accounts:dashboard")
            response = redirect_to_login(back)
        patch_vary_headers(response, ["Accept"])
        return response

    return checked


def is_json(request: HttpRequest) -> bool:
    return request.content_type == "application/json"


def wants_json(request: HttpRequest) -> bool:
    return is_json(request) or request.get_preferred_type(["text/html", "application/json"]) == "application/json"


def given_in(request: HttpRequest) -> Given:
    """Reads the fields of a form or of a JSON object; what is missing or has another type is empty.

    Raises `Refused`: malformed_request, too_large.
    """
    if not is_json(request):
        return lambda name: str(request.POST.get(name, ""))
    too_large = Refused("too_large", "The body is too large.")
    try:
        text = request.body
    except RequestDataTooBig:
        raise too_large from None
    if len(text) > _MAX_JSON_BYTES:
        raise too_large
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise Refused("malformed_request", "The body must be a JSON object.")

    def given(name: str) -> str:
        value = body.get(name, "")
        if name == "chainId" and type(value) is int:
            return str(value)
        return value if isinstance(value, str) else ""

    return given


def error_answer(status: int, code: str, sentence: str) -> JsonResponse:
    return JsonResponse({"error": sentence, "code": code}, status=status)


def safe_next(path: str) -> str:
    """A path of this service, whatever was asked for."""
    local = path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts=None)
    return redact_keys(path) if local else reverse("accounts:dashboard")
