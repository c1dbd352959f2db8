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
    # Not every chain's first header can be read, and any time before it will do until the search ends there.
    low, low_time, high = 0, 0, head
    halve, reach = False, 1 / rpc.chain.block_seconds
    while high.number - low > 1:
        extend_lease()
        middle = (low + high.number) // 2
        if low == 0:
            # Nodes may serve recent headers only: until one below the time is known, steps down from above double.
            middle = max(middle, high.number - 1 - int(reach * (high.timestamp - timestamp)))
            reach *= 2
        elif not halve:
            share = (timestamp - low_time) / (high.timestamp - low_time)
            middle = low + round(share * (high.number - low))
        guess = rpc.known_header(min(max(middle, low + 1), high.number - 1))
        if not low_time <= guess.timestamp <= high.timestamp:
            raise InvalidReply(f"The times of blocks {low} to {high.number} do not rise.")
        # A guess that leaves nearly everything was a bad one.
        before = high.number - low
        if guess.timestamp <= timestamp:
            low, low_time = guess.number, guess.timestamp
        else:
            high = guess
        halve = (high.number - low) * 2 > before
    return None if low == 0 and rpc.known_header(0).timestamp > timestamp else low
