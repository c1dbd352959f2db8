"""Headers of another chain, which one node tells, reject no batch at once, and the form and `bqs` may send it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from queries.models import Batch, BatchStatus
from tests.chains.lying_node import Raw, between, lying_node
from tests.contracts import tries
from tests.explorer.batch_forms import post
from tests.factories import client_of
from tests.headers import with_hash
from tests.proving.estimated_batches import estimate
from tests.proving.logs import block_with_logs
from tests.service import ALICE, asking, fresh, reconfigure, submit, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

STATUS = {"transactions": {"0": {"props": ["STATUS"]}}}
EMPTY = {
    "transactionsRoot": f"0x{tries.EMPTY_ROOT.hex()}",
    "receiptsRoot": f"0x{tries.EMPTY_ROOT.hex()}",
    "transactions": [],
}
OTHER = {"extraData": "0x07"}


@dataclass
class Liar:
    """A node that tells a block of another chain for one of the chain's: the first times, or until it is honest."""

    number: int
    lie: dict[str, Any]
    times: float = float("inf")

    def __call__(self, question: Any, reply: Any) -> list[Any]:
        if question["method"] != "eth_getBlockByNumber" or question["params"][0] != hex(self.number):
            return [reply]
        self.times -= 1
        return [reply | {"result": with_hash(reply["result"] | self.lie)} if self.times >= 0 else reply]


@contextmanager
def first(settings: Any, chain: Any, liar: Callable[[Any, Any], list[Any]], *others: str) -> Iterator[None]:
    """Let the service ask the liar first, and then the other nodes."""
    with between(chain.url, liar) as url:
        nodes = ", ".join(f'"{node}"' for node in (url, *others))
        reconfigure(settings, f'"{chain.url}"', nodes)
        yield


def asked_of(number: int, **more: Any) -> dict[str, Any]:
    return asking({f"block:{number}": STATUS, **more})


def final_block(chain: Any) -> int:
    number = block_with_logs(chain)
    chain.mine(200)
    return number


def is_open(batch: Batch) -> bool:
    return fresh(batch).status == BatchStatus.RECEIVED


@pytest.mark.parametrize("times", [1, float("inf")])
def test_the_only_node_that_tells_another_block_in_one_check_costs_no_batch(service, key, settings, times):
    number = final_block(service)
    liar = Liar(number, EMPTY, times)
    with first(settings, service, liar):
        batch = submit(key, asked_of(number))
        work()
        assert is_open(batch)
        liar.times = 0
        assert work_until_done(batch, service).status == BatchStatus.DONE


def test_the_only_node_is_asked_again_before_an_estimate_says_that_no_later_try_helps(service, client, key, settings):
    number = final_block(service)
    liar = Liar(number, EMPTY, times=1)
    with first(settings, service, liar):
        (rejection,) = estimate(client, key, asked_of(number))["rejections"]
        assert (rejection["code"], rejection["retryable"]) == ("transaction_index_beyond", True)


def test_a_node_that_tells_another_block_while_the_others_are_down_costs_no_batch(service, client, key, settings):
    number = final_block(service)
    liar = Liar(number, EMPTY)
    with lying_node(lambda _: Raw(status=503)) as down, first(settings, service, liar, down):
        batch = submit(key, asked_of(number))
        (rejection,) = estimate(client, key, asked_of(number))["rejections"]
        assert (rejection["code"], rejection["retryable"]) == ("transaction_index_beyond", True)
        work(2)
        assert is_open(batch)
        liar.times = 0
        assert work_until_done(batch, service).status == BatchStatus.DONE


@pytest.mark.long
def test_the_block_that_would_reject_a_batch_is_compared_however_many_others_it_has(service, key, settings):
    service.mine(110)
    number = final_block(service)
    others = {f"block:{number - 1 - below}": {"header": ["TIMESTAMP"]} for below in range(105)}
    liar = Liar(number, EMPTY)
    with first(settings, service, liar, service.url):
        batch = submit(key, asked_of(number, **others))
        work(8)
        assert is_open(batch)
        liar.times = 0
        assert work_until_done(batch, service, rounds=20).status == BatchStatus.DONE


def test_the_form_sends_what_only_one_of_several_nodes_excludes(service, key, settings):
    number = final_block(service)
    liar = Liar(number, EMPTY)
    with first(settings, service, liar, service.url):
        row = {"at": "block", "block": str(number), "transactions": "0", "props": [], "tx_props": ["STATUS"]}
        post(client_of(ALICE), "submit", row, status=303)
        liar.times = 0
        assert work_until_done(Batch.objects.get(), service).status == BatchStatus.DONE


def test_an_estimate_says_that_a_later_try_may_help_if_nodes_tell_different_first_blocks(
    service, client, key, settings
):
    body = asking({"timestamp:1": {"header": ["TIMESTAMP"]}})
    (agreed,) = estimate(client, key, body)["rejections"]
    assert (agreed["code"], agreed["retryable"]) == ("timestamp_before_first_block", False)
    with first(settings, service, Liar(0, OTHER), service.url):
        (doubted,) = estimate(client, key, body)["rejections"]
    assert (doubted["code"], doubted["retryable"]) == ("timestamp_before_first_block", True)


@pytest.mark.parametrize(
    ("selector", "asked", "told", "code"),
    [
        ("block:{0}", {"transactions": {"7": {"props": ["STATUS"]}}}, 1, "transaction_index_beyond"),
        ("finalized", {"transactions": {"7": {"props": ["STATUS"]}}}, -1, "transaction_index_beyond"),
        ("finalized", {"accounts": {ALICE: {"props": ["BALANCE"]}}}, None, "proof_unavailable"),
    ],
    ids=["too new", "too old", "the first"],
)
def test_a_block_that_one_node_alone_calls_final_rejects_no_batch_at_once(
    service, client, key, settings, selector, asked, told, code
):
    number = block_with_logs(service)
    final = hex(0 if told is None else number + told)

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] != "eth_getBlockByNumber" or question["params"][0] != "finalized":
            return [reply]
        return [reply | {"result": service.rpc("eth_getBlockByNumber", final, False)}]

    body = asking({selector.format(number): asked})
    with first(settings, service, change, service.url):
        (rejection,) = estimate(client, key, body)["rejections"]
        assert (rejection["code"], rejection["retryable"]) == (code, True)
        batch = submit(key, body)
        work(2)
        assert is_open(batch)
