"""The block of a time, by the headers of a source chain."""

from chains.nodes.node_errors import InvalidReply, UnreadableHeader
from chains.tries.header import Header
from proving.connections import OpenConnection


def block_at(connection: OpenConnection, timestamp: int, head: Header) -> int | None:
    """Return the number of the block N with time(N) <= timestamp < time(N+1).

    Return None if all blocks with readable headers are later. `head` must be later than the timestamp. Block times
    mostly grow evenly, so interpolation between known blocks needs few headers. After a bad guess the range is halved,
    for chains with uneven times. Raises `NodeUnavailable`, and `OutOfTime` before a header is read.
    """
    assert head.timestamp > timestamp
    rpc = connection.source_rpc
    # If `low_time` is None, the block `low` and all blocks below it can't be read, or `low` is -1.
    low, high = -1, head
    low_time: int | None = None
    halve, reach = False, 1 / rpc.chain.block_seconds
    while high.number - low > 1:
        middle = (low + high.number) // 2
        if low_time is None:
            # Nodes may serve only recent headers. So steps down from the head double until a block before the time is
            # found.
            middle = max(middle, high.number - 1 - int(reach * (high.timestamp - timestamp)))
            reach *= 2
        elif not halve:
            share = (timestamp - low_time) / (high.timestamp - low_time)
            middle = low + round(share * (high.number - low))
        number = min(max(middle, low + 1), high.number - 1)
        connection.check_time()
        try:
            guess = rpc.known_header(number)
        except UnreadableHeader:
            if low_time is not None:
                raise
            # Examples are Celo's headers from before it became an L2, and the first headers of some development chains.
            low = number
            continue
        if not (low_time or 0) <= guess.timestamp <= high.timestamp:
            raise InvalidReply(f"The times of blocks {low} to {high.number} do not rise.")
        # A guess is bad if it excludes only a small part of the range.
        before = high.number - low
        if guess.timestamp <= timestamp:
            low, low_time = guess.number, guess.timestamp
        else:
            high = guess
        halve = (high.number - low) * 2 > before
    return None if low_time is None else low
