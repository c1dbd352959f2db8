"""The service on a real rollup of the OP Stack, which derives its blocks from geth."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db.models import F
from django.test import Client
from eth_utils.crypto import keccak

from proving.models import ChainHead, Transaction
from queries.models import Batch
from tests import service
from tests.deployed import deploy
from tests.explorer.batches import beat, page
from tests.explorer.pages import text_of
from tests.proving.estimated_batches import estimate
from tests.real_nodes.facts import Facts, facts_of, wrong
from tests.real_nodes.rollup import L1, L2, OPERATOR_FEE, Rollup, connect, rollup

pytestmark = [pytest.mark.op_stack, pytest.mark.outside, pytest.mark.django_db]

_ORACLE = "0x420000000000000000000000000000000000000F"
_WETH, _L1_BLOCK = "0x4200000000000000000000000000000000000006", "0x4200000000000000000000000000000000000015"


@pytest.fixture(scope="module")
def running() -> Iterator[Rollup]:
    with rollup(operator_fee=OPERATOR_FEE) as running:
        yield running


@pytest.fixture(scope="module")
def forking() -> Iterator[Rollup]:
    """A rollup without operator fee, whose L1 forks when a test says so."""
    with rollup(forks=True) as running:
        yield running


def test_facts_of_every_kind_of_l1_are_proven(running, key, settings, tmp_path):
    connect(settings, tmp_path, running)
    registry = deploy(L2, L1).address
    at = running.l1_block_with_transactions()
    facts = facts_of(running.l1, at)
    service.done(_submit(key, facts), running, rounds=30)
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
    service.done(_submit(key, facts, L2), running, rounds=30)
    assert wrong(running, registry, facts) == []
    _compare_costs(running)


@pytest.mark.parametrize("name", ["running", "forking"], ids=["with an operator fee", "without one"])
def test_estimates_expect_the_fees_of_three_batches_in_a_row(name, request, client, key, settings, tmp_path):
    running = request.getfixturevalue(name)
    connect(settings, tmp_path, running)
    deploy(L2, L2)
    for _ in range(3):
        at = running.block_with_transactions()
        running.mine()
        body = service.asking(facts_of(running, at).asked, source=L2, destination=L2)
        expected = int(estimate(client, key, body)["wei"]["expected"])
        batch = service.done(service.submit(key, body), running, rounds=30)
        assert expected == pytest.approx(batch.spent, rel=0.06)
    _compare_costs(running)


def test_by_default_a_batch_is_done_once_its_transactions_are_in_a_final_block(forking, key, settings, tmp_path):
    connect(settings, tmp_path, forking)
    service.reconfigure(settings, "confirmations = 1\n", "")
    registry = deploy(L2, L1).address
    facts = facts_of(forking.l1, forking.l1_block_with_transactions())
    service.done(_submit(key, facts), forking, rounds=60)
    last = Transaction.objects.latest("block_number").block_number
    assert forking.number("finalized") >= last
    assert wrong(forking, registry, facts) == []


def test_each_batch_is_done_while_l1_crosses_a_fork(forking, key, settings, tmp_path):
    connect(settings, tmp_path, forking)
    registry = deploy(L2, L1).address
    facts = [facts_of(forking.l1, forking.l1_block_with_transactions())]
    batches = [_submit(key, facts[0])]
    service.work()
    assert Transaction.objects.filter(queries__batch=batches[0], block_number=None).exists()
    first = forking.fork_l1()
    for number in (first - 1, first, forking.l1_block_with_transactions()):
        facts.append(facts_of(forking.l1, number))
        batches.append(_submit(key, facts[-1]))
    for batch in batches:
        service.done(batch, forking, rounds=30)
    assert [wrong(forking, registry, of_block) for of_block in facts] == [[]] * 4
    fields = [{call[-1] for call in of_block.expected if call[0] == "headerField(uint256,uint8)"} for of_block in facts]
    # Amsterdam adds the block access list's hash and the slot number.
    assert [{21, 22} <= of_block for of_block in fields] == [False, False, True, True]
    _compare_costs(forking)


def test_slots_are_found_without_a_tracer(running, client, key, settings, tmp_path):
    """op-geth makes no list of slots for a caller that can't pay for the gas."""
    connect(settings, tmp_path, running)
    for contract, signature, arguments, slots in (
        (_WETH, "balanceOf(address)", [service.ALICE], {"solidity": "is_value"}),
        (_L1_BLOCK, "basefee()", [], {"fixed": "is_value"}),
        (_L1_BLOCK, "number()", [], {"fixed": "part_of_word"}),
    ):
        asked = {"sourceChainId": str(L2), "contract": contract, "signature": signature, "arguments": arguments}
        answer = client.post("/find-slots", asked, content_type="application/json", headers=service.header(key))
        found = answer.json()
        assert (answer.status_code, found.get("foundBy")) == (200, "eth_createAccessList"), found
        assert {slot["layout"]: slot["certainty"] for slot in found["slots"]} == slots


def _submit(key, facts: Facts, source: int = L1) -> Batch:
    return service.submit(key, service.asking(facts.asked, source=source, destination=L2))


def test_an_op_node_that_stands_still_is_told_with_the_newest_and_the_final_block(running, key, settings, tmp_path):
    """After its next start, the transaction that waited is mined."""
    connect(settings, tmp_path, running)
    service.reconfigure(settings, "confirmations = 1", 'confirmations = "finalized"')
    deploy(L2, L2)
    running.node.stop()
    body = service.asking(service.balances([running.number("latest") - 2]), source=L2, destination=L2)
    batch = service.submit(key, body)
    service.work(2)
    newest, final, minute = running.number("latest"), running.number("finalized"), timedelta(minutes=1)
    ChainHead.objects.update(seen_at=F("seen_at") - minute)
    Transaction.objects.update(spent_at=F("spent_at") - minute)
    service.work()
    beat()
    stands = re.compile(
        rf"Block {newest} of .{{,30}} has been its newest block since .* newest final block is {final}\."
    )
    status = Client().get("/batch-query-status", {"batchQueryId": batch.pk}, headers=service.header(key))
    health = Client().get("/healthz").json()
    told = [*status.json()["info"], text_of(page(batch)), text_of(Client().get("/chains").text)]
    for text in (*told, health["problems"][health["codes"].index("clock")]):
        assert stands.search(text)
    running.node.start()
    service.done(batch, running, rounds=30)
    assert "clock" not in Client().get("/healthz").json()["codes"]


def _compare_costs(running: Rollup) -> None:
    """Compare the recorded fees with the chain's, to the wei."""
    sent = Transaction.objects.all()
    assert sent
    for tx in sent:
        receipt = running.rpc("eth_getTransactionReceipt", tx.hash)
        call = {"to": _ORACLE, "data": "0x" + keccak(text="getOperatorFee(uint256)")[:4].hex() + f"{tx.gas_used:064x}"}
        operator_fee = int(running.rpc("eth_call", call, receipt["blockNumber"]), 16)
        scalar, constant = running.operator_fee
        assert operator_fee == tx.gas_used * 100 * scalar + constant
        assert tx.data_fee == int(receipt["l1Fee"], 16) + operator_fee
