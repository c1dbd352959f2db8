"""Several signers of a destination: which one sends, and no delay by a signer that can't."""

from datetime import timedelta

import pytest
from django.db.models import Value
from django.test import Client
from django.utils import timezone

from chains.contract_artifacts import DEPLOYER
from devnet.devchain import DevChain
from proving.models import SignedTransaction, Signer, Transaction, TransactionState
from queries.models import BatchStatus, Block
from tests import deployed, service, users
from tests.explorer.batches import beat
from tests.proving import money, prices, several_signers

pytestmark = pytest.mark.outside

WINDOW = 10


def told_to_operators(address: str) -> str:
    """Return what the signer waits for."""
    reason = Signer.objects.get(address=address).wait
    assert reason
    return reason.for_operators


@pytest.fixture
def mempool(two_signers: DevChain) -> DevChain:
    """Return a chain that mines only on request, with blocks for batches."""
    two_signers.mine(20)
    service.work()
    two_signers.rpc("evm_setAutomine", False)
    return two_signers


# --- The sender -------------------------------------------------------------------------------------------------------


# --- A signer that can't send -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_nonce_that_is_stuck_holds_up_nobody(mempool, key):
    (first,) = several_signers.send_each(key, mempool, 1)
    # The transaction's price is too low from now on.
    mempool.rpc("anvil_setNextBlockBaseFeePerGas", hex(50 * prices.GWEI))
    mempool.mine()
    several_signers.get_stuck()
    others = several_signers.send_each(key, mempool, 3, 4, 5)
    assert several_signers.senders() == [users.SIGNER, *[users.SECOND_SIGNER] * 3]
    for batch in others:
        assert service.work_until_done(batch, mempool).status == BatchStatus.DONE
    stuck = Transaction.objects.get(signer__address=users.SIGNER, state=TransactionState.PENDING)
    notice = told_to_operators(users.SIGNER)
    assert notice.startswith(f"The signer {users.SIGNER} on chain 31337 sends nothing more until its transaction ")
    # Its fees may have been raised since.
    assert any(version.hash and version.hash in notice for version in stuck.versions.all())
    assert Signer.objects.get(address=users.SECOND_SIGNER).wait is None
    # Its fees are raised until it is mined, and the signer sends again.
    while Transaction.objects.filter(pk=stuck.pk, state=TransactionState.PENDING).exists():
        assert mempool.head() < 200
        SignedTransaction.objects.update(created_at=timezone.now() - timedelta(hours=1))
        service.work()
        mempool.mine()
    assert service.work_until_done(first, mempool).status == BatchStatus.DONE
    several_signers.send_each(key, mempool, 15)
    assert several_signers.senders()[-1] == users.SIGNER
    assert Signer.objects.get(address=users.SIGNER).wait is None


def test_a_nonce_of_the_only_signer_that_is_stuck_is_told_by_healthz(mempool, key, settings, tmp_path):
    several_signers.configure(settings, tmp_path, mempool, signers=1)
    (batch,) = several_signers.send_each(key, mempool, 1)
    beat()
    assert Client().get("/healthz").json()["codes"] == []
    several_signers.get_stuck()
    assert Client().get("/healthz").json()["codes"] == ["signer_waits"]
    assert service.work_until_done(batch, mempool).status == BatchStatus.DONE
    assert Client().get("/healthz").json()["codes"] == []


@pytest.mark.long
def test_one_without_money_is_told_and_holds_up_nobody(mempool, key):
    mempool.rpc("anvil_setBalance", users.SIGNER, hex(10**15))
    mempool.mine()
    batches = several_signers.send_each(key, mempool, 2, 3)
    assert several_signers.senders() == [users.SECOND_SIGNER] * 2
    notice = told_to_operators(users.SIGNER)
    assert notice.startswith(f"The signer {users.SIGNER} on chain 31337 has 0.001000 ETH, and it stops below 0.01.")
    assert Signer.objects.get(address=users.SECOND_SIGNER).wait is None
    mempool.rpc("anvil_setBalance", users.SIGNER, hex(prices.ETHER))
    for batch in batches:
        assert service.work_until_done(batch, mempool).status == BatchStatus.DONE
    several_signers.send_each(key, mempool, 8)
    assert several_signers.senders()[2:] == [users.SIGNER]
    assert Signer.objects.get(address=users.SIGNER).wait is None


