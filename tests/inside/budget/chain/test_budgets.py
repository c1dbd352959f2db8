"""Daily budgets when clocks jump."""

from datetime import timedelta

import pytest
from django.utils import timezone
from eth_utils.crypto import keccak

from config.configured_chains import forget_chains, get_rpc
from devnet.devchain import DevChain
from proving import money
from proving.models import Share, Transaction, TransactionState
from queries.models import BatchStatus, ServiceClock
from tests.contracts.l1_block import L1Block
from tests.inside.working import admitted
from tests.proving import sources
from tests.proving.money import in_mempool, pending
from tests.proving.prices import ETHER, up_to_a_gwei
from tests.service import ALICE, BOB, SIGNER, a_key, done, fresh, reconfigure, request, submit, work


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


# --- A batch that can't be paid for delays no other batch -------------------------------------------------------------


def test_a_user_who_cannot_pay_holds_up_no_earlier_transaction(costly, key, one_by_one):
    first, second = sorted((ALICE, BOB), key=lambda address: keccak(bytes.fromhex(address[2:])))
    rich = admitted(key, request(first, block=one_by_one, fee=ETHER))
    admitted(a_key(BOB), request(second, block=one_by_one, fee=ETHER), fee=1)
    work()
    assert {tx.queries.get().batch_id for tx in Transaction.objects.all()} == {rich.pk}
    assert sorted(Share.objects.values_list("batch", flat=True)) == [rich.pk]


@pytest.mark.long
def test_a_user_who_cannot_pay_holds_up_nobody_before_a_recorded_hash(chain, key, settings, tmp_path):
    with DevChain(chain_id=sources.THERE) as there:
        sources.grow(there, 30)
        chain.rpc("anvil_setBalance", SIGNER, hex(1000 * ETHER))
        settings.ALLOWED_ADDRESSES = ["*"]
        l1 = L1Block(chain)
        sources.connect(settings, tmp_path, chain, there.url)
        reconfigure(settings, "test_network = true", "test_network = false\nminimum_signer_balance = '0'")
        block, head = there.head() - 5, get_rpc(sources.THERE).head()
        l1.tell(head.number, head.hash)
        poor = admitted(key, sources.of_chains(there=[block], address=ALICE) | {"fee": str(ETHER)}, fee=1)
        done(submit(a_key(BOB), sources.of_chains(there=[block]) | {"fee": str(ETHER)}), chain, rounds=20)
        assert (fresh(poor).status, poor.gas_used) == (BatchStatus.IN_PROGRESS, 0)
    forget_chains()
