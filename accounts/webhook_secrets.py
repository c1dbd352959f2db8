"""The secrets that sign users' webhooks (Standard Webhooks, https://www.standardwebhooks.com).

A user's secret is created when it is first needed. Rotating it creates a second one. Both sign until the overlap is
over, so that receivers can be switched one at a time. Secrets are stored encrypted and not hashed, because receivers
need the secret itself.
"""

import base64
import hmac
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounts.models import User, WebhookSecret
from config.database import statements

if TYPE_CHECKING:
    from Crypto.Cipher.ChaCha20_Poly1305 import ChaCha20Poly1305Cipher

_NONCE_BYTES, _TAG_BYTES = 24, 16
# API keys are derived with the same secret from 32 bytes each. This text is longer, so it never equals those bytes.
_PURPOSE = b"batch-query-service: key of sealed columns, version 1"


class CantOpen(Exception):
    """The content was sealed with another secret, for another row, or was changed."""


def seal(content: str, row: str) -> bytes:
    """Encrypt the content. Only the same `row`, a text that identifies the database row, can decrypt it."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    cipher = _cipher(nonce, row)
    sealed, tag = cipher.encrypt_and_digest(content.encode())
    return nonce + tag + sealed


def unseal(sealed: bytes, row: str) -> str:
    """Return the content that `seal` encrypted. Raises `CantOpen`."""
    nonce, tagged = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        cipher = _cipher(nonce, row)
        return cipher.decrypt_and_verify(tagged[_TAG_BYTES:], tagged[:_TAG_BYTES]).decode()
    except ValueError:
        raise CantOpen from None


def _cipher(nonce: bytes, row: str) -> "ChaCha20Poly1305Cipher":
    """Return a new cipher that is bound to `row`. Raises `ValueError` if the nonce's length is wrong."""
    from Crypto.Cipher import ChaCha20_Poly1305  # noqa: PLC0415 (each command would wait for it, and few seal anything)

    key = hmac.digest(settings.API_KEY_SECRET.encode(), _PURPOSE, "sha256")
    cipher = ChaCha20_Poly1305.new(key=key, nonce=nonce)
    cipher.update(row.encode())
    return cipher


PREFIX = "whsec_"
_BYTES = 32


def issue_first(user_id: int) -> WebhookSecret:
    """Return the user's secret, and create it if there is none. Only one of two simultaneous calls creates it."""
    secret, _ = WebhookSecret.objects.get_or_create(
        user_id=user_id, expires_at=None, defaults={"sealed": _new_sealed(user_id)}
    )
    return secret


def rotate(user: User, overlap: timedelta) -> WebhookSecret:
    """Create a new secret. The current one also signs until the overlap is over. An older one is deleted."""
    with transaction.atomic():
        statements.lock(User.objects.filter(pk=user.pk))
        now = timezone.now()
        WebhookSecret.objects.filter(user=user).exclude(expires_at=None).delete()
        WebhookSecret.objects.filter(user=user).update(expires_at=now + overlap)
        return issue_first(user.pk)


def reveal(secret: WebhookSecret) -> str | None:
    """Return the secret itself, or None if it was sealed with a different `API_KEY_SECRET`."""
    try:
        return unseal(bytes(secret.sealed), _row(secret.user_id))
    except CantOpen:
        return None


def signing(user_id: int) -> list[str]:
    """Return the secrets that sign now, newest first. Secrets that can't be decrypted are left out."""
    live = WebhookSecret.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), user=user_id)
    return [secret for secret in map(reveal, live.order_by("-pk")) if secret]


def ends(secret: str) -> str:
    """Return the part of the secret that the owner's page may always show."""
    return f"{secret[: len(PREFIX) + 4]}…{secret[-4:]}"


def _new_sealed(user_id: int) -> bytes:
    return seal(PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode(), _row(user_id))


def _row(user_id: int) -> str:
    return f"webhook secret of user {user_id}"