@pytest.mark.long
def test_one_that_can_t_pay_what_is_to_be_sent_holds_up_nobody(mempool, key):
    mempool.rpc("anvil_setBalance", users.SIGNER, hex(prices.ETHER * 11 // 1000))
    mempool.rpc("anvil_setNextBlockBaseFeePerGas", hex(90 * prices.GWEI))
    mempool.mine()
    batches = several_signers.send_each(key, mempool, 2)
    assert several_signers.senders() == [users.SECOND_SIGNER]
    assert "and may have to pay" in str(Signer.objects.get(address=users.SIGNER).wait)
    assert service.work_until_done(batches[0], mempool).status == BatchStatus.DONE


def test_both_signers_are_told_while_none_has_money(mempool, key):
    for address in (users.SIGNER, users.SECOND_SIGNER):
        mempool.rpc("anvil_setBalance", address, hex(10**15))
    mempool.mine()
    (batch,) = several_signers.send_each(key, mempool, 2)
    assert several_signers.senders() == []
    assert "The operator must fund the signer." in service.waiting()[0]
    assert all(address in told_to_operators(address) for address in (users.SIGNER, users.SECOND_SIGNER))
    mempool.rpc("anvil_setBalance", users.SECOND_SIGNER, hex(prices.ETHER))
    assert service.work_until_done(batch, mempool).status == BatchStatus.DONE
    assert several_signers.senders() == [users.SECOND_SIGNER]


def test_the_signer_that_would_send_shows_its_wait_until_it_sends(mempool, key, settings, tmp_path):
    several_signers.configure(settings, tmp_path, mempool, chain="max_fee_per_gas_gwei = 0.001")
    (batch,) = several_signers.send_each(key, mempool, 1)
    sentence = "Gas on chain 31337 costs more than the cap of 0.001 gwei."
    assert {row.address: row.wait and str(row.wait) for row in Signer.objects.all()} == {
        users.SIGNER: sentence,
        users.SECOND_SIGNER: None,
    }
    several_signers.configure(settings, tmp_path, mempool)
    assert service.work_until_done(batch, mempool).status == BatchStatus.DONE
    assert not Signer.objects.exclude(wait=None).exists()


@pytest.mark.long
def test_a_transaction_of_a_signer_no_longer_configured_is_followed_and_not_replaced(mempool, key, settings, tmp_path):
    several_signers.send_each(key, mempool, 1, 2)
    Signer.objects.filter(address=users.SECOND_SIGNER).update(wait=Value('{"code": "signer_cant_pay", "values": {}}'))
    several_signers.configure(settings, tmp_path, mempool, signers=1)
    SignedTransaction.objects.update(created_at=timezone.now() - timedelta(hours=1))
    service.work()
    kept, left_behind = Transaction.objects.exclude(to=DEPLOYER).order_by("pk")
    assert (kept.versions.count(), left_behind.versions.count()) == (2, 1)
    several_signers.send_each(key, mempool, 3)
    assert several_signers.senders()[2:] == [users.SIGNER]
    assert not Signer.objects.exclude(wait=None).exists()
    mempool.mine()
    service.work()
    assert (service.fresh(left_behind).state, left_behind.succeeded) == (TransactionState.CONFIRMED, True)


# --- Common rules -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_daily_limit_is_that_of_all_together(mempool, settings, tmp_path):
    settings.ALLOWED_ADDRESSES = ["*"]
    costly = "test_network = false\nminimum_signer_balance = '0'\nmax_fee_per_gas_gwei = 100"
    mempool.rpc("anvil_setNextBlockBaseFeePerGas", hex(10 * prices.GWEI))
    mempool.mine()
    several_signers.configure(settings, tmp_path, mempool, chain=costly)
    Transaction.objects.all().delete()
    for number, address in enumerate((users.ALICE, users.BOB), 2):
        money.accepted(
            users.a_key(address), service.request(users.ALICE, block=mempool.head() - number, fee=prices.ETHER)
        )
    several_signers.configure(settings, tmp_path, mempool, chain=f"{costly}\ndaily_limit = '0.0035'")
    service.work(4)
    (tx,) = Transaction.objects.all()
    assert tx.cost <= 35 * prices.ETHER // 10_000
    assert any("The operator's limit of 0.0035 ETH in 24 hours" in sentence for sentence in service.waiting())


@pytest.mark.long
def test_one_at_a_time_extends_a_registry(chain, key, settings, tmp_path):
    several_signers.configure(settings, tmp_path, chain, connection=f"window = {WINDOW}")
    deployed.deploy(31337, 31337)
    chain.mine(60)
    chain.rpc("evm_setAutomine", False)
    near, far = chain.head() - 2 * WINDOW - 5, chain.head() - 4 * WINDOW - 5
    first = service.submit(key, service.request(users.ALICE, block=near))
    service.work()
    second = service.submit(users.a_key(users.BOB), service.request(users.BOB, block=far))
    service.work(3)
    (path,) = Transaction.objects.exclude(extends=None)
    assert path.signer.address == users.SIGNER
    # Another signer's transaction could be mined before the path, so none is sent until the path is mined.
    stop = Block.objects.filter(is_checkpoint=True, number__gt=near).order_by("number")[0].number
    third = service.submit(users.a_key(users.CHARLIE), service.request(users.CHARLIE, block=stop))
    service.work(3)
    assert not Transaction.objects.exclude(to=DEPLOYER).exclude(pk=path.pk).exists()
    for batch in (first, second, third):
        assert service.work_until_done(batch, chain, rounds=30).status == BatchStatus.DONE
    assert not Transaction.objects.filter(succeeded=False).exists()
