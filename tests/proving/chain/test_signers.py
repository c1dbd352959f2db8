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
from tests.deployed import deploy
from tests.explorer.batches import beat
from tests.proving.money import accepted
from tests.proving.prices import ETHER, GWEI
from tests.proving.several_signers import configure, get_stuck, send_each, senders
from tests.service import fresh, request, submit, waiting, work, work_until_done
from tests.users import ALICE, BOB, CHARLIE, SECOND_SIGNER, SIGNER, a_key

pytestmark = pytest.mark.outside

WINDOW = 10


@pytest.fixture
def mempool(two_signers: DevChain) -> DevChain:
    """Return a chain that mines only on request, with blocks for batches."""
    two_signers.mine(20)
    work()
    two_signers.rpc("evm_setAutomine", False)
    return two_signers


# --- The sender -------------------------------------------------------------------------------------------------------


# --- A signer that can't send -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_nonce_that_is_stuck_holds_up_nobody(mempool, key):
    (first,) = send_each(key, mempool, 1)
    # The transaction's price is too low from now on.
    mempool.rpc("anvil_setNextBlockBaseFeePerGas", hex(50 * GWEI))
    mempool.mine()
    get_stuck()
    others = send_each(key, mempool, 3, 4, 5)
    assert senders() == [SIGNER, *[SECOND_SIGNER] * 3]
    for batch in others:
        assert work_until_done(batch, mempool).status == BatchStatus.DONE
    stuck = Transaction.objects.get(signer__address=SIGNER, state=TransactionState.PENDING)
    notice = str(Signer.objects.get(address=SIGNER).wait)
    assert notice.startswith(f"The signer {SIGNER} on chain 31337 sends nothing more until its transaction ")
    # Its fees may have been raised since.
    assert any(version.hash and version.hash in notice for version in stuck.versions.all())
    assert Signer.objects.get(address=SECOND_SIGNER).wait is None
    # Its fees are raised until it is mined, and the signer sends again.
    while Transaction.objects.filter(pk=stuck.pk, state=TransactionState.PENDING).exists():
        assert mempool.head() < 200
        SignedTransaction.objects.update(created_at=timezone.now() - timedelta(hours=1))
        work()
        mempool.mine()
    assert work_until_done(first, mempool).status == BatchStatus.DONE
    send_each(key, mempool, 15)
    assert senders()[-1] == SIGNER
    assert Signer.objects.get(address=SIGNER).wait is None


def test_a_nonce_of_the_only_signer_that_is_stuck_is_told_by_healthz(mempool, key, settings, tmp_path):
    configure(settings, tmp_path, mempool, signers=1)
    (batch,) = send_each(key, mempool, 1)
    beat()
    assert Client().get("/healthz").json()["codes"] == []
    get_stuck()
    assert Client().get("/healthz").json()["codes"] == ["signer_waits"]
    assert work_until_done(batch, mempool).status == BatchStatus.DONE
    assert Client().get("/healthz").json()["codes"] == []


@pytest.mark.long
def test_one_without_money_is_told_and_holds_up_nobody(mempool, key):
    mempool.rpc("anvil_setBalance", SIGNER, hex(10**15))
    mempool.mine()
    batches = send_each(key, mempool, 2, 3)
    assert senders() == [SECOND_SIGNER] * 2
    notice = str(Signer.objects.get(address=SIGNER).wait)
    assert notice.startswith(f"The signer {SIGNER} on chain 31337 has 0.001000 ETH, and it stops below 0.01.")
    assert Signer.objects.get(address=SECOND_SIGNER).wait is None
    mempool.rpc("anvil_setBalance", SIGNER, hex(ETHER))
    for batch in batches:
        assert work_until_done(batch, mempool).status == BatchStatus.DONE
    send_each(key, mempool, 8)
    assert senders()[2:] == [SIGNER]
    assert Signer.objects.get(address=SIGNER).wait is None


