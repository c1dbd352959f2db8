"""The gas prices of a destination that reaches a fork, on geth."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.test import Client

from config.configured_chains import forget_chains
from proving.models import ChainHead, Transaction
from queries.models import BatchStatus
from tests import service
from tests.chains.lying_node import ask, between
from tests.explorer.batches import beat
from tests.proving.estimated_batches import estimate
from tests.real_nodes import deploying
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.geth]

# The gas of a balance.
BEFORE, AFTER = 108_000, 280_000
# How much more a tiny contract with a word takes after the fork.
MORE = 366_729 - 81_643


def stored() -> Any:
    head = ChainHead.objects.get()
    return head.gas_prices, head.gas_scale


def healthz() -> Any:
    return Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()


@pytest.fixture
def node(settings, tmp_path) -> Iterator[DrivenGeth]:
    """Yield a chain that is a destination for its own facts. It forks when a test makes the block of that time."""
    with DrivenGeth(CHAIN_ID, amsterdam_time=int(time.time()) + 3 * 86_400) as node:
        node.mine(8)
        settings.CHAINS_FILE = service.chains_toml(tmp_path, node.url, chain_id=CHAIN_ID)
        deploying.deployed_on(CHAIN_ID, node.mine)
        yield node


def balance(node: DrivenGeth) -> Any:
    return service.request(service.ALICE, block=node.head(), chain_id=CHAIN_ID)


@contextmanager
def nodes(settings, node: DrivenGeth, *changes: Any) -> Iterator[None]:
    """Let the service ask one node for each of the changes of replies, in order."""
    with ExitStack() as stack:
        urls = [stack.enter_context(between(node.url, change)) for change in changes]
        service.reconfigure(settings, f'["{node.url}"]', json.dumps(urls))
        yield
        service.reconfigure(settings, json.dumps(urls), f'["{node.url}"]')


def honest(_: Any, reply: Any) -> list[Any]:
    return [reply]


def test_one_node_shows_the_fork_by_three_heads_in_a_row(node, client, key):
    beat()
    service.work()
    assert (stored(), healthz()["codes"]) == (("osaka", 1), [])
    (notice,) = healthz()["notices"]
    assert "This version knows the fork." in notice
    assert estimate(client, key, balance(node))["gas"]["expected"] == pytest.approx(BEFORE, rel=0.1)
    node.mine_until_amsterdam()
    for heads in (1, 2, 3):
        forget_chains()
        service.work()
        assert stored()[0] == ("amsterdam" if heads == 3 else "osaka")
        # The fork was foretold.
        assert estimate(client, key, balance(node))["gas"]["expected"] == pytest.approx(AFTER, rel=0.1)
        node.mine()
    beat()
    assert (stored(), healthz()["codes"], healthz()["notices"]) == (("amsterdam", 1), [], [])
    assert estimate(client, key, balance(node))["gas"]["expected"] == pytest.approx(AFTER, rel=0.1)
    batch = service.done(service.submit(key, balance(node)), node)
    assert batch.status == BatchStatus.DONE
    assert [tx.succeeded for tx in Transaction.objects.filter(queries__batch=batch)] == [True]


def test_all_nodes_show_the_fork_by_one_head_and_a_reorg_takes_it_back(node, settings):
    def lag(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockByNumber" and question["params"][0] == "latest":
            return [ask(node.url, question | {"params": [hex(before), False]})]
        return [reply]

    before = node.head()
    node.mine_until_amsterdam()
    with nodes(settings, node, honest, lag):
        service.work()
        assert stored() == ("osaka", pytest.approx(4.54, abs=0.01))
        assert healthz()["codes"] == ["no_worker"]
    with nodes(settings, node, honest, honest):
        service.work()
        assert stored() == ("amsterdam", 1)
    # The final block is older than the fork, and so is the new head.
    node.drop(1)
    service.work()
    assert stored() == ("osaka", 1)


def test_the_prices_do_not_go_back_below_a_final_block(node, settings):
    node.mine_until_amsterdam()
    node.mine(8)
    service.work()
    assert stored() == ("amsterdam", 1)
    with DrivenGeth(CHAIN_ID) as other:
        other.mine(node.head() + 1)

        def go_back(question: Any, reply: Any) -> list[Any]:
            is_final = question["method"] == "eth_getBlockByNumber" and question["params"][0] == "finalized"
            return [reply if is_final else ask(other.url, question)]

        with nodes(settings, node, go_back, go_back):
            service.work()
            assert stored() == ("amsterdam", pytest.approx(0.225, abs=0.01))


def of_today(url: str) -> Any:
    """Return a change by which a chain after the fork charges for a creation what it took before."""

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_estimateGas" and "to" not in question["params"][0]:
            return [reply | {"result": hex(int(reply["result"], 16) - MORE)}]
        if question["method"] == "eth_call" and "gas" in question["params"][0]:
            call, *others = question["params"]
            return [ask(url, question | {"params": [call | {"gas": hex(int(call["gas"], 16) + MORE)}, *others]})]
        return [reply]

    return change


def test_a_chain_whose_headers_alone_change_keeps_its_prices(node, settings):
    beat()
    service.work()
    node.mine_until_amsterdam()
    node.mine(2)
    change = of_today(node.url)
    for changes in ([change], [change, change]):
        with nodes(settings, node, *changes):
            service.work()
            assert (stored(), healthz()["codes"]) == (("osaka", 1), [])


def test_one_node_that_tells_the_old_prices_does_not_prevent_the_new_ones(node, settings):
    node.mine_until_amsterdam()
    change = of_today(node.url)
    for changes in ([honest, change], [change, honest]):
        ChainHead.objects.update(gas_prices="")
        with nodes(settings, node, *changes):
            service.work()
            assert stored() == ("amsterdam", 1)


def test_a_node_that_stays_before_the_fork_does_not_prevent_the_new_ones(node, settings):
    before = node.head()

    def stay(question: Any, reply: Any) -> list[Any]:
        parameters = [hex(before) if each == "latest" else each for each in question["params"]]
        return [ask(node.url, question | {"params": parameters})]

    with nodes(settings, node, honest, stay):
        # The nodes are compared now, and not again soon.
        service.work()
        assert stored() == ("osaka", 1)
        node.mine_until_amsterdam()
        node.mine(40)
        service.work()
        assert stored() == ("amsterdam", 1)
    for changes in ([honest, stay], [stay, honest]):
        ChainHead.objects.update(gas_prices="")
        with nodes(settings, node, *changes):
            service.work()
            assert stored() == ("amsterdam", 1)


def test_a_first_estimate_without_a_worker_finds_the_prices_itself(node, client, key):
    node.mine_until_amsterdam()
    node.mine(2)
    forget_chains()
    assert ChainHead.objects.get().gas_prices == ""
    assert estimate(client, key, balance(node))["gas"]["expected"] == pytest.approx(AFTER, rel=0.1)
