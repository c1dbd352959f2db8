"""A batch that can't be paid for delays no other batch."""

from eth_utils.crypto import keccak

from proving.models import Share, Transaction
from tests.inside.working import admitted
from tests.proving.prices import ETHER
from tests.service import ALICE, BOB, a_key, request, work


def test_who_cannot_pay_holds_up_no_transaction_before_its_own(costly, key, one_by_one):
    first, second = sorted((ALICE, BOB), key=lambda address: keccak(bytes.fromhex(address[2:])))
    rich = admitted(key, request(first, block=one_by_one, fee=ETHER))
    admitted(a_key(BOB), request(second, block=one_by_one, fee=ETHER), fee=1)
    work()
    assert {tx.queries.get().batch_id for tx in Transaction.objects.all()} == {rich.pk}
    assert sorted(Share.objects.values_list("batch", flat=True)) == [rich.pk]
