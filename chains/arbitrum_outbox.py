"""Blocks that an Arbitrum rollup has confirmed on its parent chain, found by the Outbox's roots and events.

The rollup confirms its blocks in order, about every hour. A search estimates which parent block has an event, so it
takes few requests even if nodes allow few blocks in each. Nothing is stored.
"""

from bisect import bisect_left
from dataclasses import dataclass

from eth_utils.crypto import keccak

from chains.nodes import questions
from chains.nodes.node_errors import InvalidReply, Reverted, RpcRefused
from chains.nodes.questions import Log
from chains.nodes.rpc import LogRange, LogReader, RpcClient
from chains.tries.header import Header

# The event's topics are the send root and the block's hash.
_CONFIRMED = keccak(text="SendRootUpdated(bytes32,bytes32)")
_ROOTS = keccak(text="roots(bytes32)")[:4]
# Index of the extra data in a header, which is the send root, and the send root's size in bytes.
_EXTRA_DATA, _SEND_ROOT_BYTES = 12, 32
# Blocks of the parent chain in a search's first request. Some nodes allow only five.
_RANGE = 2_000
# Maximum requests of one search.
_REQUESTS = 100


@dataclass(frozen=True)
class ConfirmedBlock:
    """A confirmed block of the rollup. `at` is the number of the parent chain's block with the event."""

    header: Header
    at: int


def send_root(header: Header) -> bytes | None:
    """Return the send root in a block's header. None if there is none, such as before Nitro."""
    extra_data = header.fields[_EXTRA_DATA]
    return extra_data if len(extra_data) == _SEND_ROOT_BYTES else None


class Outbox:
    """The Outbox of a rollup, a contract on its parent chain."""

    def __init__(self, parent: RpcClient, rollup: RpcClient, address: str) -> None:
        self._parent = parent
        self._rollup = rollup
        self._address = address

    def held(self, header: Header) -> bytes:
        """Return the hash of the last confirmed block with the header's send root. Zeros if the Outbox has none.

        Raises `InvalidReply` if there is no Outbox at the address.
        """
        root = send_root(header)
        if root is None:
            return bytes(32)
        (answer,) = self._parent.eth_calls([(self._address, _ROOTS + root)])
        if isinstance(answer, Reverted) or len(answer) != 32:
            raise InvalidReply(f"There is no Outbox at {self._address} on {self._parent.chain.label}.")
        return answer

    def newest(self) -> ConfirmedBlock | None:
        """Return the newest confirmed block. None if there is no event.

        Raises `NodeUnavailable`, `RpcRefused`.
        """
        events = self._events()
        last = self._parent.head().number
        while last >= 0 and events.requests_left:
            newest = events.read(0, last, from_end=True)
            if newest.logs:
                return self._confirmed(newest.logs[-1])
            last = newest.first - 1
        return None

    def lowest(self, target: Header, newest: ConfirmedBlock, *, within: int = 0) -> ConfirmedBlock:
        """Return the lowest confirmed block that isn't below the target. `newest` is a known candidate.

        A block up to `within` blocks above the target is low enough to stop. If nodes refuse older events, return the
        lowest block found until then. Raises `NodeUnavailable`.
        """
        events = self._events()
        # The searched event is in the parent's blocks from `low` to `high` - 1, or `lowest` is the result.
        lowest, low, high = newest, 0, newest.at
        # The first header of some chains can't be read. Its time is extrapolated from a header in the middle.
        middle = self._parent.known_header(high // 2)
        low_time = 2 * middle.timestamp - newest.header.timestamp
        halve = False
        while lowest.header.number > target.number + within and low < high and events.requests_left:
            before = high - low
            share = 0.5
            if not halve and low_time < target.timestamp < lowest.header.timestamp:
                share = (target.timestamp - low_time) / (lowest.header.timestamp - low_time)
            guess = min(low + int(share * before), high - 1)
            try:
                found = self._next(events, guess, high - 1)
            except RpcRefused as refused:
                if refused.may_pass:
                    raise
                return lowest
            logs = found.logs
            place = bisect_left(logs, target.number, key=lambda log: self._confirmed(log).header.number)
            if place < len(logs):
                lowest = self._confirmed(logs[place])
            if place == 0:
                # The missing events are in later blocks than those read, or nodes no longer return them.
                high = guess
            elif place < len(logs):
                return lowest
            else:
                low, low_time = found.last + 1, self._confirmed(logs[-1]).header.timestamp
            halve = (high - low) * 2 > before
        return lowest

    def _events(self) -> LogReader:
        return LogReader(self._parent, self._address, [_CONFIRMED, None, None], requests=_REQUESTS, blocks=_RANGE)

    def _next(self, events: LogReader, first: int, last: int) -> LogRange:
        """Return the range with the next events from the block `first` on, or what was read of the blocks to `last`."""
        found = LogRange((), first, first - 1)
        while not found.logs and found.last < last and events.requests_left:
            found = events.read(found.last + 1, last)
        return found

    def by_hash(self, block_hash: bytes) -> Header:
        """Return the header of a confirmed block of the rollup. Raises `InvalidReply` if the node lacks it."""
        header = self._rollup.answer(questions.header_by_hash(block_hash))
        if header is None:
            raise InvalidReply(
                f"A node of chain {self._rollup.chain.id} doesn't have block 0x{block_hash.hex()}, which the rollup "
                "has confirmed."
            )
        return header

    def _confirmed(self, log: Log) -> ConfirmedBlock:
        return ConfirmedBlock(self.by_hash(log.topics[2]), log.block_number)
