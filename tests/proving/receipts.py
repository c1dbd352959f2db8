"""What signers have paid, and nodes that tell it, or something else."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from devnet.devchain import DevChain
from tests.chains.lying_node import between
from tests.service import SIGNER


def balance(chain: DevChain, block: str = "latest") -> int:
    """In wei, of the signer."""
    return int(chain.rpc("eth_getBalance", SIGNER, block), 16)


def telling_receipts(chain: DevChain, **more: str) -> AbstractContextManager[str]:
    """A node that tells in receipts what the chain has taken beside the gas; its URL."""

    def told(receipt: dict[str, str]) -> dict[str, str]:
        number = int(receipt["blockNumber"], 16)
        gas = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
        return {"l1Fee": hex(balance(chain, hex(number - 1)) - balance(chain, hex(number)) - gas), **more}

    return _with_receipts(chain, told)


def changed_receipts(chain: DevChain, **fields: Any) -> AbstractContextManager[str]:
    """A node whose receipts say so; its URL."""
    return _with_receipts(chain, lambda _: fields)


def _with_receipts(chain: DevChain, told: Callable[[dict[str, str]], dict[str, Any]]) -> AbstractContextManager[str]:
    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getTransactionReceipt" and (receipt := reply.get("result")):
            receipt |= told(receipt)
        return [reply]

    return between(chain.url, change)
