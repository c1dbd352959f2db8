"""Payments of signers, and nodes that change receipts."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from devnet.devchain import DevChain
from tests.chains.lying_node import between
from tests.service import SIGNER


def balance(chain: DevChain, block: str = "latest") -> int:
    """Return the signer's balance in wei."""
    return int(chain.rpc("eth_getBalance", SIGNER, block), 16)


def telling_receipts(chain: DevChain, **more: str) -> AbstractContextManager[str]:
    """Return a context that yields the URL of a node whose receipts show the data fee that the chain has charged."""

    def with_data_fee(receipt: dict[str, str]) -> dict[str, str]:
        number = int(receipt["blockNumber"], 16)
        gas = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
        return {"l1Fee": hex(balance(chain, hex(number - 1)) - balance(chain, hex(number)) - gas), **more}

    return _with_receipts(chain, with_data_fee)


def changed_receipts(chain: DevChain, **fields: Any) -> AbstractContextManager[str]:
    """Return a context that yields the URL of a node with these fields in its receipts."""
    return _with_receipts(chain, lambda _: fields)


def _with_receipts(chain: DevChain, changes: Callable[[dict[str, str]], dict[str, Any]]) -> AbstractContextManager[str]:
    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getTransactionReceipt" and (receipt := reply.get("result")):
            receipt |= changes(receipt)
        return [reply]

    return between(chain.url, change)
