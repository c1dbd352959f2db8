"""What signers have paid, and nodes that tell it, or something else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests

from devnet.devchain import DevChain
from tests.chains.lying_node import lying_node
from tests.service import SIGNER


def balance(chain: DevChain, block: str = "latest") -> int:
    return int(chain.rpc("eth_getBalance", SIGNER, block), 16)


@contextmanager
def telling_receipts(chain: DevChain, **more: str) -> Iterator[str]:
    """A node that tells in receipts what the chain has taken beside the gas; its URL."""

    def answer(body: Any) -> Any:
        reply = requests.post(chain.url, json=body, timeout=10).json()
        asked, replies = (body, reply) if isinstance(body, list) else ([body], [reply])
        for question, one in zip(asked, replies, strict=True):
            if question["method"] == "eth_getTransactionReceipt" and (receipt := one.get("result")):
                number = int(receipt["blockNumber"], 16)
                gas = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
                one["result"] |= {"l1Fee": hex(balance(chain, hex(number - 1)) - balance(chain, hex(number)) - gas)}
                one["result"] |= more
        return reply

    with lying_node(answer) as url:
        yield url


def changed_receipts(chain: DevChain, **fields: str):
    """A node whose receipts say so."""

    def answer(body: Any) -> Any:
        reply = requests.post(chain.url, json=body, timeout=10).json()
        questions, replies = (body, reply) if isinstance(body, list) else ([body], [reply])
        for question, one in zip(questions, replies, strict=True):
            if question["method"] == "eth_getTransactionReceipt" and one.get("result"):
                one["result"] |= fields
        return reply

    return lying_node(answer)
