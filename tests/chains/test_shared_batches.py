"""Questions of one exchange: none pays for the size of the whole, nor for what is wrong with another."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from chains import questions, request_batches
from chains.rpc import AccountProof, ChainError, NodeUnavailable, ProofRequest, RpcClient, RpcRefused
from chains.trie import EMPTY_TRIE_ROOT
from tests.chains.lying_node import Raw, error, is_chain_id, lying_node, result

# A busy machine must not make an answer late.
TIMEOUT = 0.8


class Echoing:
    """Answers with the first parameter, as long as nothing else is set; records what it was asked but for chain ids."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.hangs: Callable[[list[Any]], bool] = lambda _: False
        """Tells if it leaves these requests without an answer."""
        self.refuses: Callable[[list[Any]], bool] = lambda _: False
        """Tells if it takes no batch such as this."""
        self.spoils: dict[Any, Callable[[Any], Any]] = {}
        """Other answers, by the first parameter; None where it leaves the reply out."""
        self.down = False
        """True if it fails, but for its chain id."""
        self.gone = False
        """True if it fails altogether."""
        self.now = 0.0
        self.seconds_each = 0.0
        """The seconds of an exchange by the client's clock."""
        self.over = threading.Event()

    def __call__(self, body: Any) -> Any:
        if is_chain_id(body) and not self.gone:
            return result(body, "0x7a69")
        asked = body if isinstance(body, list) else [body]
        self.sizes.append(len(asked))
        self.now += self.seconds_each
        if self.hangs(asked):
            self.over.wait(20)
        if self.down or self.gone:
            return Raw(status=503)
        if len(asked) > 1 and self.refuses(asked):
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "batch too large"}}
        answers = [answer for answer in map(self._answer, asked) if answer]
        return answers if isinstance(body, list) or not answers else answers[0]

    def _answer(self, one: Any) -> Any:
        value = one["params"][0]
        spoil = self.spoils.get(value)
        return spoil(one) if spoil else result(one, value)


@pytest.fixture
def nodes(client_of) -> Iterator[Callable[..., RpcClient]]:
    """Starts nodes, and gives a client of them, whose clock is that of the first."""
    with ExitStack() as running:

        def start(*some: Echoing) -> RpcClient:
            urls = [running.enter_context(lying_node(one)) for one in some]
            for one in some:
                running.callback(one.over.set)
            rpc: RpcClient = client_of(*urls, timeout_seconds=TIMEOUT, clock=lambda: some[0].now)
            return rpc

        yield start


def ask(rpc: RpcClient, values: range | list[int]) -> list[Any]:
    return rpc.ask([questions.plain("echo", value) for value in values])


def failed(answers: list[Any]) -> dict[int, str]:
    """Return why questions were not answered, by the question's place."""
    return {n: str(one) for n, one in enumerate(answers) if isinstance(one, ChainError)}


# --- Slow nodes -------------------------------------------------------------------------------------------------------


def test_a_node_too_slow_for_all_at_once_is_asked_for_fewer(nodes):
    node = Echoing()
    node.hangs = lambda asked: len(asked) > 16
    assert ask(nodes(node), range(64)) == list(range(64))
    assert node.sizes == [64, 32, 32, 16, 16, 16, 16]


def test_a_node_that_hangs_is_waited_for_twice(nodes):
    node = Echoing()
    node.hangs, node.seconds_each = lambda _: True, TIMEOUT
    rpc = nodes(node)
    assert len(failed(ask(rpc, range(64)))) == 64
    assert node.sizes == [64, 32]
    node.gone = True
    for _ in range(2):
        assert len(failed(ask(rpc, range(64)))) == 64
    assert node.sizes == [64, 32, 1], "it tells no chain id either, and has just failed"


def test_one_request_that_hangs_is_the_loss_of_its_question(nodes):
    node = Echoing()
    node.hangs = lambda asked: any(one["params"][0] == 3 for one in asked)
    outcomes = ask(nodes(node), range(64))
    assert list(failed(outcomes)) == [3]
    assert "did not answer" in failed(outcomes)[3]


