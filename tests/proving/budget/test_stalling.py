"""A batch that can't be paid for holds up no other, wherever the two meet."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from eth_utils.crypto import keccak

from config.configured_chains import forget_chains, get_rpc
from devnet.devchain import DevChain
from proving.models import Share, Transaction
from proving.reconcile.block import reconcile
from proving.transactions.intents import NotPaid
from queries.models import BatchStatus, Block
from tests.contracts.l1_block import L1Block
from tests.proving import sources
from tests.proving.money import (
    ETHER,
    GWEI,
    accepted,
    go_on,
    limit,
    mine_at,
    pending,
    rejected_late,
    scattered_slots,
    set_fee,
)
from tests.proving.paths import extending, fill_history, old_block
from tests.service import (
    ALICE,
    BOB,
    CHARLIE,
    SIGNER,
    a_key,
    asking,
    balances,
    fresh,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)

BALANCE = {"props": ["BALANCE"]}

# --- At the same block ------------------------------------------------------------------------------------------------


def at_a_time(time: int) -> dict[str, Any]:
    return {f"timestamp:{time}": {"accounts": {ALICE: BALANCE}}}


def at_a_block(block: int, *accounts: str) -> dict[str, Any]:
    return {f"block:{block}": {"accounts": dict.fromkeys(accounts, BALANCE)}}


@pytest.mark.parametrize(
    ("of_poor", "of_rich", "looked_at"),
    [
        (lambda _, time: at_a_time(time + 1), lambda block, _: at_a_block(block, BOB), 1000),
        (lambda _, time: at_a_time(time + 1), lambda _, time: at_a_time(time + 2), 1000),
        (lambda block, _: at_a_block(block, ALICE, BOB, CHARLIE), lambda block, _: at_a_block(block, SIGNER), 2),
    ],
    ids=["a time, and an account", "two times", "more queries than are looked at"],
)
def test_who_cannot_pay_holds_up_nobody_at_the_same_block(costly, key, monkeypatch, of_poor, of_rich, looked_at):
    monkeypatch.setattr("proving.reconcile.observe._QUERIES_PER_LOOK", looked_at)
    costly.rpc("anvil_setBlockTimestampInterval", 10)
    costly.mine(12)
    mine_at(costly, 1)
    block = costly.head() - 6
    time = int(costly.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"], 16)
    poor = accepted(key, asking(of_poor(block, time), fee=ETHER))
    rich = accepted(a_key(BOB), asking(of_rich(block, time), fee=ETHER))
    assert {query.block for query in poor.queries.all()} == {rich.queries.get().block}
    set_fee(poor, 1)
    go_on(costly, 1, rounds=8)
    assert fresh(rich).status == BatchStatus.DONE, waiting()
    assert fresh(poor).spent == 0


@pytest.mark.parametrize("depth", [0, 120], ids=["young", "old"])
def test_who_cannot_pay_comes_after_the_others_of_the_same_block(costly, key, settings, depth):
    block = old_block(costly, settings, depth)
    costly.rpc("evm_setAutomine", True)
    poor = accepted(key, request(ALICE, BOB, block=block, fee=ETHER), fee=1)
    rich = submit(a_key(BOB), request(CHARLIE, BOB, block=block, fee=ETHER))
    assert work_until_done(rich, costly, rounds=20).status == BatchStatus.DONE
    assert bool(extending()) == bool(depth)
    assert (fresh(poor).status, poor.gas_used) == (BatchStatus.IN_PROGRESS, 0)
    set_fee(poor, ETHER)
    assert work_until_done(poor, costly).status == BatchStatus.DONE


def test_who_cannot_pay_holds_up_no_transaction_before_its_own(costly, key, one_by_one):
    first, second = sorted((ALICE, BOB), key=lambda address: keccak(bytes.fromhex(address[2:])))
    rich = accepted(key, request(first, block=one_by_one, fee=ETHER))
    accepted(a_key(BOB), request(second, block=one_by_one, fee=ETHER), fee=1)
    work()
    assert {tx.queries.get().batch_id for tx in Transaction.objects.all()} == {rich.pk}
    assert sorted(Share.objects.values_list("batch", flat=True)) == [rich.pk]


def test_who_asks_for_more_than_the_day_leaves_holds_up_nobody(costly, key, settings):
    mine_at(costly, 10)
    block = costly.head()
    costly.rpc("evm_setAutomine", True)
    work_until_done(submit(a_key(CHARLIE), request(SIGNER, block=block, fee=ETHER)), costly)
    work()
    Transaction.objects.all().delete()
    limit(settings, daily_limit=100 * ETHER, daily_limit_per_user=100 * ETHER)
    much = accepted(key, asking({f"block:{block}": {"accounts": scattered_slots(100)}}, fee=ETHER))
    little = accepted(a_key(BOB), request(ALICE, block=block, fee=ETHER))
    limit(settings, daily_limit=ETHER // 100, daily_limit_per_user=100 * ETHER)
    assert work_until_done(little, costly).status == BatchStatus.DONE
    assert fresh(much).status == BatchStatus.IN_PROGRESS


@pytest.mark.parametrize("is_there", [True, False])
def test_a_batch_that_is_rejected_while_it_cannot_pay_is_left_alone(costly, key, monkeypatch, is_there):
    """Its deadline rejects it, most often while it waits for cheaper gas. One that was deleted isn't even named."""
    batch = accepted(key, request(ALICE, block=costly.head(), fee=ETHER))
    asked = []

    def too_dear(*_: Any, **__: Any) -> NotPaid:
        asked.append(1)
        assert len(asked) < 3
        rejected_late(batch)
        return NotPaid("Too dear.", frozenset({batch.pk} if is_there else ()))

    monkeypatch.setattr("proving.transactions.sending.submit_all", too_dear)
    reconcile(Block.objects.get(queries__batch=batch).pk)
    assert asked == [1]


