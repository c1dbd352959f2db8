"""Agreement among the nodes of a source chain. Each is asked separately, because an attester relies on its nodes.

With `confirmations = "finalized"`, a block is final for a node if the node's `finalized` block is not below it. If
`confirmations` is a number, the block also needs that many confirmations. A node without a `finalized` block counts by
confirmations alone, until some node of the chain has reported a `finalized` block.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

from chains.chains_file import Chain
from chains.nodes.node_errors import ChainError, InvalidReply, RpcRefused
from chains.nodes.rpc import RpcClient

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 2
"""Limit of one exchange with a node."""
ANSWER_SECONDS = 4
"""Limit of all exchanges with all nodes. It is below `chains.attestation.TIMEOUT_SECONDS`, the service's limit."""


class TooFewNodes(ChainError):
    """Fewer nodes answer than must agree. Clients see the sentence and the code."""

    code = "unavailable"


class NoFinality(TooFewNodes):
    """Fewer nodes report a final block than must agree."""

    code = "no_finality"


@dataclass(frozen=True)
class NodeView:
    """One node's view of a chain, and of one of its blocks."""

    host: str
    final: int | None
    """Number of the newest final block. None if the node reports none."""
    knows_finalized: bool
    """True if the node has a `finalized` block."""
    block_hash: bytes | None
    """None: the node lacks the block."""


class AttesterNodes:
    """The nodes of one chain, for any number of threads."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        # Each URL has its own client, because a client with several URLs asks the second only if the first fails.
        self._clients = [
            RpcClient(chain.model_copy(update={"rpc_urls": (url,)}), timeout_seconds=TIMEOUT_SECONDS)
            for url in chain.rpc_urls
        ]
        self._has_finality = False
        """True if a node has reported a `finalized` block since this process began."""

    def views(self, number: int | None = None) -> list[NodeView]:
        """Ask all nodes at the same time, and about block `number` if given.

        Return the views of the nodes that answer in time.
        """
        pool = ThreadPoolExecutor(max_workers=len(self._clients))
        pending = [(rpc, pool.submit(self._view, rpc, number)) for rpc in self._clients]
        # The pool ends by itself. Waiting for it would take as long as the slowest node.
        pool.shutdown(wait=False)
        deadline = time.monotonic() + ANSWER_SECONDS
        views = []
        for rpc, answer in pending:
            try:
                views.append(answer.result(max(0, deadline - time.monotonic())))
            except TimeoutError:
                logger.warning("%s did not answer within %g seconds.", rpc.chain.hosts[0], ANSWER_SECONDS)
            except ChainError as error:
                logger.warning("%s", error.for_operators)
        if self._has_finality:
            views = [view if view.knows_finalized else replace(view, final=None) for view in views]
        for view in views:
            if view.final is None:
                logger.warning("%s does not report the final block of %s.", view.host, self._chain.label)
        return views

    def newest_final(self, views: Sequence[NodeView]) -> int:
        """Return the newest block that enough nodes report as final. Raises `TooFewNodes`."""
        finals = sorted((view.final for view in views if view.final is not None), reverse=True)
        needed = self._chain.needed_nodes
        if len(finals) >= needed:
            return finals[needed - 1]
        whose, named = f"nodes of chain {self._chain.id}", len(self._clients)
        if not views:
            raise TooFewNodes(f"No node of chain {self._chain.id} answers this attester.")
        if len(views) < needed:
            raise TooFewNodes(f"Too few {whose} answer this attester: {len(views)} of {named}, and it needs {needed}.")
        sentence = f"Too few {whose} report a final block: {len(finals)} of {named}, and {needed} are needed."
        if not self._has_finality:
            sentence += " If the chain has no finality, the attester's operator must set confirmations to a number."
        raise NoFinality(sentence)

    def _view(self, rpc: RpcClient, number: int | None) -> NodeView:
        host = rpc.chain.hosts[0]
        try:
            finalized = rpc.header("finalized")
        except RpcRefused:
            finalized = None
        bounds = []
        if finalized is not None:
            self._note_finality(host)
            bounds.append(finalized.number)
        if self._chain.confirmations != "finalized":
            bounds.append(max(0, rpc.head().number + 1 - self._chain.confirmations))
        final = min(bounds, default=None)
        block_hash = (
            None if number is None else _block_hash(rpc, number, must_exist=final is not None and number <= final)
        )
        return NodeView(host, final, finalized is not None, block_hash)

    def _note_finality(self, host: str) -> None:
        if not self._has_finality and self._chain.confirmations != "finalized":
            logger.warning(
                "%s reports the final block of %s. From now on, nodes without a final block don't count, although "
                "confirmations is a number.",
                *(host, self._chain.label),
            )
        self._has_finality = True


@cache
def of(chain: Chain) -> AttesterNodes:
    return AttesterNodes(chain)


def _block_hash(rpc: RpcClient, number: int, *, must_exist: bool) -> bytes | None:
    try:
        header = rpc.header(number)
    except RpcRefused:
        # Some nodes refuse a request for a block that doesn't exist yet.
        if must_exist:
            raise
        return None
    if header is None and must_exist:
        raise InvalidReply(f"{rpc.chain.hosts[0]} does not have block {number}, which is final for it.")
    return None if header is None else header.hash
