"""Signing in and out, and the dashboard with one's API keys.

Each address serves people (forms and pages, no JavaScript needed) and programs (JSON in and out): a request whose body
is JSON, or that prefers JSON to HTML, gets JSON. Errors are `{"error": sentence, "code": stable word}` then.
"""

import json
import re
import shlex
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import RequestDataTooBig
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.csrf import csrf_failure as django_csrf_failure
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_GET, require_POST
from pydantic import SecretStr

from accounts import keys
from accounts.client_address import client_address
from accounts.models import ApiKey, User
from accounts.sign_in import SignInError, finish, start
from config.chains import get_chains

MAX_KEYS = 20  # per user, revoked ones included

_SIGN_IN_STATUS = {
    "malformed_request": 400,
    "too_large": 413,
    "malformed_address": 400,
    "unknown_chain": 400,
    "malformed_message": 400,
    "malformed_signature": 400,
    "address_not_allowed": 403,
    "too_many_sign_ins": 429,
    "node_unavailable": 503,
}
_REFUSED = 401  # every other code
_MAX_CHAIN_DIGITS = 78  # of 2**256

_P = ParamSpec("_P")


# --- Sign-in ----------------------------------------------------------------------------------------------------------


@never_cache
@ensure_csrf_cookie
@require_GET
def sign_in_page(request: HttpRequest) -> HttpResponse:
    next_path = _safe_next(request.GET.get("next", ""))
    if request.user.is_authenticated:
        return HttpResponseRedirect(next_path)
    return _sign_in_form(request, next_path=next_path)


@never_cache
@require_POST
def sign_in_message(request: HttpRequest) -> HttpResponse:
    """`{"address", "chainId"}` to `{"message"}`, the message to sign."""
    try:
        given = _given(request)
        address, chain_id = given("address").strip(), _chain_id(given("chainId"))
        message = start(address, chain_id, client_address(request))
    except SignInError as error:
        return _sign_in_refused(request, error)
    if _is_json(request):
        return JsonResponse({"message": message})
    context = {
        "message": message,
        "command": f"cast wallet sign --interactive {shlex.quote(message)}",
        "next_path": _safe_next(given("next")),
    }
    return render(request, "accounts/sign_message.html", context)


@never_cache
@require_POST
def sign_in_verify(request: HttpRequest) -> HttpResponse:
    """`{"message", "signature"}` to `{"address", "next"}`; the session is that of the address from here on."""
    try:
        given = _given(request)
        message, signature = given("message"), given("signature").strip()
        if not _is_json(request):
            message = message.replace("\r\n", "\n")  # Browsers send every line break of a form as CRLF.
        user = finish(message, signature)
    except SignInError as error:
        return _sign_in_refused(request, error)
    login(request, user)
    next_path = _safe_next(given("next"))
    if _is_json(request):
        return JsonResponse({"address": user.address, "next": next_path})
    return HttpResponseRedirect(next_path)


@never_cache
@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("accounts:sign_in")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """`settings.CSRF_FAILURE_VIEW`: Django's page, or JSON for a program."""
    if not _is_json(request):
        return django_csrf_failure(request, reason)
    return _error(403, "csrf_failed", "Get /sign-in first, then send its cookie csrftoken also as X-CSRFToken.")


def _sign_in_form(request: HttpRequest, *, next_path: str, status: int = 200, **context: Any) -> HttpResponse:
    context |= {"chains": get_chains().chains, "next_path": next_path}
    return render(request, "accounts/sign_in.html", context, status=status)


def _sign_in_refused(request: HttpRequest, error: SignInError) -> HttpResponse:
    status = _SIGN_IN_STATUS.get(error.code, _REFUSED)
    if _is_json(request):
        response: HttpResponse = _error(status, error.code, error.sentence)
    else:
        next_path = _safe_next(request.POST.get("next", ""))
        address = request.POST.get("address", "")
        response = _sign_in_form(request, next_path=next_path, status=status, error=error.sentence, address=address)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def _chain_id(text: str) -> int:
    if not re.fullmatch(f"[0-9]{{1,{_MAX_CHAIN_DIGITS}}}", text):
        raise SignInError("unknown_chain", "The chain must be given by its id, a decimal number.")
    return int(text)


def _safe_next(path: str) -> str:
    """A path of this service, whatever was asked for."""
    local = path.startswith("/") and url_has_allowed_host_and_scheme(path, allowed_hosts=None)
    return path if local else reverse("accounts:dashboard")


