"""Requests to a node, divided into JSON-RPC batches, and a failed batch into smaller ones; and a budget of requests.

Nodes limit the requests in a batch and the size of its reply. They report such a limit in many ways: an error for all
requests, for the first request (geth) or for each, a cut reply, an HTTP status, or a broken connection.
"""

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import Counter, Histogram

from chains.bounded_http import Failed, TimedOut, TooLong
from chains.nodes.node_errors import ChainError, InvalidReply, LimitsRequests, NodeUnavailable, RpcRefused

# Maximum weight (`_weight`) of the requests in one batch, and maximum batches sent to one node at the same time.
BATCH_SIZE = 50
_SLOTS_PER_REQUEST = 20
_AT_ONCE = 4
# Failed waves after which no more requests go to the node. Otherwise a node that hangs would delay all the questions.
_MAX_FAILURES, _MAX_FAILURES_IF_IT_ANSWERS = 2, 4
# Maximum requests of a batch that hung which are then sent one by one. Smaller batches would cost another time-out.
_MAX_SINGLY = 32
# Maximum number of pauses for a node that limits requests per second and answers only a part of a batch.
_MAX_PAUSES = 8
# Failed batches after which their size counts as too large. A single failure may be an accident, but one is enough if
# the node's error names the batch.
_CLEAR_SIGNS = 3
# A limit of requests per second reduces the batch size no further than this.
_LEAST_BY_RATE = 5

Request = tuple[str, list[Any]]
"""A method and its parameters, as in JSON."""

Results = list[Any | RpcRefused | NodeUnavailable]
"""The result of each request of a batch, or the fault of the reply to it."""


class BatchRefused(NodeUnavailable):
    """The node rejected a batch, or requests in it, because of the batch."""

    kind = "too_long"
    refusal: RpcRefused | None = None
    """The node's refusal of the request, which may also hold for the request alone."""


class ReplyTooLong(InvalidReply):
    """The reply exceeds its maximum size."""

    kind = "too_long"


class NodeTimedOut(NodeUnavailable):
    """The node did not answer in time."""

    kind = "timed_out"


class RequestBatch(NamedTuple):
    """Indexes of the requests that go into one batch."""

    indexes: Sequence[int]
    has_hung: bool = False
    """True if the node timed out on a larger batch with these requests."""


