"""The header Idempotency-Key of a submission (draft-ietf-httpapi-idempotency-key-header-07).

A client that doesn't know whether its request has arrived sends it again with the same key, and gets the batch that the
first one made. The key is stored with the batch, in one transaction: neither is there without the other, wherever the
process is killed. A request that was refused leaves no key.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from queries.api_endpoint import ApiError
from queries.models import IdempotencyKey

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
"""The header of an answer that a former request has caused."""

# For how long keys are remembered.
DAYS = 1

_PLAIN = re.compile(r"[\x20-\x7e]{1,255}", re.ASCII)
# RFC 9651, section 3.3.3: a string, as the draft has it. Inside, a quote and a backslash have a backslash before them.
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"', re.ASCII)


@dataclass(frozen=True)
class Earlier:
    """A former request with the same key, which has made a batch."""

    batch_id: str
    body_hash: str

    def check(self, body: bytes) -> None:
        """Refuse another body than that of the former request. Raises `ApiError`: idempotency_key_reused."""
        if self.body_hash != _hash(body):
            raise ApiError(
                422,
                "idempotency_key_reused",
                f"Another request was sent with this {HEADER}. It made a batch, and this one made none. Give each "
                "request a key of its own.",
            )


class AlreadyStored(Exception):
    """The `earlier` request with the same key has made a batch meanwhile."""

    def __init__(self, earlier: Earlier) -> None:
        super().__init__()
        self.earlier = earlier


@dataclass(frozen=True)
class Named:
    """A request that its client has given a key."""

    user_id: int
    key: str

    def find(self) -> Earlier | None:
        """Return the former request with this key, while it is remembered."""
        rows = IdempotencyKey.objects.filter(user=self.user_id, key=self.key, created_at__gt=_forgotten_before())
        row = rows.values_list("batch_id", "body_hash").first()
        return Earlier(*row) if row else None

    def remember(self, batch_id: str, body: bytes) -> None:
        """Remember the request, in the transaction that stores its batch. Raises `AlreadyStored`."""
        now = timezone.now()
        row = IdempotencyKey(
            user_id=self.user_id, key=self.key, body_hash=_hash(body), batch_id=batch_id, created_at=now
        )
        # Of two at once, the second waits for the first one's transaction, and then finds its row.
        IdempotencyKey.objects.bulk_create([row], ignore_conflicts=True)
        earlier = self.find()
        if earlier is None:
            forgotten = IdempotencyKey.objects.filter(
                user=self.user_id, key=self.key, created_at__lte=_forgotten_before()
            )
            if not forgotten.update(body_hash=row.body_hash, batch_id=batch_id, created_at=now):
                earlier = self.find()
        if earlier and earlier.batch_id != batch_id:
            raise AlreadyStored(earlier)


def read(header: str | None, user_id: int) -> Named | None:
    """Read the key from its header. None: the client has given no key. Raises `ApiError`: invalid_idempotency_key."""
    if header is None:
        return None
    quoted = _QUOTED.fullmatch(header)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else header
    if not _PLAIN.fullmatch(key) or (header.startswith('"') and not quoted):
        raise ApiError(
            400, "invalid_idempotency_key", f"{HEADER} is 1 to 255 printable ASCII characters, with or without quotes."
        )
    return Named(user_id, key)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _forgotten_before() -> datetime:
    return timezone.now() - timedelta(days=DAYS)
