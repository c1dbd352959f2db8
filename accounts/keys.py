"""API keys that can be shown again although they are stored nowhere.

A key is derived from 32 random bytes in the database by HMAC-SHA256 (RFC 2104) under `settings.API_KEY_SECRET`.
Checking one uses its SHA-256 alone, so a database that leaks without the secret gives no key away, and one whose secret
was lost still accepts the keys that people hold: only showing them has come to an end.
"""

import hashlib
import hmac
import secrets
import string
import unicodedata
from datetime import timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from accounts import key_use
from accounts.allowed_addresses import may_sign_in
from accounts.models import ApiKey, User
from config.error_answers import Refused
from config.logs import redact_keys

PREFIX = "bqs_"
FIRST_NAME = "default"
MAX_KEYS = 20  # per user, without those that ended
MAX_NAME_CHARS = 60

_ALPHABET = string.digits + string.ascii_letters
_DIGITS = 43  # of base 62 for 256 bits
_SHOWN = len(PREFIX) + 4


class KeyRefused(Refused):
    """Why a key was not made: malformed_name, name_taken, too_many_keys, key_ends."""


def issue(user: User, name: str) -> ApiKey:
    """A new key. Raises `KeyRefused`: malformed_name, name_taken, too_many_keys."""
    name = _valid_name(name)
    now = timezone.now()
    try:
        with transaction.atomic():
            # Keys that ended by themselves give their names back.
            user.api_keys.filter(ends_at__lte=now, revoked_at=None).update(revoked_at=F("ends_at"))
            # Held until the end of this transaction, so that two calls at once don't both make the last key.
            User.objects.select_for_update().get(pk=user.pk)
            if user.api_keys.filter(revoked_at=None).count() >= MAX_KEYS:
                raise KeyRefused(
                    "too_many_keys",
                    f"You have {MAX_KEYS} keys, and there can't be more. Revoke one that is no longer used.",
                )
            return ApiKey.objects.create(user=user, name=name, **_new_fields())
    except IntegrityError:
        raise KeyRefused("name_taken", f"You have a key named {name} already. Choose another name.") from None


def issue_first(user: User) -> None:
    """Gives a user who never had a key the first one; of two calls at once, one does."""
    if not user.api_keys.exists():
        ApiKey.objects.get_or_create(user=user, name=FIRST_NAME, defaults=_new_fields())


def rotate(key: ApiKey, name: str, overlap: timedelta) -> ApiKey:
    """A new key in place of `key`, which ends by itself when the overlap is over; at once if there is none.

    Raises `KeyRefused`: as `issue`, and key_ends if the key has ended or is about to already.
    """
    with transaction.atomic():
        now = timezone.now()
        end = {"ends_at": now + overlap} if overlap else {"ends_at": now, "revoked_at": now}
        if not ApiKey.objects.filter(pk=key.pk, ends_at=None, revoked_at=None).update(**end):
            raise KeyRefused("key_ends", f"The key {key.name} was rotated or revoked already.")
        new = issue(key.user, name)
    key.refresh_from_db(fields=["ends_at", "revoked_at"])
    return new


def free_name(user: User, like: str) -> str:
    """The name with the lowest number behind it, from 2 on, that no live key of the user has."""
    stem, _, number = like.rpartition(" ")
    stem = (stem if stem and number.isascii() and number.isdigit() else like)[: MAX_NAME_CHARS - 4]
    taken = set(user.api_keys.filter(revoked_at=None).values_list("name", flat=True))
    return next(name for n in range(2, len(taken) + 3) if (name := f"{stem} {n}") not in taken)


def reveal(key: ApiKey) -> str | None:
    """The key itself, or None if the secret that it was derived under is not the one of now."""
    derived = _derive(bytes(key.salt))
    return derived if hmac.compare_digest(_digest(derived), key.key_hash) else None


def authenticate(raw: str) -> ApiKey | None:
    """The key (with its user) that `raw` is, or None if it is unknown, at its end or no longer allowed."""
    digest = _digest(raw)
    del raw  # A debug page shows local variables, and the statements below may fail.
    key = ApiKey.objects.select_related("user").filter(key_hash=digest, revoked_at=None).first()
    if key is None or (key.ends_at and key.ends_at <= timezone.now()):
        return None
    # An address that the operator has struck from the list since must not go on with the keys it has.
    if not may_sign_in(key.user.address):
        return None
    key_use.note(key.pk)
    return key


def revoke(key: ApiKey) -> bool:
    """Ends a key for good. False if it was revoked already: that changes nothing."""
    revoked = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
    key.refresh_from_db(fields=["revoked_at"])
    return bool(revoked)


def _valid_name(name: str) -> str:
    # One form for what looks the same, so that names that look alike aren't two; no control or invisible characters.
    name = " ".join(unicodedata.normalize("NFC", name).split())
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise KeyRefused(
            "malformed_name",
            f"Give the key a name of 1 to {MAX_NAME_CHARS} characters, such as the program that uses it.",
        )
    if redact_keys(name) != name:
        raise KeyRefused("malformed_name", "That is a key. Give it a name that may be seen, such as its program's.")
    return name


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