class Division:
    """The requests that a node has not answered yet, in batches that become smaller as they fail.

    A batch may fail because of its size, because of one request in it, or because of the node.
    """

    def __init__(
        self,
        requests: Mapping[int, Request],
        limit: int,
        clear_signs: int = _CLEAR_SIGNS,
        *,
        hung: Collection[int] = (),
    ) -> None:
        """`limit` is the number of requests that the node is known to accept in a batch.

        After `clear_signs` failed batches their size counts as too large. The requests in `hung`, by index, go alone.
        """
        self.unanswered: dict[int, NodeUnavailable] = {}
        """The failures of requests that were sent alone, by index."""
        usual = {index: request for index, request in requests.items() if index not in hung}
        self._waiting = [RequestBatch(indexes) for indexes in _by_weight(usual)]
        self._waiting += [RequestBatch([index], has_hung=True) for index in hung]
        self._limit, self._clear_signs = limit, clear_signs
        self._is_limited = False
        self._is_answering = False
        self._failures = 0
        self._pauses = 0
        self._signs = 0
        """Number of signs that batches are too large."""
        self._answered = 0
        """The size of the largest batch in which each request was answered."""
        self._failed = BATCH_SIZE + 1
        """The size of the smallest batch that failed."""
        self._needs_pause = False
        """True if the node answered a part of a batch, and limits requests for a moment."""
        self._hung: NodeUnavailable | None = None
        self._failure: NodeUnavailable | None = None
        """The last failures of this wave: the last time-out, and the last other failure."""
        self._has_answered = False
        """True if a request was answered in this wave."""
        self._limits: LimitsRequests | None = None

    @property
    def has_failed(self) -> bool:
        return self._failures > 0

    def pause(self) -> bool:
        """Return whether to pause before the next wave. Count the pause."""
        self._pauses += self._needs_pause
        return self._needs_pause

    @property
    def refused_size(self) -> int | None:
        """Return the size of the smallest batch that failed. None: none did."""
        return self._failed if self._failed <= BATCH_SIZE else None

    @property
    def learned_limit(self) -> int | None:
        """Return the number of requests that the node accepts in a batch. None if it isn't known.

        If batches of the same size both fail and succeed, the size is not the cause.
        """
        if self._is_limited:
            return self._limit
        is_clear = self._signs >= self._clear_signs and 0 < self._answered < self._failed
        return self._answered if is_clear else None

    def next_wave(self) -> list[RequestBatch]:
        """Return batches to send at the same time. Empty if no request is left."""
        pieces = [
            RequestBatch(piece, batch.has_hung) for batch in self._waiting for piece in _pieces(batch, self._limit)
        ]
        # Failed batches go last, because they may be slow again.
        wave, self._waiting = pieces[:_AT_ONCE], pieces[_AT_ONCE:]
        self._hung = self._failure = None
        self._has_answered = self._needs_pause = False
        return wave

    def take(self, batch: RequestBatch, outcome: Results | NodeUnavailable) -> Iterator[tuple[int, Any]]:
        """Yield the answers in a batch's outcome. Queue requests without an answer again, in smaller batches."""
        if not isinstance(outcome, NodeUnavailable):
            yield from self._take_results(batch.indexes, outcome)
        elif isinstance(outcome, NodeTimedOut):
            self._hung = outcome
            is_small = batch.has_hung or len(batch.indexes) <= _MAX_SINGLY
            # The last requests go first. The first ones may hang, and others show that the node answers.
            self._take_failure(batch.indexes[:: -1 if is_small else 1], outcome, size=1 if is_small else None)
        elif isinstance(outcome, LimitsRequests) and len(batch.indexes) > 1:
            # The node may count each request of a batch against its limit.
            self._limits = outcome
            self._be_limited(len(batch.indexes) // 2, is_at_limit=len(batch.indexes) >= self._limit)
        else:
            self._take_failure(batch.indexes, outcome)

    def end_wave(self) -> None:
        """Raise `NodeUnavailable` if the node limits requests, or if further waves are hopeless."""
        failure = self._hung or (None if self._has_answered else self._failure)
        self._failures += failure is not None
        if self._limits:
            raise self._limits
        if failure and self._failures >= (_MAX_FAILURES_IF_IT_ANSWERS if self._is_answering else _MAX_FAILURES):
            raise failure
        if not self._waiting and self.unanswered and not self._is_answering:
            raise self.unanswered[min(self.unanswered)]

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
            self._note_failed(len(answers))
            self._divide([*again])

    def _take_failure(self, indexes: Sequence[int], failure: NodeUnavailable, size: int | None = None) -> None:
        """Divide a batch that failed as a whole. If it had a single request, record its failure."""
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
            # The first and the last request go alone, to learn whether the node answers anything. Either of them may be
            # at fault.
            self._waiting[:0] = [RequestBatch(indexes[:1]), RequestBatch(indexes[-1:])]
            indexes = indexes[1:-1]
        self._failure = self._failure if is_of_size else failure
        self._divide(indexes)

    def _note_failed(self, size: int, *, is_sure: bool = False) -> None:
        self._signs += _CLEAR_SIGNS if is_sure else 1
        self._failed = min(self._failed, size)

    def _be_limited(self, size: int, *, is_at_limit: bool = False) -> None:
        """Reduce the batch size.

        A very small size counts only if a batch of the current limit failed (`is_at_limit`).
        """
        if size >= _LEAST_BY_RATE or (is_at_limit and size):
            self._is_limited = True
            self._limit = min(self._limit, size)

    def _divide(self, indexes: Sequence[int], size: int | None = None, *, has_hung: bool = False) -> None:
        """Queue the requests again in batches of `size`. The default is halves."""
        pieces = _pieces(RequestBatch(indexes), size or max(1, -(-len(indexes) // 2)))
        self._waiting += [RequestBatch(piece, has_hung) for piece in pieces]


def _pieces(batch: RequestBatch, size: int) -> list[Sequence[int]]:
    return [batch.indexes[start : start + size] for start in range(0, len(batch.indexes), size)]


def _by_weight(requests: Mapping[int, Request]) -> Iterator[list[int]]:
    """Divide the requests into batches of at least one request and at most `BATCH_SIZE` in weight."""
    batch: list[int] = []
    weight = 0.0
    for index, request in requests.items():
        weight += _weight(request)
        if batch and weight > BATCH_SIZE:
            yield batch
            batch, weight = [], _weight(request)
        batch.append(index)
    if batch:
        yield batch


def _weight(request: Request) -> float:
    """Return the weight of a request. It is 1, or more for a proof with slots."""
    method, params = request
    return 1 + len(params[1]) / _SLOTS_PER_REQUEST if method == "eth_getProof" else 1


# --- Exchanges --------------------------------------------------------------------------------------------------------

# Maximum JSON values in a reply. Three bytes of JSON may take 200 in memory, so limiting bytes is not enough.
MAX_REPLY_VALUES = 250_000
# The label "node" is a host, never a URL, because the URL may hold a key.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
NODE_EXCHANGES = Counter(
    "batchquery_node_exchanges_total",
    "HTTP requests to nodes, by outcome: answered, or the reason why there was no usable answer.",
    ("chain", "node", "outcome"),
)
NODE_EXCHANGE_SECONDS = Histogram(
    "batchquery_node_exchange_seconds", "How long an HTTP request to a node took.", ("chain", "node"), buckets=_SECONDS
)


def without_answer(host: str, failed: Failed) -> NodeUnavailable:
    """Return the error for an HTTP request without a usable answer."""
    kinds: dict[type[Failed], type[NodeUnavailable]] = {TooLong: ReplyTooLong, TimedOut: NodeTimedOut}
    return kinds.get(type(failed), NodeUnavailable)(f"{host} {failed}")


def has_too_many_values(content: bytes) -> bool:
    """Return whether JSON may have more than `MAX_REPLY_VALUES` values."""
    return sum(map(content.count, (b",", b"[", b"{"))) > MAX_REPLY_VALUES


def count_exchange(chain_id: int, host: str, outcome: object, seconds: float) -> None:
    """Count an HTTP request in the metrics. `outcome` is the answer or a `NodeUnavailable`."""
    kind = outcome.kind if isinstance(outcome, NodeUnavailable) else "answered"
    NODE_EXCHANGES.labels(str(chain_id), host, kind).inc()
    NODE_EXCHANGE_SECONDS.labels(str(chain_id), host).observe(seconds)


class OutOfExchanges(ChainError):
    """The nodes took more exchanges or seconds than the client may take."""


class ExchangeBudget:
    """HTTP requests and seconds that are left, for all nodes together."""

    def __init__(self, exchanges: int, seconds: float) -> None:
        self.exchanges_left = exchanges
        self._ends_at = time.monotonic() + seconds
        self._lock = threading.Lock()

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    def check_time(self) -> None:
        """Raise `OutOfExchanges` if no seconds are left. Exchanges end by then anyway."""
        if not self.seconds_left:
            raise OutOfExchanges("The search takes too long.")

    def take(self, exchanges: int) -> None:
        """Count exchanges that begin now. Raises `OutOfExchanges`."""
        self.check_time()
        with self._lock:
            if exchanges > self.exchanges_left:
                raise OutOfExchanges("The search takes too many requests to nodes.")
            self.exchanges_left -= exchanges
