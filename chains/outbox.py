"""What an Arbitrum rollup has confirmed on its parent chain: what its Outbox holds, and the events that tell of it.

The rollup confirms its blocks in their order, about every hour. So what was confirmed at any time is found by guessing
where it must be, in a few requests, however few blocks nodes read at once. Nothing is remembered.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from eth_utils.crypto import keccak

from chains import questions
from chains.header import ExecutionHeader
from chains.node_errors import InvalidReply, Reverted, RpcRefused
from chains.questions import Log
from chains.rpc import RpcClient

# The send root and the block's hash.
_CONFIRMED = keccak(text="SendRootUpdated(bytes32,bytes32)")
_ROOTS = keccak(text="roots(bytes32)")[:4]
# Place in a header of the extra data, which is the send root, and its size.
_EXTRA_DATA, _SEND_ROOT_BYTES = 12, 32
# How many of the parent's blocks are read at first in one request, and at the most. Nodes read as few as five.
_RANGE, _LONGEST_RANGE = 2_000, 1_000_000
# How many requests one search may take.
_REQUESTS = 100


@dataclass(frozen=True)
class ConfirmedBlock:
    """A block of the rollup, by its header, and the block of the parent chain in which it was confirmed."""

    header: ExecutionHeader
    at: int


def send_root(header: ExecutionHeader) -> bytes | None:
    """Return the send root in a block's header; None where it has none, as before Nitro."""
    extra_data = header.fields[_EXTRA_DATA]
    return extra_data if len(extra_data) == _SEND_ROOT_BYTES else None


class Outbox:
    """The Outbox at an address of the chain `parent`, for blocks of the chain `rollup`. `asking` is for one search."""

    def __init__(self, parent: RpcClient, rollup: RpcClient, address: str) -> None:
        self._parent = parent
        self._rollup = rollup
        self._address = address

    def held(self, header: ExecutionHeader) -> bytes:
        """Return the hash that the Outbox holds for the header's send root; zeros where it holds none.

        It is that of the last block with this send root that was confirmed. Raises `InvalidReply` where nothing at the
        address answers so.
        """
        root = send_root(header)
        if root is None:
            return bytes(32)
        (answer,) = self._parent.eth_calls([(self._address, _ROOTS + root)])
        if isinstance(answer, Reverted) or len(answer) != 32:
            raise InvalidReply(f"There is no Outbox at {self._address} on {self._parent.chain.label}.")
        return answer

    def newest(self) -> ConfirmedBlock | None:
        """Return the newest block that was confirmed; None if no event tells of one.

        Raises `NodeUnavailable`, `RpcRefused`.
        """
        events = _Events(self._parent, self._address)
        last = self._parent.head().number
        while last >= 0 and events.requests_left:
            logs, first, _ = events.read(0, last, from_end=True)
            if logs:
                return self._confirmed(logs[-1])
            last = first - 1
        return None

    def lowest(self, target: ExecutionHeader, newest: ConfirmedBlock, *, within: int = 0) -> ConfirmedBlock:
        """Return the first of the confirmed blocks that is at the target or above, or `newest`, which is.

        Any one is good enough that is at most `within` blocks above. Where nodes don't tell of older ones, it is the
        lowest that was found. Raises `NodeUnavailable`.
        """
        events = _Events(self._parent, self._address)
        # It is in one of the blocks from `low` up to that before `high`, or it is `found`.
        found, low, high = newest, 0, newest.at
        # Not every chain's first header can be read: its time is guessed by the one in the middle.
        middle = self._parent.known_header(high // 2)
        low_time = 2 * middle.timestamp - newest.header.timestamp
        halve = False
        while found.header.number > target.number + within and low < high and events.requests_left:
            before = high - low
            share = 0.5
            if not halve and low_time < target.timestamp < found.header.timestamp:
                share = (target.timestamp - low_time) / (found.header.timestamp - low_time)
            guess = min(low + int(share * before), high - 1)
            try:
                logs, end = events.next(guess, high - 1)
            except RpcRefused as refused:
                if refused.may_pass:
                    raise
                return found
            place = bisect_left(logs, target.number, key=lambda log: self._confirmed(log).header.number)
            if place < len(logs):
                found = self._confirmed(logs[place])
            if place == 0:
                # Whatever is not read yet is above all that is, or may not be read any more.
                high = guess
            elif place < len(logs):
                return found
            else:
                low, low_time = end + 1, self._confirmed(logs[-1]).header.timestamp
            halve = (high - low) * 2 > before
        return found

    def by_hash(self, block_hash: bytes) -> ExecutionHeader:
        """Return the header of a block of the rollup that was confirmed. Raises `InvalidReply` where none is there."""
        header = self._rollup.answer(questions.header_by_hash(block_hash))
        if header is None:
            raise InvalidReply(
                f"A node of chain {self._rollup.chain.id} doesn't have block 0x{block_hash.hex()}, which the rollup "
                "has confirmed."
            )
        return header

    def _confirmed(self, log: Log) -> ConfirmedBlock:
        return ConfirmedBlock(self.by_hash(log.topics[2]), log.block_number)


class _Events:
    """Reads the Outbox's events in ranges of blocks that nodes allow, in a limited number of requests."""

    def __init__(self, rpc: RpcClient, address: str) -> None:
        self._rpc = rpc
        self._address = address
        self._range = _RANGE
        self._is_bounded = False
        self.requests_left = _REQUESTS

    def next(self, first: int, last: int) -> tuple[Sequence[Log], int]:
        """Return the first events from the block `first` on, and the last block that was read, `last` at the most."""
        logs: Sequence[Log] = ()
        end = first - 1
        while not logs and end < last and self.requests_left:
            logs, _, end = self.read(end + 1, last)
        return logs, end

    def read(self, first: int, last: int, *, from_end: bool = False) -> tuple[Sequence[Log], int, int]:
        """Return the events of as many of these blocks as may be read at once, with the first and last of the blocks.

        Raises `NodeUnavailable`; `RpcRefused` also where not even one block can be read.
        """
        while True:
            self.requests_left -= 1
            start = max(first, last - self._range + 1) if from_end else first
            end = min(last, start + self._range - 1)
            try:
                logs = self._rpc.logs(self._address, [_CONFIRMED, None, None], start, end)
            except RpcRefused as refused:
                if refused.may_pass or start == end:
                    raise
                self._range, self._is_bounded = max(1, (end - start + 1) // 4), True
                continue
            if not logs and not self._is_bounded:
                self._range = min(_LONGEST_RANGE, 4 * self._range)
            return logs, start, end
