"""A user's batches name transactions of large blocks, while strangers' batches of one header must still be proven.

A proxy counts what the node is asked. It answers whole blocks itself, half a second later: anvil would compute each of
them for a second, and answer nothing else meanwhile.
"""

import asyncio
import json
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import requests
from aiohttp import web
from eth_account import Account
from eth_utils.crypto import keccak

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from campaigns.benchmarks.distant_node import DistantNode
from demo.client import status, submit, take_api_key
from demo.installation import CHAIN_ID
from devnet.devchain import ACCOUNTS, DevChain

_BATCHES, _BLOCKS, _TRANSFERS = 30, 24, 1_300
# Strangers take turns, one each second, for as long as a batch of the load is open.
_STRANGERS, _PAUSE = 20, 1
# Maximum seconds of 95 of 100 strangers' batches.
_MOST_SECONDS = 5
_SELECTORS = 25
# Seconds after which a stranger's batch counts as starved, and the load.
_ENOUGH, _ENOUGH_FOR_ALL = 120, 300
# Methods of nodes that answer with a whole block.
_RECEIPTS, _TRANSACTIONS = "eth_getBlockReceipts", "eth_getBlockByHash"
_BLOCK_SECONDS = 0.5
_RAISED = ("MAX_BATCHES_PER_MINUTE", "MAX_QUERIES_PER_MINUTE", "MAX_OPEN_BATCHES", "MAX_SIGN_INS_PER_MINUTE")

# A contract that logs Transfer(caller, to, amount) for calldata of two words, as an ERC-20 token does.
_TOKEN = "0x" + "70" * 20
_TRANSFER = keccak(b"Transfer(address,address,uint256)").hex()
_CODE = f"0x60206020600037600035337f{_TRANSFER}60206000a300"

Blocks = dict[int, list[str]]
"""The hashes of transactions by the number of their block."""


class _Node(DistantNode):
    """A proxy that answers large blocks, from memory."""

    def __init__(self, chain: DevChain, numbers: Iterable[int]) -> None:
        super().__init__(chain.url)
        self._answers: dict[tuple[str, str], bytes] = {}
        for number in map(hex, numbers):
            block = chain.rpc("eth_getBlockByNumber", number, True)
            receipts = chain.rpc("eth_getBlockReceipts", number)
            self._answers[_TRANSACTIONS, block["hash"]] = json.dumps(block).encode()
            self._answers[_RECEIPTS, number] = json.dumps(receipts).encode()

    def counts(self, method: str) -> list[int]:
        """Return how often each large block was asked for by a method."""
        return [count for asked, count in self.asked.items() if asked[0] == method and asked in self._answers]

    async def _forward(self, request: web.Request) -> web.Response:
        question = await request.json()
        asked = (question["method"], str(*question["params"][:1])) if isinstance(question, dict) else ("", "")
        if (answer := self._answers.get(asked)) is None:
            return await super()._forward(request)
        self.asked[asked] += 1
        await asyncio.sleep(_BLOCK_SECONDS)
        begin = json.dumps({"jsonrpc": "2.0", "id": question["id"]}).encode().removesuffix(b"}")
        return web.Response(body=begin + b', "result": ' + answer + b"}", content_type="application/json")


def run(seed: int) -> Iterator[Seen]:
    chance, blocks = random.Random(seed), Blocks()
    raised: dict[str, Any] = dict.fromkeys(_RAISED, "1000000")
    with ExitStack() as running:
        nodes: list[_Node] = []

        def counting(chain: DevChain) -> str:
            nodes.append(running.enter_context(_Node(chain, blocks)))
            return nodes[0].url

        attacked = running.enter_context(
            target(
                arguments=("--gas-limit", str(10**8)),
                prepare=lambda chain: blocks.update(_mined(chain, chance)),
                url_of=counting,
                **raised,
            )
        )
        (node,) = nodes
        yield _read_proofs(attacked, node, blocks)
        yield from _strangers(attacked, node, blocks)


def _mined(chain: DevChain, chance: random.Random) -> Blocks:
    """Mine blocks of transfers, each to another account."""
    blocks = Blocks()
    chain.rpc("anvil_setCode", _TOKEN, _CODE)
    chain.rpc("evm_setIntervalMining", 0)
    for block in range(_BLOCKS):
        sent = [_transfer(block * _TRANSFERS + at, chance) for at in range(_TRANSFERS)]
        answers = requests.post(chain.url, json=sent, timeout=600).json()
        chain.mine()
        blocks[chain.head()] = [answer["result"] for answer in answers]
    chain.rpc("evm_setIntervalMining", 1)
    return blocks


