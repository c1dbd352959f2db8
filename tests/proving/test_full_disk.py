"""A disk that is full from any write on: nothing is lost or done twice, and work goes on when there is room.

A database transaction is lost by whichever of its writes fails, and mostly has several: a run tries each fifth write.
`make chaos` tries them all (tests/chaos/statements.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection

from tests.proving.every_statement import Fault, prove_with_each

pytestmark = pytest.mark.django_db(transaction=True)

WRITING = ("INSERT", "UPDATE", "DELETE")


@contextmanager
def full_disk(fault: Fault) -> Iterator[None]:
    """It has room for so many statements that write, and commits."""
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


def test_a_batch_is_done_once_from_any_write_on_the_disk_is_full(service, settings):
    assert prove_with_each(service, settings, full_disk, one_in=5) > 30
