"""The secrets by which users' webhooks are signed (Standard Webhooks, https://www.standardwebhooks.com).

A user has one, which is made when it is first needed. Rotating it makes another; both sign until the overlap is over,
so that receivers can be switched over one at a time. A receiver needs the secret itself, so it can't be a hash here: it
is sealed (`accounts.sealing`).
"""

import base64
import secrets
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts import sealing
from accounts.models import User, WebhookSecret
from database import row_locks

PREFIX = "whsec_"
_BYTES = 32


def issue_first(user_id: int) -> WebhookSecret:
    """Return the user's secret, made where there is none. Of two simultaneous calls, one makes it."""
    found, _ = WebhookSecret.objects.get_or_create(
        user_id=user_id, expires_at=None, defaults={"sealed": _new_sealed(user_id)}
    )
    return found


def rotate(user: User, overlap: timedelta) -> WebhookSecret:
    """Make a new secret. The one before signs beside it until the overlap is over; one before that does so no more."""
    with transaction.atomic():
        row_locks.lock(User.objects.filter(pk=user.pk))
        now = timezone.now()
        WebhookSecret.objects.filter(user=user).exclude(expires_at=None).delete()
        WebhookSecret.objects.filter(user=user).update(expires_at=now + overlap)
        return issue_first(user.pk)


def reveal(secret: WebhookSecret) -> str | None:
    """Return the secret itself, or None if it was sealed under another `API_KEY_SECRET` than the present one."""
    try:
        return sealing.unseal(bytes(secret.sealed), _row(secret.user_id))
    except sealing.CantOpen:
        return None


def signing(user_id: int) -> list[str]:
    """Return the secrets that sign now, the newest first, without those that `reveal` can't tell."""
    live = WebhookSecret.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), user=user_id)
    return [secret for secret in map(reveal, live.order_by("-pk")) if secret]


def ends(secret: str) -> str:
    """Return the part of the secret that every viewer of its owner's page may see."""
    return f"{secret[: len(PREFIX) + 4]}…{secret[-4:]}"


def _new_sealed(user_id: int) -> bytes:
    return sealing.seal(PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode(), _row(user_id))


def _row(user_id: int) -> str:
    return f"webhook secret of user {user_id}"