@pytest.mark.long
def test_one_that_can_t_pay_what_is_to_be_sent_holds_up_nobody(mempool, key):
    mempool.rpc("anvil_setBalance", SIGNER, hex(ETHER * 11 // 1000))
    mempool.rpc("anvil_setNextBlockBaseFeePerGas", hex(90 * GWEI))
    mempool.mine()
    batches = send_each(key, mempool, 2)
    assert senders() == [SECOND_SIGNER]
    assert "and may have to pay" in str(Signer.objects.get(address=SIGNER).wait)
    assert work_until_done(batches[0], mempool).status == BatchStatus.DONE


def test_both_signers_are_told_while_none_has_money(mempool, key):
    for address in (SIGNER, SECOND_SIGNER):
        mempool.rpc("anvil_setBalance", address, hex(10**15))
    mempool.mine()
    (batch,) = send_each(key, mempool, 2)
    assert senders() == []
    assert "The operator must fund the signer." in waiting()[0]
    assert all(row.address in str(row.wait) for row in Signer.objects.all())
    mempool.rpc("anvil_setBalance", SECOND_SIGNER, hex(ETHER))
    assert work_until_done(batch, mempool).status == BatchStatus.DONE
    assert senders() == [SECOND_SIGNER]


def test_the_signer_that_would_send_shows_its_wait_until_it_sends(mempool, key, settings, tmp_path):
    configure(settings, tmp_path, mempool, chain="max_fee_per_gas_gwei = 0.001")
    (batch,) = send_each(key, mempool, 1)
    sentence = "Gas on chain 31337 costs more than the cap of 0.001 gwei."
    assert {row.address: row.wait and str(row.wait) for row in Signer.objects.all()} == {
        SIGNER: sentence,
        SECOND_SIGNER: None,
    }
    configure(settings, tmp_path, mempool)
    assert work_until_done(batch, mempool).status == BatchStatus.DONE
    assert not Signer.objects.exclude(wait=None).exists()


@pytest.mark.long
def test_a_transaction_of_a_signer_no_longer_configured_is_followed_and_not_replaced(mempool, key, settings, tmp_path):
    send_each(key, mempool, 1, 2)
    Signer.objects.filter(address=SECOND_SIGNER).update(wait=Value('{"code": "signer_cant_pay", "values": {}}'))
    configure(settings, tmp_path, mempool, signers=1)
    SignedTransaction.objects.update(created_at=timezone.now() - timedelta(hours=1))
    work()
    kept, left_behind = Transaction.objects.exclude(to=DEPLOYER).order_by("pk")
    assert (kept.versions.count(), left_behind.versions.count()) == (2, 1)
    send_each(key, mempool, 3)
    assert senders()[2:] == [SIGNER]
    assert not Signer.objects.exclude(wait=None).exists()
    mempool.mine()
    work()
    assert (fresh(left_behind).state, left_behind.succeeded) == (TransactionState.CONFIRMED, True)


# --- Common rules -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_daily_limit_is_that_of_all_together(mempool, settings, tmp_path):
    settings.ALLOWED_ADDRESSES = ["*"]
    costly = "test_network = false\nminimum_signer_balance = '0'\nmax_fee_per_gas_gwei = 100"
    mempool.rpc("anvil_setNextBlockBaseFeePerGas", hex(10 * GWEI))
    mempool.mine()
    configure(settings, tmp_path, mempool, chain=costly)
    Transaction.objects.all().delete()
    for number, address in enumerate((ALICE, BOB), 2):
        accepted(a_key(address), request(ALICE, block=mempool.head() - number, fee=ETHER))
    configure(settings, tmp_path, mempool, chain=f"{costly}\ndaily_limit = '0.0035'")
    work(4)
    (tx,) = Transaction.objects.all()
    assert tx.cost <= 35 * ETHER // 10_000
    assert any("The operator's limit of 0.0035 ETH in 24 hours" in sentence for sentence in waiting())


@pytest.mark.long
def test_one_at_a_time_extends_a_registry(chain, key, settings, tmp_path):
    configure(settings, tmp_path, chain, connection=f"window = {WINDOW}")
    deploy(31337, 31337)
    chain.mine(60)
    chain.rpc("evm_setAutomine", False)
    near, far = chain.head() - 2 * WINDOW - 5, chain.head() - 4 * WINDOW - 5
    first = submit(key, request(ALICE, block=near))
    work()
    second = submit(a_key(BOB), request(BOB, block=far))
    work(3)
    (path,) = Transaction.objects.exclude(extends=None)
    assert path.signer.address == SIGNER
    # Another signer's transaction could be mined before the path, so none is sent until the path is mined.
    stop = Block.objects.filter(is_checkpoint=True, number__gt=near).order_by("number")[0].number
    third = submit(a_key(CHARLIE), request(CHARLIE, block=stop))
    work(3)
    assert not Transaction.objects.exclude(to=DEPLOYER).exclude(pk=path.pk).exists()
    for batch in (first, second, third):
        assert work_until_done(batch, chain, rounds=30).status == BatchStatus.DONE
    assert not Transaction.objects.filter(succeeded=False).exists()
