"""Limits in ETH: a signer's spending in a day, and the costs that a user may cause in a day."""

import pytest
from django.core.management import CommandError, call_command

from accounts.models import User
from proving.models import Share, Signer, Transaction, TransactionState
from queries.models import BatchStatus
from tests.proving import estimated_batches, money, prices, transactions
from tests.service import ALICE, BOB, SIGNER, a_key, chains_toml, fresh, request, submit, waiting, work, work_until_done

pytestmark = pytest.mark.outside


def test_real_money_has_limits_by_default(costly, client, key):
    prices.mine_at(costly, 10_000)
    told = estimated_batches.estimate(client, key, request(ALICE, block=costly.head()) | {"fee": "auto"})
    errors = " ".join(rejection["error"] for rejection in told["rejections"])
    assert "a user's batches may cost, on chain 31337, 0.100000 ETH in 24 hours" in errors
    assert "all batches together may cost, on chain 31337, 0.500000 ETH in 24 hours" in errors


# --- The signer's limit -----------------------------------------------------------------------------------------------


@pytest.mark.story
def test_the_signer_spends_no_more_in_a_day_than_its_limit(costly, key, settings):
    prices.mine_at(costly, 10)
    block = costly.head()
    first = money.accepted(key, request(ALICE, block=block, fee=prices.ETHER))
    other = money.accepted(a_key(BOB), request(BOB, block=block - 1, fee=prices.ETHER))
    money.limit(settings, daily_limit=prices.ETHER * 35 // 10_000)
    work(4)
    (tx,) = Transaction.objects.all()
    assert tx.cost <= prices.ETHER * 35 // 10_000
    assert Transaction.objects.count() == 1
    notice = str(Signer.objects.get().wait)
    assert notice.startswith("The operator's limit of 0.0035 ETH in 24 hours on chain 31337 leaves ")
    assert notice in waiting()
    # The transaction gets older than a day.
    costly.rpc("evm_setAutomine", True)
    costly.mine()
    work()
    Transaction.objects.update(spent_at=tx.created_at.replace(year=2020))
    assert work_until_done(first, costly).status == BatchStatus.DONE
    assert work_until_done(other, costly).status == BatchStatus.DONE
    assert Signer.objects.get().wait is None


def test_the_signers_balance_must_do_for_what_is_pending_too(costly, key):
    _, tx = money.in_mempool(costly, key)
    costly.rpc("anvil_setBalance", SIGNER, hex(tx.cost * 3 // 2))
    submit(key, request(BOB, block=costly.head() - 1, fee=prices.ETHER))
    work(2)
    assert Transaction.objects.count() == 1
    assert "and may have to pay" in str(Signer.objects.get().wait)


def test_the_operators_own_transactions_count_for_the_days_limit(chain, key, settings, tmp_path):
    settings.ALLOWED_ADDRESSES = ["*"]
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, chain=f"{money.COSTLY}\ndaily_limit = '0.000001'")
    with pytest.raises(CommandError, match=r"limit of 0\.000001 ETH in 24 hours"):
        call_command("deploy_registry", "31337", "31337")
    assert not Transaction.objects.exists()


@pytest.mark.long
def test_a_cancellation_is_within_the_daily_limit(costly, key, settings):
    prices.mine_at(costly, 1)
    batch, tx = money.paying_up_to(3, key, ALICE, block=costly.head())
    most = tx.cost * 105 // 100
    money.limit(settings, daily_limit=most)
    money.cancel(batch)
    prices.mine_at(costly, 150)
    prices.go_on(costly, 150, rounds=4, aged=True)
    assert tx.newest.is_cancellation
    assert (money.spent_today() or 0) <= prices.up_to_a_gwei(most)
    prices.mine_at(costly, 1)
    prices.go_on(costly, 1, rounds=4, aged=True)
    assert fresh(tx).state != TransactionState.PENDING
    assert (money.spent_today() or 0) <= prices.up_to_a_gwei(most)


@pytest.mark.long
def test_until_it_is_final_what_was_sent_counts_at_its_most_and_others_wait(costly, key, settings):
    costly.mine(70)
    prices.mine_at(costly, 1)
    first = submit(key, request(ALICE, block=costly.head() - 1, fee=prices.ETHER // 1000))
    tx = money.pending(first)
    most = tx.cost
    # The limit covers another batch and the first one's real cost, but not another batch and the first one's maximum
    # cost.
    money.limit(settings, daily_limit=most * 14 // 10, daily_limit_per_user=most * 14 // 10)
    assert work_until_done(first, costly).status == BatchStatus.DONE
    assert fresh(tx).cost < prices.up_to_a_gwei(most) == money.spent_today()
    (share,) = Share.objects.filter(transaction=tx)
    assert (share.wei, share.reserved_gwei * prices.GWEI) == (tx.cost, prices.up_to_a_gwei(most))
    prices.mine_at(costly, 1)
    second = submit(key, request(BOB, block=costly.head() - 3, fee=prices.ETHER // 1000))
    work(3)
    assert fresh(second).status == BatchStatus.IN_PROGRESS
    assert "The operator's limit" in waiting()[0]
    costly.mine(70)
    prices.mine_at(costly, 1)
    with money.stopped():
        work()
        assert money.spent_today() == prices.up_to_a_gwei(tx.cost)
    assert work_until_done(second, costly, rounds=20).status == BatchStatus.DONE


# --- Raising fees -----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", ["daily_limit", "daily_limit_per_user"])
def test_fees_are_not_raised_above_a_limit(costly, key, settings, name):
    """When a transaction's fee is raised, its own earlier cost doesn't count against the limit."""
    prices.mine_at(costly, 2)
    _, tx = money.in_mempool(costly, key)
    costly.rpc("anvil_dropAllTransactions")
    prices.mine_at(costly, 8)
    # The limit is hardly above what was offered, and then half above it.
    for versions, most in enumerate((tx.cost * 105 // 100, tx.cost * 3 // 2), 1):
        money.limit(settings, **{name: most})
        transactions.work_aged()
        assert tx.versions.count() == versions


# --- A user's limit ---------------------------------------------------------------------------------------------------


def test_a_price_that_rises_takes_nobody_above_a_users_limit(costly, key, settings):
    """The gas price rises between acceptance and sending, so the batch would exceed the user's limit."""
    prices.mine_at(costly, 1)
    money.limit(settings, daily_limit_per_user=prices.ETHER * 8 // 10_000)
    money.accepted(key, request(ALICE, block=costly.head(), fee=prices.ETHER))
    prices.mine_at(costly, 20)
    work(2)
    assert not Transaction.objects.exists()
    assert "The daily limit of its user leaves 0.000800 ETH" in waiting()[0]


@pytest.mark.long
def test_a_users_own_limit_in_money_counts_instead_of_the_chains(costly, key, settings):
    money.limit(settings, daily_limit_per_user=0)
    User.objects.update(daily_limits_wei={"31337": str(prices.ETHER), "5": "0"})
    money.accepted(key, request(ALICE, block=costly.head(), fee=prices.ETHER))
    # The limit is read again before each signature.
    User.objects.update(daily_limits_wei=None)
    work()
    assert "The daily limit of its user leaves 0.000000 ETH" in waiting()[0]
    User.objects.update(daily_limits_wei={"31337": str(prices.ETHER)})
    work()
    assert Transaction.objects.count() == 1
    money.limit(settings, daily_limit_per_user=100 * prices.ETHER)
    User.objects.update(daily_limits_wei={"*": "0"})
    batch = submit(key, request(BOB, block=costly.head(), fee=prices.ETHER))
    assert work_until_done(batch).rejection_code == "too_large_for_budget"
