"""geth refuses in the words that stand-ins repeat (tests/chains/geth_answers.py). A new release may have others."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
import requests
from eth_account import Account

from devnet.devchain import ACCOUNTS
from tests.chains import geth_answers
from tests.chains.lying_node import ask
from tests.factories import until
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth, geth_fixture

pytestmark = pytest.mark.geth

SOMEBODY, POOR = ACCOUNTS[0][0], "0x" + "77" * 20
UNKNOWN_HASH = "0x" + "12" * 32
REVERTING = {"to": "0x0000F90827F1C53a10cb7A02335B175320002935", "data": "0x" + "ff" * 32}
LOOPING, RETURNING_24_KB = {"data": "0x5b600056", "gas": hex(10**12)}, {"data": "0x6160006000f3"}
# An exit request needs this contract's code, without which no block can be built, not even the pending one.
EXITS = "0x00000961Ef480Eb55e80D19ad83579A64c007002"


class HurriedGeth(DrivenGeth):
    """Requests end after a second, the least that geth takes."""

    def _prepare(self) -> None:
        super()._prepare()
        with (self.folder / "config.toml").open("a") as config:
            config.write("[Node.HTTPTimeouts]\nWriteTimeout = 1000000000\n")


@pytest.fixture(scope="module")
def old() -> Iterator[DrivenGeth]:
    """Yield a chain that is longer than the states that geth keeps, with blocks too small for some transactions."""
    limits = ("rpc.rangelimit=5", "rpc.batch-request-limit=10", "rpc.batch-response-max-size=60000")
    flags = [f"--{flag}" for flag in (*limits, "rpc.http-body-limit=1")]
    with DrivenGeth(CHAIN_ID, gas_limit=10_000_000, flags=flags) as node:
        node.mine(130)
        yield node


@pytest.fixture(scope="module")
def hurried() -> Iterator[DrivenGeth]:
    with HurriedGeth(CHAIN_ID, flags=[f"--rpc.gascap={10**12}"]) as node:
        yield node


@pytest.fixture(scope="module")
def new() -> Iterator[DrivenGeth]:
    """Yield a chain that can make no block, and has no time for calls."""
    node = DrivenGeth(CHAIN_ID, flags=["--rpc.evmtimeout=1ms"])
    del node.genesis["alloc"][EXITS]
    with node:
        yield node


def delegate(node: DrivenGeth) -> None:
    """Let two accounts be delegated to a contract (EIP-7702). They have sent nothing."""
    contract = {"chainId": CHAIN_ID, "address": f"0x{0xC0DE:040x}", "nonce": 0}
    permissions = [Account.sign_authorization(contract, ACCOUNTS[place][1]) for place in DELEGATED]
    raw = signed(0, type=4, gas=200_000, authorizationList=permissions)
    node.rpc("eth_sendRawTransaction", raw)
    # geth may begin a block before its pool has taken a transaction over.
    while node.rpc("eth_getTransactionCount", SOMEBODY, "latest") == "0x0":
        node.mine()
    # The pool takes a block over later.
    until(lambda: "nonce too low" in str(ask(node.url, sending(raw))), "the pool's next nonce")


def fill(node: DrivenGeth) -> None:
    ask(node.url, sending(*map(rising, range(6))))


DELEGATED = 1, 2
LIMITS = [f"--txpool.{name}=1" for name in ("accountslots", "globalslots", "accountqueue", "globalqueue")]
delegated = geth_fixture(delegate, flags=["--txpool.nolocals"])
full = geth_fixture(fill, flags=["--txpool.nolocals", *LIMITS])
# Older blocks than this one count as pruned.
pruned = geth_fixture(flags=[f"--history.chain=1000:{UNKNOWN_HASH}"])


def signed(nonce: int, *, account: int = 0, **fields: Any) -> str:
    transaction = {"chainId": CHAIN_ID, "nonce": nonce, "to": SOMEBODY, "value": 1, "gas": 21_000, "data": "0x"}
    fees = {"maxFeePerGas": 10**10, "maxPriorityFeePerGas": 10**9}
    raw: str = Account.sign_transaction(transaction | fees | fields, ACCOUNTS[account][1]).raw_transaction.to_0x_hex()
    return raw


def rising(nonce: int) -> str:
    return signed(nonce, maxPriorityFeePerGas=10**9 + nonce)


def calling(method: str, *parameters: Any, times: int = 1) -> list[Any]:
    """Return a batch of equal requests."""
    return [{"jsonrpc": "2.0", "id": number, "method": method, "params": parameters} for number in range(times)]


def sending(*transactions: str) -> list[Any]:
    """Return a batch that sends transactions in order."""
    return [question for raw in transactions for question in calling("eth_sendRawTransaction", raw)]


BY_HASH = {"blockHash": UNKNOWN_HASH}
# The fixture, and a batch whose last reply is the refusal.
ASKED: Mapping[str, tuple[str, list[Any]]] = {
    "a block number to come": ("old", calling("eth_getBalance", SOMEBODY, "0xffff")),
    "an unknown block hash": ("old", calling("eth_getProof", SOMEBODY, [], BY_HASH)),
    "an old state": ("old", calling("eth_getProof", SOMEBODY, [], "0x1")),
    "a pruned block": ("pruned", calling("eth_getBlockByNumber", "0x5", False)),
    "no final block": ("new", calling("eth_getBlockByNumber", "finalized", False)),
    "no pending block": ("new", calling("eth_estimateGas", {"to": SOMEBODY}, "pending")),
    "transactions that are not indexed": ("new", calling("eth_getTransactionReceipt", UNKNOWN_HASH)),
    "a revert": ("old", calling("eth_estimateGas", REVERTING, "latest")),
    "an estimate without funds": (
        "old",
        calling("eth_estimateGas", {"from": POOR, "to": SOMEBODY, "maxFeePerGas": hex(10**10)}, "latest"),
    ),
    "an estimate above the limit": ("old", calling("eth_estimateGas", LOOPING, "latest")),
    "a batch of too many requests": ("old", calling("eth_chainId", times=11)),
    "a batch of too long answers": ("old", calling("eth_call", RETURNING_24_KB, "latest", times=5)),
    "a call that takes too long": ("new", calling("eth_call", LOOPING, "latest")),
    "a time-out": ("hurried", calling("eth_call", LOOPING, "latest")),
    "a long range of logs": ("old", calling("eth_getLogs", {"fromBlock": "0x0", "toBlock": "0x9"})),
    "logs above the head": ("old", calling("eth_getLogs", {"fromBlock": "0x82", "toBlock": "0x83"})),
    "too many parameters": ("old", calling("eth_getBalance", SOMEBODY, "latest", {})),
    "already known": ("old", sending(signed(0), signed(0))),
    "replacement underpriced": ("old", sending(signed(0), signed(0, value=2))),
    "nonce too low": ("delegated", sending(signed(0))),
    "fee too low": ("old", sending(signed(1, maxPriorityFeePerGas=0))),
    "fee too high": ("old", sending(signed(1, gas=16_000_000, maxFeePerGas=10**11))),
    "insufficient funds": ("old", sending(signed(1, value=10**23))),
    "gas too low": ("old", sending(signed(1, gas=20_000))),
    "gas too low for the data": ("old", sending(signed(1, gas=38_500, data="0x" + "11" * 1000))),
    "gas too high": ("old", sending(signed(1, gas=2**24 + 1))),
    "exceeds block gas limit": ("old", sending(signed(1, gas=2**24))),
    "data too long": ("old", sending(signed(1, gas=2**23, data="0x" + "11" * 131_000))),
    "pool full": ("full", sending(signed(0, account=1, maxPriorityFeePerGas=1))),
    "gap in a full pool": ("full", sending(rising(6))),
    "gap of a delegated account": ("delegated", sending(signed(9, account=1))),
    "second one of a delegated account": ("delegated", sending(signed(1, account=2), signed(2, account=2))),
}
TOLD: Mapping[str, geth_answers.Refusal] = {
    **geth_answers.REFUSALS,
    **{name: (-32000, words) for name, words in geth_answers.REFUSED_SENDS.items()},
    **{name: (-32000, words) for name, words in geth_answers.REFUSED_SENDS_IF_NOT_KEPT.items()},
}


def without_examples(error: Iterable[Any]) -> list[Any]:
    """Return the error without numbers, hashes and addresses in its words."""
    code, *words = error
    return [code, *(re.sub(r"\b(0x)?[0-9a-f]{64}\b|\b0x[0-9a-f]{40}\b|\d+(\.\d+)?", "#", each) for each in words)]


def refusal_of(node: DrivenGeth, body: list[Any]) -> Iterable[Any]:
    reply = ask(node.url, body)[-1] if len(body) > 1 else ask(node.url, body[0])
    assert reply.keys() == {"jsonrpc", "id", "error"}
    told: dict[str, Any] = reply["error"]
    return told.values()


@pytest.mark.parametrize("case", TOLD)
def test_geth_refuses_in_the_words_that_stand_ins_repeat(request, case):
    fixture, body = ASKED[case]
    assert without_examples(refusal_of(request.getfixturevalue(fixture), body)) == without_examples(TOLD[case])


def test_geth_tells_a_fork_to_come_as_stand_ins_do():
    fork_time = int(time.time()) + 3600
    with DrivenGeth(CHAIN_ID, amsterdam_time=fork_time) as node:
        told = node.rpc("eth_config")
        node.mine_until_amsterdam()
        then = node.rpc("eth_config")
    assert told["last"] == told["next"] == then["current"]
    assert (then["next"], then["last"]) == (None, None)
    for rules, fork, at in (
        (told["current"], geth_answers.OSAKA, 0),
        (told["next"], geth_answers.AMSTERDAM, fork_time),
    ):
        assert rules == {**fork, "activationTime": at, "chainId": hex(CHAIN_ID), "forkId": rules["forkId"]}


def test_geth_has_the_header_of_a_block_alone(old):
    """It answers these methods, and no other one, if it has pruned the block's body."""
    block = old.rpc("eth_getBlockByNumber", "0x5", False)
    header = {name: block[name] for name in block.keys() - {"size", "transactions", "uncles", "withdrawals"}}
    assert old.rpc("eth_getHeaderByNumber", "0x5") == old.rpc("eth_getHeaderByHash", block["hash"]) == header


def test_geth_names_a_method_that_it_lacks(old):
    assert tuple(refusal_of(old, calling("eth_nonsense"))) == geth_answers.no_method("eth_nonsense")


def test_geth_refuses_http_in_the_words_that_stand_ins_repeat(old):
    asked: dict[str, Callable[[], requests.Response]] = {
        "another host name": lambda: requests.post(old.url, json={}, headers={"Host": "node:8545"}, timeout=10),
        "the port of the Engine API": lambda: requests.post(old.engine_url, json={}, timeout=10),
        "a long body": lambda: requests.post(old.url, json=" " * 2_000_000, timeout=10),
    }
    for case, (status, words) in geth_answers.REFUSED_HTTP.items():
        answer = asked[case]()
        assert answer.status_code == status
        assert without_examples([0, answer.text]) == without_examples([0, words.decode()])
