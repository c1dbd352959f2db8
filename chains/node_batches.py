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
# Pauses in which a node that answers a part of what it is asked in a second answers the rest.
_MAX_PAUSES = 8
# Failed batches that tell a limit of their size; one may be an accident. Where the node names the size, one will do.
_CLEAR_SIGNS = 3
# A limit of requests in a second makes batches no smaller.
_LEAST_BY_RATE = 5

Request = tuple[str, list[Any]]
"""A method and its parameters, as JSON has them."""

Results = list[Any | RpcRefused | NodeUnavailable]
"""For each request of a batch its result, or what is wrong with the reply to it."""


class BatchRefused(NodeUnavailable):
    """The node gave no answer to a request, or to any, because of the batch that it came in."""

    kind = "too_long"
    is_sure = False
    """True if the node's words name the batch."""
    refusal: RpcRefused | None = None
    """The node's refusal of the request, which may hold where it comes alone as well."""


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
        self._is_limited = False
        self._is_answering = False
        self._failures = 0
        self._pauses = 0
        self._signs = 0
        """Signs that batches are too large."""
        self._answered = 0
        """The size of the largest batch in which each request was answered."""
        self._failed = BATCH_SIZE + 1
        """The size of the smallest batch that failed."""
        self._needs_pause = False
        """True if the node answered a part of a batch, and limits requests for a moment."""
        self._hung: NodeUnavailable | None = None
        self._failure: NodeUnavailable | None = None
        """The last failures of this wave: of what took its time, and of what was answered at once."""
        self._has_answered = False
        """True if anything was answered in this wave."""
        self._limits: LimitsRequests | None = None

    @property
    def has_failed(self) -> bool:
        return self._failures > 0

    def pause(self) -> bool:
        """Return whether to pause before the next wave, and count it."""
        self._pauses += self._needs_pause
        return self._needs_pause

    @property
    def learned_limit(self) -> int | None:
        """Return how many requests the node takes in a batch; None where nothing was learned.

        If batches of one size fail and are answered, a request is at fault and not the size.
        """
        if self._is_limited:
            return self._limit
        is_clear = self._signs >= _CLEAR_SIGNS and 0 < self._answered < self._failed
        return self._answered if is_clear else None

    def next_wave(self) -> list[RequestBatch]:
        """Return batches to send at the same time; none if nothing waits."""
        pieces = [
            RequestBatch(piece, batch.has_hung) for batch in self._waiting for piece in _pieces(batch, self._limit)
        ]
        # Failed batches come last: they may take long again.
        wave, self._waiting = pieces[:_AT_ONCE], pieces[_AT_ONCE:]
        self._hung = self._failure = None
        self._has_answered = self._needs_pause = False
        return wave

    def take(self, batch: RequestBatch, outcome: Results | NodeUnavailable) -> Iterator[tuple[int, Any]]:
        """Yield the answers in what came of a batch. What has none waits again, in smaller batches."""
        if not isinstance(outcome, NodeUnavailable):
            yield from self._take_results(batch.indexes, outcome)
        elif isinstance(outcome, NodeTimedOut):
            self._hung = outcome
            self._take_failure(batch.indexes, outcome, size=1 if batch.has_hung else None)
        elif isinstance(outcome, LimitsRequests) and len(batch.indexes) > 1:
            # It may count the requests in a batch.
            self._limits = outcome
            self._be_limited(len(batch.indexes) // 2, is_at_limit=len(batch.indexes) >= self._limit)
        else:
            self._take_failure(batch.indexes, outcome)

    def end_wave(self) -> None:
        """Raise `NodeUnavailable` if the node wants fewer requests, or if it is of no use to go on."""
        failure = self._hung or (None if self._has_answered else self._failure)
        self._failures += failure is not None
        if self._limits:
            raise self._limits
        if failure and self._failures >= (_MAX_FAILURES_IF_IT_ANSWERS if self._is_answering else _MAX_FAILURES):
            raise failure
        if not self._waiting and self.unanswered and not self._is_answering:
            raise next(iter(self.unanswered.values()))

    def _take_results(self, indexes: Sequence[int], results: Results) -> Iterator[tuple[int, Any]]:
        answers = dict(zip(indexes, results, strict=True))
        again = {index: answer for index, answer in answers.items() if isinstance(answer, BatchRefused)}
        limited = [index for index, answer in answers.items() if isinstance(answer, LimitsRequests)]
        if len(limited) == len(answers) or self._pauses == _MAX_PAUSES:
            limited = []
        for index in answers.keys() - {*again, *limited}:
            yield index, answers[index]
        if len(again) + len(limited) < len(answers):
            self._has_answered = self._is_answering = True
        if all(not isinstance(answer, RpcRefused | NodeUnavailable) for answer in results):
            self._answered = max(self._answered, len(answers))
        if limited:
            self._needs_pause = True
            self._be_limited(len(answers) - len(limited))
            self._divide(limited, len(limited))
        if again:
            self._note_failed(len(answers), is_sure=any(refused.is_sure for refused in again.values()))
            self._divide([*again])

    def _take_failure(self, indexes: Sequence[int], failure: NodeUnavailable, size: int | None = None) -> None:
        """Divide a batch of which nothing came, or give its only request up."""
        is_of_size = isinstance(failure, BatchRefused | ReplyTooLong)
        if len(indexes) == 1:
            self.unanswered[indexes[0]] = failure
            if not isinstance(failure, ReplyTooLong | LimitsRequests):
                self._failure = failure
            return
        if isinstance(failure, NodeTimedOut):
            self._divide(indexes, size, has_hung=True)
            return
        self._note_failed(len(indexes), is_sure=is_of_size)
        if isinstance(failure, BatchRefused) or self._answered <= 1:
            self._limit = min(self._limit, -(-len(indexes) // 2))
        if not is_of_size and not self._failure:
            # Two requests that come alone tell whether the node answers any: one may be at fault itself.
            self._waiting[:0] = [RequestBatch(indexes[:1]), RequestBatch(indexes[-1:])]
            indexes = indexes[1:-1]
        self._failure = self._failure if is_of_size else failure
        self._divide(indexes)

    def _note_failed(self, size: int, *, is_sure: bool) -> None:
        self._signs += _CLEAR_SIGNS if is_sure else 1
        self._failed = min(self._failed, size)

    def _be_limited(self, size: int, *, is_at_limit: bool = False) -> None:
        """Send smaller batches. A small one tells little, but where larger ones were limited before (`is_at_limit`)."""
        if size >= _LEAST_BY_RATE or (is_at_limit and size):
            self._is_limited = True
            self._limit = min(self._limit, size)

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
