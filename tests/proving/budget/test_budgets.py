"""Budgets in gas: what counts of a user's day, and what happens when it is used up."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import User
from proving.budget import reservations
from proving.models import Share, Signer, Transaction, TransactionState
from queries.clock import Clock
from queries.models import Batch, BatchStatus
from tests.proving.money import ETHER, accepted, in_mempool, pending, rejected_late
from tests.service import ALICE, BOB, SIGNER, fresh, reconfigure, request, submit, waiting, work

# --- What counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "state"),
    [(0, TransactionState.PENDING), (1, TransactionState.MINED)],
    ids=["in the mempool", "in a block that isn't confirmed"],
)
def test_what_a_rejected_batch_has_sent_counts(costly, key, settings, blocks, state):
    costly.mine(150)
    reconfigure(settings, "confirmations = 1", "confirmations = 150")
    settings.DAILY_GAS_BUDGET = 200_000
    batch, tx = in_mempool(costly, key)
    if blocks:
        costly.mine()
        work()
    rejected_late(batch)
    tx.refresh_from_db()
    assert tx.state == state
    reserved = reservations.to_user(key.user_id, [31337])
    assert reserved.gas == (tx.gas_used if blocks else tx.gas_limit)
    assert reserved.wei == (tx.gas_used * tx.gas_price if blocks else tx.cost)
    again = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    work()
    assert fresh(again).rejection_code == "budget_exceeded"


def test_an_open_batch_counts_as_its_estimate_until_it_has_caused_more(costly, key):
    batch, tx = in_mempool(costly, key)
    assert tx.gas_limit < (fresh(batch).estimated_gas or 0)
    reserved = reservations.to_user(key.user_id, [31337])
    assert (reserved.gas, reserved.wei) == (batch.estimated_gas, max(batch.estimated_wei or 0, tx.cost))
    Batch.objects.update(estimated_gas=1, estimated_wei=1)
    reserved = reservations.to_user(key.user_id, [31337])
    assert (reserved.gas, reserved.wei) == (tx.gas_limit, tx.cost)


def test_what_is_pending_counts_however_old_it_is(costly, key):
    batch, tx = in_mempool(costly, key)
    rejected_late(batch)
    Transaction.objects.update(spent_at=timezone.now() - timedelta(days=2))
    assert reservations.to_user(key.user_id, [31337]).wei == tx.cost == reservations.on_chain(31337)
    # The day begins when it is mined.
    costly.mine()
    work()
    tx.refresh_from_db()
    assert reservations.to_user(key.user_id, [31337]).wei == tx.cost < tx.reserved == reservations.on_chain(31337)
    Transaction.objects.update(spent_at=timezone.now() - timedelta(days=2))
    assert reservations.to_user(key.user_id, [31337]).wei == 0 == reservations.on_chain(31337)


def test_a_clock_that_jumps_gives_no_budget_anew(costly, key, monkeypatch):
    clock = Clock()
    clock.read([])
    batch, tx = in_mempool(costly, key)
    costly.mine()
    work()
    rejected_late(batch)
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


def on_a_test_network(batch: Batch) -> None:
    Batch.objects.filter(pk=batch.pk).update(destination_chain_id=5, estimated_gas=10**9, status="IN_PROGRESS")


def in_another_currency(batch: Batch) -> None:
    Batch.objects.filter(pk=batch.pk).update(destination_chain_id=5)
    signer = Signer.objects.create(chain_id=5, address=SIGNER)
    mined = Transaction.objects.create(
        signer=signer, nonce=0, data=b"", gas_limit=1, state=TransactionState.FINAL, gas_used=1, gas_price=ETHER
    )
    Share.objects.create(transaction=mined, batch=batch, gas=1, wei=ETHER, weight=1)
    assert (reservations.on_chain(31337), reservations.on_chain(5)) == (0, ETHER)


def longer_than_a_day_ago(batch: Batch) -> None:
    signer = Signer.objects.create(chain_id=31337, address=ALICE)
    earlier = timezone.now() - timedelta(days=2)
    mined = Transaction.objects.create(
        signer=signer, nonce=0, data=b"", gas_limit=1, state=TransactionState.FINAL, spent_at=earlier
    )
    Share.objects.create(transaction=mined, batch=batch, gas=1, wei=ETHER, weight=1)
    rejected_late(batch)


@pytest.mark.parametrize("has_spent", [on_a_test_network, in_another_currency, longer_than_a_day_ago])
def test_what_a_user_has_spent_elsewhere_or_before_is_no_matter(costly, key, settings, has_spent):
    settings.DAILY_GAS_BUDGET = 200_000
    has_spent(submit(key, request(BOB, block=costly.head(), fee=ETHER)))
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    pending(batch)
    assert fresh(batch).status == BatchStatus.IN_PROGRESS


def test_what_reverts_and_is_sent_again_stays_within_the_budget(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 200_000
    _, tx = in_mempool(costly, key)
    code = costly.rpc("eth_getCode", tx.to, "latest")
    for _ in range(4):
        costly.rpc("anvil_setCode", tx.to, "0xfe")
        costly.mine()
        costly.rpc("anvil_setCode", tx.to, code)
        for _ in range(4):
            work()
    used = sum(tx.gas for tx in Transaction.objects.all())
    assert used <= 320_000, (Transaction.objects.count(), used)


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "is_node_down", "said"),
    [(0, True, ""), (100_000, False, "Send it in parts.")],
    ids=["with nothing left no node is asked", "more than a day's budget"],
)
def test_what_never_fits_the_budget_is_not_worth_sending_again(costly, key, settings, budget, is_node_down, said):
    settings.DAILY_GAS_BUDGET = budget
    if is_node_down:
        reconfigure(settings, costly.url, "http://127.0.0.1:1")
    batch = submit(key, request(ALICE, block=1 if is_node_down else costly.head(), fee=ETHER))
    work()
    assert (fresh(batch).rejection_code, batch.rejection_retryable) == ("too_large_for_budget", False)
    assert said in batch.rejection_reason


# --- A user's own budget ----------------------------------------------------------------------------------------------


def test_a_users_own_budget_counts_instead_of_the_installations(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 0
    User.objects.update(daily_gas_budget=10**9)
    pending(submit(key, request(ALICE, block=costly.head(), fee=ETHER)))
    settings.DAILY_GAS_BUDGET = 10**9
    User.objects.update(daily_gas_budget=0)
    batch = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    work()
    assert fresh(batch).rejection_code == "too_large_for_budget"


def test_a_users_own_budget_counts_when_a_transaction_is_signed(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 10**9
    accepted(key, request(ALICE, block=costly.head(), fee=ETHER))
    User.objects.update(daily_gas_budget=5)
    work()
    assert "of the 5 gas that a user's batches may use in 24 hours 5 are left" in waiting()[0]
    assert not Transaction.objects.exists()
    settings.DAILY_GAS_BUDGET = 5
    User.objects.update(daily_gas_budget=10**9)
    work()
    assert Transaction.objects.count() == 1
