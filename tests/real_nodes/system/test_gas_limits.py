"""Gas limits on geth with Amsterdam's rules, where a forced record tells the prices of before."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from accounts.models import ApiKey
from config.configured_chains import forget_chains
from proving.models import ChainWatch, SignedTransaction, Transaction
from queries.models import Batch, BatchStatus
from tests import service
from tests.chains.lying_node import estimating
from tests.real_nodes.deploying import deployed_on
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.geth]

FORCED = 'gas_prices = "osaka"'


@pytest.fixture(scope="module")
def node() -> Iterator[DrivenGeth]:
    with DrivenGeth(CHAIN_ID, amsterdam_time=0) as node:
        node.mine(12)
        yield node


@pytest.fixture
def registry(node, db, settings, tmp_path: Path) -> str:
    """Deploy at the true prices, or find what an earlier test has deployed, and return the address."""
    settings.CHAINS_FILE = service.chains_toml(tmp_path, node.url, chain_id=CHAIN_ID)
    address = deployed_on(CHAIN_ID, node.mine).address
    node.mine(3)
    return address


def force(settings: Any, tmp_path: Path, *urls: str) -> None:
    settings.CHAINS_FILE = service.chains_toml(tmp_path, *urls, chain_id=CHAIN_ID, chain=FORCED)
    forget_chains()


def header_of(node: DrivenGeth, *properties: str) -> dict[str, Any]:
    """Return a request for the header of a new block."""
    node.mine(2)
    return service.asking({f"block:{node.head() - 1}": {"header": properties}}, source=CHAIN_ID, destination=CHAIN_ID)


def sent_for(batch: Batch) -> list[Transaction]:
    return list(Transaction.objects.filter(queries__batch=batch).distinct().order_by("pk"))


def wait_of(batch: Batch, key: ApiKey) -> Any:
    (wait,) = Client().get(f"/batch-queries/{batch.pk}", headers=service.header(key)).json()["waits"]
    return wait


def test_all_is_done_at_the_first_try_where_the_need_is_above_our_bound(node, registry, key, settings, tmp_path):
    force(settings, tmp_path, node.url)
    node.mine(2)
    block = node.head() - 1
    slots = {"slots": [hex(slot * 7919) for slot in range(20)]}
    asked: list[dict[str, Any]] = [
        {"header": ["GAS_USED"]},
        {"header": service.HEADER_FIELDS[-5:]},
        {"accounts": {service.ALICE: {"props": service.ACCOUNT_FIELDS}}},
        {"accounts": {registry: slots}},
    ]
    for place, contents in enumerate(asked):
        body = service.asking({f"block:{block - place}": contents}, source=CHAIN_ID, destination=CHAIN_ID)
        batch = service.done(service.submit(key, body), node)
        (tx,) = sent_for(batch)
        (version,) = SignedTransaction.objects.filter(transaction=tx)
        assert 1.0 <= (version.gas_limit or tx.gas_limit) / (tx.gas_used or 1) <= 1.6


LIES: dict[str, tuple[list[Callable[[int], int]], list[bool]]] = {
    "one node, a third too low": ([lambda gas: gas * 7 // 10], [False, False, True]),
    "two nodes, a third too low": ([lambda gas: gas * 7 // 10] * 2, [False, False, True]),
    "one node, two thirds too low": ([lambda gas: gas * 35 // 100], [False] * 4),
    "one node, twice too high": ([lambda gas: gas * 3 // 2], [True]),
    "one node, tenfold": ([lambda gas: gas * 10], []),
    "two nodes, tenfold and twentyfold": ([lambda gas: gas * 10, lambda gas: gas * 20], []),
    "two nodes, both tenfold": ([lambda gas: gas * 10] * 2, [True]),
    "the first of two, tenfold": ([lambda gas: gas * 10, lambda gas: gas], [True]),
    "the second of two, tenfold": ([lambda gas: gas, lambda gas: gas * 10], [True]),
}


@pytest.mark.long("one node, a third too low", "one node, tenfold")
@pytest.mark.parametrize(("lies", "outcome"), LIES.values(), ids=LIES)
def test_nodes_that_lie_about_estimates_cost_little(node, registry, key, settings, tmp_path, lies, outcome):
    with ExitStack() as nodes:
        force(settings, tmp_path, *(nodes.enter_context(estimating(node.url, lie)) for lie in lies))
        batch = service.submit(key, header_of(node, "TIMESTAMP"))
        for _ in range(12):
            service.work()
            node.mine()
        sent = sent_for(batch)
        assert [tx.succeeded for tx in sent] == outcome
        if outcome and outcome[-1]:
            assert service.fresh(batch).status == BatchStatus.DONE
        elif outcome:
            limits = [SignedTransaction.objects.get(transaction=tx).gas_limit or tx.gas_limit for tx in sent]
            assert limits[2] >= 1.5 * max(limits[:2])
            assert limits[3] >= 1.5 * limits[2]
            assert (wait_of(batch, key)["code"], "ran out of gas" in wait_of(batch, key)["sentence"]) == (
                "reverted",
                True,
            )
        else:
            assert wait_of(batch, key)["code"] == "gas_doubted"
        # Each node that estimates too much rests, unless the other confirms it.
        resting = {node["host"] for node in ChainWatch.objects.get(chain_id=CHAIN_ID).resting_nodes}
        assert not resting or len(lies) == 2
