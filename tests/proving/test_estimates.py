"""What is expected is never below what is spent, and at most a quarter above; and the bound is never below."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import Client

from accounts.models import ApiKey
from benchmarks import estimates
from benchmarks.estimates import Result
from benchmarks.gas import Lab, generated
from chains import history
from chains.trie_path import End, TriePath, path_of
from config import node_waits
from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving import batch_estimate
from proving.facts import AccountFact, HeaderFact, SlotFact, TimeFact
from proving.models import FactsRegistry, Transaction
from proving.registry.deploying import deploy
from proving.spending import trie_shapes, workload
from proving.spending.workload import Missing, Route, Tries
from queries.models import Batch, BatchStatus, Block, Query
from queries.properties import AccountField, HeaderField
from tests.contracts import tries
from tests.proving.test_shared_transactions import work_once
from tests.proving.test_sources import THERE, grow
from tests.proving.test_spending import ETHER, costly, fresh, key
from tests.proving.test_spending_edges import old_blocks
from tests.service import ALICE, BOB, CHARLIE, a_key, header, request, submit, waiting, work_until_done

__all__ = ["costly", "key"]  # fixtures


def is_right(result: Result) -> bool:
    return 0 <= result.above <= 0.25 and result.bound >= result.spent


# --- Proofs of mainnet's shape ----------------------------------------------------------------------------------------


def test_proofs_of_mainnets_shape_take_what_is_expected():
    cases = list(estimates.proof_cases())
    wrong = []
    for number in dict.fromkeys(case.number for case in cases):
        with Lab(number) as lab:
            results = [estimates.of_proof(lab, case) for case in cases if case.number == number]
        wrong += [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)


def test_three_hundred_balances_of_mainnet_fit_a_days_budget():
    case = generated("300 balances", 300)
    assert estimates.estimated(case).bound < configured.DAILY_GAS_BUDGET


# --- Batches of a development chain -----------------------------------------------------------------------------------


def asking(blocks: dict[str, Any], *, fee: Any = 0) -> dict[str, Any]:
    return {"destinationChainId": "31337", "fee": str(fee), "data": {"31337": blocks}}


def accounts(count: int) -> dict[str, Any]:
    return {f"0x{number:040x}": {"props": ["BALANCE"]} for number in range(1000, 1000 + count)}


def cases_of(chain: DevChain) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each is at blocks of its own."""
    numbers = iter(range(chain.head() - 2, 0, -1))

    def block() -> str:
        return f"block:{next(numbers)}"

    def time() -> str:
        shown = chain.rpc("eth_getBlockByNumber", hex(next(numbers)), False)
        return f"timestamp:{int(shown['timestamp'], 16)}"

    neighbours = [hex(slot) for slot in range(60)]
    alone = [hex(slot << 30) for slot in range(60)]
    full = [hex(slot) for slot in range(1, 11)]
    everything = {"props": ["BALANCE", "NONCE", "CODE_HASH", "STORAGE_ROOT"]}
    yield "1 balance", {block(): {"accounts": accounts(1)}}
    yield "10 balances", {block(): {"accounts": accounts(10)}}
    yield "100 balances", {block(): {"accounts": accounts(100)}}
    yield "300 balances", {block(): {"accounts": accounts(300)}}
    yield "all properties of a contract", {block(): {"accounts": {history.CONTRACT: everything}}}
    yield "10 slots", {block(): {"accounts": {history.CONTRACT: {"slots": full}}}}
    yield "60 empty slots beside each other", {block(): {"accounts": {CHARLIE: {"slots": neighbours}}}}
    yield "60 empty slots apart", {block(): {"accounts": {CHARLIE: {"slots": alone}}}}
    yield "a header property", {block(): {"header": ["TIMESTAMP"]}}
    yield "header properties that are zero", {block(): {"header": ["DIFFICULTY", "NONCE", "MIX_HASH", "GAS_USED"]}}
    yield "a time", {time(): {"accounts": accounts(1)}}
    yield "4 times", {time(): {"header": ["GAS_LIMIT"]} for _ in range(4)}
    yield "16 blocks", {block(): {"accounts": accounts(1)} for _ in range(16)}
    mixed = {block(): {"accounts": accounts(20), "header": ["GAS_LIMIT"]}, time(): {"accounts": accounts(2)}}
    yield "accounts, a header and a time", mixed


def estimate(client: Client, api_key: ApiKey, body: dict[str, Any], *, status: int = 200) -> Any:
    answer = client.post("/estimate-batch-query", body, content_type="application/json", headers=header(api_key))
    assert answer.status_code == status, answer.content
    return answer.json()


def measured(client: Client, api_key: ApiKey, name: str, body: dict[str, Any]) -> Result:
    """What is estimated, and then spent."""
    before = estimate(client, api_key, body)
    batch = submit(api_key, body)
    for _ in range(12):
        work_once()
        if fresh(batch).status == BatchStatus.DONE:
            break
    work_once()
    assert fresh(batch).status == BatchStatus.DONE, waiting()
    # Acceptance says the same, and signs no more.
    assert batch.estimated_gas == before["gas"]["bound"]
    signed = Transaction.objects.filter(queries__batch=batch).distinct()
    assert sum(tx.gas_limit for tx in signed) <= before["gas"]["bound"], name
    return Result(name, before["gas"]["expected"], before["gas"]["bound"], batch.gas_used)


def test_batches_take_what_is_expected(service, client, settings):
    settings.MAX_BATCHES_PER_MINUTE = 1000
    service.rpc("anvil_mine", hex(80), hex(5))
    work_once()
    user = a_key()
    results = [measured(client, user, name, asking(blocks)) for name, blocks in cases_of(service)]
    wrong = [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)
