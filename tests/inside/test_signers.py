"""Several signers of a destination that send at once: who sends what, and that none is in another's way."""

import threading
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from config.configured_chains import get_chains
from devnet.devchain import DevChain
from proving import lanes
from proving.lanes import LaneKind, LaneName
from proving.models import Signer, Transaction, TransactionState
from proving.registry.deploying import deploy
from proving.transactions import sending
from proving.transactions.intents import Intent, Order, Sent
from proving.transactions.signers import pending
from queries.models import BatchStatus, Block
from tests.proving.chain_state import signer_nonce
from tests.proving.several_signers import configure, send_each, senders
from tests.service import ALICE, BOB, SECOND_SIGNER, SIGNER, a_key, request, submit, work, work_until_done

WINDOW = 10
NOBODY = "0x" + "77" * 20


@pytest.fixture
def mempool(two_signers: DevChain) -> DevChain:
    """A chain that mines only when told to, with blocks to be asked for."""
    two_signers.mine(20)
    work()
    two_signers.rpc("evm_setAutomine", False)
    return two_signers


@pytest.mark.django_db(transaction=True)
def test_threads_that_send_at_once_use_each_nonce_once(chain, settings, tmp_path):
    configure(settings, tmp_path, chain)
    configured = get_chains().chain(31337)

    def send(source: int) -> None:
        with lanes.hold(LaneName(LaneKind.CONNECTION, 31337, source)) as lane:
            assert lane
            for _ in range(8):
                (outcome,) = sending.submit_all(configured, lane, [Order([Intent(ALICE, b"")])])
                assert isinstance(outcome, Sent)
        connections.close_all()

    threads = [threading.Thread(target=send, args=[source]) for source in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for signer in Signer.objects.all():
        nonces = list(signer.transactions.order_by("nonce").values_list("nonce", flat=True))
        assert nonces == list(range(12))
    assert signer_nonce(chain) == 24


def test_what_rests_on_a_header_that_may_leave_the_chain_goes_the_same_way(chain, key, settings, tmp_path):
    configure(settings, tmp_path, chain, chain="confirmations = 4")
    chain.rpc("evm_setIntervalMining", 1)
    deploy(31337, 31337)
    chain.rpc("evm_setIntervalMining", 0)
    chain.rpc("evm_setAutomine", False)
    block = chain.head()
    (first,) = send_each(key, chain, 0)
    chain.mine()
    send_each(key, chain, 2)
    assert senders() == [SIGNER, SIGNER]
    # The second one has nothing pending, and the header is known, but not confirmed.
    other = a_key(BOB)
    second = submit(other, request(BOB, block=block))
    third = submit(other, request(BOB, block=block - 3))
    work()
    work()
    at_block = Transaction.objects.filter(queries__batch__in=[second.pk, third.pk]).order_by("pk")
    sent = {tx.queries.get().batch_id: tx.signer.address for tx in at_block}
    assert sent == {second.pk: SIGNER, third.pk: SECOND_SIGNER}
    # All of it is taken back, and mined in the same order again.
    chain.mine()
    work()
    chain.rpc("anvil_reorg", 2, [])
    for batch in (first, second, third):
        assert work_until_done(batch, chain, rounds=20).status == BatchStatus.DONE
    assert not Transaction.objects.filter(succeeded=False).exists()


def test_no_path_begins_at_a_header_that_is_not_mined(chain, key, settings, tmp_path):
    configure(settings, tmp_path, chain, connection=f"window = {WINDOW}")
    deploy(31337, 31337)
    chain.mine(60)
    chain.rpc("evm_setAutomine", False)
    block = chain.head() - 5
    submit(key, request(ALICE, block=block))
    work()
    # As after a reorganisation that took the header back.
    Block.objects.filter(number=block).update(is_checkpoint=True)
    beyond = submit(a_key(BOB), request(NOBODY, block=block - WINDOW))
    work()
    accumulating, path = Transaction.objects.exclude(to="").order_by("pk")
    assert path.extends is not None
    assert path.signer_id != accumulating.signer_id
    chain.rpc("anvil_dropTransaction", accumulating.latest_hash)
    chain.mine()
    work()
    path.refresh_from_db()
    assert path.succeeded is True
    assert work_until_done(beyond, chain, rounds=20).status == BatchStatus.DONE


def test_a_reorganisation_takes_back_what_both_have_sent_and_it_is_mined_again(mempool, key):
    batches = send_each(key, mempool, 8, 9)
    for batch in batches:
        assert work_until_done(batch, mempool).status == BatchStatus.DONE
    sent = {tx.hash for tx in Transaction.objects.exclude(to="")}
    assert set(senders()) == {SIGNER, SECOND_SIGNER}
    Transaction.objects.update(spent_at=timezone.now() - timedelta(hours=1))
    mempool.rpc("anvil_reorg", 3, [])
    work()
    assert not any(one.is_stuck(get_chains().chain(31337)) for one in pending(get_chains().chain(31337)).values())
    assert Transaction.objects.filter(state=TransactionState.PENDING).count() == 2
    for batch in batches:
        assert work_until_done(batch, mempool).status == BatchStatus.DONE
    assert {tx.hash for tx in Transaction.objects.exclude(to="")} == sent
