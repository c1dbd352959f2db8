"""Each nonce is used once and none stays open, even if node and market misbehave."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection
from eth_account.signers.local import LocalAccount

from chains.contract_artifacts import DEPLOYER
from config.configured_chains import get_chains
from proving import stops
from proving.models import SignedTransaction, Signer, Stop, Transaction, TransactionState
from proving.packing.packs import Intent
from proving.sending import orders, signing, transaction_monitor
from proving.sending.orders import Order
from proving.sending.signers import Unsent
from proving.working import lanes
from proving.working.lanes import HeldLane, LaneKind, LaneLost, LaneName
from queries.models import BatchStatus
from queries.waits import wait
from tests.proving import chain_state, money, transactions
from tests.service import ALICE, SIGNER, a_key, done, request, submit, work, work_until_done


@pytest.fixture
def lane(db) -> Iterator[HeldLane]:
    with lanes.hold(LaneName(LaneKind.DESTINATION, 31337)) as held:
        assert held
        yield held


def test_a_worker_without_the_lane_sends_nothing(service, lane):
    with lanes.seize(lane.name):
        pass
    with pytest.raises(LaneLost):
        orders.submit_all(get_chains().chain(31337), lane, [Order([Intent(ALICE, b"")])])
    assert not Transaction.objects.filter(to=ALICE).exists()


def test_an_intent_under_way_is_not_sent_twice(service, lane):
    service.rpc("evm_setAutomine", False)
    batch = submit(a_key(), request(ALICE, block=service.head()))
    work(2)
    same = Intent(ALICE, b"", list(batch.queries.values_list("pk", flat=True)))
    (outcome,) = orders.submit_all(get_chains().chain(31337), lane, [Order([same])])
    assert isinstance(outcome, Unsent)
    assert outcome.is_brief
    assert Transaction.objects.exclude(to=DEPLOYER).count() == 1


def test_all_of_several_transactions_are_stored_or_none(service, lane):
    before = Transaction.objects.count()

    def fail() -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        orders.submit_all(get_chains().chain(31337), lane, [Order([Intent(ALICE, b"")] * 2, fail)])
    assert Transaction.objects.count() == before
    assert chain_state.signer_nonce(service) == before


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_keys_are_used_outside_of_database_transactions(service, monkeypatch):
    """Signing takes milliseconds, during which nobody else could write to SQLite. Keys may also be on
    another machine.
    """
    service.rpc("evm_setAutomine", False)
    signed: list[bool] = []
    sign = LocalAccount.sign_transaction

    def note(account, fields):
        signed.append(connection.in_atomic_block)
        return sign(account, fields)

    monkeypatch.setattr(LocalAccount, "sign_transaction", note)
    batch = submit(a_key(), request(ALICE, block=service.head()))
    work(2)
    transactions.work_aged()
    money.cancel(batch)
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


@pytest.mark.long
def test_a_version_that_a_stop_left_unsigned_is_signed_before_another_is_reserved(service, monkeypatch):
    """A second version would have the same fields and therefore the same hash."""
    service.rpc("evm_setAutomine", False)
    batch = submit(a_key(), request(ALICE, block=service.head()))
    money.pending(batch)
    transactions.age()
    sign_and_store = signing.sign_and_store

    def stop_before(*arguments: Any) -> None:
        stops.stop(31337, by="a test")
        sign_and_store(*arguments)

    def resume_after(*arguments: Any) -> None:
        sign_and_store(*arguments)
        stops.resume_by_operator(Stop(chain_id=31337))

    for module, between in ((signing, stop_before), (transaction_monitor, resume_after)):
        with monkeypatch.context() as patch:
            patch.setattr(module, "sign_and_store", between)
            work()
    service.rpc("evm_setAutomine", True)
    service.mine()
    assert work_until_done(batch, service).status == BatchStatus.DONE


@pytest.mark.long
def test_many_nonces_that_a_withdrawn_key_left_are_used_when_it_is_back(service):
    work()
    signer, nonce = Signer.objects.get(), chain_state.signer_nonce(service)
    for index in range(17):
        tx = Transaction.objects.create(
            signer=signer,
            nonce=nonce + index,
            to=SIGNER,
            data=b"",
            gas_limit=21_000,
            state=TransactionState.DISPLACED,
            error=wait("key_withdrawn"),
        )
        SignedTransaction.objects.create(
            transaction=tx, max_fee_per_gas=3 * 10**9, max_priority_fee_per_gas=10**9, created_at=tx.created_at
        )
    done(submit(a_key(), request(ALICE, block=service.head())), service, rounds=20)


def test_no_nonce_is_reserved_for_what_no_node_takes(service, lane):
    most = orders._MOST_DATA
    both = [Order([Intent(ALICE, bytes(size))]) for size in (most + 1, most)]
    refused, sent = orders.submit_all(get_chains().chain(31337), lane, both)
    assert isinstance(refused, Unsent)
    assert refused.reason == wait("data_too_long", size=most + 1, most=most)
    assert isinstance(sent, orders.Sent)