# --- Dashboard --------------------------------------------------------------------------------------------------------


def _signed_in(
    view: Callable[Concatenate[HttpRequest, User, _P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, _P], HttpResponse]:
    """Calls the view with the user; others are sent to sign in. No answer is stored anywhere."""

    @wraps(view)
    @never_cache
    def checked(request: HttpRequest, /, *args: _P.args, **kwargs: _P.kwargs) -> HttpResponse:
        if request.user.is_authenticated:
            response = view(request, request.user, *args, **kwargs)
        elif _wants_json(request):
            response = _error(401, "not_signed_in", "Sign in first.")
        else:
            # What was posted is lost on the way, and an address that takes only posts can't be returned to.
            back = request.get_full_path() if request.method == "GET" else reverse("accounts:dashboard")
            response = redirect_to_login(back)
        patch_vary_headers(response, ["Accept"])
        return response

    return checked


@require_GET
@_signed_in
def dashboard(request: HttpRequest, user: User) -> HttpResponse:
    """One's address and keys, without the keys themselves."""
    if _wants_json(request):
        return JsonResponse({"address": user.address, "keys": [_described(key) for key in _live_keys(user)]})
    return _dashboard_page(request, user)


@require_POST
@_signed_in
def reveal_key(request: HttpRequest, user: User, key_id: int) -> HttpResponse:
    """The key itself: on the page, or as `{"apiKey"}`."""
    key = next((key for key in _live_keys(user) if key.pk == key_id), None)
    if key is None:
        raise Http404
    secret = _secret(key)
    if not _wants_json(request):
        return _dashboard_page(request, user, revealed=key, secret=secret, status=200 if secret else 409)
    if secret is None:
        return _error(409, "key_lost", "The key can't be shown any more. It still works; a new one can be made.")
    return JsonResponse({"apiKey": secret.get_secret_value()})


@require_POST
@_signed_in
def new_key(request: HttpRequest, user: User) -> HttpResponse:
    """One more key."""
    wants_json = _wants_json(request)
    with transaction.atomic():
        count = user.api_keys.count()
        key = _issue_numbered(user, count + 1) if count < MAX_KEYS else None
    if key and wants_json:
        return JsonResponse(_described(key), status=201)
    if key:
        return redirect("accounts:dashboard")
    sentence = f"There are {MAX_KEYS} keys already, or another one was made at this moment."
    if wants_json:
        return _error(409, "key_not_made", sentence)
    return _dashboard_page(request, user, error=sentence, status=409)


def _issue_numbered(user: User, number: int) -> ApiKey | None:
    try:
        with transaction.atomic():
            return keys.issue(user, f"key {number}")
    except IntegrityError:
        return None


def _dashboard_page(request: HttpRequest, user: User, *, status: int = 200, **context: Any) -> HttpResponse:
    live = _live_keys(user)
    context |= {"keys": live, "can_show_one": any(_secret(key) for key in live), "base_url": settings.BASE_URL}
    return render(request, "accounts/dashboard.html", context, status=status)


def _live_keys(user: User) -> list[ApiKey]:
    return list(user.api_keys.filter(revoked_at=None))


def _secret(key: ApiKey) -> SecretStr | None:
    # A debug page shows local variables and template contexts: this one shows asterisks.
    value = keys.reveal(key)
    return SecretStr(value) if value else None


def _described(key: ApiKey) -> dict[str, int | str]:
    return {"id": key.pk, "name": key.name, "prefix": key.prefix, "lastFour": key.last_four}


# --- People and programs ----------------------------------------------------------------------------------------------


def _is_json(request: HttpRequest) -> bool:
    return request.content_type == "application/json"


def _wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"


def _given(request: HttpRequest) -> Callable[[str], str]:
    """Reads the fields of a form or of a JSON object; what is missing or has another type is empty."""
    if not _is_json(request):
        return lambda name: str(request.POST.get(name, ""))
    try:
        body = json.loads(request.body)
    except RequestDataTooBig:
        raise SignInError("too_large", "The body is too large.") from None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise SignInError("malformed_request", "The body must be a JSON object.")

    def given(name: str) -> str:
        value = body.get(name, "")
        if name == "chainId" and type(value) is int:
            return str(value)
        return value if isinstance(value, str) else ""

    return given


def _error(status: int, code: str, sentence: str) -> JsonResponse:
    return JsonResponse({"error": sentence, "code": code}, status=status)
