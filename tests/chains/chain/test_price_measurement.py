"""Measurements of gas prices, on chains with the rules of Osaka and of Amsterdam."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from chains.nodes import price_measurement
from chains.nodes.price_measurement import PriceMeasurement
from chains.prices import AMSTERDAM, OSAKA, GasPrices
from devnet.devchain import DevChain
from tests.chains.lying_node import ask, between, error
from tests.proving.rollups import ARB_GAS_INFO
from tests.real_nodes.driven_ethereumjs import DrivenEthereumJs
from tests.real_nodes.driven_geth import DrivenGeth

CHAIN_ID = 424242
# EIP-2, EIP-2028, EIP-3860, eight operations with a word of memory, EIP-2929, and 32 bytes of code (Yellow Paper).
OSAKA_GAS = 53_000 + 8 * 16 + 2 + 13 + 22_100 + 32 * 200
# EIP-2780, the same data and operations, EIP-8038, then state gas (EIP-8037) of a word, an account and the code.
AMSTERDAM_GAS = 24_000 + 8 * 16 + 2 + 13 + 12_100 + 97_920 + 183_600 + 32 * 1_530 + 6
CHAINS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], GasPrices, Any]] = {
    "anvil": (lambda: DevChain(chain_id=CHAIN_ID), OSAKA, ()),
    "geth": (lambda: DrivenGeth(CHAIN_ID), OSAKA, pytest.mark.geth),
    "geth on Amsterdam": (lambda: DrivenGeth(CHAIN_ID, amsterdam_time=0), AMSTERDAM, pytest.mark.geth),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param((make, record), id=name, marks=mark) for name, (make, record, mark) in CHAINS.items()],
)
def node(request) -> Iterator[tuple[Any, GasPrices]]:
    """Yield a node, and the record of its chain."""
    make, record = request.param
    with make() as node:
        node.mine(2)
        yield node, record


@pytest.fixture
def measure(client_of) -> Callable[..., PriceMeasurement]:
    def measure_one(url: str, *records: GasPrices) -> PriceMeasurement:
        (only,) = price_measurement.measure(client_of(url, chain_id=CHAIN_ID), records or [OSAKA, AMSTERDAM])
        return only

    return measure_one


def test_the_record_s_gas_is_exactly_what_the_chain_takes(node, client_of, measure):
    node, record = node
    needed = price_measurement.gas_of(record)
    assert needed == {OSAKA.name: OSAKA_GAS, AMSTERDAM.name: AMSTERDAM_GAS}[record.name]
    rpc = client_of(node.url, chain_id=CHAIN_ID)
    assert price_measurement.fit(rpc.ask(price_measurement.calls(record)))
    for more in (1, -1):
        other = replace(record, creation=record.creation + more)
        assert not price_measurement.fit(rpc.ask(price_measurement.calls(other)))
    measured = measure(node.url)
    assert measured.fitting == {record.name}
    assert 1 <= measured.scale[record.name] < 1.015
    assert measured.head.is_amsterdams == (record is AMSTERDAM)


@pytest.mark.parametrize(
    "change",
    [{"word": 1}, {"word_state": 1}, {"creation": 1}, {"new_account": 1}, {"code_byte_state": 1}, {"code_word": 1}],
)
def test_a_price_that_differs_by_one_unit_is_noticed(node, measure, change):
    node, record = node
    ((price, more),) = change.items()
    other = replace(record, **{price: getattr(record, price) + more})
    assert measure(node.url, other).fitting == set()


def scaling(url: str, factor: float, *, obeys_gas: bool = True, more: int = 0) -> AbstractContextManager[str]:
    """Return a node, placed before a real one, that changes estimates. It ignores the gas of calls, or takes `more`."""

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_estimateGas":
            return [reply | {"result": hex(int(int(reply["result"], 16) * factor) + more)}]
        if question["method"] == "eth_call" and "gas" in question["params"][0]:
            call, *others = question["params"]
            gas = int(call["gas"], 16) - more if obeys_gas else 10**7
            return [ask(url, question | {"params": [{**call, "gas": hex(max(0, gas))}, *others]})]
        return [reply]

    return between(url, change)


@pytest.mark.parametrize(
    ("factor", "obeys_gas", "fits"),
    [(1, False, True), (1.5, True, True), (1.03, False, False), (0.95, False, False)],
    ids=["gas is ignored", "only estimates are false", "gas is ignored, 3 % more", "gas is ignored, 5 % less"],
)
def test_estimates_count_only_where_a_node_ignores_the_gas_of_calls(node, measure, factor, obeys_gas, fits):
    node, record = node
    with scaling(node.url, factor, obeys_gas=obeys_gas) as url:
        measured = measure(url)
    assert measured.fitting == ({record.name} if fits else set())
    assert measured.scale[record.name] == pytest.approx(factor * 1.005, rel=0.01)


def test_a_node_that_refuses_calls_of_creations_is_measured_by_its_estimates(node, measure):
    node, record = node

    def refuse(question: Any, reply: Any) -> list[Any]:
        return [error(question, -32000, "no creations") if question["method"] == "eth_call" else reply]

    with between(node.url, refuse) as url:
        assert measure(url).fitting == {record.name}


def test_a_node_that_refuses_all_tells_nothing(node, measure):
    def refuse(question: Any, reply: Any) -> list[Any]:
        is_refused = question["method"] in {"eth_call", "eth_estimateGas"}
        return [error(question, -32000, "no creations") if is_refused else reply]

    with between(node[0].url, refuse) as url:
        measured = measure(url)
    assert (measured.fitting, measured.scale) == (set(), {})


@pytest.mark.parametrize(("factor", "fits"), [(1, True), (1.1, False), (0.9, False)])
def test_only_differences_count_on_a_chain_that_charges_gas_for_data(devchain, client_of, factor, fits):
    devchain.rpc("anvil_setCode", ARB_GAS_INFO, "0x00")
    with scaling(devchain.url, factor, more=40_000) as url:
        (measured,) = price_measurement.measure(client_of(url, chain_id=devchain.chain_id), [OSAKA, AMSTERDAM])
    devchain.rpc("anvil_setCode", ARB_GAS_INFO, "0x")
    assert measured.fitting == ({OSAKA.name} if fits else set())
    assert measured.scale[OSAKA.name] == pytest.approx(factor, abs=0.001)


@pytest.mark.long
def test_ethereumjs_which_ignores_a_lack_of_gas_for_code_is_measured_by_its_estimates(client_of, measure):
    with DrivenEthereumJs(CHAIN_ID) as node:
        node.mine(2)
        rpc = client_of(node.url, chain_id=CHAIN_ID)
        assert not price_measurement.fit(rpc.ask(price_measurement.calls(OSAKA)))
        assert measure(node.url).fitting == {OSAKA.name}
