"""Work that tests of the inside do by calling functions of the product; they end with the functions that they call."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.utils import timezone

from accounts.models import ApiKey
from chains import together
from chains.together import Raised
from proving.admission.admit import admit
from proving.health import chain_checks
from proving.models import Signer
from proving.worker.due import due
from proving.worker.worker import Worker
from queries.models import Batch, BatchStatus, Block
from tests.proving.money import set_fee
from tests.service import fresh, submit


def work_side_by_side(kind: str) -> None:
    """A worker does at once all that is or will be due of one kind."""
    rows = {"batch": Batch.objects.all(), "block": Block.objects.all(), "signer": Signer.objects.all()}[kind]
    rows.filter(due_at__gt=timezone.now()).update(due_at=timezone.now())
    tasks = [task for task in due() if task.kind == kind]
    for outcome in together.run(tasks, may_wait=lambda: True):
        if isinstance(outcome, Raised):
            raise outcome.error


def work_once() -> None:
    """A worker does once all that is or will be due, side by side."""
    for kind in ("signer", "batch", "block"):
        work_side_by_side(kind)


def observe() -> None:
    """Time passes until each chain is due, and a worker observes it."""
    chain_checks.observe(everyone=True)


def accept_all() -> None:
    """A worker accepts or rejects what is due, and proves nothing."""
    for task in [task for task in due() if task.kind == "batch"]:
        task()


def admitted(key: ApiKey, body: dict[str, Any], *, fee: int | None = None) -> Batch:
    """Submit a batch that is accepted, and nothing else is done for it. Then it has this fee."""
    batch = submit(key, body)
    admit(batch.pk)
    assert fresh(batch).status == BatchStatus.ACCEPTED, batch.rejection_reason
    if fee is not None:
        set_fee(batch, fee)
    return batch


@contextmanager
def a_worker() -> Iterator[None]:
    """Run a worker in a thread of this process, so that a test may reach into it."""
    running = Worker()
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield
    finally:
        running.stop()
        thread.join(20)
        assert not thread.is_alive()
