"""Nodes that fail, hang, lie or refuse: the error, its cost, and the request to the next node."""

import gzip
import json
import re
import threading
import traceback
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
from eth_utils.crypto import keccak

from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.chain_nodes import FAIL_FAST_SECONDS, Question
from chains.nodes.node_errors import (
    ChainError,
    ImplausibleGas,
    InvalidReply,
    NodeOfWrongChain,
    NodeUnavailable,
    Reverted,
    RpcRefused,
    UnverifiedProof,
)
from chains.nodes.questions import ProofRequest, VerifiedAccountProof
from chains.nodes.rpc import RpcClient, result
from chains.prices import OSAKA
from devnet.devchain import ACCOUNTS, DevChain
from tests.chain_fixtures import chain_fixture
from tests.chains.geth_answers import REFUSALS, REFUSED_HTTP, no_state
from tests.chains.lying_node import Raw, ask, error, is_chain_id, lying_node, recording
from tests.chains.lying_node import result as reply_of
from tests.chains.transfers import ALICE, BOB, CONTRACT, send, signed
from tests.headers import with_hash
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth

# Nothing listens on port 1, because tests have no right to use it.
DEAD = "http://127.0.0.1:1/secret-path"
# Seconds. A busy machine must still answer in time.
TIMEOUT = 2


# --- Behaviour, question, outcome -------------------------------------------------------------------------------------

Spoil = Callable[[Any, Any], Any]
"""A function of a request body and the honest reply. It returns the node's answer."""


def spoiling(url: str, spoil: Spoil) -> AbstractContextManager[str]:
    """Return a node placed before a real one. It tells its chain id honestly, and spoils other replies."""
    return lying_node(lambda body: ask(url, body) if is_chain_id(body) else spoil(body, ask(url, body)))


def raw(*of: Any, **more: Any) -> Spoil:
    return lambda *_: Raw(*of, **more)


def refused(code: int, message: str, data: str | None = None) -> Spoil:
    return lambda body, _: error(body, code, message, data)


def told(value: Any, method: str = "") -> Spoil:
    """Return a spoiler that replaces the result, or the given fields of it, in replies to `method` or
    to all methods.
    """

    def spoil(body: Any, reply: Any) -> Any:
        if isinstance(body, list):
            return [spoil(*both) for both in zip(body, reply, strict=True)]
        if method not in body["method"]:
            return reply
        if not method.startswith("eth_getBlock"):
            return reply_of(body, value)
        changed = reply["result"] | value
        return reply_of(body, with_hash(changed) if "number" in value else changed)

    return spoil


def balance(rpc: RpcClient) -> int:
    return rpc.balance(ALICE)


def balances(rpc: RpcClient) -> list[int]:
    return rpc.answers([questions.balance(ALICE)] * 5)


def slot(rpc: RpcClient) -> int:
    return rpc.storages([(CONTRACT, 1, "latest")])[0]


def prove(rpc: RpcClient) -> VerifiedAccountProof:
    header = rpc.known_header(1)
    return result(rpc.proofs([ProofRequest(1, header.hash, header.state_root, ALICE, [1])])[0])


def call(rpc: RpcClient) -> bytes:
    return rpc.eth_call(CONTRACT, b"")


def estimate(rpc: RpcClient) -> int:
    return rpc.estimate_gas(ALICE, BOB, b"", least=OSAKA.call)


def logs(rpc: RpcClient) -> Any:
    return rpc.logs(CONTRACT, [b"\1" * 32], 5, 6)


NO_ID = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no such thing"}}).encode()
NO_STATE = json.dumps(
    {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "Archive requests require a personal token"}}
).encode()
LOG: dict[str, Any] = {
    "address": CONTRACT,
    "blockNumber": "0x5",
    "topics": ["0x" + "01" * 32, "0x" + "02" * 32],
    "data": "0x",
}
RECEIPT = {
    "transactionHash": "0x" + "01" * 32,
    "blockNumber": "0x1",
    "blockHash": "0x" + "02" * 32,
    "status": "0x1",
    "gasUsed": "0x5208",
    "effectiveGasPrice": "0x1",
    "contractAddress": None,
    "from": ALICE,
}
OTHER = "0x" + "ab" * 32
NO_QUANTITIES = (None, 1, "1", "0x", "0xzz", "-0x1", "0x" + "1" * 65, ["0x1"])
NO_HEADERS = ({"stateRoot": OTHER}, {"timestamp": "0x1"}, {"hash": OTHER}, {"withdrawalsRoot": None})
NO_LOGS: list[tuple[dict[str, Any], str]] = [
    ({"address": BOB}, "another contract's log"),
    ({"blockNumber": "0x4"}, "other logs"),
    ({"blockNumber": "0x7"}, "other logs"),
    ({"topics": ["0x" + "02" * 32]}, "other logs"),
    ({"topics": []}, "other logs"),
    ({"topics": None}, "other logs"),
    ({"topics": "0x"}, "something that is no JSON list"),
    ({"topics": ["0x01"]}, "1 bytes instead of 32"),
    ({"data": None}, "data that is not hexadecimal"),
    ({"blockNumber": None}, "a quantity that is not hexadecimal"),
]
NO_PROOFS: list[Any] = [
    None,
    [],
    {"accountProof": None, "storageProof": [{"key": "0x1", "proof": []}]},
    {"accountProof": [], "storageProof": None},
    {"accountProof": ["0x1"], "storageProof": [{"key": "0x1", "proof": []}]},
    {"accountProof": [], "storageProof": []},
    {"accountProof": [], "storageProof": [{"key": "0x2", "proof": []}]},
    {"accountProof": [], "storageProof": [{"key": "0x1", "proof": []}, {"key": "0x1", "proof": []}]},
    {"accountProof": [], "storageProof": [{"key": "0x1"}]},
    {"accountProof": [], "storageProof": ["0x1"]},
]
REPLIES_AMISS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda replies: replies[1:], "without a reply"),
    (lambda replies: [replies[0], *replies], "belongs to no request"),
    (lambda replies: [*replies[1:], {**replies[0], "id": 10**9}], "belongs to no request"),
    (lambda replies: [*replies[1:], {**replies[0], "id": f"0x{replies[0]['id']:x}"}], "belongs to no request"),
    (lambda replies: [*replies[1:], {**replies[0], "id": float(replies[0]["id"])}], "belongs to no request"),
    (lambda replies: [*replies[1:], {**replies[0], "id": None}], "belongs to no request"),
    (lambda replies: [*replies[1:], "reply"], "belongs to no request"),
    (lambda replies: [*replies[1:], {"id": replies[0]["id"], "error": 5}], "neither a result nor an error"),
    # status-im/status-go 361 leaves a result of null out.
    (lambda replies: [*replies[1:], {"id": replies[0]["id"]}], "a quantity that is not hexadecimal"),
]