def _transfer(nonce: int, chance: random.Random) -> dict[str, Any]:
    words = f"0x{chance.randrange(2**160):064x}{chance.randrange(2**64):064x}"
    call = {"from": ACCOUNTS[2][0], "to": _TOKEN, "data": words, "gas": hex(40_000), "nonce": hex(nonce)}
    return {"jsonrpc": "2.0", "id": 1, "method": "eth_sendTransaction", "params": [call]}


def _body(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": {str(CHAIN_ID): data}}


def _read_proofs(attacked: Target, node: _Node, blocks: Blocks) -> Seen:
    """Ask for proofs of logs of one block, which each selector names by another transaction."""
    hashes = blocks[max(blocks)][:_SELECTORS]
    body = _body({f"transaction:{each}": {"transactions": {each: {"logs": ["0"]}}} for each in hashes})
    key = attacked.key(1)
    node.forget()
    began = time.monotonic()
    answer = requests.post(f"{attacked.url}/read-proofs", headers={"api-key": key}, json=body, timeout=120)
    seconds = time.monotonic() - began
    receipts, transactions = (sum(node.counts(method)) for method in (_RECEIPTS, _TRANSACTIONS))
    return Seen(
        f"/read-proofs with {_SELECTORS} selectors of one block of {_TRANSFERS:,} transactions",
        "it is answered, and the block is read once",
        f"status {answer.status_code} after {seconds:.1f} s, receipts read {receipts} times, transactions "
        f"{transactions} times{'' if answer.ok else ': ' + answer.text}",
        kept=answer.ok and receipts == 1 and transactions == 1,
    )


def _strangers(attacked: Target, node: _Node, blocks: Blocks) -> Iterator[Seen]:
    strangers = [Account.create() for _ in range(_STRANGERS)]
    keys = [take_api_key(attacked.url, each.address, each.key.to_0x_hex(), CHAIN_ID) for each in strangers]
    heavy = attacked.key(0)
    alone = [_seconds_to_done(attacked, key) for key in keys[:5]]
    node.forget()
    began = time.monotonic()
    heavies = [submit(attacked.url, heavy, _heavy(blocks, place)) for place in range(_BATCHES)]
    submitted, left = time.monotonic() - began, [*heavies]
    with ThreadPoolExecutor(_STRANGERS) as pool:
        beside: list[Future[float]] = []
        while len(beside) < _STRANGERS or (left and time.monotonic() - began < _ENOUGH_FOR_ALL):
            beside.append(pool.submit(_seconds_to_done, attacked, keys[len(beside) % _STRANGERS]))
            time.sleep(_PAUSE)
            while left and status(attacked.url, heavy, left[-1]) == "DONE":
                left.pop()
        took = time.monotonic() - began
    done = sum(status(attacked.url, heavy, batch) == "DONE" for batch in heavies)
    seconds = [each.result() for each in beside]
    worst = statistics.quantiles(seconds, n=20)[-1]
    counts = {method: node.counts(method) for method in (_RECEIPTS, _TRANSACTIONS)}
    load = f"{_BATCHES} batches of one key, each with a log of {_BLOCKS} blocks of {_TRANSFERS:,} transfers"
    yield Seen(
        f"{load}, submitted within {submitted:.0f} s; beside them a stranger's batch of one header every {_PAUSE} s",
        f"95 of 100 strangers' batches are DONE within {_MOST_SECONDS} s",
        f"alone {_told(alone)}; beside it {_told(seconds)}",
        kept=worst <= _MOST_SECONDS,
    )
    yield Seen(
        load,
        "all are DONE, and each block is read once",
        f"{done} DONE after {took:.0f} s; reads of a block's receipts {_reads(counts[_RECEIPTS])}, of "
        f"its transactions {_reads(counts[_TRANSACTIONS])}",
        kept=done == _BATCHES and max(max(each, default=0) for each in counts.values()) == 1,
    )


def _heavy(blocks: Blocks, place: int) -> dict[str, Any]:
    """Return a batch that names one transaction of each block: by its hash in every second batch."""
    at = place * (_TRANSFERS // _BATCHES)
    return _body(
        {
            f"block:{number}": {"transactions": {hashes[at] if place % 2 else str(at): {"logs": ["0"]}}}
            for number, hashes in blocks.items()
        }
    )


def _seconds_to_done(attacked: Target, key: str) -> float:
    body = _body({f"block:{attacked.chain.head()}": {"header": ["TIMESTAMP"]}})
    return attacked.seconds_to_done(key, body, _ENOUGH)


def _told(seconds: list[float]) -> str:
    worst = statistics.quantiles(seconds, n=20)[-1]
    return f"{len(seconds)}: median {statistics.median(seconds):.1f}, 95 % {worst:.1f}, at most {max(seconds):.1f} s"


def _reads(counts: list[int]) -> str:
    return f"{statistics.mean(counts):.1f} (at most {max(counts)})" if counts else "0"
