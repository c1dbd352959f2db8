"""Which requests go to a node in one JSON-RPC batch, and how a batch that fails is divided.

Nodes limit the requests of a batch and the size of its reply, and tell it in many forms: an error for all, an error of
the first request (geth), of each, a reply that is cut, an HTTP status, or a connection that breaks off.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from chains.node_errors import InvalidReply, LimitsRequests, NodeUnavailable, RpcRefused

# The maximum of one exchange, by the weight of its requests (`_weight`), and of exchanges with one node at a time.
BATCH_SIZE = 50
_SLOTS_PER_REQUEST = 20
_AT_ONCE = 4
# Failed waves after which a node isn't asked again: all that is asked in the same list waits for one that hangs.
_MAX_FAILURES, _MAX_FAILURES_IF_IT_ANSWERS = 2, 4

Request = tuple[str, list[Any]]
"""A method and its parameters, as JSON has them."""

Results = list[Any | RpcRefused | NodeUnavailable]
"""For each request of a batch its result, or what is wrong with the reply to it."""


class BatchRefused(NodeUnavailable):
    """The node gave no answer to a request, or to any, because of the batch that it came in."""

    kind = "too_long"


class ReplyTooLong(InvalidReply):
    """The reply is longer than it may be."""

    kind = "too_long"


class NodeTimedOut(NodeUnavailable):
    """The node did not answer in time."""

    kind = "timed_out"


class RequestBatch(NamedTuple):
    """Requests, by their indexes, that go to a node together."""

    indexes: Sequence[int]
    has_hung: bool = False
    """True if the node did not answer in time when they came in a larger batch."""


class Division:
    """The requests that a node has not answered yet, in batches that become smaller where they fail.

    A failure may be the fault of the batch's size, of one request, or of the node.
    """

    def __init__(self, requests: Mapping[int, Request], limit: int) -> None:
        """`limit` is how many requests the node takes in a batch, as far as is known."""
        self.unanswered: dict[int, NodeUnavailable] = {}
        """Requests that failed alone, and why."""
        self._waiting = [RequestBatch(indexes) for indexes in _by_weight(requests)]
        self._limit = limit
        self._is_answering = False
        self._failures = 0
        self._signs = 0
        """Signs that batches are too large: one alone may be an accident."""
        self._most_answered = 0
        """The largest number of requests that were answered in one batch."""
        self._failure: NodeUnavailable | None = None
        """The last failure of this wave that may be the node's, and not that of a batch."""
        self._batch_failure: NodeUnavailable | None = None
        self._has_answered = False
        """Whether anything was answered in this wave."""
        self._limited: LimitsRequests | None = None

    @property
    def has_failed(self) -> bool:
        return self._failures > 0

    @property
    def learned_limit(self) -> int | None:
        """Return how many requests the node takes in a batch; None where nothing was learned."""
        if self._limited:
            return self._limit
        is_clear = self._signs > 1 and not self.unanswered
        return self._most_answered if is_clear and self._most_answered else None

    def next_wave(self) -> list[RequestBatch]:
        """Return batches to send at the same time; none if nothing waits."""
        pieces = [
            RequestBatch(piece, batch.has_hung) for batch in self._waiting for piece in _pieces(batch, self._limit)
        ]
        # What failed comes last, whatever it is that takes so long.
        wave, self._waiting = pieces[:_AT_ONCE], pieces[_AT_ONCE:]
        self._failure = self._batch_failure = None
        self._has_answered = False
        return wave

    def take(self, batch: RequestBatch, outcome: Results | NodeUnavailable) -> Iterator[tuple[int, Any]]:
        """Yield the answers in what came of a batch. What has none waits again, in smaller batches."""
        if not isinstance(outcome, NodeUnavailable):
            yield from self._take_results(batch, outcome)
        elif len(batch.indexes) == 1:
            self.unanswered[batch.indexes[0]] = outcome
            if not isinstance(outcome, ReplyTooLong | LimitsRequests):
                self._failure = outcome
        elif isinstance(outcome, LimitsRequests):
            # It may count the requests in a batch.
            self._limit = min(self._limit, len(batch.indexes) // 2)
            self._limited = outcome
        elif isinstance(outcome, NodeTimedOut):
            self._failure = outcome
            self._divide(batch.indexes, 1 if batch.has_hung else None, has_hung=True)
        elif isinstance(outcome, BatchRefused | ReplyTooLong):
            self._signs += 2
            if isinstance(outcome, BatchRefused):
                self._limit = min(self._limit, -(-len(batch.indexes) // 2))
            self._divide(batch.indexes)
        else:
            self._take_failure(batch.indexes, outcome)

    def end_wave(self) -> None:
        """Raise `NodeUnavailable` if the node wants fewer requests, or if it is of no use to go on."""
        failure = self._failure or (None if self._has_answered else self._batch_failure)
        self._failures += failure is not None
        if self._limited:
            raise self._limited
        if failure and self._failures >= (_MAX_FAILURES_IF_IT_ANSWERS if self._is_answering else _MAX_FAILURES):
            raise failure
        if not self._waiting and self.unanswered and not self._is_answering:
            raise next(iter(self.unanswered.values()))

    def _take_results(self, batch: RequestBatch, results: Results) -> Iterator[tuple[int, Any]]:
        refused: list[int] = []
        for index, result in zip(batch.indexes, results, strict=True):
            if isinstance(result, BatchRefused):
                refused.append(index)
            else:
                yield index, result
        self._has_answered = self._has_answered or len(refused) < len(results)
        self._is_answering = self._is_answering or self._has_answered
        # A request that is refused alone as well tells nothing of its batch.
        answered = sum(not isinstance(result, RpcRefused | BatchRefused) for result in results)
        self._most_answered = max(self._most_answered, answered)
        if refused:
            self._signs += 2 * (len(refused) > answered)
            self._divide(refused)

    def _take_failure(self, indexes: Sequence[int], failure: NodeUnavailable) -> None:
        self._signs += 1
        if self._most_answered <= 1:
            self._limit = min(self._limit, -(-len(indexes) // 2))
        if self._batch_failure:
            self._divide(indexes)
            return
        # Two requests that come alone tell whether the node answers any: one may be at fault itself.
        self._batch_failure = failure
        self._divide(indexes[1:-1])
        self._waiting[:0] = [RequestBatch(indexes[:1]), RequestBatch(indexes[-1:])]

    def _divide(self, indexes: Sequence[int], size: int | None = None, *, has_hung: bool = False) -> None:
        """Let the requests wait in batches of `size`, by default in halves."""
        pieces = _pieces(RequestBatch(indexes), size or max(1, -(-len(indexes) // 2)))
        self._waiting += [RequestBatch(piece, has_hung) for piece in pieces]


def _pieces(batch: RequestBatch, size: int) -> list[Sequence[int]]:
    return [batch.indexes[start : start + size] for start in range(0, len(batch.indexes), size)]


def _by_weight(requests: Mapping[int, Request]) -> Iterator[list[int]]:
    """Divide the requests into batches no heavier than `BATCH_SIZE`, but each of one at least."""
    batch: list[int] = []
    weight = 0.0
    for index, request in requests.items():
        weight += _weight(request)
        if batch and weight > BATCH_SIZE:
            yield batch
            batch, weight = [], _weight(request)
        batch.append(index)
    yield batch


def _weight(request: Request) -> float:
    """Return how much of `BATCH_SIZE` the request takes."""
    method, params = request
    return 1 + len(params[1]) / _SLOTS_PER_REQUEST if method == "eth_getProof" else 1