TABLE: list[tuple[Spoil, Callable[[RpcClient], Any], type[ChainError], str]] = [
    # HTTP and JSON
    (raw(status=429), call, NodeUnavailable, "HTTP status 429"),
    (raw(status=401), call, NodeUnavailable, "HTTP status 401"),
    (raw(status=301, headers={"Location": "/elsewhere"}), call, NodeUnavailable, "HTTP status 301"),
    (raw(b"<html>"), call, NodeUnavailable, "not JSON"),
    (raw(b""), call, NodeUnavailable, "not JSON"),
    (raw(b"[" * 15_000), call, NodeUnavailable, "not JSON"),
    # Python's limit on nested JSON depends on the version. From 3.12 on, it is above the recursion limit.
    (raw(b"[" * 5000 + b"]" * 5000), call, InvalidReply, "nested too deeply|belongs to no request|not JSON"),
    (raw(b"1"), call, NodeUnavailable, "belongs to no request"),
    (raw(b"[]"), call, NodeUnavailable, "without a reply"),
    (raw(b"{}"), call, NodeUnavailable, "belongs to no request"),
    (raw(b"x", headers={"Content-Length": "100"}), call, NodeUnavailable, "can't be reached|broke off"),
    *(
        (
            lambda _, replies, spoil=spoil: spoil(replies if isinstance(replies, list) else [replies]),
            balances,
            InvalidReply,
            words,
        )
        for spoil, words in REPLIES_AMISS
    ),
    # Refusals with an HTTP status, from publicnode, dRPC, Alchemy, and a proxy whose node is down
    (raw(NO_STATE, 403), prove, RpcRefused, "Archive requests"),
    (raw(NO_STATE, 500), prove, RpcRefused, "Archive requests"),
    (
        raw(b'{"message": "capacity limit exceeded for your plan"}', 403),
        call,
        NodeUnavailable,
        "403; the node said: “capa",
    ),
    *(
        (raw(json.dumps(told).encode(), status), call, ChainError, "the node said: “the key is disabled")
        for told in (
            {"detail": "the key is disabled"},
            {"errors": [{"message": "the key is disabled"}]},
            {"error": {"error": {"message": "the key is disabled"}}},
            {"error": "the key is disabled"},
        )
        for status in (400, 401, 403)
    ),
    (raw(b"<html>Too Many Requests</html>", 503), call, NodeUnavailable, "503; the node said: “<html>Too Many"),
    *(
        (raw(words, status), call, NodeUnavailable, f"{status}; the node said: “{words.decode()[:13]}")
        for status, words in REFUSED_HTTP.values()
    ),
    (raw(NO_ID, 502), call, NodeUnavailable, "HTTP status 502"),
    *(
        (raw(b'{"error": "Internal Server Error"}', status), prove, NodeUnavailable, f"HTTP status {status}")
        for status in (403, 404, 500)
    ),
    (told(None, "eth_getProof"), prove, UnverifiedProof, "no proof of 0x"),
    # Refusals as JSON-RPC errors
    (refused(-32005, "daily request count exceeded"), call, NodeUnavailable, "limits our requests"),
    (refused(-32000, "Your app has exceeded its compute units per second capacity"), call, NodeUnavailable, "limits"),
    (raw(NO_ID), call, RpcRefused, "no such thing"),
    (raw(NO_ID, 400), call, RpcRefused, "no such thing"),
    (refused(*REFUSALS["a block number to come"]), call, RpcRefused, "header not found"),
    (refused(*REFUSALS["an old state"]), prove, RpcRefused, "historical state"),
    (refused(3, "execution reverted", "0x1234"), call, Reverted, "execution reverted"),
    (refused(3, "execution reverted", "0x1234"), estimate, Reverted, "execution reverted"),
    (refused(*REFUSALS["an estimate without funds"]), estimate, RpcRefused, "insufficient funds"),
    # Invalid values and lies
    *((told(reply), balance, InvalidReply, "that is not hexadecimal") for reply in NO_QUANTITIES),
    *((told(reply), slot, InvalidReply, "eth_getStorageAt") for reply in (None, 1, "0x1", "1", "0x" + "00" * 33)),
    *((told([LOG | changes]), logs, InvalidReply, words) for changes, words in NO_LOGS),
    *((told(reply, "eth_getProof"), prove, InvalidReply, "eth_getProof") for reply in NO_PROOFS),
    (told("0x0"), estimate, ImplausibleGas, "0 gas for what takes 21000 at least"),
    (told(hex(20_999)), estimate, ImplausibleGas, "20999 gas"),
    (
        told({"baseFeePerGas": [hex(2**255)]}, "eth_feeHistory"),
        lambda rpc: rpc.answer(questions.base_fee(1)),
        InvalidReply,
        "an impossibly high price",
    ),
    (told(hex(2**63)), lambda rpc: rpc.nonce(ALICE), InvalidReply, "an impossibly high nonce"),
    (
        told({"number": hex(2**63)}, "eth_getBlock"),
        lambda rpc: rpc.head(),
        InvalidReply,
        "an impossibly high block number",
    ),
    (told({"hash": None}, "eth_getBlock"), lambda rpc: rpc.head(), InvalidReply, "not hexadecimal"),
    (told({"number": "latest"}), lambda rpc: rpc.head(), InvalidReply, "not hexadecimal"),
    # The node serves no raw header, from which the service could compute the hash.
    *((told(reply, "eth_getBlock"), lambda rpc: rpc.head(), NodeUnavailable, "give its hash") for reply in NO_HEADERS),
    (told({"number": "0x1"}, "eth_getBlock"), lambda rpc: rpc.header(2), InvalidReply, "another block"),
    (told({"number": "0x1"}, "eth_getBlock"), lambda rpc: rpc.headers([2]), InvalidReply, "another block"),
    (
        told({"number": "0x1"}, "eth_getBlockByHash"),
        lambda rpc: rpc.answer(questions.header_by_hash(rpc.known_header(2).hash)),
        InvalidReply,
        "another block",
    ),
    (
        told(RECEIPT),
        lambda rpc: rpc.answer(questions.receipt(b"\2" * 32)),
        InvalidReply,
        "another transaction's receipt",
    ),
    (
        told(OTHER, "eth_sendRawTransaction"),
        lambda rpc: send(rpc, signed(0, key=ACCOUNTS[3][1])),
        InvalidReply,
        "another transaction's hash",
    ),
]


