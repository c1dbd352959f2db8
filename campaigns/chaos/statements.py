"""The database fails at each statement in turn. `make chaos` runs this with pytest on each engine."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import OperationalError, connection
from psycopg import errors

from tests.proving.every_statement import WRITING, Fault, full_disk, prove_with_each

pytestmark = pytest.mark.django_db(transaction=True)

CIRCLES = {"deadlock": errors.DeadlockDetected, "serialization": errors.SerializationFailure}


@contextmanager
def gone(fault: Fault) -> Iterator[None]:
    """Let every statement fail from the faulty statement on. On PostgreSQL the connection is really ended each time."""

    def execute(execute, sql, params, many, context):
        if fault.is_due():
            if connection.vendor != "postgresql":
                raise OperationalError("disk I/O error")
            end_connection()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(execute):
        yield


def end_connection() -> None:
    settings = connection.settings_dict
    mine = connection.connection.info.backend_pid
    with psycopg.connect(
        host=settings["HOST"], port=settings["PORT"], user=settings["USER"], dbname="postgres", autocommit=True
    ) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", (mine,))


@pytest.mark.parametrize("circle", CIRCLES)
def test_a_transaction_that_the_database_ends_at_any_write_is_done_once(service, settings, circle):
    @contextmanager
    def ended_once(fault: Fault) -> Iterator[None]:
        def execute(execute, sql, params, many, context):
            if not fault.was_met and sql.lstrip().upper().startswith(WRITING) and fault.is_due():
                raise OperationalError(circle) from CIRCLES[circle](circle)
            return execute(sql, params, many, context)

        with connection.execute_wrapper(execute):
            yield

    assert prove_with_each(service, settings, ended_once) > 30


def test_a_batch_is_done_once_from_whichever_statement_on_the_database_is_gone(service, settings):
    assert prove_with_each(service, settings, gone) > 60


def test_a_batch_is_done_once_from_whichever_write_on_the_disk_is_full(service, settings):
    assert prove_with_each(service, settings, full_disk) > 30
