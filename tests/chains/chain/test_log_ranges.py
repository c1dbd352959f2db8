"""Logs are read however few blocks a node allows, and whatever it says to longer ranges."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from eth_account import Account

from chains.nodes import chain_nodes, questions
from chains.nodes.node_errors import ChainError, NodeUnavailable, RpcRefused
from chains.nodes.questions import Log
from chains.nodes.rpc import LogReader, RpcClient
from devnet.devchain import ACCOUNTS, DevChain
from tests.chain_fixtures import chain_fixture
from tests.chains import geth_answers
from tests.chains.lying_node import Raw, ask, error, is_chain_id, lying_node, recording
from tests.chains.transfers import ALICE, CONTRACT
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth, geth_fixture

HEAD = 700
# The code emits its calldata as a log without topics.
EMITTER = "0x365f5f37365fa000"
AT = (3, 300, 301, 650, 699)


def prepare(chain: DevChain) -> None:
    chain.rpc("anvil_setCode", CONTRACT, EMITTER)
    # A block that a transaction makes by itself may come after the head is read.
    chain.rpc("evm_setAutomine", False)
    for number in AT:
        chain.mine(number - 1 - chain.head())
        chain.rpc("eth_sendTransaction", {"from": ALICE, "to": CONTRACT, "data": hex(0xAA00 + number)})
        chain.mine()
    chain.mine(HEAD - chain.head())


devchain = chain_fixture(prepare)

Refusal = Callable[[Any], Any]


def in_json(status: int, *refusal: Any) -> Refusal:
    return lambda body: Raw(json.dumps(error(body, *refusal)).encode(), status)


def as_data(body: Any) -> Any:
    return error(body, -32602, "invalid params", "range 9009594 is bigger than range limit 2000")


# Reports in INFURA/infura 237, boundless-xyz/boundless 838, OffchainLabs/arbitrum-sdk 609, enviodev/hyperindex 605,
# bobanetwork/boba_legacy 827, base/base 2421, alpha-wallet-ios 5277; and of public nodes.
REFUSALS: dict[str, Refusal] = {
    "Infura": in_json(200, -32602, "range 1000000 exceeds limit of 10000"),
    "Infura, results": in_json(200, -32005, "query returned more than 10000 results"),
    "Alchemy": in_json(400, -32600, "You can make eth_getLogs requests with up to a 500 block range"),
    "QuickNode": in_json(413, -32614, "eth_getLogs is limited to a 10,000 range"),
    "Base": in_json(413, -32000, "no"),
    "Tenderly": as_data,
    "a plan": in_json(200, -32000, "exceeds the range allowed for your plan (50000 > 10000)"),
    "a tier": in_json(200, -32701, "Please upgrade your tier: monthly quota of blocks"),
    "in words of a limit of requests": in_json(200, -32000, "rate limit: too many requests per second"),
    "reth": in_json(200, -32602, "query exceeds max results 20000, retry with the range 25766988-25775072"),
    "geth": in_json(200, *geth_answers.REFUSALS["a long range of logs"]),
    "geth's time-out": in_json(200, *geth_answers.REFUSALS["a time-out"]),
    "words alone": lambda body: {"jsonrpc": "2.0", "id": body["id"], "error": "block range is too wide (maximum 1024)"},
    "no words": in_json(200, -32000, ""),
    "422": in_json(422, -32602, "unprocessable"),
    "500": in_json(500, -32603, "Internal error"),
    "a proxy's page, 413": lambda _: Raw(b"<html>Request Entity Too Large</html>", 413),
    "a proxy's page, 500": lambda _: Raw(b"<html>Internal Server Error</html>", 500),
    "another form, 400": lambda _: Raw(b'{"message": "block range too wide"}', 400),
}


class Bounded:
    """A node that refuses logs of more than so many blocks, or of any. It records the ranges."""

    def __init__(self, url: str, refuse: Refusal, most: int) -> None:
        self.most = most
        self.ranges: list[tuple[int, int]] = []
        self.refused = 0
        self.others = 0
        self._url = url
        self._refuse = refuse

    def __call__(self, body: Any) -> Any:
        if not isinstance(body, dict) or body["method"] != "eth_getLogs":
            self.others += 1
            return ask(self._url, body)
        first, last = (int(body["params"][0][name], 16) for name in ("fromBlock", "toBlock"))
        self.ranges.append((first, last))
        if last - first >= self.most:
            self.refused += 1
            return self._refuse(body)
        return ask(self._url, body)


@contextmanager
def bounded(url: str, refuse: Refusal, most: int) -> Iterator[tuple[Bounded, str]]:
    node = Bounded(url, refuse, most)
    with lying_node(node) as served:
        yield node, served


def read(rpc: RpcClient, first: int = 0, last: int = HEAD, requests: int = 100) -> list[Log]:
    return LogReader(rpc, CONTRACT, [], requests=requests).read_all(first, last)


@pytest.mark.parametrize("refuse", REFUSALS.values(), ids=REFUSALS)
def test_a_refused_range_is_asked_for_in_quarters_whatever_the_node_says(devchain, client_of, refuse):
    with bounded(devchain.url, refuse, most=100) as (node, url):
        rpc = client_of(url)
        assert [log.block_number for log in read(rpc)] == list(AT)
        assert node.refused <= 8
        assert not rpc.resting_nodes()
        node.refused = 0
        assert [log.block_number for log in read(rpc)] == list(AT)
        assert node.refused <= 2, "it has learned"
        asked = len(node.ranges)
        node.most = HEAD + 1
        for _ in range(4):
            read(rpc)
        node.ranges.clear()
        read(rpc)
        assert len(node.ranges) == 1 < asked, "ranges become longer while they are answered"


@pytest.mark.parametrize("refuse", [REFUSALS["Infura"], REFUSALS["Base"], REFUSALS["a proxy's page, 413"]])
def test_at_most_eight_ranges_are_refused_in_a_turn_and_the_next_turn_goes_on(devchain, client_of, refuse):
    with bounded(devchain.url, refuse, most=2) as (node, url):
        rpc = client_of(url)
        with pytest.raises(RpcRefused):
            read(rpc, 0, 10**6 - 1)
        assert (node.refused, len(node.ranges), node.others) == (8, 8, 1)
        assert [log.block_number for log in read(rpc, 290, 310)] == [300, 301]
        node.most, node.refused = 0, 0
        with pytest.raises(RpcRefused):
            read(rpc)
        assert node.refused <= 8


def test_a_node_without_the_method_is_asked_once(devchain, client_of):
    with bounded(devchain.url, in_json(200, -32601, "no such method"), most=0) as (node, url):
        with pytest.raises(RpcRefused):
            read(client_of(url))
        assert len(node.ranges) == 1


@pytest.mark.parametrize("status", [401, 403, 429, 502, 503, 504])
def test_no_answer_changes_no_range_and_rests_the_node(devchain, client_of, status):
    with bounded(devchain.url, in_json(status, -32000, "block range is too large"), most=100) as (node, url):
        rpc = client_of(url)
        for _ in range(2):
            with pytest.raises(NodeUnavailable):
                read(rpc)
        assert rpc.resting_nodes()
        assert {last - first for first, last in node.ranges} == {HEAD}
        assert rpc.log_range > HEAD


def test_a_silent_node_gets_one_request_whatever_the_others_refuse(devchain, client_of):
    asked: list[Any] = []
    silent = recording(asked, lambda _: Raw(status=504))
    with bounded(devchain.url, REFUSALS["Infura"], most=100) as (node, url), lying_node(silent) as first:
        assert [log.block_number for log in read(client_of(first, url, clock=lambda: 0.0))] == list(AT)
        assert 2 <= node.refused <= 8
        assert list(map(is_chain_id, asked)) == [True]


def test_a_long_answer_is_asked_for_in_quarters(devchain, client_of, monkeypatch):
    monkeypatch.setitem(chain_nodes._REPLY_BYTES, "eth_getLogs", 1000)
    assert [log.block_number for log in read(client_of(devchain.url))] == list(AT)


def test_a_long_answer_is_asked_for_in_quarters_while_another_node_is_down(devchain, client_of, monkeypatch):
    monkeypatch.setitem(chain_nodes._REPLY_BYTES, "eth_getLogs", 1000)
    assert [log.block_number for log in read(client_of("http://127.0.0.1:1", devchain.url))] == list(AT)


@pytest.mark.parametrize(("behind", "requests"), [(1, 2), (4, 2), (30, 5)])
def test_a_node_that_lacks_the_newest_blocks_does_not_shorten_later_ranges(devchain, client_of, behind, requests):
    """Nodes behind one URL differ. geth refuses a range that ends above its own newest block."""
    ends: list[int] = []

    def node(body: Any) -> Any:
        if body["method"] != "eth_getLogs":
            return ask(devchain.url, body)
        ends.append(int(body["params"][0]["toBlock"], 16))
        if ends[-1] > HEAD - behind:
            return error(body, *geth_answers.REFUSALS["logs above the head"])
        return ask(devchain.url, body)

    with lying_node(node) as url:
        rpc = client_of(url)
        before = rpc.log_range
        if behind <= 4:
            assert [log.block_number for log in read(rpc, 600)] == [650]
        else:
            with pytest.raises(RpcRefused):
                read(rpc, 600)
        assert len(ends) == requests
        assert rpc.log_range == before


def test_a_refused_range_below_others_leaves_no_block_out(devchain, client_of):
    """The node finds too much in a range that ends with block 650, which has a log."""

    def node(body: Any) -> Any:
        first, last = (
            (int(body["params"][0][name], 16) for name in ("fromBlock", "toBlock")) if is_logs(body) else (0, 0)
        )
        return error(body, -32000, "too much") if last == 650 and last - first > 12 else ask(devchain.url, body)

    with lying_node(node) as url:
        rpc = client_of(url)
        rpc.log_range = 50
        assert [log.block_number for log in read(rpc)] == list(AT)


def is_logs(body: Any) -> bool:
    return isinstance(body, dict) and body["method"] == "eth_getLogs"


def test_few_requests_leave_out_the_first_blocks(devchain, client_of):
    with bounded(devchain.url, REFUSALS["Infura"], most=200) as (_, url):
        assert [log.block_number for log in read(client_of(url), requests=3)] == [650, 699]


def test_a_quota_is_told_from_a_range_by_what_else_the_node_refuses(devchain, client_of):
    now, methods = 0.0, []

    def spent(body: Any) -> Any:
        methods.append(body["method"])
        if is_chain_id(body) and now == 0:
            return ask(devchain.url, body)
        return error(body, -32000, "call again next week")

    with lying_node(spent) as url:
        rpc = client_of(url, clock=lambda: now)
        assert rpc.ask([questions.plain("eth_chainId")]) == ["0x7a69"]
        now = 2.0
        with pytest.raises(ChainError) as caught:
            read(rpc)
        assert methods.count("eth_getLogs") == 1
        assert "refuses every request (-32000)" in str(caught.value)
        assert "call again next week" in caught.value.for_operators


# --- geth -------------------------------------------------------------------------------------------------------------


# The first contract of an account whose key everybody knows.
CREATED = "0x5FbDB2315678afecb367f032d93F642f64180aa3"


def send(node: DrivenGeth, nonce: int, **fields: Any) -> None:
    fees = {"gas": 200_000, "gasPrice": 10**10, "nonce": nonce, "chainId": CHAIN_ID}
    raw = Account.sign_transaction({"data": "0xaa", **fees, **fields}, ACCOUNTS[0][1]).raw_transaction
    node.rpc("eth_sendRawTransaction", raw.to_0x_hex())


def emit(node: DrivenGeth) -> None:
    """Create the emitter, and let it emit in three of sixty blocks."""
    send(node, 0, data=f"0x6008600c60003960086000f3{EMITTER[2:]}")
    node.mine()
    for nonce, blocks in enumerate((10, 1, 48), 1):
        send(node, nonce, to=CREATED)
        node.mine(blocks)


geth = geth_fixture(emit)
geth_of_5_blocks = geth_fixture(emit, flags=["--rpc.rangelimit=5"])


def emitted(rpc: RpcClient, last: int) -> list[int]:
    return [log.block_number for log in LogReader(rpc, CREATED, [], requests=100).read_all(0, last)]


@pytest.mark.geth
def test_logs_are_read_within_the_range_that_geth_allows(geth_of_5_blocks, client_of):
    node = geth_of_5_blocks
    rpc = client_of(node.url, chain_id=CHAIN_ID)
    assert len(emitted(rpc, node.head())) == 3
    assert 1 < rpc.log_range <= 6
    assert not rpc.resting_nodes()


@pytest.mark.geth
def test_a_range_that_ends_above_geth_s_head_does_not_shorten_later_ranges(geth, client_of):
    rpc = client_of(geth.url, chain_id=CHAIN_ID)
    before = rpc.log_range
    assert len(emitted(rpc, geth.head() + 3)) == 3
    with pytest.raises(RpcRefused) as refused:
        emitted(rpc, geth.head() + 30)
    assert refused.value.message == geth_answers.REFUSALS["logs above the head"][1]
    assert rpc.log_range == before
