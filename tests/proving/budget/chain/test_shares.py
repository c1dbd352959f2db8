"""Each batch's share of the cost of a common transaction."""

import pytest

from proving.models import Share, Transaction, TransactionState
from queries.models import BatchStatus
from tests.proving import money, prices, transactions
from tests.service import ALICE, BOB, CHARLIE, a_key, asking, fresh, request, submit, work, work_until_done

pytestmark = [pytest.mark.outside, pytest.mark.long]


def test_a_small_request_pays_little_beside_a_large_one(costly, key):
    block = costly.head()
    little = submit(key, request(ALICE, block=block, fee=prices.ETHER))
    slots = [hex(slot << 30) for slot in range(60)]
    accounts = {CHARLIE: {"props": ["BALANCE"], "slots": slots}}
    much = submit(a_key(BOB), asking({f"block:{block}": {"accounts": accounts}}, fee=prices.ETHER))
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(little, costly).status == work_until_done(much, costly).status == BatchStatus.DONE
    work()
    tx = Transaction.objects.get()
    assert fresh(little).gas_used < tx.gas_used // 10
    assert little.gas_used + fresh(much).gas_used in {tx.gas_used, tx.gas_used - 1}
    # The parts' bounds add up to the gas limit.
    assert sum(share.weight for share in Share.objects.filter(transaction=tx)) == tx.gas_limit


def test_facts_proven_before_make_nobody_pay_for_others(costly, key):
    block = costly.head()
    costly.rpc("evm_setAutomine", True)
    slots = [hex(slot) for slot in range(300)]

    def slots_of(account: str, slots_asked: list[str]) -> dict[str, object]:
        accounts = {account: {"props": ["BALANCE"], "slots": slots_asked}}
        return asking({f"block:{block}": {"accounts": accounts}}, fee=prices.ETHER)

    work_until_done(submit(key, slots_of(CHARLIE, slots)), costly)
    work()
    costly.rpc("evm_setAutomine", False)
    Transaction.objects.all().delete()
    victim = submit(a_key(BOB), slots_of(CHARLIE, [*slots, hex(10**6)]))
    thief = submit(key, slots_of(ALICE, [hex(slot * 2**30 + 5) for slot in range(60)]))
    costly.rpc("evm_setAutomine", True)
    for batch in (victim, thief):
        assert work_until_done(batch, costly).status == BatchStatus.DONE
    work()
    assert fresh(victim).gas_used < (victim.estimated_gas or 0) < 100_000 < fresh(thief).gas_used


def test_a_displaced_transaction_costs_nobody_anything(costly, key):
    batch, tx = money.in_mempool(costly, key)
    assert Share.objects.filter(batch=batch).exists()
    costly.rpc("anvil_dropTransaction", tx.newest.hash)
    transactions.send_from_elsewhere(costly, tx.nonce)
    costly.mine(4)
    work()
    assert fresh(tx).state == TransactionState.DISPLACED
    assert not Share.objects.filter(transaction=tx, wei__gt=0).exists()


def test_a_transaction_taken_back_by_a_reorg_counts_at_its_highest_cost(costly, key):
    batch, tx = money.in_mempool(costly, key)
    most = tx.cost
    snapshot = costly.rpc("evm_snapshot")
    costly.mine()
    work()
    assert Share.objects.get(batch=batch).wei < most
    transactions.roll_back(costly, snapshot)
    work()
    assert fresh(tx).state == TransactionState.PENDING
    assert (Share.objects.get(batch=batch).gas, Share.objects.get(batch=batch).wei) == (tx.gas_limit, most)
