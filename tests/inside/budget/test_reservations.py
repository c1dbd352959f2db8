"""What is kept of a fee, and of a signer's balance, for what is still to do."""

import re

import pytest

from config.configured_chains import get_chains
from proving.budget import cost_allocation, limits
from proving.gas_model.proof_gas import HOP_GAS, RemainingWork, gas_of, unproven
from proving.models import Transaction
from queries.models import Batch, Block, PathUnit
from tests.inside.working import admitted, reconcile_block
from tests.proving.money import ETHER, in_mempool, mine_at, price_of, scattered_slots, set_fee, without_limits
from tests.service import ALICE, BOB, CHARLIE, asking, balances, fresh, request, waiting, work

# --- Transactions and queries -----------------------------------------------------------------------------------------


def test_the_transactions_behind_one_are_reserved_for(costly, key, one_by_one, monkeypatch):
    monkeypatch.setattr("proving.budget.limits.proof_gas.unproven", lambda *_, **__: RemainingWork())
    # Nothing at first, then enough for two of three.
    batch = admitted(key, request(ALICE, BOB, CHARLIE, block=one_by_one, fee=ETHER), fee=0)
    work()
    work()
    (needed,) = re.findall(r"3 queries are left undone: .* gwei, they take about (\d+) gas, ", waiting()[0])
    set_fee(batch, int(needed) * price_of(costly) * 9 // 10)
    work()
    assert not Transaction.objects.exists()
    set_fee(batch, ETHER)
    work()
    assert Transaction.objects.count() == 2
    assert int(needed) == sum(tx.gas_limit for tx in Transaction.objects.all())


def test_what_is_under_way_is_not_reserved_for_again(costly, key, monkeypatch):
    monkeypatch.setattr("proving.registry.packing.MAX_BYTES", 1000)
    batch = admitted(key, request(ALICE, BOB, CHARLIE, block=costly.head(), fee=ETHER))
    whole = unproven(batch, with_paths=False)
    assert 0 <= (batch.estimated_gas or 0) - whole.gas < 3
    work()
    assert Transaction.objects.get().accumulates.exists()
    rest = unproven(batch, with_paths=False)
    assert 0 < rest.gas < whole.gas


def test_what_is_left_of_a_query_that_was_begun_is_reserved_for(costly, key, settings):
    """Two blocks with an account of many slots: the one that is begun is not paid for yet."""
    without_limits(settings)
    costly.mine(2)
    mine_at(costly, 1)
    head = costly.head()
    blocks = {f"block:{head - place}": {"accounts": scattered_slots(1000)} for place in range(2)}
    batch = admitted(key, asking(blocks, fee=100 * ETHER))
    first, second = Block.objects.filter(number__in=(head, head - 1)).order_by("number")
    reconcile_block(first.pk)
    assert Transaction.objects.count() == 1
    # Enough for a half and a little more, at the price that comes.
    mine_at(costly, 12)
    set_fee(batch, (fresh(batch).estimated_gas or 0) * price_of(costly) * 65 // 100)
    reconcile_block(second.pk)
    assert Transaction.objects.count() == 1


@pytest.mark.parametrize(
    ("rest", "is_beside"),
    [(RemainingWork(proof_gas=1_800_000), True), (RemainingWork(path_gas=4 * HOP_GAS), False)],
    ids=["other proofs, beside the transaction", "a path, of which the transaction is a part"],
)
def test_what_is_still_to_do_is_reserved_for_with_its_data(costly, key, rest, is_beside):
    batch, tx = in_mempool(costly, key)
    tx.data_fee = 1000 * tx.gas_limit
    Batch.objects.update(estimated_gas=10**8)
    ((by_fee, *_),) = limits.for_each(get_chains().chain(31337), cost_allocation.weights_of(tx), {batch.pk: rest})
    assert by_fee.gas == rest.gas + (tx.gas_limit if is_beside else 0)
    assert by_fee.gas > tx.gas_limit
    assert by_fee.left == ETHER - 1000 * by_fee.gas


# --- Headers and paths ------------------------------------------------------------------------------------------------


def test_paths_that_lead_over_the_same_blocks_are_reserved_for_once(costly, key):
    head = costly.head()
    batch = admitted(key, asking(balances(range(head - 2, head + 1)), fee=ETHER))
    for place, (unit, left) in enumerate([(PathUnit.HOPS, 3), (PathUnit.HOPS, 5), (PathUnit.JUMPS, 1)]):
        Block.objects.filter(number=head - place).update(path_unit=unit, path_left=left)
    assert unproven(batch, with_paths=True).path_gas == 5 * HOP_GAS
    assert unproven(batch, with_paths=False).path_gas == 0
    assert unproven(batch, with_paths=False).gas == sum(gas_of(query) for query in batch.queries.all())
