"""Sending: each nonce is used once, and none stays open, whatever the node and the market do."""

from collections.abc import Iterator

import pytest

from config.configured_chains import get_chains
from proving import lanes
from proving.lanes import HeldLane, LaneKind, LaneLost, LaneName
from proving.models import Transaction
from proving.packing import Intent
from proving.transactions import sending
from proving.transactions.sending import Order
from proving.transactions.signers import Unsent
from tests.proving.chain_state import signer_nonce
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
