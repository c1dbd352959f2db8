"""Logs of one contract in ranges of blocks as long as nodes allow.

Nodes limit the blocks, the logs or the time of a request, and say so in many ways. So a range that is refused is asked
for in quarters, whatever the node says, and the ranges become longer again while they are answered. A node that doesn't
answer changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chains.nodes.node_batches import ReplyTooLong
from chains.nodes.node_errors import NO_METHOD, RpcRefused
from chains.nodes.questions import Log, Topic
from chains.nodes.rpc import LONGEST_LOG_RANGE, RpcClient

# Maximum requests of one reader that may be refused.
_MOST_REFUSALS = 8


@dataclass(frozen=True)
class LogRange:
    """The logs of the blocks from `first` to `last`, both included, in the chain's order."""

    logs: Sequence[Log]
    first: int
    last: int


class LogReader:
    """A reader of a contract's logs for one turn. It limits the requests, and those that are refused."""

    def __init__(
        self, rpc: RpcClient, address: str, topics: Sequence[Topic], *, requests: int, blocks: int = LONGEST_LOG_RANGE
    ) -> None:
        """`blocks` are those of the first of at most so many requests. Later ones have more while nothing is found."""
        self._rpc = rpc
        self._address = address
        self._topics = topics
        self._blocks = blocks
        self._shortest_refused = LONGEST_LOG_RANGE + 1
        self._refusals = 0
        self.requests_left = requests

    def read_all(self, first: int, last: int) -> list[Log]:
        """Return the logs of these blocks. If they take too many requests, those of the first blocks are left out."""
        logs: list[Log] = []
        unread = last
        while unread >= first and self.requests_left:
            try:
                newest = self.read(first, unread, from_end=True)
            except RpcRefused:
                if self.requests_left or unread == last:
                    raise
                break
            logs[:0], unread = newest.logs, newest.first - 1
        return logs

    def read(self, first: int, last: int, *, from_end: bool = False) -> LogRange:
        """Return the logs of as many blocks of the range as nodes allow.

        Raises `NodeUnavailable`, and `RpcRefused` if even a single block is refused, or too many ranges.
        """
        while True:
            self.requests_left -= 1
            blocks = min(self._blocks, self._rpc.log_range)
            start = max(first, last - blocks + 1) if from_end else first
            end = min(last, start + blocks - 1)
            try:
                logs = self._rpc.logs(self._address, self._topics, start, end)
            except (RpcRefused, ReplyTooLong) as refused:
                if not self._shorten(end - start + 1, refused):
                    raise
                continue
            self._lengthen(end - start + 1)
            if not logs:
                self._blocks = min(LONGEST_LOG_RANGE, 4 * self._blocks)
            return LogRange(logs, start, end)

    def _shorten(self, blocks: int, refused: RpcRefused | ReplyTooLong) -> bool:
        """Shorten the ranges after a refusal. Return whether to ask again."""
        if blocks == 1 or (isinstance(refused, RpcRefused) and refused.code == NO_METHOD):
            return False
        self._shortest_refused = min(self._shortest_refused, blocks)
        self._rpc.log_range = blocks // 4 or 1
        self._refusals += 1
        return self._refusals < _MOST_REFUSALS and self.requests_left > 0

    def _lengthen(self, blocks: int) -> None:
        longer = 2 * self._rpc.log_range
        if blocks == self._rpc.log_range and longer < self._shortest_refused:
            self._rpc.log_range = longer
