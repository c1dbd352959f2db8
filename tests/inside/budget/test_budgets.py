"""What counts of a user's day."""

from datetime import timedelta

from django.utils import timezone

from proving.budget import reservations
from queries.clock import Clock
from tests.proving.money import ETHER, in_mempool, pending
from tests.service import BOB, request, submit, work


def test_a_clock_that_jumps_gives_no_budget_anew(costly, key, monkeypatch):
    clock = Clock()
    clock.read([])
    _, tx = in_mempool(costly, key)
    costly.mine()
    work()
    counted = reservations.to_user(key.user_id, [31337])
    assert counted.gas > 0
    now = timezone.now
    for hours in (25, -50):
        monkeypatch.setattr(timezone, "now", lambda hours=hours: now() + timedelta(hours=hours))
        assert reservations.to_user(key.user_id, [31337]) == counted
    # What is stored by a clock that is behind is no older than it is.
    other = submit(key, request(BOB, block=costly.head() - 1, fee=ETHER))
    late = pending(other)
    assert late.spent_at > tx.spent_at - timedelta(minutes=1)
