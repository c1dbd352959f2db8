"""Tasks that run side by side, and share exchanges."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from chains import together
from chains.rpc import NodeUnavailable, RpcClient
from chains.together import Raised
from devnet.devchain import ACCOUNTS, DevChain
from tests.chains.lying_node import Raw, ask, lying_node

ALICE, BOB = ACCOUNTS[0][0], ACCOUNTS[1][0]


class Counted:
    """A node in front of a real one that notes each exchange."""

    def __init__(self, chain: DevChain) -> None:
        self._chain = chain
        self.exchanges: list[list[str]] = []
        self.spoils = ""
        """The method whose answers make no sense."""
        self.down = False

    def __call__(self, body: Any) -> Any:
        batched = body if isinstance(body, list) else [body]
        self.exchanges.append([one["method"] for one in batched])
        if self.down:
            return Raw(status=503)
        answers = ask(self._chain.url, body)
        for one, answer in zip(batched, answers if isinstance(answers, list) else [answers], strict=True):
            if one["method"] == self.spoils:
                answer["result"] = "nonsense"
        return answers


@pytest.fixture(scope="module")
def chain(devchain: DevChain) -> DevChain:
    devchain.mine(5)
    return devchain


@pytest.fixture
def node(chain: DevChain, client_of) -> Iterator[tuple[Counted, RpcClient]]:
    counted = Counted(chain)
    with lying_node(counted) as url:
        rpc = client_of(url)
        rpc.head()
        counted.exchanges.clear()
        yield counted, rpc


def test_what_tasks_ask_at_the_same_time_is_one_exchange(node, chain):
    counted, rpc = node

    def task(number: int) -> tuple[int, int]:
        header = rpc.header(number)
        assert header is not None
        return header.number, rpc.balance(ALICE, number)

    assert together.each([partial(task, number) for number in range(4)]) == [
        (n, rpc.balance(ALICE, n)) for n in range(4)
    ]
    assert counted.exchanges[:2] == [["eth_getBlockByNumber"] * 4, ["eth_getBalance"] * 4]


def test_none_waits_for_an_error_of_another(node):
    _, rpc = node

    def failing() -> int:
        rpc.nonce(ALICE)
        raise ValueError("mine")

    outcomes = together.run([failing, lambda: rpc.nonce(BOB)])
    assert isinstance(outcomes[0], Raised)
    assert outcomes[1] == 0
    with pytest.raises(ValueError, match="mine"):
        together.together(lambda: rpc.nonce(BOB), failing)


def test_a_result_that_makes_no_sense_is_the_loss_of_who_asked_for_it(node):
    counted, rpc = node
    counted.spoils = "eth_getBalance"
    balance, nonce = together.run([lambda: rpc.balance(ALICE), lambda: rpc.nonce(ALICE)])
    assert nonce == 0
    assert isinstance(balance, Raised)
    assert isinstance(balance.error, NodeUnavailable)
    assert counted.exchanges == [["eth_getBalance", "eth_getTransactionCount"]]


def test_a_dead_node_is_asked_a_second_time_at_most(node):
    counted, rpc = node
    counted.down = True
    outcomes = together.run([partial(rpc.header, number) for number in range(10)])
    assert all(isinstance(outcome, Raised) and isinstance(outcome.error, NodeUnavailable) for outcome in outcomes)
    assert len(counted.exchanges) == 1


def test_work_of_several_is_done_once_and_its_questions_go_out_with_those_of_others(node):
    counted, rpc = node
    done: list[list[str]] = []

    def handle(items: Sequence[str]) -> list[str]:
        done.append(list(items))
        rpc.balance(ALICE)
        return [item.upper() for item in items]

    results = together.each(
        [
            lambda: together.share_work("key", "a", handle),
            lambda: str(rpc.nonce(ALICE)),
            lambda: together.share_work("key", "b", handle),
        ]
    )
    assert results == ["A", "0", "B"]
    assert done == [["a", "b"]]
    assert counted.exchanges == [["eth_getTransactionCount", "eth_getBalance"]]
