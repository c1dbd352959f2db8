"""Sending: each nonce once, none left open, whatever the node and the market do."""

import pytest

from config.configured_chains import get_chains
from proving.models import Transaction
from proving.transactions import sending
from proving.transactions.intents import Intent, Order, UnderWay
from tests.proving.chain_state import signer_nonce
from tests.service import ALICE, a_key, request, submit, work


def test_who_lost_the_blocks_lease_sends_nothing_twice(service):
    service.rpc("evm_setAutomine", False)
    batch = submit(a_key(), request(ALICE, block=service.head()))
    work()
    work()
    same = Intent(ALICE, b"", list(batch.queries.values_list("pk", flat=True)))
    assert sending.submit_all(get_chains().chain(31337), Order([same])) == UnderWay()
    assert Transaction.objects.exclude(to="").count() == 1


def test_all_of_several_transactions_are_stored_or_none(service):
    before = Transaction.objects.count()

    def fail(nonce: int) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        sending.submit_all(get_chains().chain(31337), Order([Intent(ALICE, b"")] * 2, fail))
    assert Transaction.objects.count() == before
    assert signer_nonce(service) == before
