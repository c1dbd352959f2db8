"""Limits in money: what a signer may spend in a day, and what a user may cause."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Model
from django.db.models.signals import post_init
from django.utils import timezone

from accounts.models import User
from config.configured_chains import get_chains
from proving.budget import reservations
from proving.models import Share, SignedTransaction, Signer, Transaction, TransactionState
from proving.transactions import transaction_monitor
from queries.clock import Clock
from queries.models import BatchStatus, ServiceClock
from tests.proving.money import (
    COSTLY,
    ETHER,
    accepted,
    go_on,
    in_mempool,
    limit,
    mine_at,
    paying_up_to,
    pending,
    rejected_late,
)
from tests.proving.transactions import age
from tests.service import ALICE, BOB, a_key, chains_toml, fresh, request, submit, waiting, work, work_until_done


def test_where_money_is_real_there_are_limits_though_nobody_wrote_any(costly):
    chain = get_chains().chain(31337)
    assert (chain.daily_limit_wei, chain.daily_limit_per_user_wei) == (ETHER // 2, ETHER // 10)


def test_a_signature_reads_no_version_of_what_was_signed_in_the_day_before(costly, key):
    """The signer is locked meanwhile, and each replacement is another version."""
    costly.rpc("evm_setAutomine", True)
    values = {
        "signer": Signer.objects.create(chain_id=31337, address=BOB),
        "data": b"",
        "gas_limit": 1,
        "state": TransactionState.FINAL,
    }
    versions = {"raw": b"", "max_fee_per_gas": 1, "max_priority_fee_per_gas": 1}
    for nonce in range(40):
        tx = Transaction.objects.create(nonce=nonce, **values)
        SignedTransaction.objects.create(transaction=tx, hash=str(nonce), **versions)
    read: list[SignedTransaction] = []
    with post_init_of(SignedTransaction, read):
        work_until_done(submit(key, request(BOB, block=costly.head(), fee=ETHER)), costly)
    assert 0 < len(read) < 30


@contextmanager
def post_init_of(model: type[Model], seen: list[Any]) -> Iterator[None]:
    """Note each row of the model that is read or made."""

    def note(instance: Model, **_: object) -> None:
        seen.append(instance)

    post_init.connect(note, sender=model)
    yield
    post_init.disconnect(note, sender=model)


# --- The signer's -----------------------------------------------------------------------------------------------------


def test_the_signer_spends_no_more_in_a_day_than_its_limit(costly, key, settings):
    mine_at(costly, 10)
    block = costly.head()
    first = accepted(key, request(ALICE, block=block, fee=ETHER))
    other = accepted(a_key(BOB), request(BOB, block=block - 1, fee=ETHER))
    limit(settings, daily_limit=ETHER * 35 // 10_000)
    for _ in range(4):
        work()
    (tx,) = Transaction.objects.all()
    assert tx.cost <= ETHER * 35 // 10_000
    assert Transaction.objects.count() == 1
    notice = Signer.objects.get().notice
    assert notice.startswith("The operator's limit of 0.0035 ETH in 24 hours on chain 31337 leaves ")
    assert notice in waiting()
    # A day later.
    costly.rpc("evm_setAutomine", True)
    costly.mine()
    work()
    Transaction.objects.update(spent_at=tx.created_at.replace(year=2020))
    assert work_until_done(first, costly).status == BatchStatus.DONE
    assert work_until_done(other, costly).status == BatchStatus.DONE
    assert Signer.objects.get().notice == ""


def test_the_operators_own_transactions_count_for_the_days_limit(chain, key, settings, tmp_path):
    settings.ALLOWED_ADDRESSES = ["*"]
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, chain=f"{COSTLY}\ndaily_limit = '0.000001'")
    with pytest.raises(CommandError, match=r"limit of 0\.000001 ETH in 24 hours"):
        call_command("deploy_registry", "31337", "31337")
    assert not Transaction.objects.exists()


def test_a_cancellation_is_within_the_daily_limit(costly, key, settings):
    mine_at(costly, 1)
    batch, tx = paying_up_to(3, key, ALICE, block=costly.head())
    most = tx.cost * 105 // 100
    limit(settings, daily_limit=most)
    rejected_late(batch)
    mine_at(costly, 150)
    go_on(costly, 150, rounds=4, aged=True)
    assert tx.newest.is_cancellation
    assert reservations.on_chain(31337) <= most
    mine_at(costly, 1)
    go_on(costly, 1, rounds=4, aged=True)
    tx.refresh_from_db()
    assert tx.state != TransactionState.PENDING
    assert reservations.on_chain(31337) <= most


def test_until_it_is_final_what_was_sent_counts_at_its_most_and_others_wait(costly, key, settings):
    costly.mine(70)
    mine_at(costly, 1)
    first = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER // 1000))
    tx = pending(first)
    most = tx.cost
    # Enough for one more and what the first has really cost, and too little for one more and what it may have cost.
    limit(settings, daily_limit=most * 14 // 10, daily_limit_per_user=most * 14 // 10)
    assert work_until_done(first, costly).status == BatchStatus.DONE
    tx.refresh_from_db()
    assert tx.cost < most == reservations.on_chain(31337)
    (share,) = Share.objects.filter(transaction=tx)
    assert (share.wei, share.reserved_wei, share.reserved_gas) == (tx.cost, most, tx.gas_limit)
    mine_at(costly, 1)
    second = submit(key, request(BOB, block=costly.head() - 3, fee=ETHER // 1000))
    for _ in range(3):
        work()
    assert fresh(second).status == BatchStatus.IN_PROGRESS
    assert "The operator's limit" in waiting()[0]
    costly.mine(70)
    mine_at(costly, 1)
    transaction_monitor.monitor(tx.signer_id)
    assert reservations.on_chain(31337) == tx.cost
    assert work_until_done(second, costly, rounds=20).status == BatchStatus.DONE


def test_what_a_clock_far_ahead_has_signed_counts_for_a_day_and_no_longer(costly, key, monkeypatch):
    Clock().read([])
    batch = accepted(key, request(ALICE, block=costly.head(), fee=ETHER))
    now = timezone.now
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: now() + timedelta(days=365))
        pending(batch)
    Transaction.objects.update(state=TransactionState.FINAL, gas_used=1, gas_price=1)
    assert reservations.on_chain(31337) == Transaction.objects.get().reserved > 1
    ServiceClock.objects.update(at=now() + timedelta(days=2))
    assert reservations.on_chain(31337) == 0


# --- Raising fees -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["daily_limit", "daily_limit_per_user"])
@pytest.mark.parametrize(
    ("percent", "versions"), [(105, 1), (150, 2)], ids=["hardly above what was offered", "half above what was offered"]
)
def test_fees_are_not_raised_above_a_limit(costly, key, settings, name, percent, versions):
    """Its own cost is no other's."""
    mine_at(costly, 2)
    _, tx = in_mempool(costly, key)
    costly.rpc("anvil_dropAllTransactions")
    limit(settings, **{name: tx.cost * percent // 100})
    mine_at(costly, 8)
    age()
    work()
    assert tx.versions.count() == versions


# --- A user's ---------------------------------------------------------------------------------------------------------


def test_a_user_spends_no_more_in_a_day_than_a_users_limit(costly, key, settings):
    mine_at(costly, 1)
    limit(settings, daily_limit_per_user=ETHER * 8 // 10_000)
    costly.rpc("evm_setAutomine", True)
    head = costly.head()
    said = set()
    done = 0
    for place in range(6):
        batch = submit(key, request(ALICE, block=head - place, fee=ETHER))
        for _ in range(4):
            work()
        said.add(fresh(batch).rejection_code)
        done += batch.status == BatchStatus.DONE
    assert said == {"", "budget_exceeded"}
    assert 0 < done < 6
    assert sum(tx.cost for tx in Transaction.objects.all()) <= ETHER * 8 // 10_000
    # Another's is another.
    other = submit(a_key(BOB), request(BOB, block=head, fee=ETHER))
    assert work_until_done(other).status == BatchStatus.DONE


def test_a_price_that_rises_takes_nobody_above_a_users_limit(costly, key, settings):
    """Accepted at one price, it isn't sent at another that would take more than the user may cause."""
    mine_at(costly, 1)
    limit(settings, daily_limit_per_user=ETHER * 8 // 10_000)
    accepted(key, request(ALICE, block=costly.head(), fee=ETHER))
    mine_at(costly, 20)
    work()
    work()
    assert not Transaction.objects.exists()
    assert "the daily limit of its user leaves 0.000800 ETH" in waiting()[0]


def test_a_users_own_limit_in_money_counts_instead_of_the_chains(costly, key, settings):
    limit(settings, daily_limit_per_user=0)
    User.objects.update(daily_limits_wei={"31337": str(ETHER), "5": "0"})
    accepted(key, request(ALICE, block=costly.head(), fee=ETHER))
    # It is asked anew before anything is signed.
    User.objects.update(daily_limits_wei=None)
    work()
    assert "the daily limit of its user leaves 0.000000 ETH" in waiting()[0]
    User.objects.update(daily_limits_wei={"31337": str(ETHER)})
    work()
    assert Transaction.objects.count() == 1
    limit(settings, daily_limit_per_user=100 * ETHER)
    User.objects.update(daily_limits_wei={"31337": "0"})
    batch = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    work()
    assert fresh(batch).rejection_code == "too_large_for_budget"
