"""API keys. They can be shown again, although they aren't stored.

A key is derived from 32 random bytes in the database by HMAC-SHA256 (RFC 2104) under `settings.API_KEY_SECRET`.
Checking a key uses only its SHA-256. So a leaked database reveals no key without the secret. If the secret is lost,
existing keys still work, but they can't be shown again.
"""

import hashlib
import hmac
import secrets
import string
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from accounts.form_input import visible_line
from accounts.models import AccountEvent, ApiKey, EventKind, KeyAccess, User, may_sign_in, user_name
from config.database import statements
from config.database.statements import CompiledQuery, QueryParameter
from config.error_answers import Refused
from config.logs import redact_keys

PREFIX = "bqs_"
FIRST_NAME = "default"
MAX_KEYS = 20  # per user; revoked and expired keys don't count
MAX_NAME_CHARS = 60

_ALPHABET = string.digits + string.ascii_letters
_DIGITS = 43  # 256 bits have 43 digits in base 62
_SHOWN = len(PREFIX) + 4
# Minimum time between two writes of a key's last use, because each write waits for others.
_NOTED_EACH = timedelta(minutes=1)
_noting_from = 0.0  # `time.monotonic` from which uses are stored again, after a write failed


def issue(user: User, name: str, access: str = KeyAccess.FULL) -> ApiKey:
    """Make a new key. Raises `Refused`: malformed_name, malformed_access, name_taken, too_many_keys."""
    name = _valid_name(name)
    if access not in KeyAccess.values:
        raise Refused("malformed_access", f"The access must be one of {', '.join(KeyAccess.values)}.")
    now = timezone.now()
    try:
        with transaction.atomic():
            # The lock is held until the transaction ends, so that two calls can't both create the last allowed key.
            statements.lock(User.objects.filter(pk=user.pk))
            # Revoking expired keys frees their names.
            user.api_keys.filter(expires_at__lte=now, revoked_at=None).update(revoked_at=F("expires_at"))
            if user.api_keys.filter(revoked_at=None).count() >= MAX_KEYS:
                raise Refused(
                    "too_many_keys",
                    f"You have {MAX_KEYS} keys, which is the limit. Revoke one that you no longer use.",
                )
            return ApiKey.objects.create(user=user, name=name, access=access, **_new_fields())
    except IntegrityError:
        raise Refused("name_taken", f"You already have a key named {name}. Choose another name.") from None


def issue_first(user: User) -> None:
    """Create the user's first key if the user never had one. Only one of two simultaneous calls creates it."""
    if not user.api_keys.exists():
        ApiKey.objects.get_or_create(user=user, name=FIRST_NAME, defaults=_new_fields())


def rotate(key: ApiKey, name: str, overlap: timedelta) -> ApiKey:
    """Create a key that replaces `key`, with the same access.

    The old key expires after the overlap, or at once without an overlap.
    Raises `Refused`: the codes of `issue`, and key_expires if the key was already rotated or revoked.
    """
    with transaction.atomic():
        # Rows are locked in the same order as in `issue`: the user, then the keys.
        statements.lock(User.objects.filter(pk=key.user_id))
        now = timezone.now()
        expiry = {"expires_at": now + overlap} if overlap else {"expires_at": now, "revoked_at": now}
        if not ApiKey.objects.filter(pk=key.pk, expires_at=None, revoked_at=None).update(**expiry):
            raise Refused("key_expires", f"The key {key.name} was already rotated or revoked.")
        new = issue(key.user, name, key.access)
    key.refresh_from_db(fields=["expires_at", "revoked_at"])
    return new


def free_name(user: User, like: str) -> str:
    """Return the name with the lowest number from 2 that no live key of the user has."""
    stem, _, number = like.rpartition(" ")
    stem = (stem if stem and number.isascii() and number.isdigit() else like)[: MAX_NAME_CHARS - 4]
    taken = set(user.api_keys.filter(revoked_at=None).values_list("name", flat=True))
    return next(name for n in range(2, len(taken) + 3) if (name := f"{stem} {n}") not in taken)


def reveal(key: ApiKey) -> str | None:
    """Return the key itself, or None if it was derived from a different secret."""
    derived = _derive(bytes(key.salt))
    return derived if hmac.compare_digest(digest(derived), key.key_hash) else None


def authenticate_hash(key_hash: str, *, reads_only: bool = False) -> ApiKey | None:
    """Return the key with this `digest`. None if it is unknown, revoked, expired or no longer allowed.

    Raises `Refused` like `authenticate_and_read`.
    """
    row = authenticate_and_read(_KEYS, key_hash, reads_only=reads_only)
    return row.key if row else None


