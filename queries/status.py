"""The answer of `GET /batch-query-status`. One statement reads it together with the key."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Case, Exists, FilteredRelation, Q, When
from django.utils import timezone

from accounts import keys
from config.database.statements import CompiledQuery, QueryParameter
from queries import columns
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Query, Sender

# Seconds between two requests, by the maximum age of the batch.
_POLL = ((timedelta(minutes=2), 2), (timedelta(minutes=10), 5))
_OLD_SECONDS = 15


def poll_seconds(age: timedelta) -> int:
    return next((seconds for younger, seconds in _POLL if age < younger), _OLD_SECONDS)


def _says_what_it_waits_for() -> Exists:
    """Return whether a block of the batch's open queries has a wait."""
    # The statement begins with the batch, because other batches may have any number of such blocks.
    of_batch = Query.objects.filter(batch=QueryParameter("batch"), step__isnull=False, block__due_at__isnull=False)
    return Exists(of_batch.filter(block__wait__isnull=False))


# Waits are read only if `says` is true: the batch or a block of its open queries has a wait. A self-funded batch
# always waits for its user's transactions.
_KEY_AND_BATCH = CompiledQuery(
    lambda: (
        keys.working()
        .annotate(own=FilteredRelation("user__batches", condition=Q(user__batches__pk=QueryParameter("batch"))))
        .annotate(
            says=Case(
                When(
                    Q(own__wait__isnull=False) | Q(own__sender=Sender.SELF),
                    own__status__in=OPEN_STATUSES,
                    then=True,
                ),
                When(_says_what_it_waits_for(), own__status__in=OPEN_STATUSES, then=True),
                default=False,
            )
        )
        .values_list(
            *keys.OWN_COLUMNS,
            *(
                f"own__{field}"
                for field in (
                    *("pk", "status", "label", "created_at"),
                    *("rejection_reason", "rejection_code", "rejection_retryable"),
                )
            ),
            "says",
        )
    )
)
_STATUS = CompiledQuery(lambda: Batch.objects.filter(pk=QueryParameter("batch")).values_list("status"))


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
    """A batch of the user to whom the presented key belongs."""

    id: str
    status: str
    label: str | None
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

    def answer(self) -> "StatusAnswer":
        body: dict[str, Any] = {"queryStatus": self.query_status} | ({"label": self.label} if self.label else {})
        if self.is_open:
            waits = Batch.objects.defer("request").get(pk=self.id).waits() if self.says_what_it_waits_for else []
            news = [wait.sentence for wait in waits]
            return StatusAnswer(body | ({"info": list(map(str, waits))} if waits else {}), _etag([body, news]))
        if self.status == BatchStatus.REJECTED:
            body |= {
                "error": self.rejection_reason,
                "code": self.rejection_code,
                "retryable": self.rejection_retryable,
            }
        return StatusAnswer(body, _etag(body))

    def poll_seconds(self) -> int | None:
        """Return the seconds until the next request. None: only a reorg can still change the status."""
        return poll_seconds(timezone.now() - self.created_at) if self.is_open else None


@dataclass(frozen=True)
class StatusAnswer:
    """The answer of the status endpoint."""

    body: Mapping[str, Any]
    etag: str
    """A weak one, because it ignores the duration of failures."""


def _etag(news: Any) -> str:
    return f'W/"{hashlib.sha256(json.dumps(news).encode()).hexdigest()[:16]}"'


@dataclass(frozen=True)
class KeyAndBatch:
    """The user of a valid key, and the requested batch."""

    user_id: int
    batch: BatchStatusRow | None
    """None: the user has no such batch."""


def of_batch(batch_id: str) -> str | None:
    """Return the batch's `QueryStatus`. None: the batch no longer exists."""
    row = _STATUS.first(batch=batch_id)
    return query_status(row[0]) if row else None


def read(key_hash: str, batch_id: str) -> KeyAndBatch | None:
    """Read the batch's status for a key. None: the key isn't valid.

    `key_hash` is `keys.digest` of the key.
    """
    row = keys.authenticate_and_read(_KEY_AND_BATCH, key_hash, reads_only=True, batch=columns.batch_id(batch_id))
    if row is None:
        return None
    return KeyAndBatch(row.key.user_id, BatchStatusRow(*row.columns) if row.columns[0] else None)
