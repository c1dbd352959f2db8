"""Transactions, receipts and logs as facts of a batch, on real chains."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import Q
from django.utils import timezone
from eth_utils.crypto import keccak

from chains.contract_artifacts import DEPLOYER
from proving.models import Transaction
from queries.models import Batch, BatchStatus, Block, StepKind
from tests.chains.lying_node import between, error
from tests.proving import estimated_batches, kills, money, self_funded
from tests.proving.chain_state import call, signer_nonce
from tests.proving.logs import (
    FAILS,
    LOG,
    PROPERTIES,
    RETURNS,
    are_right,
    block_of,
    block_with_logs,
    emitting,
    emitting_empty,
    hashes_of,
    receipt_of,
)
from tests.service import asking, changed_replies, fresh, reconfigure, submit, waiting, work, work_until_done
from tests.users import ALICE, BOB, a_key

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# The checks in the minute after which a batch is rejected, without the last.
LOOKS_IN_A_MINUTE = 6
STATE_ROOT = keccak(b"stateRoot(uint256)")[:4].hex()


def asking_of(number: int, transactions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return asking({f"block:{number}": {"transactions": transactions, **more}})


def sent(batch: Batch) -> list[Transaction]:
    return list(Transaction.objects.filter(queries__batch=batch).distinct().order_by("pk"))


@pytest.mark.story
def test_a_log_is_proven_through_all_four_steps_without_a_stored_state_root(service, key):
    number = block_of(service, [emitting(32)] * 40)
    asked = {hashes_of(service, number)[3]: {"logs": ["0"]}}
    batch = work_until_done(submit(key, asking_of(number, asked)), service)
    assert batch.status == BatchStatus.DONE
    assert [step.kind for step in batch.queries.get().steps.order_by("pk")] == list(StepKind)
    assert are_right(service, number, asked)
    assert call(service, STATE_ROOT, number) == 0
    # Logs of a receipt known by its header: at most 112,000 gas.
    assert [tx.gas_used < 95_000 for tx in sent(batch)] == [True]
    assert fresh(batch).gas_used == sent(batch)[0].gas_used <= (batch.estimated_gas or 0)


def test_a_block_is_downloaded_once_for_admission_proofs_and_other_batches(service, key, settings):
    number, methods = block_with_logs(service), list[str]()

    def record(question: Any, reply: Any) -> list[Any]:
        methods.append(question["method"])
        return [reply]

    first, *others = hashes_of(service, number)
    of_log = {first: {"logs": ["0"]}}
    with between(service.url, record) as url:
        reconfigure(settings, service.url, url)
        batches = [submit(key, asking({f"transaction:{others[0]}": {"transactions": of_log}}))]
        batches += [submit(key, asking_of(number, {name: {"props": ["STATUS"]}})) for name in ("1", others[1])]
        assert [work_until_done(batch, service).status for batch in batches] == [BatchStatus.DONE] * 3
    assert are_right(service, number, of_log)
    assert (methods.count("eth_getBlockReceipts"), methods.count("eth_getBlockByHash")) == (1, 1)


@pytest.mark.long
def test_whatever_a_block_is_asked_is_proven_by_one_transaction_and_only_once(service, key):
    number = block_with_logs(service)
    asked = {
        "0": {"props": [*PROPERTIES, "HASH"]},
        "1": {"props": ["STATUS", "LOG_COUNT"]},
        hashes_of(service, number)[2].upper().replace("0X", "0x"): {"props": ["HASH"], "blockLogs": ["2", "1"]},
    }
    asked_in_lower_case = {name.lower(): each for name, each in asked.items()}
    others = {"accounts": {ALICE: {"props": ["BALANCE"], "slots": ["0"]}}, "header": ["TIMESTAMP", "RECEIPTS_ROOT"]}
    batch = work_until_done(submit(key, asking_of(number, asked, **others)), service)
    assert batch.status == BatchStatus.DONE
    assert batch.size == 3 + 2 + 2 + 1
    assert are_right(service, number, asked_in_lower_case)
    assert len(sent(batch)) == 1
    # Their facts cost a second batch nothing. A further log needs no header, because the root is a fact.
    assert work_until_done(submit(a_key(BOB), asking_of(number, asked)), service).gas_used == 0
    further = {"0": {"logs": ["0"]}}
    another = work_until_done(submit(key, asking_of(number, further)), service)
    assert are_right(service, number, further)
    assert sent(another)[0].gas_used < 80_000


@pytest.mark.long
def test_more_logs_than_fit_a_transaction_are_divided(service, key, settings):
    settings.MAX_QUERIES_PER_BATCH = settings.MAX_QUERIES_PER_MINUTE = 2000
    service.rpc("evm_setBlockGasLimit", hex(100_000_000))
    number = block_of(service, [emitting(*[0] * 300), emitting(*[0] * 300)])
    logs = {"logs": [str(log) for log in range(300)], "props": ["HASH"]}
    asked = {"0": logs, "1": logs}
    batch = work_until_done(submit(key, asking_of(number, asked)), service, rounds=20)
    assert batch.status == BatchStatus.DONE
    assert are_right(service, number, asked)
    assert 1 < len(sent(batch)) < 5
    assert batch.gas_used <= (batch.estimated_gas or 0)


@pytest.mark.long
def test_a_transaction_selects_its_block(service, key):
    number = block_with_logs(service)
    tx_hash = hashes_of(service, number)[2]
    transactions = {tx_hash: {"logs": ["0"]}}
    data = {f"transaction:{tx_hash}": {"transactions": transactions, "accounts": {ALICE: {"props": ["NONCE"]}}}}
    batch = work_until_done(submit(key, asking(data)), service)
    assert batch.status == BatchStatus.DONE
    assert set(batch.queries.values_list("block__number", flat=True)) == {number}
    assert {query.selector for query in batch.queries.all()} == {f"transaction:{tx_hash}"}
    assert are_right(service, number, transactions)


@pytest.mark.long
def test_a_transaction_or_log_that_its_block_lacks_is_rejected_with_a_code_of_its_own(service, client, key):
    number = block_with_logs(service)
    unknown, status = "0x" + "ab" * 32, {"props": ["STATUS"]}
    in_block = f"Block {number} of chain 31337"
    for selector, transactions, code, sentence in (
        (f"transaction:{unknown}", {"0": status}, "transaction_not_found", f"a block with the transaction {unknown}."),
        ("", {unknown: status}, "transaction_not_in_block", f"{in_block} has no transaction {unknown}."),
        ("", {"3": status}, "transaction_index_beyond", f"{in_block} has 3 transactions, so none has index 3."),
        (
            "",
            {"1": {"logs": ["0"]}},
            "log_index_beyond",
            "has no log 0: it has none. Indexes count within the receipt;",
        ),
        (
            "",
            {"2": {"blockLogs": ["0"]}},
            "log_index_beyond",
            "no log 0 of the block: its logs are 1 to 2 of the block.",
        ),
    ):
        body = asking({selector or f"block:{number}": {"transactions": transactions}})
        (obstacle,) = estimated_batches.estimate(client, key, body)["rejections"]
        assert (obstacle["code"], sentence in obstacle["error"]) == (code, True), obstacle
        batch = submit(key, body)
        work(LOOKS_IN_A_MINUTE + 1)
        assert (fresh(batch).status, fresh(batch).rejection_code) == (BatchStatus.REJECTED, code)
    assert not Transaction.objects.exclude(to=DEPLOYER).exists()


@pytest.mark.parametrize(
    ("transactions", "code"),
    [
        ({"3": {"props": ["STATUS"]}}, "transaction_index_beyond"),
        ({"2": {"logs": ["2"]}}, "log_index_beyond"),
        ({"0": {"logs": ["5"]}, "1": {"props": ["STATUS"]}}, "log_index_beyond"),
    ],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_what_a_final_block_lacks_is_rejected_as_soon_as_two_answers_agree(
    service, client, key, settings, transactions, code, nodes
):
    number = block_with_logs(service)
    body = asking_of(number, transactions)
    with between(service.url, lambda _, reply: [reply]) as other:
        if nodes > 1:
            reconfigure(settings, f'"{service.url}"', f'"{service.url}", "{other}"')
        early = submit(key, body)
        assert {each["retryable"] for each in estimated_batches.estimate(client, key, body)["rejections"]} == {True}
        work(3)
        assert fresh(early).status == BatchStatus.RECEIVED
        service.mine(200)
        late = submit(key, body)
        (rejection, *_) = estimated_batches.estimate(client, key, body)["rejections"]
        assert (rejection["code"], rejection["retryable"]) == (code, False)
        # The only node of a chain is asked twice.
        for _ in range(3 - nodes):
            assert fresh(late).status == BatchStatus.RECEIVED
            work()
        assert (fresh(late).status, fresh(late).rejection_code) == (BatchStatus.REJECTED, code)
        assert not fresh(late).rejection_retryable


def test_receipts_that_no_node_can_make_the_root_of_are_told(service, client, key, settings):
    number = block_with_logs(service)

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockReceipts":
            return [reply | {"result": reply["result"][1:]}]
        return [error(question, -32601, "no such method")] if question["method"].startswith("debug_") else [reply]

    with changed_replies(settings, service, change) as url:
        (obstacle,) = estimated_batches.estimate(client, key, asking_of(number, {"0": {"logs": ["0"]}}))["rejections"]
        assert (obstacle["code"], url in obstacle["error"]) == ("root_not_made", False)


@pytest.mark.long
def test_a_block_to_come_is_rejected_with_the_code_of_what_it_lacks(service, key):
    number = service.head() + 5
    batch = submit(key, asking_of(number, {"0": {"logs": ["0"]}}))
    work()
    assert fresh(batch).status == BatchStatus.ACCEPTED
    service.mine(8)
    work()
    why = f"Block {number} of chain 31337 has 0 transactions, so none has index 0."
    assert waiting() == [f"{why} The batch is rejected if this stays so for ten minutes."]
    Block.objects.update(refused_since=timezone.now() - timedelta(minutes=11))
    work()
    assert (fresh(batch).rejection_code, fresh(batch).rejection_retryable) == ("transaction_index_beyond", False)


def test_a_payer_is_told_the_transaction(service, key):
    number = block_of(service, [emitting(64)] * 3)
    asked = {"1": {"logs": ["0"], "props": ["HASH", "STATUS"]}}
    batch = submit(key, self_funded.itself(asking_of(number, asked)))
    with self_funded.nothing_spent(service):
        work()
        (transaction,) = self_funded.left_of(batch)["transactions"]
        self_funded.send(service, [transaction])
        work_until_done(batch, service)
    assert fresh(batch).status == BatchStatus.DONE
    assert are_right(service, number, asked)


@pytest.mark.long
@pytest.mark.parametrize("after", kills.BEFORE_AND_AFTER)
def test_a_log_is_proven_once_wherever_the_worker_is_killed(service, killing, after):
    key = a_key()
    for exchange in killing.exchanges(after=after):
        number = block_of(service, [LOG + RETURNS, LOG + FAILS])
        service.mine(3)
        work()
        nonce = signer_nonce(service)
        asked = {"0": {"logs": ["0"], "props": ["HASH"]}}
        batch = submit(key, asking_of(number, asked))
        with killing.at(exchange, after=after):
            work_until_done(batch)
        assert work_until_done(batch).status == BatchStatus.DONE
        work()
        assert signer_nonce(service) == signer_nonce(service, "pending") == nonce + 1, f"killed at exchange {exchange}"
        assert are_right(service, number, asked)
    assert exchange > 7


@pytest.mark.long
def test_a_log_is_proven_again_when_the_destination_drops_its_block(service, key):
    number = block_with_logs(service)
    service.mine(3)
    asked = {"2": {"logs": ["1"], "props": ["STATUS"]}}
    batch = work_until_done(submit(key, asking_of(number, asked)))
    work()
    service.rpc("evm_setAutomine", False)
    service.rpc("anvil_reorg", 1, [])
    work()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    step = batch.queries.get().steps.get(~Q(went_back_at=None))
    assert step.kind == StepKind.HEADER_ACCUMULATED
    service.rpc("evm_setAutomine", True)
    assert work_until_done(batch, service).status == BatchStatus.DONE
    assert are_right(service, number, asked)
    # A reorganisation that keeps its transaction takes nothing back.
    done = fresh(batch).finished_at
    service.mine(1)
    service.rpc("anvil_reorg", 1, [])
    work()
    assert fresh(batch).finished_at == done


def test_a_transaction_that_moves_in_its_block_is_found_again(service, key):
    service.rpc("evm_setAutomine", False)
    codes = {ALICE: LOG + LOG + RETURNS, BOB: LOG + RETURNS}
    for sender, code in codes.items():
        service.rpc("eth_sendTransaction", {"from": sender, "data": f"0x{code}", "gas": hex(1_000_000)})
    service.mine()
    number = service.head()
    service.mine()
    before = hashes_of(service, number)
    raw = [service.rpc("eth_getRawTransactionByHash", each) for each in before]
    asked = {before[1]: {"blockLogs": [str(int(receipt_of(service, number, 1)["logs"][0]["logIndex"], 16))]}}
    batch = submit(key, asking_of(number, asked))
    with money.stopped():
        work()
        assert batch.queries.get().transaction_index == 1
        service.rpc("anvil_reorg", service.head() - number + 1, [[each, 0] for each in reversed(raw)])
        assert hashes_of(service, number) == before[::-1]
        service.mine(2)
        work()
        assert batch.queries.get().step == StepKind.INITIAL_STATE
        assert "its only log is" in " ".join(waiting())
    service.rpc("evm_setAutomine", True)


def test_a_transaction_too_long_for_any_node_is_rejected(service, client, key):
    data = f"0x{'00' * 121_000}"
    service.rpc("eth_sendTransaction", {"from": ALICE, "to": BOB, "data": data, "gas": hex(16_000_000)})
    service.mine()
    number = service.head() - 1
    (obstacle,) = estimated_batches.estimate(client, key, asking_of(number, {"0": {"props": ["HASH"]}}))["rejections"]
    assert (obstacle["code"], "has 121" in obstacle["error"]) == ("transaction_too_long", True)
    assert not estimated_batches.estimate(client, key, asking_of(number, {"0": {"props": ["STATUS"]}}))["rejections"]


@pytest.mark.long
def test_many_logs_of_one_receipt_cost_no_more_than_their_bound(service, key, settings):
    settings.MAX_QUERIES_PER_BATCH = settings.MAX_QUERIES_PER_MINUTE = 2000
    service.rpc("evm_setBlockGasLimit", hex(100_000_000))
    number = block_of(service, [emitting(*[32] * 400)])
    asked = {"0": {"logs": [str(log) for log in range(400)]}}
    batch = work_until_done(submit(key, asking_of(number, asked)), service, rounds=20)
    assert batch.status == BatchStatus.DONE
    assert are_right(service, number, asked)
    assert sum(tx.gas_limit for tx in sent(batch)) <= (batch.estimated_gas or 0)


def _told(transaction: Any, number: int) -> Any:
    return transaction | {"blockNumber": hex(number)}


@pytest.mark.long
def test_a_node_that_tells_another_block_of_a_transaction_chooses_none(service, key, settings):
    number = block_with_logs(service)
    tx_hash = hashes_of(service, number)[0]
    body = asking({f"transaction:{tx_hash}": {"accounts": {ALICE: {"props": ["BALANCE"]}}}})
    lies = iter([number - 1, service.head() + 2, 2**63, 2**80])
    for lie in lies:

        def change(question: Any, reply: Any, lie: int = lie) -> list[Any]:
            is_lie = question["method"] == "eth_getTransactionByHash"
            return [reply | {"result": _told(reply["result"], lie)} if is_lie else reply]

        with changed_replies(settings, service, change) as url:
            batch = submit(key, body)
            work(LOOKS_IN_A_MINUTE + 1)
            reconfigure(settings, url, service.url)
        batch = fresh(batch)
        assert batch.status != BatchStatus.DONE
        assert not batch.queries.exclude(block=None).exists()
        assert batch.rejection_code in {"transaction_not_in_block", "transaction_not_found"}
    assert work_until_done(submit(key, body), service).status == BatchStatus.DONE


@pytest.mark.long
def test_a_block_that_no_longer_holds_the_transaction_that_selects_it_is_not_proven(service, key):
    service.rpc("evm_setAutomine", False)
    tx_hash = service.rpc("eth_sendTransaction", {"from": BOB, "data": f"0x{LOG}{RETURNS}", "gas": hex(1_000_000)})
    service.mine()
    number = service.head()
    service.mine()
    raw = service.rpc("eth_getRawTransactionByHash", tx_hash)
    batch = submit(key, asking({f"transaction:{tx_hash}": {"accounts": {ALICE: {"props": ["BALANCE"]}}}}))
    with money.stopped():
        work()
        assert batch.queries.get().block is not None
        service.rpc("anvil_reorg", service.head() - number + 1, [[raw, 1]])
        service.mine(2)
        work()
        assert batch.queries.get().step == StepKind.INITIAL_STATE
        assert f"has no transaction {tx_hash}" in " ".join(waiting())
    service.rpc("evm_setAutomine", True)
    Block.objects.update(refused_since=timezone.now() - timedelta(minutes=11))
    work()
    assert (fresh(batch).rejection_code, fresh(batch).rejection_retryable) == ("transaction_not_in_block", True)


@pytest.mark.long
@pytest.mark.parametrize("has_raw", [True, False])
def test_receipts_of_more_logs_than_an_answer_may_have_are_asked_otherwise(service, key, settings, has_raw):
    number = block_with_logs(service)

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "debug_getRawReceipts" and not has_raw:
            return [error(question, -32601, "no such method")]
        is_long = question["method"] == "eth_getBlockReceipts"
        return [
            reply | {"result": [receipt | {"more": [0] * 100_000} for receipt in reply["result"]]} if is_long else reply
        ]

    with changed_replies(settings, service, change):
        asked = {"2": {"logs": ["1"]}}
        assert work_until_done(submit(key, asking_of(number, asked)), service).status == BatchStatus.DONE
    assert are_right(service, number, asked)


@pytest.mark.long
@pytest.mark.parametrize("lists_receipts", [True, False])
def test_a_block_that_is_filled_with_empty_logs_holds_up_nothing_where_nodes_have_no_raw_receipts(
    service, key, settings, lists_receipts
):
    """Anybody can fill a block so: a log costs 375 gas, and takes 360 bytes and 11 values of JSON."""
    number = block_of(service, [emitting_empty(8_000)] * 3 + [LOG + LOG + RETURNS])
    asked = {"3": {"blockLogs": ["24001"], "props": ["STATUS"]}}

    def change(question: Any, reply: Any) -> list[Any]:
        is_refused = question["method"] in {"debug_getRawReceipts", "" if lists_receipts else "eth_getBlockReceipts"}
        return [error(question, -32601, "no such method") if is_refused else reply]

    with changed_replies(settings, service, change):
        assert work_until_done(submit(key, asking_of(number, asked)), service).status == BatchStatus.DONE
    assert are_right(service, number, asked)