devchain = chain_fixture(lambda chain: chain.mine(8))


@pytest.mark.parametrize(("spoil", "question", "kind", "words"), TABLE)
def test_an_answer_spoiled_by_one_node_is_got_from_another(devchain, client_of, spoil, question, kind, words):
    with spoiling(devchain.url, spoil) as url:
        with pytest.raises(kind) as caught:
            question(client_of(url))
        assert re.search(words, caught.value.for_operators)
        assert not getattr(caught.value, "may_pass", False)
        assert question(client_of(url, devchain.url)) == question(client_of(devchain.url))


def in_strings(body: Any, reply: Any) -> Any:
    return (
        [entry | {"id": str(entry["id"])} for entry in reply]
        if isinstance(reply, list)
        else reply | {"id": str(reply["id"])}
    )


def packed(pack: Callable[[bytes], bytes], name: str) -> Spoil:
    return lambda _, reply: Raw(pack(json.dumps(reply).encode()), headers={"Content-Encoding": name})


FORMS: dict[str, Spoil] = {
    "ids as strings": in_strings,
    "gzip that was not asked for": packed(gzip.compress, "gzip"),
    "deflate": packed(zlib.compress, "deflate"),
}


@pytest.mark.parametrize("spoil", FORMS.values(), ids=FORMS)
def test_an_answer_in_an_odd_form_is_read(devchain, client_of, spoil):
    with spoiling(devchain.url, spoil) as url:
        client = client_of(url)
        for question in (balance, balances, call, logs, prove):
            assert question(client) == question(client_of(devchain.url))
        assert not client.resting_nodes()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("location", ["/elsewhere", "elsewhere", "http://{host}/elsewhere"])
def test_a_redirect_within_the_host_is_followed(devchain, client_of, status, location):
    bodies: list[Any] = []

    def redirect(body: Any) -> Any:
        bodies.append(body)
        to = location.format(host=url.removeprefix("http://").rstrip("/"))
        return Raw(status=status, headers={"Location": to}) if len(bodies) % 2 else ask(devchain.url, body)

    with lying_node(redirect) as url:
        assert balances(client_of(url)) == balances(client_of(devchain.url))
    assert bodies[::2] == bodies[1::2]


def test_a_node_that_refuses_python_answers(devchain, client_of):
    with lying_node(lambda body: ask(devchain.url, body), "Python") as url:
        assert balance(client_of(url)) == balance(client_of(devchain.url))


def test_no_other_node_is_waited_for_where_honest_nodes_say_that_a_call_reverts(devchain, client_of):
    seen: list[Any] = []
    with (
        spoiling(devchain.url, refused(*REFUSALS["a revert"])) as url,
        lying_node(recording(seen, lambda body: ask(devchain.url, body))) as other,
    ):
        client = client_of(url, other)
        (answer,) = client.eth_calls([(ALICE, b"")])
        assert isinstance(answer, Reverted)
        with pytest.raises(Reverted):
            client.estimate_gas(ALICE, ALICE, b"", "latest")
        assert seen == []


def test_a_refusal_may_pass_if_the_other_node_gave_no_usable_answer(devchain, client_of):
    nonsense = told(None)
    with spoiling(devchain.url, refused(-32000, "not here")) as first, spoiling(devchain.url, nonsense) as second:
        for other in (DEAD, second):
            with pytest.raises(RpcRefused) as caught:
                client_of(first, other).balance(ALICE)
            assert caught.value.may_pass


@pytest.mark.parametrize(
    "refusal",
    [REFUSALS["a call that takes too long"], REFUSALS["a time-out"], (-32000, "execution timed out")],
)
def test_a_refusal_may_pass_if_the_node_ran_out_of_time(devchain, client_of, refusal):
    late, unable = refused(*refusal), refused(-32000, "missing trie node")
    with spoiling(devchain.url, unable) as first, spoiling(devchain.url, late) as second:
        for urls in ([second], [first, second], [second, first]):
            client = client_of(*urls)
            with pytest.raises(RpcRefused) as caught:
                call(client)
            assert caught.value.may_pass
            assert not client.resting_nodes()


@pytest.mark.geth
def test_a_call_that_geth_aborts_for_want_of_time_may_pass(client_of):
    endless = {"data": "0x5b5f56"}
    with DrivenGeth(CHAIN_ID, flags=["--rpc.evmtimeout=1ms"]) as node:
        client = client_of(node.url, chain_id=CHAIN_ID)
        with pytest.raises(RpcRefused) as caught:
            client.call("eth_call", endless, "latest")
        assert (caught.value.code, caught.value.message) == REFUSALS["a call that takes too long"]
        assert caught.value.may_pass
        assert not client.resting_nodes()


