"""The block that a reader names: by its number, or as the newest confirmed or final one."""

from typing import Literal

from chains.nodes.rpc import RpcClient
from chains.tries.header import Header
from proving.reading.asking import ChainUnavailable
from proving.working import heads


class BlockNotYet(ChainUnavailable):
    """The chain has no such block yet."""


def confirmed_header(rpc: RpcClient, number: int | Literal["latest", "finalized"]) -> Header:
    """Return a block's header by its number, or the newest confirmed or final one.

    The newest block is the lowest of the nodes' heads. Raises `BlockNotYet`.
    """
    label, confirmations = rpc.chain.label, rpc.chain.confirmations
    if number == "latest":
        head = heads.head_of_all(rpc)
        if confirmations == 1:
            return head
        number = "finalized" if confirmations == "finalized" else max(0, head.number - confirmations + 1)
    elif len(rpc.chain.hosts) > 1:
        # Nodes that lag far rest.
        heads.head_of_all(rpc)
    if (header := rpc.header(number)) is None:
        which = "a final block" if number == "finalized" else f"block {number}"
        raise BlockNotYet(f"{label} doesn't have {which} yet.")
    if number == "finalized" and (problem := heads.why_not_final(header, rpc.head())):
        raise BlockNotYet(f"{label} doesn't have a final block. {problem}")
    return header
