"""A disk that is full from any write on: nothing is lost or done twice, and work goes on when there is room."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection

from proving.models import Signer, Transaction
from queries.models import BatchStatus, Query, Step, StepKind, StepStatus
from tests.proving.chain_state import ACCOUNT_PROVEN, HEADER_ACCUMULATED, events, signer_nonce
from tests.service import ALICE, BOB, a_key, expire_leases, request, submit, work, work_until_done

pytestmark = pytest.mark.django_db(transaction=True)

_WRITING = ("INSERT", "UPDATE", "DELETE")


class Disk:
    """Has room for so many statements that write, and commits."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.was_full = False

    @contextmanager
    def in_use(self) -> Iterator[None]:
        commit = connection._commit  # type: ignore[attr-defined]  # missing from the stubs

        def commit_if_there_is_room() -> None:
            self._write()
            commit()

        with pytest.MonkeyPatch.context() as patch, connection.execute_wrapper(self._execute):
            patch.setattr(connection, "_commit", commit_if_there_is_room)
            yield

    def _execute(self, execute, sql, params, many, context):
        if sql.lstrip().upper().startswith(_WRITING):
            self._write()
        return execute(sql, params, many, context)

    def _write(self) -> None:
        if not self.room:
            self.was_full = True
            raise OperationalError("database or disk is full")
        self.room -= 1


def assert_steps_agree() -> None:
    for query in Query.objects.all():
        kinds = list(StepKind)
        completed = len(kinds) if query.step is None else kinds.index(StepKind(query.step))
        steps = dict(Step.objects.filter(query=query).values_list("kind", "status"))
        expected = dict.fromkeys(kinds[:completed], StepStatus.COMPLETED)
        assert steps == (expected | {query.step: StepStatus.IN_PROGRESS} if query.step else expected)


def test_a_batch_is_done_once_from_whichever_write_on_the_disk_is_full(service, settings):
    settings.MAX_BATCHES_PER_MINUTE = 10_000
    key = a_key()
    for writes in itertools.count(0):
        service.mine(5)
        work()
        work()
        assert not Signer.objects.filter(due_at__isnull=False).exists()
        nonce = signer_nonce(service)
        batch = submit(key, request(ALICE, BOB, block=service.head()))
        disk = Disk(writes)
        with disk.in_use():
            # What one row can't have written leaves the others their try.
            for _ in range(3):
                try:
                    work_until_done(batch)
                except (OperationalError, AssertionError):
                    continue
        assert_steps_agree()
        stored = Transaction.objects.exclude(to="").filter(queries__batch=batch)
        assert signer_nonce(service, "pending") <= nonce + stored.distinct().count(), f"from write {writes} on"
        expire_leases()
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        assert signer_nonce(service) == signer_nonce(service, "pending") == nonce + 1, f"from write {writes} on"
        assert_steps_agree()
        if not disk.was_full:
            break
    assert writes > 30
    assert len(events(service, HEADER_ACCUMULATED)) == writes + 1
    assert len(events(service, ACCOUNT_PROVEN)) == 2 * (writes + 1)
    nonces = Transaction.objects.order_by("nonce").values_list("nonce", flat=True)
    assert list(nonces) == list(range(len(nonces)))
