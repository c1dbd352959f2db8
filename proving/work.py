"""What is there to do, and the functions that do it. Who calls them, when and where, is not their concern.

Each takes a row's primary key, claims the row by its lease and may be called at any time, any number of times, by any
number of workers.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from django.utils import timezone

from proving import acceptance, pipeline, transactions
from proving.models import Signer
from queries import leases, progress
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Block

logger = logging.getLogger(__name__)

_PER_LOOK = 100


@dataclass(frozen=True)
class Work:
    """One thing to do. Two are equal when they concern the same row."""

    kind: str
    key: object
    do: Callable[[object], None] = field(compare=False)

    def __call__(self) -> None:
        self.do(self.key)


def due() -> Iterator[Work]:
    """What can be done now, the signers' transactions first: everything else waits for them."""
    for key in leases.due(Signer.objects.all(), _PER_LOOK):
        yield Work("signer", key, _tend)
    for key in leases.due(Batch.objects.filter(status=BatchStatus.RECEIVED), _PER_LOOK):
        yield Work("batch", key, acceptance.accept)
    for key in leases.due(Block.objects.all(), _PER_LOOK):
        yield Work("block", key, pipeline.advance)


def reject_overdue() -> None:
    """Reject the batches whose deadline has passed: nothing waits for ever."""
    overdue = Batch.objects.filter(status__in=OPEN_STATUSES, deadline_at__lt=timezone.now())
    progress.reject(
        list(overdue.values_list("pk", flat=True)[:_PER_LOOK]),
        code="deadline_exceeded",
        reason="The batch could not be proven before its deadline. What it waited for last is shown at its steps.",
        retryable=True,
    )


def _tend(key: object) -> None:
    assert isinstance(key, int)
    transactions.tend(key)
