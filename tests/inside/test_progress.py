"""Since when a row fails."""

from django.utils import timezone

from database import leases
from queries.models import Block
from tests.explorer.batches import a_batch, accept


def test_failures_in_a_row_are_dated_from_the_first_until_one_succeeds(unreachable_chain, db):
    accept(a_batch())
    seen = []
    for attempts in (1, 2, 0):
        lease = leases.claim(Block.objects.all(), Block.objects.get().pk)
        assert lease
        lease.release(timezone.now(), attempts=attempts)
        seen.append(Block.objects.get().failing_since)
    assert seen[0]
    assert seen == [seen[0], seen[0], None]
