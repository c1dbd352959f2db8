"""What is there to do, and the functions that do it. Who calls them, when and where, is not their concern.

Each takes a row's primary key, claims the row by its lease and may be called at any time, any number of times, by any
number of workers.
"""

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from config.chains import get_chains
from proving import acceptance, keeping, pipeline, transactions
from proving.models import FactsRegistry, Signer
from queries import leases, progress
from queries.models import OPEN_STATUSES, Batch, Block

logger = logging.getLogger(__name__)

_PER_LOOK = 100


@dataclass(frozen=True)
class Work:
    """One thing to do. Two are equal when they concern the same row; those of one lane ask the same nodes."""

    kind: str
    key: object
    lane: tuple[int, ...] = field(compare=False)
    do: Callable[[object], None] = field(compare=False)

    def __call__(self) -> None:
        self.do(self.key)


def due() -> Iterator[Work]:
    """What can be done now. Lanes take turns, and so do kinds: a chain that hangs or a long queue holds up nobody."""
    queues = []
    for connection in get_chains().connections:
        source, destination = connection.source, connection.destination
        blocks = Block.objects.filter(source_chain_id=source, destination_chain_id=destination)
        keys = leases.due(blocks, _PER_LOOK, order="queue_at")
        queues.append([Work("block", key, (destination, source), pipeline.advance) for key in keys])
        registries = FactsRegistry.in_use.filter(source_chain_id=source, destination_chain_id=destination)
        keys = leases.due(registries, _PER_LOOK)
        queues.append([Work("registry", key, (destination, source), keeping.look_after) for key in keys])
    for chain in get_chains().destinations():
        signers = Signer.objects.filter(chain_id=chain.id)
        received = Batch.objects.filter(destination_chain_id=chain.id, status__in=OPEN_STATUSES)
        queues += [
            [Work("signer", key, (chain.id,), _tend) for key in leases.due(signers, _PER_LOOK)],
            [Work("batch", key, (chain.id,), acceptance.accept) for key in leases.due(received, _PER_LOOK)],
        ]
    for turn in itertools.zip_longest(*queues):
        yield from filter(None, turn)


def recover() -> None:
    """Find again what a clock that was ahead has put off."""
    for rows in (Block.objects.all(), Batch.objects.all(), Signer.objects.all(), FactsRegistry.objects.all()):
        leases.recover(rows)


def reject_overdue(now: datetime) -> None:
    """Reject the batches whose deadline has passed at this time of `queries.clock`: nothing waits for ever."""
    overdue = Batch.objects.filter(status__in=OPEN_STATUSES, deadline_at__lt=now)
    for batch in overdue[:_PER_LOOK]:
        waits = " ".join(wait.sentence for wait in batch.waits())
        progress.reject(
            [batch.pk],
            code="deadline_exceeded",
            reason="The batch could not be proven before its deadline." + (f" It waited: {waits}" if waits else ""),
            retryable=True,
        )


def _tend(key: object) -> None:
    assert isinstance(key, int)
    transactions.tend(key)
