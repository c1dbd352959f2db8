"""Queries that are sent otherwise than by Django: `__in` with long lists, and compiled queries."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.lookups import IsNull

from accounts.models import ThrottleCount, User
from config.database.statements import CompiledQuery, QueryParameter
from queries.models import Block, Query

pytestmark = pytest.mark.django_db


TOO_LARGE = pytest.param(
    [10**30 + digit for digit in range(40)], marks=pytest.mark.postgresql_only(reason="SQLite takes no such number")
)


@pytest.mark.parametrize("more", [range(2, 40), [None] * 40, [1] * 40, TOO_LARGE])
def test_a_long_list_selects_what_a_short_one_does(more):
    block, other = (
        Block.objects.create(destination_chain_id=1, source_chain_id=1, number=number) for number in (1, 41)
    )
    numbers = [1, *more]
    assert list(Block.objects.filter(number__in=numbers)) == [block]
    assert list(Block.objects.exclude(number__in=numbers)) == [other]
    for blocks in ([block] * 40, {block.pk, *range(10**6, 10**6 + 40)}):
        assert list(Block.objects.filter(pk__in=[getattr(named, "pk", named) for named in blocks])) == [block]
        assert not Query.objects.filter(block__in=blocks).exists()
    names = ['{"', "\\", "'", "é", *"abcdefgh"]
    users = [User.objects.create(address=name) for name in names]
    assert set(User.objects.filter(address__in=names)) == set(users)


# --- Compiled queries return the same rows as Django's ----------------------------------------------------------------


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
