"""A batch that can't be paid for delays no other batch."""

from typing import Any

import pytest

from proving.models import Transaction
from queries.models import BatchStatus
from tests.proving.money import accepted, limit, pending, scattered_slots, set_fee
from tests.proving.paths import extending, fill_history, old_block
from tests.proving.prices import ETHER, GWEI, go_on, mine_at
from tests.service import asking, balances, done, fresh, request, submit, waiting, work, work_until_done
from tests.users import ALICE, BOB, CHARLIE, SIGNER, a_key

pytestmark = [pytest.mark.outside, pytest.mark.long]

BALANCE = {"props": ["BALANCE"]}

# --- At the same block ------------------------------------------------------------------------------------------------


def at_a_time(time: int) -> dict[str, Any]:
    return {f"timestamp:{time}": {"accounts": {ALICE: BALANCE}}}


def at_a_block(block: int, *accounts: str) -> dict[str, Any]:
    return {f"block:{block}": {"accounts": dict.fromkeys(accounts, BALANCE)}}


@pytest.mark.parametrize(
    ("of_poor", "of_rich"),
    [
        (lambda _, time: at_a_time(time + 1), lambda block, _: at_a_block(block, BOB)),
        (lambda _, time: at_a_time(time + 1), lambda _, time: at_a_time(time + 2)),
    ],
    ids=["a time, and an account", "two times"],
)
def test_a_user_who_cannot_pay_holds_up_nobody_at_the_block(costly, key, of_poor, of_rich):
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
def test_a_user_who_cannot_pay_comes_after_others_of_the_block(costly, key, settings, depth):
    block = old_block(costly, settings, depth)
    costly.rpc("evm_setAutomine", True)
    poor = accepted(key, request(ALICE, BOB, block=block, fee=ETHER), fee=1)
    done(submit(a_key(BOB), request(CHARLIE, BOB, block=block, fee=ETHER)), costly, rounds=20)
    assert bool(extending()) == bool(depth)
    assert (fresh(poor).status, poor.gas_used) == (BatchStatus.IN_PROGRESS, 0)
    set_fee(poor, ETHER)
    assert work_until_done(poor, costly).status == BatchStatus.DONE


def test_a_user_beyond_the_limit_of_the_day_holds_up_nobody(costly, key, settings):
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


# --- On the path to a block -------------------------------------------------------------------------------------------


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


def test_riders_who_cannot_pay_hold_up_nobody_on_whose_path_they_are(costly, key, settings):
    fill_history(costly)
    block = old_block(costly, settings, depth=60)
    mine_at(costly, 1)
    victim = accepted(a_key(BOB), request(BOB, block=block, fee=ETHER))
    set_fee(victim, victim.estimated_wei or 0)
    accepted(key, asking(balances(range(block + 1, block + 13)), fee=ETHER), fee=1)
    go_on(costly, 1, rounds=5)
    assert fresh(victim).status == BatchStatus.DONE, waiting()
