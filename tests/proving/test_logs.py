"""Transactions, receipts and logs as facts of a batch, by real chains."""

from typing import Any

import pytest
from eth_utils.crypto import keccak

from proving.deployments import selector
from proving.models import Transaction
from queries.models import BatchStatus, StepKind
from tests.proving.chain_state import registry
from tests.proving.logs import block_with_logs
from tests.service import asking, submit, work_until_done

pytestmark = pytest.mark.django_db

ALL = ["STATUS", "TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT", "HASH"]


def read(chain, function: str, *words: int) -> str:
    data = selector("FactsRegistry", function) + b"".join(word.to_bytes(32) for word in words)
    answer: str = chain.rpc("eth_call", {"to": registry().address, "data": f"0x{data.hex()}"}, "latest")
    return answer


def hash_of(log: Any) -> str:
    parts = b"".join(bytes.fromhex(part[2:].zfill(64)) for part in (log["address"], *log["topics"]))
    return f"0x{keccak(parts + keccak(bytes.fromhex(log['data'][2:]))).hex()}"


def test_a_log_is_proven_through_all_four_steps_by_one_transaction(service, key):
    number = block_with_logs(service)
    hashes = service.rpc("eth_getBlockByNumber", hex(number), False)["transactions"]
    batch = submit(key, asking({f"block:{number}": {"transactions": {hashes[2]: {"logs": ["1"]}}}}))
    batch = work_until_done(batch, service)
    assert batch.status == BatchStatus.DONE
    query = batch.queries.get()
    assert [step.kind for step in query.steps.order_by("pk")] == list(StepKind)
    log = service.rpc("eth_getTransactionReceipt", hashes[2])["logs"][1]
    assert read(service, "logHash", number, 2, 1) == hash_of(log)
    assert Transaction.objects.filter(queries=query).count() == 1
