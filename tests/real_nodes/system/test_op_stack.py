"""The service on a real rollup of the OP Stack, which derives its blocks from geth."""

from collections.abc import Iterator

import pytest
from eth_utils.crypto import keccak

from proving.models import Transaction
from tests import service
from tests.deployed import deploy
from tests.proving.estimated_batches import estimate
from tests.real_nodes.facts import facts_of, wrong
from tests.real_nodes.rollup import L1, L2, OPERATOR_FEE, Rollup, connect, rollup

pytestmark = [pytest.mark.op_stack, pytest.mark.outside, pytest.mark.django_db]

_ORACLE = "0x420000000000000000000000000000000000000F"


@pytest.fixture(scope="module")
def running() -> Iterator[Rollup]:
    with rollup(operator_fee=OPERATOR_FEE) as running:
        running.wait_for_block(1, "finalized")
        yield running


def test_facts_of_every_kind_of_l1_are_proven(running, key, settings, tmp_path):
    connect(settings, tmp_path, running)
    registry = deploy(L2, L1).address
    at = running.l1_block_with_transactions()
    facts = facts_of(running.l1, at)
    batch = service.submit(key, service.asking(facts.asked, source=L1, destination=L2))
    service.done(batch, running, rounds=30)
    assert wrong(running, registry, facts) == []
    assert len(facts.expected) > 60
    _compare_costs(running)


def test_the_rollup_s_own_facts_are_proven_with_the_deposit_first(running, key, settings, tmp_path):
    connect(settings, tmp_path, running)
    registry = deploy(L2, L2).address
    at = running.block_with_transactions()
    running.mine()
    facts = facts_of(running, at)
    assert facts.expected["receiptField(uint256,uint32,uint8)", at, 0, 1] == 0x7E
    batch = service.submit(key, service.asking(facts.asked, source=L2, destination=L2))
    service.done(batch, running, rounds=30)
    assert wrong(running, registry, facts) == []
    _compare_costs(running)


def test_estimates_expect_the_fees_of_three_batches_in_a_row(running, client, key, settings, tmp_path):
    connect(settings, tmp_path, running)
    deploy(L2, L2)
    for _ in range(3):
        at = running.block_with_transactions()
        running.mine()
        body = service.asking(facts_of(running, at).asked, source=L2, destination=L2)
        expected = int(estimate(client, key, body)["wei"]["expected"])
        batch = service.done(service.submit(key, body), running, rounds=30)
        assert expected == pytest.approx(batch.spent, rel=0.06)


def _compare_costs(running: Rollup) -> None:
    """Compare the recorded fees with the chain's, to the wei."""
    sent = Transaction.objects.all()
    assert sent
    for tx in sent:
        receipt = running.rpc("eth_getTransactionReceipt", tx.hash)
        call = {"to": _ORACLE, "data": "0x" + keccak(text="getOperatorFee(uint256)")[:4].hex() + f"{tx.gas_used:064x}"}
        operator_fee = int(running.rpc("eth_call", call, receipt["blockNumber"]), 16)
        assert operator_fee
        assert tx.data_fee == int(receipt["l1Fee"], 16) + operator_fee
