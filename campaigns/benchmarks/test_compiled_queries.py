"""What it costs to ask the database: by Django's own way, by a compiled query, and by SQL that is written by hand."""

import time
from collections.abc import Callable

import pytest
from django.db import connection

from database.compiled_queries import CompiledQuery, Given
from queries.models import Batch

pytestmark = pytest.mark.django_db

_TIMES = 2_000
_STATUS = CompiledQuery(lambda: Batch.objects.filter(pk=Given("batch")).values_list("status"))


def _microseconds(ask: Callable[[], object]) -> float:
    """Return the processor time of one call."""
    ask()
    began = time.process_time()
    for _ in range(_TIMES):
        ask()
    return (time.process_time() - began) / _TIMES * 1e6


def _by_hand() -> object:
    with connection.cursor() as cursor:
        cursor.execute("SELECT status FROM queries_batch WHERE id = %s", ["x"])
        return cursor.fetchone()


def test_a_compiled_query_costs_little_more_than_sql(report):
    django = _microseconds(lambda: list(Batch.objects.filter(pk="x").values_list("status")))
    compiled = _microseconds(lambda: _STATUS.first(batch="x"))
    by_hand = _microseconds(_by_hand)
    report("one column, microseconds", f"Django {django:.0f}, compiled {compiled:.0f}, by hand {by_hand:.0f}")
    assert compiled < django / 3
