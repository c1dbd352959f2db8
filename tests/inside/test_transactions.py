"""Sending: each nonce is used once and none stays open, even if node and market misbehave."""

from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connection
from eth_account.signers.local import LocalAccount

from config.configured_chains import get_chains
from proving import lanes
from proving.lanes import HeldLane, LaneKind, LaneLost, LaneName
from proving.models import SignedTransaction, Signer, Transaction
from proving.packing import Intent
from proving.transactions import sending, signing
from proving.transactions.sending import Order
from proving.transactions.signers import Unsent
from tests.proving.chain_state import signer_nonce
from tests.proving.money import cancel
from tests.proving.transactions import age
from tests.service import ALICE, a_key, request, submit, work


@pytest.fixture
def lane(db) -> Iterator[HeldLane]:
    with lanes.hold(LaneName(LaneKind.DESTINATION, 31337)) as held:
        assert held
        yield held


def test_who_lost_the_lane_sends_nothing(service, lane):
    lanes.take_away(lane.name)
    with pytest.raises(LaneLost):
        sending.submit_all(get_chains().chain(31337), lane, [Order([Intent(ALICE, b"")])])
    assert not Transaction.objects.filter(to=ALICE).exists()


def test_what_is_under_way_is_not_sent_twice(service, lane):
    service.rpc("evm_setAutomine", False)
    batch = submit(a_key(), request(ALICE, block=service.head()))
    work()
    work()
    same = Intent(ALICE, b"", list(batch.queries.values_list("pk", flat=True)))
    (outcome,) = sending.submit_all(get_chains().chain(31337), lane, [Order([same])])
    assert isinstance(outcome, Unsent)
    assert outcome.is_brief
    assert Transaction.objects.exclude(to="").count() == 1


def test_all_of_several_transactions_are_stored_or_none(service, lane):
    before = Transaction.objects.count()

    def fail(sender: str, nonce: int) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        sending.submit_all(get_chains().chain(31337), lane, [Order([Intent(ALICE, b"")] * 2, fail)])
    assert Transaction.objects.count() == before
    assert signer_nonce(service) == before


@pytest.mark.django_db(transaction=True)
def test_keys_are_used_outside_of_database_transactions(service, monkeypatch):
    """A signature takes milliseconds, which nobody else writes in on SQLite; and keys may be elsewhere."""
    service.rpc("evm_setAutomine", False)
    signed: list[bool] = []
    sign = LocalAccount.sign_transaction

    def note(account, fields):
        signed.append(connection.in_atomic_block)
        return sign(account, fields)

    monkeypatch.setattr(LocalAccount, "sign_transaction", note)
    batch = submit(a_key(), request(ALICE, block=service.head()))
    work()
    work()
    age()
    work()
    cancel(batch)
    work()
    assert list(Transaction.objects.get(queries__batch=batch).versions.values_list("is_cancellation", flat=True)) == [
        False,
        False,
        True,
    ]
    assert signed == [False] * 3


def test_bytes_that_are_stored_stay_and_what_is_given_up_gets_none(service, lane):
    signer = Signer.objects.get()
    for nonce, state, expected in ((70, "PENDING", b"first"), (71, "DISPLACED", b"")):
        tx = Transaction.objects.create(signer=signer, nonce=nonce, data=b"", gas_limit=1, state=state)
        version = SignedTransaction.objects.create(transaction=tx, max_fee_per_gas=1, max_priority_fee_per_gas=1)
        for raw in (b"first", b"second"):
            same = SignedTransaction.objects.get(pk=version.pk)
            lane.write(partial(signing.store, {same: raw}))
            assert bytes(same.raw) == expected
