"""Views of a user's API keys, webhook secret and log.

Only the answer to a POST that requests a key or secret contains it. Each address serves people with pages and programs
with JSON, see `config.error_answers.wants_json`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import BadRequest
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods
from pydantic import SecretStr

from accounts import event_log, keys, webhook_secrets
from accounts.form_input import STATUS_OF_REFUSAL, given_in
from accounts.models import AccountEvent, ApiKey, EventKind, KeyAccess, User
from accounts.signed_in import signed_in
from config.error_answers import Refused, refused_answer, wants_json
from config.logs import redact_keys

# How long a rotated key or secret keeps working. The first choice is the default, because it leaves time to replace it.
OVERLAPS = {
    "1d": ("for one more day", timedelta(days=1)),
    "7d": ("for seven more days", timedelta(days=7)),
    "1h": ("for one more hour", timedelta(hours=1)),
    "now": ("not at all: it expires now", timedelta()),
}

_CONFLICT = 409
_EVENTS_SHOWN = 5
_MAX_ID_DIGITS = 18


@dataclass(frozen=True)
class ShownKey:
    """A key as pages show it, without the key itself."""

    key: ApiKey
    can_be_shown: bool


# --- Reading ----------------------------------------------------------------------------------------------------------


@require_GET
@signed_in
def keys_page(request: HttpRequest, user: User) -> HttpResponse:
    """Show the user's address and keys, without the keys themselves."""
    return keys_as_json(user) if wants_json(request) else _keys_page(request, user)


def keys_as_json(user: User) -> JsonResponse:
    """Return the content of `keys_page` as JSON."""
    return JsonResponse({**described_user(user), "keys": [_described(key) for key in live_keys(user)]})


def described_user(user: User) -> dict[str, str | None]:
    """Return the JSON of the user's address, with the chain id of a contract wallet."""
    return {"address": user.address, "chainId": None if user.chain_id is None else str(user.chain_id)}


@require_http_methods(["GET", "POST"])
@signed_in
def reveal_key(request: HttpRequest, user: User, key_id: int) -> HttpResponse:
    """Show the key itself, on the page or as `{"apiKey"}`. Only a POST shows it; a GET redirects to the keys page."""
    if request.method != "POST":
        return redirect("accounts:keys")
    key = _live_key(user, key_id)
    lost = "This service can no longer show the key. The key still works, and you can make a new one."
    return _revealed(request, user, lambda: keys.reveal(key), Refused("key_lost", lost), key)


@require_http_methods(["GET", "POST"])
@signed_in
def reveal_webhook_secret(request: HttpRequest, user: User) -> HttpResponse:
    """Show the secret that signs webhooks, on the page or as `{"webhookSecret"}`. The first call creates it.

    Only a POST shows it; a GET redirects to the keys page.
    """
    if request.method != "POST":
        return redirect("accounts:keys")
    lost = "This service can no longer read the secret, so it can't sign. Rotate the secret."
    return _revealed(
        request,
        user,
        lambda: webhook_secrets.reveal(webhook_secrets.issue_first(user.pk)),
        Refused("secret_lost", lost),
    )


def _revealed(
    request: HttpRequest, user: User, reveal: Callable[[], str | None], lost: Refused, key: ApiKey | None = None
) -> HttpResponse:
    """Show the key, or the webhook secret if `key` is None, and log that."""
    try:
        event_log.check_pace(user)
    except Refused as refused:
        return _refused(request, refused, partial(_keys_page, request, user))
    secret = _hidden(reveal())
    if secret:
        event_log.record(request, user, EventKind.KEY_SHOWN if key else EventKind.WEBHOOK_SECRET_SHOWN, key)
    if not wants_json(request):
        shown = {"revealed": key, "secret": secret} if key else {"webhook_secret": secret}
        return _keys_page(request, user, **shown, status=200 if secret else _CONFLICT)
    if secret is None:
        return refused_answer(_CONFLICT, lost)
    return JsonResponse({"apiKey" if key else "webhookSecret": secret.get_secret_value()})


