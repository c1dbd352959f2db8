"""The gas model is accurate, and an estimate's time is limited."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from campaigns.benchmarks import estimates
from campaigns.benchmarks.gas import Lab, generated
from config import configured_chains
from devnet.devchain import DevChain
from proving import batch_estimate, gas
from proving.block_selection import block_at
from proving.connections import OutOfTime, open_connection
from proving.facts import AccountFact, Fact, SlotFact
from proving.gas import Missing, Route, Sample
from queries.columns import AccountField
from tests import long
from tests.chains.lying_node import ask, lying_node, recording
from tests.factories import client_of
from tests.inside.working import work_once
from tests.proving.estimated_batches import Result, cases_of, estimate, measured
from tests.service import ALICE, a_key, asking, header, reconfigure, request

# Numbers of children in the branches above the largest storage of a mainnet contract.
LARGE = (16, 16, 16, 16, 16, 16, 4)


def is_right(result: Result) -> bool:
    return abs(result.above) <= 0.2 and result.bound >= result.spent


# --- Proofs of mainnet's shape ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", long.rows({"each fourth": 4, "all": 1}, at_once=["each fourth"]))
def test_proofs_of_mainnets_shape_take_what_is_expected(step):
    cases = list(estimates.proof_cases())[::step]
    wrong = []
    for number in dict.fromkeys(case.number for case in cases):
        with Lab(number) as lab:
            results = [estimates.of_proof(lab, case) for case in cases if case.number == number]
        wrong += [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)


def test_what_is_not_known_is_taken_for_mainnets_largest():
    cases = [generated("", 1, slots=slots, slot_levels=levels) for slots in (1, 24) for levels in ((16, 2), LARGE)]
    with Lab(cases[0].number) as lab:
        used = [lab.run(case).tx for case in cases]
    for case, took in zip(cases, used, strict=True):
        slots = len(case.accounts[0].slots)
        requested: list[Fact] = [
            AccountFact(ALICE, AccountField.BALANCE),
            *(SlotFact(ALICE, hex(slot)) for slot in range(slots)),
        ]
        assert gas.estimate([Missing(1, requested, is_known=False)], Sample(), Route()).gas.bound >= took


# --- Batches of a development chain -----------------------------------------------------------------------------------


def test_blocks_that_share_a_transaction_take_what_is_expected(service, client, settings):
    service.rpc("anvil_mine", hex(80), hex(5))
    work_once()
    user = a_key()
    cases = [(name, blocks) for name, blocks in cases_of(service) if len(blocks) > 3]
    results = [measured(client, user, name, asking(blocks), work=work_once) for name, blocks in cases]
    wrong = [str(result) for result in results if not is_right(result)]
    assert not wrong, "\n".join(wrong)


# --- Time and concurrency ---------------------------------------------------------------------------------------------


def newest_time(chain: DevChain) -> int:
    return int(chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)


def test_an_estimate_of_many_times_ends_when_its_seconds_are_over(service, client, key, settings, monkeypatch):
    service.rpc("anvil_mine", hex(400), hex(5))
    monkeypatch.setattr(batch_estimate, "_MOST_SECONDS", 1)
    node_requests: list[Any] = []

    def answer_late(body: Any) -> Any:
        threading.Event().wait(0.05)
        return ask(service.url, body)

    blocks = {f"timestamp:{newest_time(service) - 5 * n - 2}": {"header": ["TIMESTAMP"]} for n in range(300)}
    with lying_node(recording(node_requests, answer_late)) as url:
        reconfigure(settings, service.url, url)
        refused = estimate(client, key, asking(blocks), status=503)
    assert refused["code"] == "chain_unavailable"
    assert len(node_requests) < len(blocks)


def test_the_search_of_a_time_ends_before_its_next_header(service, settings):
    service.rpc("anvil_mine", hex(50), hex(5))
    node_requests: list[Any] = []
    limit = {"ends_at": 0.0}

    def answer_when_over(body: Any) -> Any:
        threading.Event().wait(limit["ends_at"] - time.monotonic())
        return ask(service.url, body)

    with lying_node(recording(node_requests, answer_when_over)) as url:
        reconfigure(settings, service.url, url)
        connection = open_connection(31337, 31337)
        head = connection.source_rpc.head()
        node_requests.clear()
        limit["ends_at"] = time.monotonic() + 0.5
        with pytest.raises(OutOfTime):
            block_at(replace(connection, ends_at=limit["ends_at"]), head.timestamp - 123, head)
    assert len(node_requests) == 1


@pytest.mark.django_db(transaction=True)
def test_estimates_that_wait_for_a_node_leave_threads_to_others(service, client, key, settings, monkeypatch):
    monkeypatch.setattr(configured_chains, "PAGE_TIMEOUT_SECONDS", 30)
    body, may_answer = request(ALICE, block=1), threading.Event()

    def answer(question: Any) -> Any:
        may_answer.wait(30)
        return ask(service.url, question)

    def send() -> Any:
        try:
            return Client().post("/estimate-batch-query", body, content_type="application/json", headers=header(key))
        finally:
            connections.close_all()

    with lying_node(answer) as url, ThreadPoolExecutor(16) as pool:
        reconfigure(settings, service.url, url)
        sent = [pool.submit(send) for _ in range(16)]
        try:
            refused = [future.result() for future in islice(as_completed(sent, 60), 13)]
            assert {(reply.status_code, reply.json()["code"], reply["Retry-After"]) for reply in refused} == {
                (503, "busy", "2")
            }
            form = {"destination": "31337", "sender": "service", "rows-0-source": "31337", "rows-0-accounts": ALICE}
            form |= {"rows-0-at": "latest", "rows-0-props": "BALANCE"}
            panel = client_of(ALICE).post("/new-batch/estimate", form, headers={"hx-request": "true"})
            assert "asking nodes for others" in panel.text
            assert client.get("/chain-connections").status_code == 200
        finally:
            may_answer.set()
        assert sorted(future.result().status_code for future in sent) == [200] * 3 + [503] * 13
        estimate(client, key, body)
