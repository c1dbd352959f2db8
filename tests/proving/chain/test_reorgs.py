"""After a reorg, steps and DONE are undone visibly, until the block is final."""

from typing import Any

import pytest

from chains.contract_artifacts import DEPLOYER
from proving.models import AccountProof, Transaction, TransactionState
from queries.models import Batch, BatchStatus, Block, Step, StepKind, StepStatus
from tests.chains.lying_node import result
from tests.metrics import chain_events
from tests.proving.chain_state import ACCOUNT_PROVEN, AccountField, balance_at, events, field_on_chain
from tests.proving.logs import LOG, RETURNS
from tests.service import asking, changed_replies, expire, fresh, request, submit, waiting, work, work_until_done
from tests.users import ALICE, BOB, SIGNER, a_key, header

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.fixture
def done(service):
    """Return a DONE batch about a block with three blocks above it."""
    block = service.head()
    service.mine(3)
    batch = work_until_done(submit(a_key(), request(ALICE, block=block)))
    assert batch.status == BatchStatus.DONE
    return batch


@pytest.mark.story
@pytest.mark.django_db(transaction=True)
def test_done_is_taken_back_when_its_block_is_gone_and_reached_again(service, done):
    work()
    assert fresh(done).gas_used > 0
    first = Transaction.objects.exclude(to=DEPLOYER).get()
    before = chain_events()
    service.rpc("anvil_reorg", 1, [])  # the new block is empty
    assert events(service, ACCOUNT_PROVEN) == []
    service.rpc("evm_setAutomine", False)
    work()
    assert (fresh(done).status, done.finished_at, done.gas_used) == (BatchStatus.IN_PROGRESS, None, 0)
    step = Step.objects.get(query__batch=done, kind=StepKind.HEADER_ACCUMULATED)
    assert (step.status, step.completed_at) == (StepStatus.IN_PROGRESS, None)
    assert fresh(first).state == TransactionState.PENDING
    work()
    # The transaction is counted, and so is the block that proved the batch's facts.
    assert chain_events() - before == {"reorganised": 2}
    service.rpc("evm_setAutomine", True)
    assert work_until_done(done, service).status == BatchStatus.DONE
    assert len(events(service, ACCOUNT_PROVEN)) == 1
    # Nothing was paid twice, because the first transaction was mined again.
    assert Transaction.objects.exclude(to=DEPLOYER).get() == first


def test_a_node_that_lags_takes_nothing_back(service, done, settings):
    head = service.head()

    def one_behind(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockByNumber" and reply["result"]["number"] == hex(head):
            is_newest = question["params"][0] == "latest"
            return [result(question, service.rpc("eth_getBlockByNumber", hex(head - 1), False) if is_newest else None)]
        return [reply]

    with changed_replies(settings, service, one_behind):
        work()
    assert fresh(done).status == BatchStatus.DONE
    assert "is behind block" in waiting()[0]


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_done_is_watched_even_if_its_worker_was_killed_right_then(service, killing):
    batch = submit(a_key(), request(ALICE, block=service.head()))
    with killing.once(Batch.objects.filter(status=BatchStatus.DONE).exists):
        work_until_done(batch)
    assert killing.killed
    assert fresh(batch).status == BatchStatus.DONE
    service.rpc("anvil_reorg", 1, [])
    service.rpc("evm_setAutomine", False)
    work()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS


def test_a_batch_that_was_done_gets_its_time_anew(service, done):
    expire()
    service.rpc("anvil_reorg", 1, [])
    service.rpc("evm_setAutomine", False)
    for _ in range(2):
        work()
        assert fresh(done).status == BatchStatus.IN_PROGRESS


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_source_block_that_changed_discards_its_proofs(service):
    service.rpc("evm_setAutomine", False)
    service.rpc("eth_sendTransaction", {"from": SIGNER, "to": ALICE, "value": "0x1"})
    service.mine()
    block = service.head()
    batch = submit(a_key(), request(ALICE, block=block))
    work(2)
    old = AccountProof.objects.get()
    old_hash = Block.objects.get().hash
    before = chain_events()
    # Alice has more money in the new block of the same number.
    service.rpc(
        "anvil_reorg", 1, [[{"from": SIGNER, "to": ALICE, "value": "0xff", "gas": "0x5208", "nonce": hex(3)}, 0]]
    )
    assert work_until_done(batch, service, rounds=20).status == BatchStatus.DONE
    assert Block.objects.get().hash != old_hash
    assert chain_events()["reorganised"] > before["reorganised"]
    assert AccountProof.objects.get().balance == balance_at(service, ALICE, block) != old.balance
    assert field_on_chain(service, ALICE, block, AccountField.BALANCE) == balance_at(service, ALICE, block)
    assert Step.objects.get(query__batch=batch, kind=StepKind.INITIAL_STATE).error is None


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_the_index_of_a_transaction_that_a_reorg_removed_is_told_no_more(service, client):
    service.rpc("evm_setAutomine", False)
    with_log = {"from": SIGNER, "data": f"0x{LOG}{RETURNS}", "gas": hex(200_000)}
    tx_hash = service.rpc("eth_sendTransaction", with_log)
    service.mine()
    transactions = {tx_hash: {"props": ["STATUS"]}, "0": {"blockLogs": ["0"]}}
    batch = submit(a_key(), asking({f"block:{service.head()}": {"transactions": transactions}}))
    for index in ("0", None):
        work(2)
        named, by_index = client.get(f"/explorer/query/{batch.pk}.json").json()["queryList"]
        assert named["transaction"] == {"index": index, "hash": tx_hash}
        assert len(by_index["facts"]) == (1 if index else 0)
        service.rpc("anvil_reorg", 1, [])


def test_a_reorg_that_keeps_the_facts_takes_nothing_back(service, done):
    service.mine(1)
    service.rpc("anvil_reorg", 1, [])
    work()
    assert fresh(done).status == BatchStatus.DONE


def test_a_final_batch_is_not_looked_at_any_more(service, done):
    service.mine(5)
    work(2)
    assert Block.objects.get().due_at is None
    assert Transaction.objects.exclude(to=DEPLOYER).get().state == TransactionState.FINAL


@pytest.mark.long
@pytest.mark.parametrize("names", ["a time", "a block of a batch that is cancelled"])
def test_a_transaction_that_carries_the_header_of_another_is_mined_again_too(service, client, names):
    service.mine(3)
    block = service.head() - 2
    first = request(ALICE, block=block)
    if names == "a time":
        at = int(service.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"], 16)
        first["data"]["31337"] = {f"timestamp:{at}": first["data"]["31337"].popitem()[1]}
        service.rpc("evm_increaseTime", 1)  # A block that is mined in the same second doesn't decide the time.
    batch = last = work_until_done(submit(a_key(), first), service)
    if names != "a time":
        last = work_until_done(submit(a_key(BOB), request(BOB, block=block)), service)
    sent = Transaction.objects.exclude(queries=None).distinct().order_by("pk")
    assert sent.count() == 2
    # Both are gone, and nothing is mined while the service looks.
    service.rpc("evm_setAutomine", False)
    service.rpc("anvil_reorg", service.head() - sent[0].block_number + 1, [])
    service.rpc("anvil_dropAllTransactions")
    service.mine(8)
    work()
    if last != batch:
        assert client.post(f"/batch-queries/{batch.pk}/cancel", headers=header(a_key(name="other"))).status_code == 200
    work(2)
    service.rpc("evm_setAutomine", True)
    assert work_until_done(last, service, rounds=20).status == BatchStatus.DONE
    assert [tx.succeeded for tx in sent] == [True, True]
