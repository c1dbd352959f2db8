"""Amounts that count against a user's daily budget, and refusals once it is used up."""

from datetime import timedelta

import pytest
from django.utils import timezone

from proving.models import Share, Signer, Transaction, TransactionState
from queries.models import Batch
from tests.proving import money, prices, receipts
from tests.service import ALICE, BOB, SIGNER, fresh, reconfigure, request, submit, waiting, work, work_until_done

pytestmark = pytest.mark.outside

# --- Counted amounts --------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("blocks", "state"),
    [(0, TransactionState.PENDING), (1, TransactionState.MINED)],
    ids=["in the mempool", "in a block that isn't confirmed"],
)
def test_spending_of_a_cancelled_batch_counts(costly, key, settings, blocks, state):
    costly.mine(150)
    reconfigure(settings, "confirmations = 1", "confirmations = 150")
    batch, tx = money.in_mempool(costly, key)
    if blocks:
        costly.mine()
        work()
    money.cancel(batch)
    assert fresh(tx).state == state
    assert money.counts_of_day(settings, key, costly, tx.gas_used * tx.gas_price if blocks else tx.cost)


@pytest.mark.long
def test_an_open_batch_counts_as_its_estimate_until_it_has_caused_more(costly, key, settings):
    batch = money.accepted(key, request(ALICE, block=costly.head(), fee=prices.ETHER))
    assert money.counts_of_day(settings, key, costly, batch.estimated_wei or 0)
    tx = money.pending(batch)
    assert money.counts_of_day(settings, key, costly, max(fresh(batch).estimated_wei or 0, tx.cost))
    Batch.objects.update(estimated_gas=1, estimated_wei=1)
    assert money.counts_of_day(settings, key, costly, tx.cost)


@pytest.mark.long
def test_a_pending_transaction_counts_however_old_it_is(costly, key, settings):
    batch, tx = money.in_mempool(costly, key)
    money.cancel(batch)
    Transaction.objects.update(spent_at=timezone.now() - timedelta(days=2))
    assert money.counts_of_day(settings, key, costly, tx.cost)
    assert money.spent_today() == prices.up_to_a_gwei(tx.cost)
    # The 24 hours begin when the transaction is mined.
    costly.mine()
    work()
    assert money.counts_of_day(settings, key, costly, fresh(tx).cost)
    assert tx.cost < tx.reserved <= prices.up_to_a_gwei(tx.reserved) == money.spent_today()
    Transaction.objects.update(spent_at=timezone.now() - timedelta(days=2))
    assert money.counts_of_day(settings, key, costly, 0)
    assert money.spent_today() == 0


def in_another_currency(batch: Batch) -> None:
    Batch.objects.filter(pk=batch.pk).update(destination_chain_id=5)
    signer = Signer.objects.create(chain_id=5, address=SIGNER)
    mined = Transaction.objects.create(
        signer=signer, nonce=0, data=b"", gas_limit=1, state=TransactionState.FINAL, gas_used=1, gas_price=prices.ETHER
    )
    Share.objects.create(transaction=mined, batch=batch, gas=1, wei=prices.ETHER, weight=1)
    assert money.spent_today() == 0


def longer_than_a_day_ago(batch: Batch) -> None:
    signer = Signer.objects.create(chain_id=31337, address=ALICE)
    earlier = timezone.now() - timedelta(days=2)
    mined = Transaction.objects.create(
        signer=signer, nonce=0, data=b"", gas_limit=1, state=TransactionState.FINAL, spent_at=earlier
    )
    Share.objects.create(transaction=mined, batch=batch, gas=1, wei=prices.ETHER, weight=1)
    money.cancel(batch)


@pytest.mark.parametrize("has_spent", [in_another_currency, longer_than_a_day_ago])
def test_spending_in_another_currency_or_before_the_last_day_does_not_count(costly, key, settings, has_spent):
    has_spent(submit(key, request(BOB, block=costly.head(), fee=prices.ETHER)))
    assert money.counts_of_day(settings, key, costly, 0)


@pytest.mark.long
def test_a_transaction_that_reverts_is_not_sent_again_above_the_limit(costly, key, settings):
    before = receipts.balance(costly)
    _, tx = money.in_mempool(costly, key)
    money.limit(settings, daily_limit_per_user=tx.cost * 11 // 10)
    code = costly.rpc("eth_getCode", tx.to, "latest")
    for _ in range(4):
        costly.rpc("anvil_setCode", tx.to, "0xfe")
        costly.mine()
        costly.rpc("anvil_setCode", tx.to, code)
        work(4)
    assert Transaction.objects.get().succeeded is False
    assert "The daily limit of its user leaves" in waiting()[0]
    assert 0 < before - receipts.balance(costly) <= tx.cost * 11 // 10


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("wei", "is_node_down", "is_retryable", "sentence"),
    [(0, True, False, ""), (10**12, False, True, "Send it in parts.")],
    ids=["with nothing left no node is asked", "more than a day's budget"],
)
def test_a_batch_that_never_fits_the_daily_limit_is_rejected_with_the_reason(
    costly, key, settings, wei, is_node_down, is_retryable, sentence
):
    money.limit(settings, daily_limit_per_user=wei)
    if is_node_down:
        reconfigure(settings, costly.url, "http://127.0.0.1:1")
    batch = submit(key, request(ALICE, block=1 if is_node_down else costly.head(), fee=prices.ETHER))
    work_until_done(batch)
    assert (batch.rejection_code, batch.rejection_retryable) == ("too_large_for_budget", is_retryable)
    assert sentence in batch.rejection_reason
