"""A lying node before a chain, and signed transactions decoded from their bytes."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
import rlp
from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from tests.chains import geth_answers
from tests.chains.lying_node import error, result
from tests.headers import with_hash

GWEI = 10**9
# Blocks between a head and its final block, and blocks by which a stale node lags. A reorg is shorter than the first.
FINAL_DEPTH, STALE_BLOCKS = 8, 3
# Blocks by which a `Liar` lags.
_LIAR_STALE_BLOCKS = 60
Change = Callable[[Any, DevChain], Any]
"""Changes the true result of a method. It also gets the chain."""
# Lies by name and method. Each changes a true result.
LIES: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("hidden", "eth_getTransactionReceipt"): lambda _: None,
    ("cheap", "eth_getTransactionReceipt"): lambda receipt: receipt | {"gasUsed": "0x1"},
    ("failed", "eth_getTransactionReceipt"): lambda receipt: receipt | {"status": "0x0"},
    ("ahead", "eth_getTransactionCount"): lambda nonce: hex(int(nonce, 16) + 2),
    ("unused", "eth_getTransactionCount"): lambda _: "0x0",
    ("behind", "eth_getTransactionCount"): lambda nonce: hex(max(0, int(nonce, 16) - 2)),
    ("large", "eth_estimateGas"): lambda gas: hex(10 * int(gas, 16)),
    ("tip", "eth_maxPriorityFeePerGas"): lambda _: hex(5000 * GWEI),
}
# Lies by name and method that refuse what has a result.
REFUSALS: Mapping[tuple[str, str], geth_answers.Refusal] = {
    ("reverts", "eth_estimateGas"): geth_answers.REFUSALS["a revert"],
    ("absent", "eth_call"): geth_answers.REFUSALS["a revert"],
    ("poor", "eth_estimateGas"): geth_answers.REFUSALS["an estimate without funds"],
}


@dataclass
class Node:
    """A node before the chain. It lies according to `lie`, and records the transactions it receives."""

    chain: DevChain
    lie: str = ""
    sent: list[bytes] = field(default_factory=list)
    is_silent: bool = False

    def __call__(self, body: Any) -> Any:
        questions = body if isinstance(body, list) else [body]
        if self.is_silent:
            return [error(question, -32000, "silent") for question in questions]
        self.sent += [raw for question in questions if (raw := _raw(question))]
        passed = [self._passed(question) for question in questions]
        replies_by_id = {
            question["id"]: question for question in requests.post(self.chain.url, json=passed, timeout=10).json()
        }
        replies = [self._reply(question, replies_by_id[question["id"]]) for question in questions]
        return replies if isinstance(body, list) else replies[0]

    def _head(self) -> int:
        return self.chain.head() - STALE_BLOCKS

    def _passed(self, question: Any) -> Any:
        if self.lie == "lost" and _raw(question):
            return question | {"method": "eth_chainId", "params": []}
        if self.lie == "stale":
            head = self._head()
            tags = {"latest": hex(head), "pending": hex(head), "finalized": hex(head - FINAL_DEPTH)}
            return question | {"params": [tags.get(str(parameter), parameter) for parameter in question["params"]]}
        return question

    def _reply(self, question: Any, reply: Any) -> Any:
        method, value = question["method"], reply.get("result")
        if self.lie == "lost" and (raw := _raw(question)):
            return result(question, "0x" + keccak(raw).hex())
        number = value and {"eth_getTransactionReceipt": "blockNumber", "eth_getBlockByNumber": "number"}.get(method)
        if self.lie == "stale" and number and int(value[number], 16) > self._head():
            return result(question, None)
        if refusal := REFUSALS.get((self.lie, method)):
            return error(question, *refusal)
        lie = LIES.get((self.lie, method))
        return result(question, lie(value)) if lie and value else reply


def _raw(question: Any) -> bytes:
    return bytes.fromhex(question["params"][0][2:]) if question["method"] == "eth_sendRawTransaction" else b""


@dataclass
class Liar(Node):
    """A node that changes the results of the methods in `changes`, of headers only the newest."""

    changes: Mapping[str, Change] = field(default_factory=dict)

    def _head(self) -> int:
        return self.chain.head() - _LIAR_STALE_BLOCKS

    def _reply(self, question: Any, reply: Any) -> Any:
        reply = super()._reply(question, reply)
        change = self.changes.get(question["method"])
        if not change or reply.get("result") is None or question["params"][:1] == ["finalized"]:
            return reply
        if question["method"] == "eth_getBlockByNumber" and question["params"][0] != "latest":
            return reply
        return reply | {"result": change(reply["result"], self.chain)}


def constant(value: Any) -> Change:
    return lambda *_: value


def higher_by(difference: int) -> Change:
    return lambda number, _: hex(max(0, int(number, 16) + difference))


def in_turn(*changes: Change) -> Change:
    """Return a change that is another one at each answer."""
    turns = itertools.cycle(changes)

    def change(value: Any, chain: DevChain) -> Any:
        return next(turns)(value, chain)

    return change


def multiplied_by(factor: float) -> Change:
    return lambda number, _: hex(int(factor * int(number, 16)))


def object_with(name: str, change: Change) -> Change:
    return lambda value, chain: value | {name: change(value[name], chain)}


def block_with(name: str, difference: int) -> Change:
    change = object_with(name, higher_by(difference))
    return lambda block, chain: with_hash(change(block, chain))


@dataclass(frozen=True)
class Version:
    """A signed version, decoded from its bytes."""

    nonce: int
    to: str
    data: bytes
    price: int
    """Maximum price of a unit of gas, in wei."""
    worst: int
    """Maximum cost in wei."""
    transaction: int = 0
    """The id of its row."""

    @classmethod
    def of(cls, raw: bytes, transaction: int = 0) -> "Version":
        # The fields of EIP-1559, behind the type byte.
        _, nonce, _, price, gas, to, _, data, *_ = rlp.decode(raw[1:])
        price = int.from_bytes(price)
        return cls(int.from_bytes(nonce), to.hex(), data, price, int.from_bytes(gas) * price, transaction)

    @property
    def is_cancellation(self) -> bool:
        return not self.data
