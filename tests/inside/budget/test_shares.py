"""What each batch pays of a transaction that serves several."""

from proving.models import Share, TransactionState
from queries import progress
from queries.models import Batch
from tests.inside.working import admitted
from tests.proving.money import ETHER, pending, set_fee
from tests.service import ALICE, BOB, CHARLIE, a_key, asking, fresh, request, work


def test_a_second_source_chain_makes_no_batch_pay_more_of_what_was_signed(costly, key):
    """Nearly all was proven, so it counts little. What is admitted later changes no share of what is signed."""
    block = costly.head()
    accounts = {ALICE: {"props": ["BALANCE"], "slots": ["0x1", "0x2"]}}
    two = admitted(key, asking({f"block:{block}": {"accounts": accounts}}, fee=ETHER))
    admitted(a_key(BOB), request(CHARLIE, block=block, fee=ETHER))
    # As if a part of it had been proven before.
    Batch.objects.filter(pk=two.pk).update(estimated_gas=20_000)
    tx = pending(two)
    share = Share.objects.get(batch=two)
    set_fee(two, share.wei)
    progress.admit(fresh(two), 5, estimated_gas=1_000_000, estimated_wei=1)
    costly.mine(3)
    work()
    tx.refresh_from_db()
    assert tx.state != TransactionState.PENDING
    assert Share.objects.get(batch=two, transaction=tx).gas <= share.gas