# --- On the way to a block --------------------------------------------------------------------------------------------


def test_who_cannot_pay_holds_up_nobody_where_a_hash_is_recorded_first(chain, key, settings, tmp_path):
    with DevChain(chain_id=sources.THERE) as there:
        sources.grow(there, 30)
        chain.rpc("anvil_setBalance", SIGNER, hex(1000 * ETHER))
        settings.ALLOWED_ADDRESSES = ["*"]
        l1 = L1Block(chain)
        sources.connect(settings, tmp_path, chain, there.url)
        reconfigure(settings, "test_network = true", "test_network = false\nminimum_signer_balance = '0'")
        block, head = there.head() - 5, get_rpc(sources.THERE).head()
        l1.tell(head.number, head.hash)
        poor = accepted(key, sources.of_chains(there=[block], address=ALICE) | {"fee": str(ETHER)}, fee=1)
        rich = submit(a_key(BOB), sources.of_chains(there=[block]) | {"fee": str(ETHER)})
        assert work_until_done(rich, chain, rounds=20).status == BatchStatus.DONE
        assert (fresh(poor).status, poor.gas_used) == (BatchStatus.IN_PROGRESS, 0)
    forget_chains()


def test_a_path_that_its_fee_lets_nobody_mine_holds_up_no_other_path(costly, key, settings):
    block = old_block(costly, settings)
    mine_at(costly, 1)
    poor = accepted(key, request(ALICE, block=block, fee=ETHER))
    set_fee(poor, int((poor.estimated_gas or 0) * 3 * GWEI))
    tx = pending(poor)
    assert tx.extends_id is not None
    mine_at(costly, 20)
    rich = submit(a_key(BOB), request(BOB, block=block - 5, fee=ETHER))
    go_on(costly, 20, rounds=5, aged=True)
    assert rich.queries.filter(transactions__isnull=False).exists(), waiting()
    assert tx.newest.is_cancellation


@pytest.mark.parametrize("riders", [0, 12])
def test_riders_who_cannot_pay_hold_up_nobody_on_whose_path_they_are(costly, key, settings, riders):
    settings.DAILY_GAS_BUDGET = 10**9
    fill_history(costly)
    block = old_block(costly, settings, depth=60)
    mine_at(costly, 1)
    victim = accepted(a_key(BOB), request(BOB, block=block, fee=ETHER))
    set_fee(victim, victim.estimated_wei or 0)
    if riders:
        accepted(key, asking(balances(range(block + 1, block + 1 + riders)), fee=ETHER), fee=1)
    go_on(costly, 1, rounds=5)
    assert fresh(victim).status == BatchStatus.DONE, waiting()


def test_who_cannot_pay_has_one_turn_with_paths_however_many_blocks_wait(costly, key, settings):
    low = old_block(costly, settings, depth=400)
    costly.rpc("evm_setAutomine", True)
    between = submit(a_key(BOB), request(BOB, block=low + 200, fee=ETHER))
    assert work_until_done(between, costly).status == BatchStatus.DONE
    sent = len(extending())
    costly.mine(4)
    work()
    work()
    for place in range(10):
        accepted(key, request(ALICE, block=low - place, fee=ETHER), fee=1)
    # As while another user's path is under way.
    later = timezone.now() + timedelta(minutes=10)
    Block.objects.filter(number__lte=low).update(due_at=later, waits_for_path=True)
    accepted(a_key(BOB, "another"), request(BOB, block=low + 7, fee=ETHER))
    block = Block.objects.get(number=low + 7)
    for _ in range(2):
        reconcile(block.pk)
    assert len(extending()) == sent + 1
