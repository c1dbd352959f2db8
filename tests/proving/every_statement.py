"""The database fails from each statement of a batch on in turn. Nothing is lost or done twice."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pytest
from django.core.management import CommandError
from django.db import OperationalError, connection

from chains.contract_artifacts import DEPLOYER
from devnet.devchain import DevChain
from proving.models import Signer, Transaction
from queries.models import BatchStatus, Query, Step, StepKind, StepStatus
from tests.proving.chain_state import ACCOUNT_PROVEN, HEADER_ACCUMULATED, events, signer_nonce
from tests.service import ALICE, BOB, a_key, expire_leases, request, submit, work, work_until_done

WRITING = ("INSERT", "UPDATE", "DELETE")


@dataclass
class Fault:
    """A fault of the database that begins after a number of statements."""

    statements_left: int
    was_met: bool = False

    def is_due(self) -> bool:
        """Return whether this statement fails. Call this once for each statement that can fail."""
        if self.statements_left:
            self.statements_left -= 1
            return False
        self.was_met = True
        return True


def prove_with_each(
    service: DevChain, settings: object, fails: Callable[[Fault], AbstractContextManager[None]], *, one_in: int = 1
) -> int:
    """Prove batches, each with a fault from a later statement on. Return the number of statements.

    With `one_in`, only every `one_in`-th statement is tried.
    """
    settings.MAX_BATCHES_PER_MINUTE = 10_000  # type: ignore[attr-defined]
    key = a_key()
    batches = 0
    for statements in itertools.count(step=one_in):
        batches += 1
        service.mine(5)
        work(2)
        assert not Signer.objects.filter(due_at__isnull=False).exists()
        nonce = signer_nonce(service)
        batch = submit(key, request(ALICE, BOB, block=service.head()))
        fault = Fault(statements)
        with fails(fault):
            # One fault may stop a turn, but later turns must still reach the other rows.
            for _ in range(3):
                try:
                    work_until_done(batch)
                except (OperationalError, CommandError, AssertionError):
                    # A worker also closes its connection after an error.
                    connection.close()
        assert_steps_agree()
        stored = Transaction.objects.exclude(to=DEPLOYER).filter(queries__batch=batch)
        where = f"from statement {statements} on"
        assert signer_nonce(service, "pending") <= nonce + stored.distinct().count(), where
        expire_leases()
        assert work_until_done(batch).status == BatchStatus.DONE, where
        work()
        assert signer_nonce(service) == signer_nonce(service, "pending") == nonce + 1, where
        assert_steps_agree()
        if not fault.was_met:
            break
    assert len(events(service, HEADER_ACCUMULATED)) == batches
    assert len(events(service, ACCOUNT_PROVEN)) == 2 * batches
    nonces = Transaction.objects.order_by("nonce").values_list("nonce", flat=True)
    assert list(nonces) == list(range(len(nonces)))
    return statements


def assert_steps_agree() -> None:
    steps: dict[int, dict[str, str]] = {}
    for query_id, kind, status in Step.objects.values_list("query_id", "kind", "status"):
        steps.setdefault(query_id, {})[kind] = status
    kinds = list(StepKind)
    for query in Query.objects.all():
        completed = len(kinds) if query.step is None else kinds.index(StepKind(query.step))
        expected = dict.fromkeys(kinds[:completed], StepStatus.COMPLETED)
        in_progress = {query.step: StepStatus.IN_PROGRESS} if query.step else {}
        assert steps.get(query.pk, {}) == expected | in_progress


@contextmanager
def full_disk(fault: Fault) -> Iterator[None]:
    """Let a number of writes and commits succeed, and the later ones fail."""
    commit = connection._commit  # type: ignore[attr-defined]  # missing from the stubs

    def write() -> None:
        if fault.is_due():
            raise OperationalError("database or disk is full")

    def commit_if_there_is_room() -> None:
        write()
        commit()

    def execute(execute, sql, params, many, context):
        if sql.lstrip().upper().startswith(WRITING):
            write()
        return execute(sql, params, many, context)

    with pytest.MonkeyPatch.context() as patch, connection.execute_wrapper(execute):
        patch.setattr(connection, "_commit", commit_if_there_is_room)
        yield
