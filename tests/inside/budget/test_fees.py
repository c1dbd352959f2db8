"""The fee of a batch: none of it is burnt on a part of what is asked for."""

from proving.models import Transaction
from queries.models import BatchStatus
from tests.inside.working import admitted
from tests.proving.money import ACCOUNT_GAS, ETHER, GWEI, go_on, mine_at, scattered_slots, set_fee, without_limits
from tests.service import asking, balances, fresh, waiting, work, work_until_done


def test_a_fee_spike_burns_no_fee_on_a_part_of_the_batch(costly, key):
    """Six blocks, each a transaction. At the high price the fee would do for the first four."""
    mine_at(costly, 1)
    costly.mine(6)
    head = costly.head()
    batch = admitted(key, asking(balances(range(head, head - 6, -1)), fee=6 * ACCOUNT_GAS * 3 * GWEI))
    mine_at(costly, 10)
    for _ in range(4):
        work()
    assert not Transaction.objects.exists()
    said = min(waiting(), key=len)
    assert said.startswith("6 queries are left undone: at the present gas price of chain 31337, ")
    assert "the batch's fee leaves 0.005436 ETH. Waiting for gas at " in said
    mine_at(costly, 1)
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(batch, costly, rounds=20).status == BatchStatus.DONE
    work()
    assert 0 < fresh(batch).spent <= batch.fee


def test_a_fee_spike_burns_no_fee_on_a_part_of_a_query(costly, key, settings):
    """One account with so many slots that they take several transactions."""
    mine_at(costly, 1)
    without_limits(settings)
    batch = admitted(key, asking({f"block:{costly.head()}": {"accounts": scattered_slots(1000)}}, fee=ETHER))
    set_fee(batch, batch.estimated_wei or 0)
    mine_at(costly, 12)
    go_on(costly, 12, rounds=4)
    assert not Transaction.objects.exists()
    go_on(costly, 1, rounds=12)
    assert fresh(batch).status == BatchStatus.DONE, waiting()