def working() -> "QuerySet[ApiKey]":
    """Select the presented key, if it is valid, for the queries of `authenticate_and_read`."""
    unexpired = Q(expires_at=None) | Q(expires_at__gt=QueryParameter("now"))
    return ApiKey.objects.filter(unexpired, key_hash=QueryParameter("key_hash"), revoked_at=None).order_by()


OWN_COLUMNS = ("pk", "user_id", "access", "last_used_at", "user__address", "user__chain_id")
_KEYS = CompiledQuery(lambda: working().values_list(*OWN_COLUMNS))


@dataclass(frozen=True)
class KeyRow:
    """A valid key, and what was read with it."""

    key: ApiKey
    columns: Sequence[Any]


def authenticate_and_read(
    query: CompiledQuery[tuple[Any, ...]], key_hash: str, *, reads_only: bool = False, **given: object
) -> KeyRow | None:
    """Return the key like `authenticate_hash`, and the query's further columns.

    `query` selects `working` keys, and its columns begin with `OWN_COLUMNS`. `key_hash` is the `digest` of the key.
    Raises `Refused`: read_only_key, unless the caller `reads_only` or the key has full access.
    """
    row = query.first(key_hash=key_hash, now=timezone.now(), **given)
    if row is None:
        return None
    key_id, user_id, access, last_used_at, address, chain_id, *others = row
    # The operator may have removed the user from the list in the meantime. Then its keys must not work.
    if not may_sign_in(user_name(address, chain_id)):
        return None
    _note_use(key_id, last_used_at)
    if access != KeyAccess.FULL and not reads_only:
        raise Refused("read_only_key", "This API key may only read. Use one with full access.")
    return KeyRow(ApiKey.from_db(None, ("id", "user_id"), (key_id, user_id)), others)


def _note_use(key_id: int, last_used_at: datetime | None) -> None:
    """Store the current time as the key's last use, unless one was stored within the last minute."""
    global _noting_from
    now, monotonic = timezone.now(), time.monotonic()
    if monotonic < _noting_from or (last_used_at and abs(now - last_used_at) < _NOTED_EACH):
        return
    try:
        ApiKey.objects.filter(pk=key_id, last_used_at=last_used_at).update(last_used_at=now)
    except DatabaseError:
        # If the database takes no writes, clients can still read. The next requests don't try to write.
        _noting_from = monotonic + _NOTED_EACH.total_seconds()


def revoke(key: ApiKey) -> bool:
    """Revoke a key for good. Returns False, and changes nothing, if it was already revoked."""
    revoked = ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
    key.refresh_from_db(fields=["revoked_at"])
    return bool(revoked)


def revoke_by_operator(whose: QuerySet[User]) -> int:
    """Revoke all keys of these users for good, and record it in their logs. Return the number of revoked keys."""
    with transaction.atomic():
        # `issue` and `rotate` take the same lock, so no user creates another key meanwhile.
        statements.lock(whose)
        live = ApiKey.objects.filter(revoked_at=None, user__in=whose)
        revoked = list(live.order_by("pk").select_for_update(no_key=True))
        now = timezone.now()
        ApiKey.objects.filter(pk__in=[key.pk for key in revoked]).update(revoked_at=now)
        AccountEvent.objects.bulk_create(
            AccountEvent(
                user_id=key.user_id,
                at=now,
                kind=EventKind.KEY_REVOKED,
                key_name=key.name,
                key_ends=key.ends,
                detail="by the operator",
            )
            for key in revoked
        )
    return len(revoked)


def _valid_name(name: str) -> str:
    name = visible_line(name, MAX_NAME_CHARS)
    if not name:
        raise Refused(
            "malformed_name",
            f"Give the key a name of 1 to {MAX_NAME_CHARS} characters, such as the program that uses it.",
        )
    if redact_keys(name) != name:
        raise Refused(
            "malformed_name", "That is a key. Choose a name that others may see, such as the program that uses it."
        )
    return name


def _new_fields() -> dict[str, bytes | str]:
    salt = secrets.token_bytes(32)
    derived = _derive(salt)
    return {
        "salt": salt,
        "key_hash": digest(derived),
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


def digest(raw: str) -> str:
    """Return the key's SHA-256 in hex. The database stores it to find the key."""
    # A client may send any string, even lone surrogates.
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()
