"""The order of locks when a user's open batches are counted."""

import pytest
from django.db import connection

from tests.service import ALICE, request, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("unreachable_chain")]


@pytest.mark.postgresql_only(reason="SQLite has no locks of rows")
def test_open_batches_are_counted_after_the_lock(key):
    """A statement that waits for a lock reads rows as they were before the wait."""
    sql_statements: list[str] = []

    def note(execute, sql, values, many, context):
        if connection.in_atomic_block:
            sql_statements.append(sql)
        return execute(sql, values, many, context)

    with connection.execute_wrapper(note):
        submit(key, request(ALICE, block=1))
    locks = next(at for at, sql in enumerate(sql_statements) if "FOR NO KEY UPDATE" in sql)
    counts = next(at for at, sql in enumerate(sql_statements) if "COUNT(open." in sql)
    assert locks < counts