# --- Poisonous answers ------------------------------------------------------------------------------------------------

POISON: dict[str, Callable[[Any], Any]] = {
    "neither": lambda one: {"jsonrpc": "2.0", "id": one["id"]},
    "no error": lambda one: {"jsonrpc": "2.0", "id": one["id"], "error": "no"},
    "missing": lambda _: None,
    "limit": lambda one: error(one, -32005, "project ID request rate exceeded"),
    "words": lambda one: error(one, -32000, "exceeded its compute units"),
    "long": lambda one: result(one, "x" * 2000),
}


@pytest.fixture(params=POISON)
def poisonous(request, monkeypatch) -> Echoing:
    monkeypatch.setattr(request_batches, "MAX_REPLY_BYTES", 1900)
    node = Echoing()
    node.spoils[3] = POISON[request.param]
    return node


def test_one_bad_answer_is_the_loss_of_its_question(nodes, poisonous):
    rpc = nodes(poisonous)
    assert list(failed(ask(rpc, range(16)))) == [3]
    # Nor do the others meet a node that has just failed.
    assert ask(rpc, [4, 5]) == [4, 5]


def test_the_next_node_is_asked_for_it(nodes, poisonous):
    other = Echoing()
    assert ask(nodes(poisonous, other), range(16)) == list(range(16))
    assert other.sizes == [1]


def test_a_node_without_one_of_the_replies_is_asked_for_no_more(nodes):
    node, other = Echoing(), Echoing()
    node.spoils[3] = lambda _: result({"id": 10**9}, 3)
    assert ask(nodes(node, other), range(4)) == list(range(4))
    assert other.sizes == [4], "a reply that belongs to no request tells nothing of the others"


# --- Long replies and heavy requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [(3, 4, 5), tuple(range(15))])
def test_several_in_a_row_that_fail_by_themselves_cost_no_other_its_answer(nodes, poisonous, bad):
    poisonous.refuses = lambda asked: len(asked) > 1
    poisonous.spoils = dict.fromkeys(bad, poisonous.spoils[3])
    assert tuple(failed(ask(nodes(poisonous), range(16)))) == bad


def test_proofs_are_there_beside_a_bad_one(nodes, poisonous):
    proof: dict[str, Any] = {"accountProof": [], "storageProof": []}
    bad = poisonous.spoils[3]
    poisonous.spoils = {f"0x{3:040x}": bad} | {f"0x{n:040x}": lambda one: result(one, proof) for n in (1, 2, 4)}
    wanted = [ProofRequest(1, b"\1" * 32, EMPTY_TRIE_ROOT, f"0x{n:040x}") for n in (1, 2, 3, 4)]
    answers = nodes(poisonous).proofs(wanted)
    assert [isinstance(answer, AccountProof) for answer in answers] == [True, True, False, True]
    assert isinstance(answers[2], NodeUnavailable)


def test_what_another_node_might_have_answered_is_worth_asking_again(nodes):
    refusing, nonsense = Echoing(), Echoing()
    refusing.spoils[3] = lambda one: error(one, -32000, "not here")
    nonsense.spoils[3] = POISON["neither"]
    rpc = nodes(refusing, nonsense)
    with pytest.raises(RpcRefused) as caught:
        rpc.call("echo", 3)
    assert caught.value.may_pass


def test_methods_are_mixed_in_one_exchange_and_nonsense_is_the_loss_of_its_question(nodes):
    node = Echoing()
    node.spoils["0x1"] = lambda one: result(one, "nonsense")
    balances, codes = nodes(node).ask([questions.balance("0x1"), questions.balance("0x2")], [questions.code("0x03")])
    assert isinstance(balances[0], NodeUnavailable)
    assert (balances[1], codes) == (2, [b"\x03"])
    assert node.sizes == [3]
