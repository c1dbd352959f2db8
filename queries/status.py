"""What `GET /batch-query-status` says, read together with the key in one statement."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.utils import timezone

from accounts import keys, statements
from queries.models import OPEN_STATUSES, Batch, BatchStatus
from queries.poll_interval import poll_seconds

# Whether the batch or a block of its open queries says what it waits for: only then it is read. Who pays oneself waits
# for what oneself sends.
_SAYS_WHAT_IT_WAITS_FOR = """
    b.waiting_for <> '' OR b.sender = 'self' OR EXISTS (
        SELECT 1 FROM queries_block
        WHERE queries_block.due_at IS NOT NULL AND queries_block.waiting_for <> '' AND queries_block.id IN (
            SELECT block_id FROM queries_query WHERE batch_id = b.id AND step IS NOT NULL))"""
_COLUMNS = f""", b.id, b.status, b.created_at, b.rejection_reason, b.rejection_code, b.rejection_retryable,
    b.status IN ({", ".join(f"'{status}'" for status in OPEN_STATUSES)}) AND ({_SAYS_WHAT_IT_WAITS_FOR})"""
_JOIN = "LEFT JOIN queries_batch b ON b.id = %s AND b.user_id = k.user_id"


class QueryStatus(StrEnum):
    """A batch's status as clients of the status endpoint know it."""

    IN_PROGRESS = "IN_PROGRESS"
    DONE = "DONE"
    REJECTED = "REJECTED"


def query_status(status: str) -> str:
    """Return the `QueryStatus` of a `BatchStatus`."""
    return QueryStatus.IN_PROGRESS.value if status in OPEN_STATUSES else status


@dataclass(frozen=True)
class BatchStatusRow:
    """A batch of the user whose key was presented."""

    id: str
    status: str
    created_at: datetime
    rejection_reason: str
    rejection_code: str
    rejection_retryable: bool
    says_what_it_waits_for: bool

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES

    @property
    def query_status(self) -> str:
        return query_status(self.status)

    def answer(self) -> tuple[dict[str, Any], str]:
        """Return the body and its ETag. The ETag is a weak one: for how long something has failed is no news."""
        if self.is_open:
            said = Batch.objects.defer("request").get(pk=self.id).waits() if self.says_what_it_waits_for else []
            body: dict[str, Any] = {"queryStatus": self.query_status}
            news = [wait.sentence for wait in said]
            return body | ({"info": list(map(str, said))} if said else {}), _etag([body, news])
        body = {"queryStatus": self.query_status}
        if self.status == BatchStatus.REJECTED:
            body |= {
                "error": self.rejection_reason,
                "code": self.rejection_code,
                "retryable": self.rejection_retryable,
            }
        return body, _etag(body)

    def poll_seconds(self) -> int | None:
        """Return after how many seconds to ask again. None: the status will not change, or only by a reorg."""
        return poll_seconds(timezone.now() - self.created_at) if self.is_open else None


def _etag(news: Any) -> str:
    return f'W/"{hashlib.sha256(json.dumps(news).encode()).hexdigest()[:16]}"'


@dataclass(frozen=True)
class Asked:
    """An answer to a key that works."""

    user_id: int
    batch: BatchStatusRow | None
    """None: the user has no such batch."""


def of_batch(batch_id: str) -> str | None:
    """Return the batch's `QueryStatus`. None: the batch is gone."""
    found = statements.first("SELECT status FROM queries_batch WHERE id = %s", (batch_id,))
    return query_status(found[0]) if found else None


def read(key_hash: str, batch_id: str, *, is_counted: bool = False) -> Asked | None:
    """Read the batch's status for a key. None if the key doesn't work.

    `key_hash` is `keys.digest` of the key. `is_counted` is as in `accounts.keys`.
    """
    # Some texts are none that a database can be asked for.
    asked = (batch_id if batch_id.isalnum() else "",)
    found = keys.authenticate_and_read(key_hash, _COLUMNS, _JOIN, asked, is_counted=is_counted)
    if found is None:
        return None
    key, (pk, status, created_at, reason, code, retryable, says) = found
    created = statements.read(created_at)
    if created is None:
        return Asked(key.user_id, None)
    return Asked(
        key.user_id,
        BatchStatusRow(
            pk, status, created, reason, code, statements.read_boolean(retryable), statements.read_boolean(says)
        ),
    )
