"""The gas model is accurate, and an estimate's time is limited."""

import threading
from typing import Any

import pytest

from campaigns.benchmarks.gas import Lab, generated
from chains.prices import OSAKA
from devnet.devchain import DevChain
from proving.facts import AccountFact, Fact, SlotFact
from proving.packing import gas
from proving.packing.gas import Paths, Sample, UnprovenBlock
from proving.reading import asking as asking_nodes
from queries.columns import AccountField
from tests.chains.lying_node import ask, lying_node, recording
from tests.proving.estimated_batches import estimate
from tests.proving.logs import block_with_logs
from tests.service import ALICE, asking, header, reconfigure

# Numbers of children in the branches above the largest storage of a mainnet contract.
LARGE = (16, 16, 16, 16, 16, 16, 4)


# --- Proofs of mainnet's shape ----------------------------------------------------------------------------------------


def test_unknown_depths_are_estimated_as_mainnets_largest():
    cases = [generated("", 1, slots=slots, slot_levels=levels) for slots in (1, 24) for levels in ((16, 2), LARGE)]
    with Lab(cases[0].number) as lab:
        used = [lab.run(case).tx for case in cases]
    for case, took in zip(cases, used, strict=True):
        slots = len(case.accounts[0].slots)
        requested: list[Fact] = [
            AccountFact(ALICE, AccountField.BALANCE),
            *(SlotFact(ALICE, hex(slot)) for slot in range(slots)),
        ]
        missing = [UnprovenBlock(1, requested, is_known=False)]
        assert gas.estimate(missing, Sample(), Paths(), OSAKA).gas.bound >= took


# --- Time and concurrency ---------------------------------------------------------------------------------------------


def newest_time(chain: DevChain) -> int:
    return int(chain.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)


@pytest.mark.long
def test_an_estimate_of_many_times_ends_when_its_seconds_are_over(service, client, key, settings, monkeypatch):
    service.rpc("anvil_mine", hex(400), hex(5))
    monkeypatch.setattr(asking_nodes, "_MOST_SECONDS", 1)
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


@pytest.mark.parametrize(("most_bytes", "downloads"), [(8 * 2**20, 1), (100, 2)])
def test_blocks_are_kept_up_to_a_number_of_bytes(service, client, key, settings, monkeypatch, most_bytes, downloads):
    monkeypatch.setattr("proving.reading.block_contents._MOST_KEPT_BYTES", most_bytes)
    blocks, requests = {f"block:{block_with_logs(service)}": {"transactions": {"0": {"logs": ["0"]}}}}, list[Any]()
    with lying_node(recording(requests, lambda body: ask(service.url, body))) as url:
        reconfigure(settings, service.url, url)
        for _ in range(2):
            told = client.post("/read-proofs", asking(blocks), content_type="application/json", headers=header(key))
            assert told.status_code == 200
    assert str(requests).count("eth_getBlockReceipts") == downloads


@pytest.mark.long
def test_proofs_of_many_blocks_end_when_their_seconds_are_over(service, client, key, settings, monkeypatch):
    numbers = [block_with_logs(service) for _ in range(20)]
    monkeypatch.setattr(asking_nodes, "_MOST_SECONDS", 1)
    read: list[Any] = []

    def answer_late(body: Any) -> Any:
        if "eth_getBlockReceipts" in str(body):
            read.append(body)
            threading.Event().wait(0.2)
        return ask(service.url, body)

    blocks = {f"block:{number}": {"transactions": {"0": {"logs": ["0"]}}} for number in numbers}
    with lying_node(answer_late) as url:
        reconfigure(settings, service.url, url)
        refused = client.post("/read-proofs", asking(blocks), content_type="application/json", headers=header(key))
    assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable")
    assert 0 < len(read) < len(blocks)
