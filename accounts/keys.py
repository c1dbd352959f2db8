"""API keys that can be shown again although they are stored nowhere.

A key is derived from 32 random bytes in the database by HMAC-SHA256 (RFC 2104) under `settings.API_KEY_SECRET`.
Checking one uses its SHA-256 alone, so a database that leaks without the secret gives no key away, and one whose secret
was lost still accepts the keys that people hold: only showing them has come to an end.
"""

import hashlib
import hmac
import secrets
import string
from datetime import timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from accounts.addresses import may_sign_in
from accounts.models import ApiKey, User

PREFIX = "bqs_"
FIRST_NAME = "default"

_ALPHABET = string.digits + string.ascii_letters
_DIGITS = 43  # of base 62 for 256 bits
_SHOWN = len(PREFIX) + 4
_LAST_USED_RESOLUTION = timedelta(minutes=1)


def issue(user: User, name: str) -> ApiKey:
    """A new key. Raises `IntegrityError` if the user has one of that name."""
    return ApiKey.objects.create(user=user, name=name, **_new_fields())


def issue_first(user: User) -> None:
    """Gives a user who never had a key the first one; of two calls at once, one does."""
    if not user.api_keys.exists():
        ApiKey.objects.get_or_create(user=user, name=FIRST_NAME, defaults=_new_fields())


def reveal(key: ApiKey) -> str | None:
    """The key itself, or None if the secret that it was derived under is not the one of now."""
    derived = _derive(bytes(key.salt))
    return derived if hmac.compare_digest(_digest(derived), key.key_hash) else None


def authenticate(raw: str) -> ApiKey | None:
    """The key (with its user) that `raw` is, or None if it is unknown, revoked or no longer allowed."""
    digest = _digest(raw)
    del raw  # A debug page shows local variables, and the statements below may fail.
    key = ApiKey.objects.select_related("user").filter(key_hash=digest, revoked_at=None).first()
    # An address that the operator has struck from the list since must not go on with the keys it has.
    if key is None or not may_sign_in(key.user.address):
        return None
    _note_use(key)
    return key


def revoke(key: ApiKey) -> None:
    """Ends a key for good. Revoking it again changes nothing."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
    key.refresh_from_db(fields=["revoked_at"])


def _note_use(key: ApiKey) -> None:
    now = timezone.now()
    due = now - _LAST_USED_RESOLUTION
    # Looked at here first, because on SQLite even an UPDATE of nothing waits for the write lock.
    if key.last_used_at is None or key.last_used_at <= due:
        unnoted = Q(last_used_at=None) | Q(last_used_at__lte=due)
        ApiKey.objects.filter(unnoted, pk=key.pk).update(last_used_at=now)
        key.last_used_at = now


def _new_fields() -> dict[str, bytes | str]:
    salt = secrets.token_bytes(32)
    derived = _derive(salt)
    return {
        "salt": salt,
        "key_hash": _digest(derived),
        "prefix": derived[:_SHOWN],
        "last_four": derived[-4:],
    }


def _derive(salt: bytes) -> str:
    number = int.from_bytes(hmac.digest(settings.API_KEY_SECRET.encode(), salt, "sha256"))
    digits = []
    for _ in range(_DIGITS):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return PREFIX + "".join(digits)


def _digest(raw: str) -> str:
    # What a client sends may be any string, lone surrogates included.
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()
