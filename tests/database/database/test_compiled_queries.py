"""Compiled queries return the same rows as Django's queries."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.lookups import IsNull

from accounts.models import ThrottleCount
from config.database.statements import CompiledQuery, QueryParameter

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SINCE = CompiledQuery(
    lambda: ThrottleCount.objects.filter(began_at__gte=QueryParameter("since")).values_list(
        "began_at", IsNull("what_and_who", False)
    )
)


def test_times_and_truths_are_read_as_they_were_given():
    ThrottleCount.objects.create(what_and_who="a", began_at=AT)
    assert SINCE.first(since=AT) == (AT, True)
    assert SINCE.first(since=AT + timedelta(microseconds=1)) is None


def test_a_value_that_is_missing_is_an_error():
    with pytest.raises(KeyError, match="since"):
        SINCE.first()
