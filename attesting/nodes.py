"""The nodes of a source chain, each asked by itself: an attester is only worth what its nodes are worth."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from chains.config import Chain
from chains.errors import ChainError, InvalidReply, RpcRefused
from chains.rpc import RpcClient

logger = logging.getLogger(__name__)

# Who asks us waits a few seconds, and one node needs several exchanges.
TIMEOUT_SECONDS = 2

Answer = TypeVar("Answer")


class NoFinality(ChainError):
    """The chain's node doesn't tell which block is final, and the configuration doesn't either."""


@dataclass(frozen=True)
class View:
    """What one node says about one block."""

    final: int
    """Number of the newest final block."""
    block_hash: bytes | None
    """None where the block is above it."""


def views(chain: Chain, number: int) -> list[View]:
    """What each node that answers says about a block. Raises `ChainError` where none does."""

    def view(rpc: RpcClient) -> View:
        final = _newest_final(rpc)
        if number > final:
            return View(final, None)
        header = rpc.header(number)
        if header is None:
            raise InvalidReply(f"A node of {chain.label} doesn't have block {number}, which is final for it.")
        return View(final, header.hash)

    return _ask_each(chain, view)


def newest_final(chain: Chain) -> int:
    """Number of the newest block that is final for all nodes that answer. Raises `ChainError` where none does."""
    return min(_ask_each(chain, _newest_final))


def _newest_final(rpc: RpcClient) -> int:
    try:
        finalized = rpc.header("finalized")
    except RpcRefused:
        finalized = None
    if finalized is not None:
        return finalized.number
    if rpc.chain.confirmations == "finalized":
        raise NoFinality(
            f"The node of {rpc.chain.label} doesn't tell which block is final; "
            "where the chain has no finality, the attester's operator sets confirmations to a number."
        )
    return max(0, rpc.head().number + 1 - rpc.chain.confirmations)


def _ask_each(chain: Chain, question: Callable[[RpcClient], Answer]) -> list[Answer]:
    """The answers of the nodes that give one, asked at once. Raises the first one's `ChainError` where none does."""

    def ask(rpc: RpcClient) -> Answer | ChainError:
        try:
            return question(rpc)
        except ChainError as error:
            logger.warning("%s", error)
            return error

    clients = _clients(chain)
    with ThreadPoolExecutor(max_workers=len(clients)) as pool:
        told = list(pool.map(ask, clients))
    answers = [answer for answer in told if not isinstance(answer, ChainError)]
    if not answers:
        raise next(answer for answer in told if isinstance(answer, ChainError))
    return answers


@cache
def _clients(chain: Chain) -> tuple[RpcClient, ...]:
    """One client for each URL, because a client of several asks the next one only where the first fails."""
    return tuple(
        RpcClient(chain.model_copy(update={"rpc_urls": (url,)}), timeout_seconds=TIMEOUT_SECONDS)
        for url in chain.rpc_urls
    )
