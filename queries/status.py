"""What `GET /batch-query-status` says, read together with the key in one statement."""

from dataclasses import dataclass
from datetime import datetime
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

    def body(self) -> dict[str, Any]:
        if self.status in OPEN_STATUSES:
            said = Batch.objects.defer("request").get(pk=self.id).waits() if self.says_what_it_waits_for else []
            return {"queryStatus": BatchStatus.IN_PROGRESS.value} | ({"info": list(map(str, said))} if said else {})
        if self.status == BatchStatus.REJECTED:
            return {
                "queryStatus": self.status,
                "error": self.rejection_reason,
                "code": self.rejection_code,
                "retryable": self.rejection_retryable,
            }
        return {"queryStatus": self.status}

    def poll_seconds(self) -> int | None:
        """When to ask again; None: its status will not change, or only by a reorg."""
        return poll_seconds(timezone.now() - self.created_at) if self.status in OPEN_STATUSES else None


@dataclass(frozen=True)
class Asked:
    """An answer to a key that works."""

    batch: BatchStatusRow | None
    """None: the user has no such batch."""


def read(key_hash: str, batch_id: str) -> Asked | None:
    """`key_hash` is `keys.digest` of the key. None if the key doesn't work."""
    # Some texts are none that a database can be asked for.
    found = keys.authenticate_and_read(key_hash, _COLUMNS, _JOIN, (batch_id if batch_id.isalnum() else "",))
    if found is None:
        return None
    pk, status, created_at, reason, code, retryable, says = found[1]
    created = statements.read(created_at)
    if created is None:
        return Asked(None)
    return Asked(
        BatchStatusRow(
            pk, status, created, reason, code, statements.read_boolean(retryable), statements.read_boolean(says)
        )
    )
