"""Signing in and out.

Each address serves people (forms and pages, no JavaScript needed) and programs (JSON in and out). Keys are in
`accounts.key_views`.
"""

import re
import shlex
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import login, logout
from django.contrib.auth.views import redirect_to_login
from django.contrib.sessions.models import Session
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_GET, require_POST

from accounts import development_sign_in, event_log, sign_in
from accounts.form_input import (
    REFUSED_COOKIES,
    STATUS_OF_REFUSAL,
    FieldReader,
    csrf_refusal,
    given_in,
    safe_next,
)
from accounts.key_views import described_user
from accounts.models import EventKind, User
from accounts.sign_in import SignInError, finish, start
from accounts.signed_in import signed_in
from accounts.throttle import client_address
from config.configured_chains import get_chains
from config.error_answers import Refused, is_json, refused_answer, wants_json, with_retry_after
from config.logs import redact_keys

_REFUSED = 401
_MAX_CHAIN_DIGITS = 78  # 2**256 has 78 digits


@never_cache
@ensure_csrf_cookie
@require_GET
def sign_in_page(request: HttpRequest) -> HttpResponse:
    next_path = safe_next(request.GET.get("next", ""))
    if request.user.is_authenticated:
        return HttpResponseRedirect(next_path)
    return _sign_in_form(request, next_path=next_path)


@never_cache
@require_POST
def sign_in_message(request: HttpRequest) -> HttpResponse:
    """Answer `{"address", "chainId"}` with `{"message"}`, the message to sign."""
    try:
        given = given_in(request)
        address, chain_id = given("address").strip(), _chain_id(given("chainId"))
        message = start(address, chain_id, client_address(request))
    except Refused as error:
        return _sign_in_refused(request, error)
    if is_json(request):
        return JsonResponse({"message": message})
    return _message_form(request, message, sign_in.MESSAGE_SECONDS // 60)


@never_cache
@require_POST
def sign_in_verify(request: HttpRequest) -> HttpResponse:
    """Start a session, and answer `{"message", "signature"}` with `{"address", "chainId", "next"}`."""
    try:
        given = given_in(request)
        user = finish(_message_in(request, given), given("signature"))
    except Refused as error:
        return _sign_in_refused(request, error)
    return _begin_session(request, user, safe_next(given("next")))


@never_cache
def sign_in_as_development_account(request: HttpRequest) -> HttpResponse:
    """Sign the visitor in with a publicly known key, if `development_sign_in` offers it."""
    if request.method != "POST" or not development_sign_in.is_offered(request):
        raise Http404
    try:
        message = start(development_sign_in.ADDRESS, get_chains().chains[0].id, client_address(request))
        user = finish(message, development_sign_in.sign(message))
    except Refused as error:
        return _sign_in_refused(request, error)
    return _begin_session(request, user, safe_next(request.POST.get("next", "")))


def _begin_session(request: HttpRequest, user: User, next_path: str) -> HttpResponse:
    login(request, user)
    # The expiry is a fixed time, because a number of seconds would restart at each request.
    request.session.set_expiry(timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE))
    # Workers also delete expired sessions, but an installation that only shows pages may have no worker.
    Session.objects.filter(expire_date__lt=timezone.now()).delete()
    event_log.record(request, user, EventKind.SIGNED_IN)
    # The first sign-in also creates a key, whose time is later than `last_sign_in`.
    for key in user.api_keys.filter(created_at__gte=user.last_sign_in):
        event_log.record(request, user, EventKind.KEY_MADE, key)
    if is_json(request):
        return JsonResponse({**described_user(user), "next": next_path})
    return HttpResponseRedirect(next_path)


@never_cache
def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirect from the admin to the sign-in. A user who is signed in already isn't an operator, and is refused."""
    if request.user.is_authenticated:
        raise PermissionDenied
    return redirect_to_login(request.GET.get("next", reverse("admin:index")))


@never_cache
@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End this session, if there is one."""
    if request.user.is_authenticated:
        event_log.record(request, request.user, EventKind.SIGNED_OUT)
    logout(request)
    return redirect("accounts:sign_in")


@require_POST
@signed_in
def sign_out_everywhere(request: HttpRequest, user: User) -> HttpResponse:
    """End all sessions of the user, this one too."""
    event_log.record(request, user, EventKind.SIGNED_OUT_EVERYWHERE)
    user.end_sessions()
    logout(request)
    return redirect("accounts:sign_in")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a failed CSRF check with a page, or JSON for programs. `reason` is Django's explanation for developers."""
    refused = csrf_refusal(request)
    if wants_json(request) or request.htmx:  # type: ignore[attr-defined]  # a middleware sets it
        return refused_answer(403, refused)
    is_origin = refused.code in {"origin_hidden", "other_origin"}
    context = {"reason": reason if settings.DEBUG else "", "origin": refused.sentence if is_origin else ""}
    return render(request, "403_csrf.html", context | {"cookies": REFUSED_COOKIES}, status=403)


def _sign_in_form(request: HttpRequest, *, next_path: str, status: int = 200, **context: Any) -> HttpResponse:
    is_for_batch = urlsplit(next_path).path == reverse("explorer:new_batch")
    context |= {"chains": get_chains().chains, "next_path": next_path, "is_for_batch": is_for_batch}
    if development_sign_in.is_offered(request):
        context["development_address"] = development_sign_in.ADDRESS
    return render(request, "accounts/sign_in.html", context, status=status)


def _message_in(request: HttpRequest, given: FieldReader) -> str:
    """Return the message. Browsers send every line break of a form as CRLF."""
    return given("message") if is_json(request) else given("message").replace("\r\n", "\n")


def _message_form(
    request: HttpRequest, message: str, minutes: int, *, status: int = 200, **context: Any
) -> HttpResponse:
    """Show the message to sign, the minutes left to sign it, and the signature that was submitted."""
    context |= {
        "message": message,
        "command": f"cast wallet sign --interactive {shlex.quote(message)}",
        "minutes": minutes,
        "signature": redact_keys(request.POST.get("signature", "")),
        "next_path": safe_next(request.POST.get("next", "")),
    }
    return render(request, "accounts/sign_message.html", context, status=status)


def _sign_in_refused(request: HttpRequest, error: Refused) -> HttpResponse:
    status = STATUS_OF_REFUSAL.get(error.code, _REFUSED)
    if is_json(request):
        return refused_answer(status, error)
    message = _message_in(request, given_in(request))
    if minutes := sign_in.minutes_left(message):
        response = _message_form(request, message, minutes, status=status, error=error.sentence)
    else:
        next_path = safe_next(request.POST.get("next", ""))
        address = redact_keys(request.POST.get("address", ""))
        response = _sign_in_form(request, next_path=next_path, status=status, error=error.sentence, address=address)
    return with_retry_after(response, error.retry_after)


def _chain_id(text: str) -> int:
    if not re.fullmatch(f"[0-9]{{1,{_MAX_CHAIN_DIGITS}}}", text):
        raise SignInError("unknown_chain", "Name the chain by its id, a decimal number.")
    return int(text)