# --- Several questions, each with its own answer ----------------------------------------------------------------------


def every(code: int, message: str) -> Callable[[list[Any]], Any]:
    return lambda asked: [error(request, code, message) for request in asked]


def after(answered: int, code: int, message: str) -> Callable[[list[Any]], Any]:
    """Answer the first requests of a batch, and refuse the others."""
    return lambda asked: [
        *(reply_of(request, request["params"][0]) for request in asked[:answered]),
        *every(code, message)(asked[answered:]),
    ]


def no_id(code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


# Nodes' answers to a batch that is too large.
TOO_LARGE: dict[str, Callable[[list[Any]], Any]] = {
    # Also op-geth, bor, bsc, coreth, and Erigon since its pull 18260
    "geth, the first": lambda asked: [error(asked[0], *REFUSALS["a batch of too many requests"])],
    "geth, bytes": after(3, *REFUSALS["a batch of too long answers"]),
    "geth, seconds": after(3, *REFUSALS["a time-out"]),
    "the first, without its id": lambda _: [no_id(-32600, "batch too large")],
    # Wording that the service doesn't know
    "the first, in other words": lambda asked: [error(asked[0], -32000, "no")],
    "each, in other words": every(-32000, "no"),
    # base/node issue 234
    "base": lambda _: no_id(-32600, "batch too large"),
    # paritytech/jsonrpsee pull 1107
    "jsonrpsee": lambda _: no_id(-32010, "The batch request was too large"),
    # besu issue 4951
    "besu": every(-32602, "Number of requests in batch exceeds --rpc-max-batch-size."),
    # AcalaNetwork/bodhi.js pull 383
    "bodhi": lambda _: {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Exceeded maximum batch size 10"}},
    # dRPC, as its users report it. The message names a plan, but it isn't about a quota.
    "drpc": lambda _: Raw(
        json.dumps(no_id(31, "Batch of more than 3 requests are not allowed on free plan")).encode(), 500
    ),
    "drpc, each": every(31, "Batch of more than 3 requests are not allowed on free tier, please upgrade"),
    "a short reply": lambda asked: [reply_of(request, request["params"][0]) for request in asked[:3]],
    "one reply": lambda asked: reply_of(asked[0], asked[0]["params"][0]),
    "an empty list": lambda _: [],
    # erigon issue 18074
    "erigon drops the connection": lambda _: Raw(headers={"Content-Length": "100"}),
    "a proxy, 413": lambda _: Raw(b"<html>Request Entity Too Large</html>", 413),
    "a proxy, 400": lambda _: Raw(b'"too big"', 400),
    "a proxy, 403": lambda _: Raw(b'{"message": "Batch requests are not allowed."}', 403),
    "a proxy, 503": lambda _: Raw(b"<html>503 Service Temporarily Unavailable</html>", 503),
    "a proxy, 502": lambda _: Raw(b"", 502),
    "other JSON": lambda _: {"message": "too many"},
    "an error of words": lambda _: {"error": "too many"},
    "text": lambda _: "too many",
    "nothing": lambda _: Raw(b""),
}


class Echoing:
    """A node that returns the first parameter of each request, and records all requests but those for the chain id."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.hangs: Callable[[list[Any]], bool] = lambda _: False
        """A function that returns whether these requests get no answer."""
        self.most = 1000
        """Maximum number of requests in a batch."""
        self.too_large = TOO_LARGE["base"]
        """A function that returns the answer to a larger batch."""
        self.spoils: dict[Any, Callable[[Any], Any]] = {}
        """Other answers by the first parameter; None leaves the reply out."""
        self.chain_id = "0x7a69"
        self.status = 200
        """Any other status is a failure."""
        self.headers: dict[str, str] = {}
        """The headers of a failure."""
        self.refuses: Any = None
        """The JSON-RPC error with which everything is refused, the chain id too."""
        self.tells_chain = True
        """True if the node answers the chain id even while it fails."""
        self.now = 0.0
        self.over = threading.Event()

    def __call__(self, body: Any) -> Any:
        if is_chain_id(body) and self.tells_chain and not self.refuses:
            return reply_of(body, self.chain_id)
        questions_asked = body if isinstance(body, list) else [body]
        self.sizes.append(len(questions_asked))
        if self.hangs(questions_asked):
            self.over.wait(20)
        if self.status != 200:
            return Raw(status=self.status, headers=self.headers)
        if self.refuses:
            replies = [{"jsonrpc": "2.0", "id": question["id"], "error": self.refuses} for question in questions_asked]
            return replies if isinstance(body, list) else replies[0]
        if len(questions_asked) > self.most:
            return self.too_large(questions_asked)
        # JSON-RPC allows replies in any order.
        answers = [answer for answer in map(self._answer, reversed(questions_asked)) if answer]
        if failure := next((reply for reply in answers if isinstance(reply, Raw)), None):
            return failure
        return answers if isinstance(body, list) or not answers else answers[0]

    def _answer(self, question: Any) -> Any:
        value = question["params"][0]
        spoil = self.spoils.get(value)
        return spoil(question) if spoil else reply_of(question, value)

    def count(self) -> list[int]:
        """Return the sizes of requests received since the last call."""
        sizes, self.sizes = self.sizes, []
        return sizes


@pytest.fixture
def nodes(client_of) -> Iterator[Callable[..., RpcClient]]:
    """Return a function that starts nodes and returns their client. The client uses the first node's clock."""
    with ExitStack() as running:

        def start(*some: Echoing) -> RpcClient:
            urls = [running.enter_context(lying_node(node)) for node in some]
            for node in some:
                running.callback(node.over.set)
            rpc: RpcClient = client_of(*urls, timeout_seconds=TIMEOUT, clock=lambda: some[0].now)
            return rpc

        yield start


def echoes(values: range | list[int]) -> list[Question[Any]]:
    return [questions.plain("echo", value) for value in values]


def failed(answers: list[Any]) -> dict[int, str]:
    """Return the errors of unanswered questions by the question's index."""
    return {n: str(answer) for n, answer in enumerate(answers) if isinstance(answer, ChainError)}


@pytest.mark.long("1", "other JSON", "each, in other words")
@pytest.mark.parametrize(
    ("form", "most"),
    [*((form, 7) for form in TOO_LARGE.values()), (TOO_LARGE["geth, the first"], 25), (TOO_LARGE["a proxy, 403"], 1)],
    ids=[*TOO_LARGE, "25", "1"],
)
def test_batches_are_bounded_and_smaller_for_ten_minutes_where_a_node_takes_less(nodes, form, most):
    node = Echoing()
    node.most, node.too_large = most, form
    client = nodes(node)
    assert client.answers(echoes(range(210))) == list(range(210))
    assert max(node.count()) == 50
    node.now = 599
    assert client.answers(echoes(range(100))) == list(range(100))
    assert max(node.count()) <= most
    node.now = 700
    assert client.answers(echoes(range(100))) == list(range(100))
    assert max(node.count()) == 50
    assert client.ask([]) == []


@pytest.mark.long
def test_a_node_that_limits_the_requests_in_batches_is_sent_fewer_after_its_rest(nodes):
    """Providers count each request of a batch, so a full batch may exceed the limit per second at every try."""
    node = Echoing()
    node.most, node.too_large = 10, every(-32007, "50/second request limit reached")
    client = nodes(node)
    for node.now in range(0, 12, 4):
        assert len(failed(client.ask(echoes(range(100))))) == 100
    node.now = 60
    assert client.answers(echoes(range(100))) == list(range(100))
    assert max(node.count()) == 50
    node.most = 1
    for node.now in range(100, 300, 40):
        client.ask(echoes(range(100)))
    assert client.answers(echoes(range(100))) == list(range(100))


def test_a_node_that_answers_nothing_is_asked_few_times(nodes):
    node = Echoing()
    node.status = 502
    assert len(failed(nodes(node).ask(echoes(range(500))))) == 500
    assert len(node.count()) == 8, "four batches, and two requests that come alone beside two batches"


def test_a_page_waits_only_so_long_for_a_node_that_takes_no_batches(client_of):
    node = Echoing()
    node.most = 1
    with lying_node(node) as url:
        answers = client_of(url, ask_seconds=0).ask(echoes(range(200)))
    assert len(failed(answers)) == 200
    assert len(node.sizes) <= 8


def test_questions_refused_alike_are_asked_once_more_alone_and_not_each(nodes):
    def refuse(request: Any) -> Any:
        return error(request, *no_state(f"{request['params'][0]:064x}"))

    node = Echoing()
    node.spoils = dict.fromkeys(range(100), refuse)
    assert all(isinstance(answer, RpcRefused) for answer in nodes(node).ask(echoes(range(100))))
    assert sorted(node.count()) == [1, 1, 50, 50]


@pytest.mark.long
def test_many_threads_may_share_a_client(client_of):
    with lying_node(Echoing()) as url, ThreadPoolExecutor(8) as pool:
        client = client_of(url)
        batches = list(pool.map(lambda _: client.answers(echoes(range(60))), range(24)))
    assert batches == [list(range(60))] * 24


def test_methods_are_mixed_in_one_exchange(nodes):
    node = Echoing()
    node.spoils["0x1"] = lambda question: reply_of(question, "nonsense")
    of_balance, codes = nodes(node).ask([questions.balance("0x1"), questions.balance("0x2")], [questions.code("0x03")])
    assert isinstance(of_balance[0], NodeUnavailable)
    assert (of_balance[1], codes) == (2, [b"\x03"])
    assert node.sizes == [3]


def test_questions_answered_by_one_node_are_not_asked_of_the_next(nodes):
    node, other = Echoing(), Echoing()
    node.spoils = dict.fromkeys(range(0, 10, 2), lambda question: error(question, -32000, "not here"))
    assert nodes(node, other).answers(echoes(range(10))) == list(range(10))
    assert other.sizes == [5]


@pytest.mark.long
def test_a_node_too_slow_for_all_at_once_is_asked_for_fewer(nodes):
    node = Echoing()
    node.hangs = lambda asked: len(asked) > 25
    assert nodes(node).answers(echoes(range(64))) == list(range(64))
    assert sorted(node.sizes) == [14, 25, 25, 50]


@pytest.mark.long
def test_a_node_that_hangs_is_waited_for_twice_whatever_is_asked(nodes):
    node = Echoing()
    node.hangs = lambda _: True
    rpc = nodes(node)
    assert len(failed(rpc.ask(echoes(range(100))))) == 100
    assert sorted(node.count()) == [25, 25, 25, 25, 50, 50]
    node.tells_chain, node.status = False, 503
    node.hangs = lambda _: False
    for _ in range(2):
        assert len(failed(rpc.ask(echoes(range(64))))) == 64
    assert node.count() == [1], "it tells no chain id either, and has just failed"


@pytest.mark.long
def test_one_request_that_hangs_is_the_loss_of_its_question(nodes):
    node = Echoing()
    node.hangs = lambda asked: any(question["params"][0] == 3 for question in asked)
    outcomes = nodes(node).ask(echoes(range(64)))
    assert list(failed(outcomes)) == [3]
    assert "did not answer echo within" in failed(outcomes)[3]


@pytest.mark.long
def test_requests_of_a_small_batch_that_hang_cost_two_timeouts_and_no_others(nodes):
    node = Echoing()
    node.hangs = lambda asked: any(question["params"][0] < 4 for question in asked)
    rpc = nodes(node)
    assert list(failed(rpc.ask(echoes(range(12))))) == [0, 1, 2, 3]
    assert node.count() == [12, *[1] * 12]
    # Requests that were sent at the same time count once.
    assert [silent.times for silent in rpc.unanswered().values()] == [2]


@pytest.mark.long
def test_a_request_that_hung_goes_alone_for_some_time_and_costs_one_timeout(nodes):
    node = Echoing()
    node.hangs = lambda asked: any(question["params"][0] == 3 for question in asked)
    rpc = nodes(node)
    rpc.ask(echoes(range(64)))
    node.count()
    outcomes = rpc.ask(echoes(range(64)))
    assert list(failed(outcomes)) == [3]
    assert sorted(node.count()) == [1, 13, 50]
    assert list(failed(rpc.ask(echoes([3, 3])))) == [0, 1]
    assert node.count() == [1, 1]
    # Answers to other requests don't end the report.
    assert rpc.answers(echoes([4])) == [4]
    assert [(method, silent.times) for (_, method), silent in rpc.unanswered().items()] == [("echo", 2)]
    node.hangs, node.now = lambda _: False, 1201
    assert rpc.answers(echoes(range(64))) == list(range(64))
    assert sorted(node.count()) == [1, 14, 50]
    assert not rpc.unanswered()


POISON: dict[str, Callable[[Any], Any]] = {
    "neither": lambda question: {"jsonrpc": "2.0", "id": question["id"], "error": 5},
    "in words": lambda question: {"jsonrpc": "2.0", "id": question["id"], "error": "no"},
    "missing": lambda _: None,
    "limit": lambda question: error(question, -32005, "project ID request rate exceeded"),
    "words": lambda question: error(question, -32000, "exceeded its compute units"),
    "long": lambda question: reply_of(question, "x" * 2000),
}


@pytest.mark.long("words-bad2-1", "long-bad2-1000")
@pytest.mark.parametrize("most", [1000, 1])
@pytest.mark.parametrize("bad", [(3,), (3, 4, 5), tuple(range(15))])
@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_a_bad_answer_is_the_loss_of_its_question_and_the_next_node_is_asked_for_it(
    nodes, monkeypatch, poison, bad, most
):
    monkeypatch.setattr("chains.nodes.chain_nodes.MAX_REPLY_BYTES", 1900)
    monkeypatch.setattr("chains.nodes.chain_nodes.LIMIT_PAUSE_SECONDS", 0)
    node, other = Echoing(), Echoing()
    node.most, node.spoils = most, dict.fromkeys(bad, poison)
    rpc = nodes(node)
    assert tuple(failed(rpc.ask(echoes(range(16))))) == bad
    # A node that has just failed is not asked, so the request is made in small parts until the node is used again.
    assert rpc.answers(echoes([20, 21])) == [20, 21]
    assert nodes(node, other).answers(echoes(range(16))) == list(range(16))
    assert other.sizes == [len(bad)]


@pytest.mark.long("one-<lambda>1")
@pytest.mark.parametrize("fails", [lambda _: reply_of({"id": 10**9}, 3), lambda _: Raw(status=502)])
@pytest.mark.parametrize("bad", [[3], range(0, 40, 5)], ids=["one", "every fifth"])
def test_a_question_that_spoils_a_whole_batch_loses_only_its_own_answer(nodes, fails, bad):
    node, other = Echoing(), Echoing()
    node.spoils = dict.fromkeys(bad, fails)
    client = nodes(node, other)
    assert client.answers(echoes(range(40))) == list(range(40))
    assert other.count() == [len(bad)]
    node.now, node.spoils = 100, {}
    node.count()
    assert client.answers(echoes(range(40))) == list(range(40))
    assert node.count() == [40], "one request is no reason for small batches"


@pytest.mark.long("200-<lambda>")
@pytest.mark.parametrize(
    ("questions", "answer"),
    [
        (2, lambda _: Raw(status=429)),
        (3, after(1, -32000, "context deadline exceeded")),
        (2, lambda asked: no_id(-32603, "internal error") if len(asked) > 1 else error(asked[0], -32000, "no")),
        (200, lambda asked: every(*REFUSALS["an old state"])(asked[1:] if len(asked) > 1 else asked)),
    ],
)
def test_no_accident_makes_batches_small(nodes, questions, answer):
    node = Echoing()
    node.most, node.too_large = 0, answer
    client = nodes(node)
    client.ask(echoes(range(questions)))
    node.now, node.most = 100, 1000
    node.count()
    assert client.answers(echoes(range(200))) == list(range(200))
    assert node.count() == [50] * 4


def test_a_node_that_answers_a_part_in_a_second_is_asked_for_the_rest_after_it(nodes, monkeypatch):
    """Alchemy counts each request of a batch, so it may answer one part of it now and the other a second later."""
    monkeypatch.setattr("chains.nodes.chain_nodes.LIMIT_PAUSE_SECONDS", 0)
    node = Echoing()
    node.most, node.too_large = 25, after(25, 429, "Your app has exceeded its compute units per second capacity")
    assert nodes(node).answers(echoes(range(40))) == list(range(40))
    assert node.count() == [40, 15]


# --- Nodes that rest --------------------------------------------------------------------------------------------------


def test_a_node_that_fails_is_passed_over_and_rests_longer_each_time(nodes):
    bad, good = Echoing(), Echoing()
    bad.status, bad.tells_chain = 503, False
    client = nodes(bad, good)
    for now, exchanges in ((0.0, 1), (0.9, 0), (1.5, 1), (3.0, 0), (3.6, 1)):
        bad.now = now
        assert client.call("echo", 1) == 1
        assert len(bad.count()) == exchanges, f"after {now} s"
    bad.now, bad.status, bad.tells_chain = 100, 200, True
    good.count()
    assert client.call("echo", 1) == 1
    assert (bad.count(), good.count()) == ([1], [])


def test_a_quota_lasts_so_that_the_node_rests_longer_each_time(nodes):
    """Each request is refused, in words that say nothing, and that for the chain id is the only one in a turn."""
    node = Echoing()
    client = nodes(node)
    node.refuses = error({"id": 1}, -32000, "no")["error"]
    asked = []
    for node.now in range(200):
        client.ask(echoes([1, 2, 3]))
        asked += [node.now] * len(node.count())
    assert asked == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    node.now, node.refuses = 300, None
    assert client.answers(echoes([1])) == [1]
    assert client.resting_nodes() == {}


@pytest.mark.parametrize(
    ("status", "told", "asked"),
    [
        (429, "30", [0, 30, 60, 90, 120, 150, 182]),
        (503, "30", [0, 30, 60, 90, 120, 150, 182]),
        (429, "100000", [0]),
        (429, "soon", [0, 1, 3, 7, 15, 31, 63, 123, 183]),
        (429, "Fri, 31 Dec 2100 23:59:59 GMT", [0]),
        (429, "Fri, 31 Dec 1999 23:59:59 GMT", [0, 1, 3, 7, 15, 31, 63, 123, 183]),
    ],
)
def test_retry_after_of_a_node_is_obeyed_up_to_ten_minutes(nodes, status, told, asked):
    node = Echoing()
    node.status, node.headers = status, {"Retry-After": told}
    client, times = nodes(node), []
    for node.now in range(200):
        with pytest.raises(NodeUnavailable, match=f"HTTP status {status}"):
            client.call("echo", 1)
        times += [node.now] * len(node.count())
    assert times == asked
    node.now, node.status = 600, 200
    assert client.call("echo", 1) == 1


def test_the_only_node_is_asked_even_while_it_should_rest_but_not_at_once(nodes):
    node = Echoing()
    node.status, node.tells_chain = 503, False
    client = nodes(node)
    for _ in range(3):
        with pytest.raises(NodeUnavailable, match="503"):
            client.call("echo", 1)
    assert node.count() == [1]
    node.now = FAIL_FAST_SECONDS + 1
    with pytest.raises(NodeUnavailable):
        client.call("echo", 1)
    assert node.count() == [1]
    node.now, node.status = 2 * node.now, 200
    node.tells_chain = True
    assert client.call("echo", 1) == 1


def test_no_error_or_representation_shows_a_url(client_of):
    with lying_node(lambda _: Raw(status=500)) as url:
        client = client_of(DEAD, f"{url}/secret-path?key=secret-key", "http://user:secret-word@127.0.0.1:1")
        with pytest.raises(NodeUnavailable) as caught:
            client.head()
    shown = "".join([repr(client), *traceback.format_exception(caught.value), repr(client._nodes.__dict__)])
    assert "127.0.0.1:1 can't be reached" in str(caught.value)
    assert "HTTP status 500" in str(caught.value)
    assert "secret" not in shown
    cause: BaseException | None = caught.value
    while cause is not None:
        assert "secret" not in str(cause)
        cause = cause.__cause__ or cause.__context__


# --- Nodes of another chain -------------------------------------------------------------------------------------------


def test_a_node_of_another_chain_is_never_used(nodes):
    node, other = Echoing(), Echoing()
    node.chain_id = "0x1"
    with pytest.raises(NodeOfWrongChain, match=r"is a node of chain 1, not of 31337\."):
        nodes(node).call("echo", 1)
    assert nodes(node, other).call("echo", 1) == 1
    assert node.sizes == []


@pytest.mark.parametrize(("status", "seconds"), [(503, FAIL_FAST_SECONDS + 1), (200, 59)])
def test_a_node_that_leads_to_another_chain_one_day_is_used_no_more(nodes, status, seconds):
    """The client checks the chain id after a failure, and at least once a minute."""
    node = Echoing()
    client = nodes(node)
    assert client.call("echo", 1) == 1
    if status != 200:
        node.status = status
        with pytest.raises(NodeUnavailable):
            client.call("echo", 1)
    node.now, node.status, node.chain_id = seconds, 200, "0x1"
    node.count()
    with pytest.raises(NodeOfWrongChain):
        client.call("echo", 1)
    assert node.count() == []


def test_every_node_is_asked_anew_for_its_chain_where_that_is_the_question(nodes):
    node = Echoing()
    client = nodes(node)
    assert client.wrong_chains() == {}
    node.chain_id = "0x1"
    (wrong,) = client.wrong_chains().values()
    assert str(wrong).endswith("is a node of chain 1, not of 31337")


def test_tell_all_skips_nodes_of_another_chain_and_nodes_that_rest(nodes):
    sent = signed(0)
    first, foreign, failing, last = (Echoing() for _ in range(4))
    for node in (first, foreign, failing, last):
        node.spoils[hex_data(sent)] = lambda question: reply_of(question, hex_data(keccak(sent)))
    foreign.chain_id, failing.status, failing.tells_chain = "0x1", 503, False
    client = nodes(first, foreign, failing, last)
    for _ in range(2):
        client.tell_all(questions.raw_transaction(sent))
        assert send(client, sent) == keccak(sent)
    # The first node also answers the question about the transaction's result. The failing node's request was for its
    # chain id.
    assert [len(node.sizes) for node in (first, foreign, failing, last)] == [4, 0, 1, 2]


def test_each_node_is_asked_by_itself_where_there_are_two_that_answer(nodes):
    first, failing, last = (Echoing() for _ in range(3))
    failing.status, failing.tells_chain = 503, False
    last.spoils[1] = lambda question: reply_of(question, 100)
    assert nodes(first).ask_each(echoes([1])) == {}
    assert first.count() == [], "there is nothing to compare"
    client = nodes(first, failing, last)
    assert list(client.ask_each(echoes([1, 2])).values()) == [[1, 2], [100, 2]]
    assert [node.count() for node in (first, failing, last)] == [[2], [1], [2]]
    last.spoils[3] = lambda question: {"id": question["id"], "error": 5}
    client.ask_each(echoes([3]))
    assert len(client.resting_nodes()) == 2
    assert list(client.answers_of_each(echoes([1])[0]).values()) == [1, 100], (
        "it rests for a bad answer, and isn't down"
    )
    assert list(client.answers_of_each(echoes([3])[0]).values()) == [3], "the other one has no answer"


def test_a_node_that_others_show_to_be_wrong_rests_for_a_minute_though_it_answers(nodes):
    wrong, good = Echoing(), Echoing()
    client = nodes(wrong, good)
    host = next(iter(client.ask_each(echoes([1]))))
    client.rest(host, f"{host} is wrong")
    assert {at: str(fault) for at, fault in client.resting_nodes().items()} == {host: f"{host} is wrong"}
    assert client.ask_each(echoes([1])) == {}
    for wrong.now in (0, 59, 61):
        client.answers(echoes([1]))
    assert (wrong.count(), good.count()) == ([1, 1], [1, 1, 1])  # the first are those of the comparison
    client.rest(host, f"{host} is wrong")
    good.spoils[2] = lambda question: error(question, -32601, "no such method")
    assert client.answers(echoes([2])) == [2], "it is asked where the other one refuses"
    assert {at: str(fault) for at, fault in client.resting_nodes().items()} == {host: f"{host} is wrong"}


# --- Nodes that know less ---------------------------------------------------------------------------------------------

# Messages of EthereumJS and ganache, and of EthereumJS and geth.
NO_BLOCK_HASH = [(-32602, "invalid argument 2: argument must be a string"), (-32700, 'Cannot wrap a "object"')]
NO_PENDING = [(-32602, '"pending" is not yet supported'), REFUSALS["no pending block"]]


@pytest.mark.parametrize(("code", "message"), NO_BLOCK_HASH)
def test_a_node_that_takes_no_block_hash_is_asked_by_number_and_for_ten_minutes_no_more_by_hash(
    devchain, client_of, code, message
):
    now = 0.0
    blocks: list[Any] = []

    def spoil(body: Any, reply: Any) -> Any:
        if body["method"] != "eth_getProof":
            return reply
        blocks.append("hash" if isinstance(body["params"][2], dict) else "number")
        return error(body, code, message) if blocks[-1] == "hash" else reply

    with spoiling(devchain.url, spoil) as url:
        client = client_of(url, clock=lambda: now)
        for now, expected in ((0.0, ["hash", "number"]), (599.0, ["number"]), (601.0, ["hash", "number"])):  # noqa: B007
            blocks.clear()
            assert isinstance(prove(client), VerifiedAccountProof)
            assert blocks == expected


def test_a_block_that_a_node_lacks_is_not_asked_for_by_number(devchain, client_of):
    """The node's block of that number is another one, so its proof would be useless."""
    node_requests: list[Any] = []
    with lying_node(recording(node_requests, lambda body: ask(devchain.url, body))) as url:
        client = client_of(url)
        for block_hash in (b"\1" * 32, b"\2" * 32):
            (proof,) = client.proofs([ProofRequest(0, block_hash, bytes(32), ALICE)])
            assert isinstance(proof, RpcRefused)
            assert not proof.may_pass
    blocks = [body["params"][2] for body in node_requests if not is_chain_id(body)]
    assert blocks == [{"blockHash": "0x" + "01" * 32}, {"blockHash": "0x" + "02" * 32}]


@pytest.mark.parametrize(("code", "message"), NO_PENDING)
def test_a_node_without_a_pending_block_is_asked_for_the_latest_and_another_for_its_own(
    devchain, client_of, code, message
):
    calls: list[Any] = []

    def spoil(body: Any, reply: Any) -> Any:
        if isinstance(body, list):
            return [spoil(*both) for both in zip(body, reply, strict=True)]
        calls.append((body["method"], body["params"][1]))
        return error(body, code, message) if body["params"][1] == "pending" else reply

    with spoiling(devchain.url, spoil) as url:
        client = client_of(url)
        assert not client.asks_latest_for_pending
        assert [estimate(client) for _ in range(2)] == [21_000, 21_000]
        assert client.asks_latest_for_pending
        assert [client.eth_call(BOB, b"", "pending") for _ in range(2)] == [b"", b""]
        assert client.eth_calls([(BOB, b""), (ALICE, b"")], "pending") == [b"", b""]
    assert calls == [
        *(("eth_estimateGas", block) for block in ("pending", "latest", "latest")),
        *(("eth_call", block) for block in ("pending", *["latest"] * 4)),
    ]
    other = client_of(devchain.url)
    assert estimate(other) == 21_000
    assert not other.asks_latest_for_pending


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (REFUSALS["an estimate above the limit"], RpcRefused),
        ((3, "execution reverted: a change is pending", "0x12"), Reverted),
    ],
)
def test_a_call_refused_only_at_the_pending_block_is_refused(devchain, client_of, refusal, kind):
    """The latest block may lack the changes that the call needs, or the change that prevents it."""
    blocks: list[Any] = []

    def spoil(body: Any, _: Any) -> Any:
        blocks.append(body["params"][1])
        return error(body, *refusal)

    with spoiling(devchain.url, spoil) as url, pytest.raises(kind):
        client_of(url).eth_call(CONTRACT, b"", "pending")
    assert blocks == ["pending"]


def test_states_that_a_node_has_pruned_are_asked_of_the_next(client_of):
    with ExitStack() as running:
        same = "--timestamp", "1700000000"
        pruned, archive = (
            running.enter_context(DevChain(extra_args=(*same, *more))) for more in (("--prune-history", "5"), ())
        )
        for chain in (pruned, archive):
            # The chains' hashes are equal only if their blocks' times are equal, which must not depend on speed.
            chain.rpc("anvil_setBlockTimestampInterval", 1)
            chain.mine(20)
        assert isinstance(prove(client_of(pruned.url, archive.url)), VerifiedAccountProof)
        with pytest.raises(RpcRefused):
            prove(client_of(pruned.url))
