"""Which block was the latest at a time."""

from collections.abc import Callable

from chains.header import Header
from chains.rpc import InvalidReply, RpcClient


def block_at(rpc: RpcClient, timestamp: int, head: Header, *, extend_lease: Callable[[], None]) -> int | None:
    """Return the number of the block N with time(N) <= timestamp < time(N+1), or None if the first block is later.

    `head` must be later than the timestamp. Times rise with numbers, and on most chains nearly evenly: guessing by the
    slope between what is known finds it in a few headers; every other guess halves what is left, for chains whose
    blocks don't come evenly. `extend_lease` is called between steps. Raises `NodeUnavailable`.
    """
    assert head.timestamp > timestamp
    low, high = rpc.known_header(0), head
    if low.timestamp > timestamp:
        return None
    halve = False
    while high.number - low.number > 1:
        extend_lease()
        middle = (low.number + high.number) // 2
        if not halve:
            share = (timestamp - low.timestamp) / (high.timestamp - low.timestamp)
            middle = low.number + round(share * (high.number - low.number))
        guess = rpc.known_header(min(max(middle, low.number + 1), high.number - 1))
        if not low.timestamp <= guess.timestamp <= high.timestamp:
            raise InvalidReply(f"The times of blocks {low.number} to {high.number} do not rise.")
        # A guess that leaves nearly everything was a bad one.
        before = high.number - low.number
        low, high = (guess, high) if guess.timestamp <= timestamp else (low, guess)
        halve = (high.number - low.number) * 2 > before
    return low.number