@require_GET
@signed_in
def log(request: HttpRequest, user: User) -> HttpResponse:
    """Show the log of the user's keys and sessions, newest first. `before` is the last id of the previous page."""
    before = request.GET.get("before", "")
    if before and not re.fullmatch(f"[0-9]{{1,{_MAX_ID_DIGITS}}}", before):
        raise BadRequest("There is no such page of the log.")
    page = event_log.read(user, int(before) if before else None)
    return render(
        request,
        "accounts/log.html",
        {"page": page, "days": AccountEvent.KEPT_DAYS, "continued": bool(before)},
    )


# --- Making and revoking ----------------------------------------------------------------------------------------------


@require_http_methods(["GET", "POST"])
@signed_in
def new_key(request: HttpRequest, user: User) -> HttpResponse:
    """Create a key named `name`, with `access` (one of `KeyAccess`, by default full).

    If a program leaves the name out, the key gets a numbered one.

    The page that refuses a name has this address. So a GET, such as a reload, redirects to the keys page.
    """
    if request.method != "POST":
        return redirect("accounts:keys")
    try:
        event_log.check_pace(user)
        given = given_in(request)
        name, access = given("name"), given("access", KeyAccess.FULL)
        if not name and wants_json(request):
            name = keys.free_name(user, "key")
        key = keys.issue(user, name, access)
    except Refused as refused:
        entered: dict[str, Any] = {field: redact_keys(request.POST.get(field, "")) for field in ("name", "access")}
        return _refused(request, refused, partial(_keys_page, request, user, **entered))
    event_log.record(request, user, EventKind.KEY_MADE, key, "It may only read." if key.is_read_only else "")
    return _made(request, key, f"The key {key.name} was made.")


@require_http_methods(["GET", "POST"])
@signed_in
def rotate_key(request: HttpRequest, user: User, key_id: int) -> HttpResponse:
    """Rotate the key on POST. On GET, ask for the new key's `name` and the `overlap` (one of `OVERLAPS`)."""
    key = _live_key(user, key_id)
    context: dict[str, Any] = {"key": key, "overlaps": {word: text for word, (text, _) in OVERLAPS.items()}}
    if request.method == "GET":
        context |= {"name": keys.free_name(user, key.name), "overlap": next(iter(OVERLAPS))}
        return render(request, "accounts/rotate_key.html", context)
    try:
        event_log.check_pace(user)
        given = given_in(request)
        new = keys.rotate(key, given("name"), _overlap(given("overlap")))
    except Refused as refused:
        context |= {name: redact_keys(request.POST.get(name, "")) for name in ("name", "overlap")}
        return _refused(request, refused, partial(_form, request, "accounts/rotate_key.html", context))
    end = f"{key.expires_at:%Y-%m-%d %H:%M} UTC"
    fate = f"expires at {end}" if key.revoked_at is None else "has expired"
    event_log.record(request, user, EventKind.KEY_ROTATED, key, f"It {fate}. {new.name} ({new.ends}) replaces it.")
    return _made(request, new, f"The key {new.name} was made. {key.name} {fate}.")


@require_http_methods(["GET", "POST"])
@signed_in
def revoke_key(request: HttpRequest, user: User, key_id: int) -> HttpResponse:
    """Revoke the key on POST. On GET, ask for confirmation."""
    key = _live_key(user, key_id)
    if request.method == "GET":
        return render(request, "accounts/revoke_key.html", {"shown": shown_keys([key])[0]})
    if keys.revoke(key):
        event_log.record(request, user, EventKind.KEY_REVOKED, key)
    if wants_json(request):
        return JsonResponse({"id": key.pk, "revoked": True})
    messages.success(request, f"The key {key.name} was revoked. The service now refuses requests with this key.")
    return redirect("accounts:keys")


