"""Do work for inside tests by calling the service's own functions. Each helper is removed with the function that it
calls.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accounts.models import ApiKey
from config.database import due_rows
from proving.health import chain_watch
from proving.reconcile.turn import reconcile_all
from proving.working import lanes, worker
from proving.working.lanes import LaneKind, LaneName
from proving.working.worker import Worker
from queries.models import Batch, BatchStatus, Block
from tests.proving.money import set_fee
from tests.service import fresh, submit


def work_side_by_side(*kinds: LaneKind) -> None:
    """Do all work in lanes of these kinds in one turn each, with all rows due."""
    for name in lanes.every():
        if name.kind in kinds:
            due_rows.wake_all(lanes.rows(name))
            assert worker.turn(name) == 0


def work_once() -> None:
    """Do all work once, in one turn of each lane."""
    for kind in (LaneKind.DESTINATION, LaneKind.ADMISSION, LaneKind.CONNECTION):
        work_side_by_side(kind)


def reconcile_block(pk: int) -> None:
    """Reconcile one block, as a worker does."""
    row = Block.objects.get(pk=pk)
    with lanes.hold(LaneName(LaneKind.CONNECTION, row.destination_chain_id, row.source_chain_id)) as lane:
        assert lane
        assert reconcile_all(lane, [pk], 1000) == 0


def observe() -> None:
    """Make all chains due, and observe them."""
    chain_watch.wake()
    watch()


def watch() -> None:
    """Observe the chains and attesters that are due."""
    assert worker.turn(LaneName(LaneKind.WATCH)) == 0


def accept_all() -> None:
    """Accept or reject all batches without proving anything."""
    work_side_by_side(LaneKind.ADMISSION, LaneKind.LARGE_ADMISSION)


def admitted(key: ApiKey, body: dict[str, Any], *, fee: int | None = None) -> Batch:
    """Submit a batch, have it accepted and nothing more. Then set its fee, if given."""
    batch = submit(key, body)
    accept_all()
    assert fresh(batch).status == BatchStatus.ACCEPTED, batch.rejection_reason
    if fee is not None:
        set_fee(batch, fee)
    return batch


@contextmanager
def a_worker() -> Iterator[None]:
    """Run a worker in a thread of this process, where a test can replace parts of it."""
    running = Worker()
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield
    finally:
        running.stop()
        thread.join(20)
        assert not thread.is_alive()
