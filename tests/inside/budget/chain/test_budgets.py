"""Daily budgets when clocks jump."""

from datetime import timedelta

import pytest
from django.utils import timezone

from proving import money
from proving.models import Transaction, TransactionState
from queries.models import ServiceClock
from tests.inside.working import admitted
from tests.proving.money import in_mempool, pending
from tests.proving.prices import ETHER, up_to_a_gwei
from tests.service import ALICE, BOB, request, submit, work


@pytest.mark.long
def test_a_clock_that_jumps_gives_no_budget_anew(costly, key, monkeypatch):
    _, tx = in_mempool(costly, key)
    costly.mine()
    work()
    counted = money.to_user(key.user_id, 31337)
    assert counted > 0
    now = timezone.now
    for hours in (25, -50):
        monkeypatch.setattr(timezone, "now", lambda hours=hours: now() + timedelta(hours=hours))
        assert money.to_user(key.user_id, 31337) == counted
    # The worker's clock is slow now. The new row's time must still be right to within a minute.
    other = submit(key, request(BOB, block=costly.head() - 1, fee=ETHER))
    late = pending(other)
    assert late.spent_at > tx.spent_at - timedelta(minutes=1)


@pytest.mark.long
def test_spending_signed_by_a_clock_far_ahead_counts_for_a_day_and_no_longer(costly, key, monkeypatch):
    work()
    batch = admitted(key, request(ALICE, block=costly.head(), fee=ETHER))
    now = timezone.now
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: now() + timedelta(days=365))
        pending(batch)
    tx = Transaction.objects.get()
    tx.state, tx.gas_used, tx.gas_price = TransactionState.FINAL, 1, 1
    tx.reserve()
    tx.save()
    assert money.on_chain(31337) == up_to_a_gwei(tx.reserved) > 1
    for late in (timedelta(hours=1), timedelta()):  # a clock is trusted only if a block confirms its time
        ServiceClock.objects.update_or_create(pk=1, defaults={"at": now() - late})
        money.recount()
        assert (Transaction.objects.get().spent_at > now() + timedelta(days=300)) == bool(late)
    assert money.on_chain(31337) > 1
    ServiceClock.objects.update(at=now() + timedelta(days=2))
    monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(days=2))
    assert money.on_chain(31337) == 0