@require_http_methods(["GET", "POST"])
@signed_in
def rotate_webhook_secret(request: HttpRequest, user: User) -> HttpResponse:
    """Make a new secret on POST, without showing it. On GET, ask for the `overlap` (one of `OVERLAPS`)."""
    context: dict[str, Any] = {
        "overlaps": {word: text for word, (text, _) in OVERLAPS.items()},
        "overlap": next(iter(OVERLAPS)),
    }
    if request.method == "GET":
        return render(request, "accounts/rotate_webhook_secret.html", context)
    try:
        event_log.check_pace(user)
        overlap = _overlap(given_in(request)("overlap"))
    except Refused as refused:
        return _refused(request, refused, partial(_form, request, "accounts/rotate_webhook_secret.html", context))
    webhook_secrets.rotate(user, overlap)
    end = timezone.now() + overlap
    fate = f"The old secret also signs until {end:%Y-%m-%d %H:%M} UTC." if overlap else "The old secret is void."
    event_log.record(request, user, EventKind.WEBHOOK_SECRET_ROTATED, detail=fate)
    if wants_json(request):
        return JsonResponse({"previousSignsUntil": end.isoformat() if overlap else None}, status=201)
    messages.success(request, f"The secret of your webhooks was rotated. {fate}")
    return HttpResponseRedirect(f"{reverse('accounts:keys')}#webhooks")


def _overlap(word: str) -> timedelta:
    if word not in OVERLAPS:
        raise Refused("malformed_overlap", f"The overlap must be one of {', '.join(OVERLAPS)}.")
    return OVERLAPS[word][1]


# --- Answers ----------------------------------------------------------------------------------------------------------


def _keys_page(request: HttpRequest, user: User, *, status: int = 200, **context: Any) -> HttpResponse:
    shown = shown_keys(live_keys(user))
    context |= {
        "shown_keys": shown,
        "max_keys": keys.MAX_KEYS,
        "log": event_log.read(user, size=_EVENTS_SHOWN),
        "days": AccountEvent.KEPT_DAYS,
        "base_url": settings.BASE_URL,
        "webhooks": _shown_webhook_secret(user),
    }
    return render(request, "accounts/keys.html", context, status=status)


def _made(request: HttpRequest, key: ApiKey, sentence: str) -> HttpResponse:
    if wants_json(request):
        return JsonResponse(_described(key), status=201)
    messages.success(request, sentence)
    return HttpResponseRedirect(f"{reverse('accounts:keys')}#key-{key.pk}")


def _refused(request: HttpRequest, refused: Refused, page: Callable[..., HttpResponse]) -> HttpResponse:
    """Return the refusal as JSON for a program, and on `page` for people."""
    status = STATUS_OF_REFUSAL.get(refused.code, _CONFLICT)
    return refused_answer(status, refused) if wants_json(request) else page(error=refused.sentence, status=status)


def _form(request: HttpRequest, template: str, context: dict[str, Any], *, error: str, status: int) -> HttpResponse:
    return render(request, template, context | {"error": error}, status=status)


def live_keys(user: User) -> list[ApiKey]:
    """Return the user's keys that work, the oldest first."""
    return list(user.api_keys.live(timezone.now()))


def _live_key(user: User, key_id: int) -> ApiKey:
    key = next((key for key in live_keys(user) if key.pk == key_id), None)
    if key is None:
        raise Http404
    return key


def shown_keys(live: Sequence[ApiKey]) -> list[ShownKey]:
    """Return keys as pages show them."""
    return [ShownKey(key, keys.reveal(key) is not None) for key in live]


def _hidden(value: str | None) -> SecretStr | None:
    # A debug page shows local variables and template contexts. This type shows asterisks there.
    return SecretStr(value) if value else None


@dataclass(frozen=True)
class ShownWebhookSecret:
    """The secret of webhooks as the page shows it, without the secret itself."""

    ends: str  # empty: no secret was made yet, or it can't be read any more
    is_lost: bool
    previous_until: datetime | None  # the former secret also signs until then


def _shown_webhook_secret(user: User) -> ShownWebhookSecret:
    rows = list(user.webhook_secrets.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now())))
    current = next((row for row in rows if row.expires_at is None), None)
    secret = current and webhook_secrets.reveal(current)
    return ShownWebhookSecret(
        ends=webhook_secrets.ends(secret) if secret else "",
        is_lost=current is not None and secret is None,
        previous_until=next((row.expires_at for row in rows if row.expires_at), None),
    )


def _described(key: ApiKey) -> dict[str, int | str | None]:
    return {
        "id": key.pk,
        "name": key.name,
        "access": key.access,
        "prefix": key.prefix,
        "lastFour": key.last_four,
        "expiresAt": key.expires_at.isoformat() if key.expires_at else None,
    }
