"""`__in` with long lists, which is one array on PostgreSQL."""

import pytest

from accounts.models import User
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
