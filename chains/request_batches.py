"""JSON-RPC batches: the HTTP exchanges with one node, and how much each may ask for.

A batch that a node refuses as a whole, answers at too great length or not in time is asked again in halves, down to one
request. RPC URLs often hold a provider's key, so nothing here shows more of them than the host.
"""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from prometheus_client import Counter, Histogram

from chains import bounded_http
from chains.bounded_http import Post
from chains.encoding import read_quantity
from chains.node_errors import BadStatus, InvalidReply, NodeUnavailable, RpcRefused, read_refusal
from chains.untrusted_text import secrets_of

# The maximum of one exchange, by the weight of its requests (`_weight`). Nodes take a hundred requests at least.
BATCH_SIZE = 200
# Slots that weigh as much in it as an account.
_SLOTS_PER_REQUEST = 20
# The size of one reply, whatever was asked for.
MAX_REPLY_BYTES = 16 * 1024 * 1024
# The values in it. Three bytes of JSON may take 200 in memory, so a limit of bytes alone is not enough.
MAX_REPLY_VALUES = 250_000
# The size of the reply to one request, including errors. For most methods _USUAL_BYTES is generous.
_USUAL_BYTES = 1024 * 1024
_REPLY_BYTES = {
    **dict.fromkeys(
        (
            "eth_chainId",
            "eth_getBalance",
            "eth_getTransactionCount",
            "eth_getStorageAt",
            "eth_maxPriorityFeePerGas",
        ),
        16 * 1024,
    ),
    # It holds the hashes of the block's transactions. Blocks of some chains have tens of thousands.
    "eth_getBlockByNumber": 4 * 1024 * 1024,
    "eth_getBlockByHash": 4 * 1024 * 1024,
    "eth_getLogs": 8 * 1024 * 1024,
}
# A trie is 64 nodes deep at most, and a node has 532 bytes at most, of two hexadecimal digits.
_PROOF_BYTES = 80 * 1024
# Some nodes send JSON-RPC errors as HTTP 400. The content of any other answer is not looked at.
_READ_STATUSES = {HTTPStatus.OK, HTTPStatus.BAD_REQUEST}
# Each time so long passes after a batch failed, its node is asked for twice as much: it may be quicker by now. To find
# out may take a time-out.
_DOUBLING_SECONDS = 60

# A label has a node's host and never its URL, which may hold a key.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

NODE_EXCHANGES = Counter(
    "batchquery_node_exchanges_total",
    "HTTP requests to nodes, by what came of them: answered, or why there was no usable answer.",
    ("chain", "node", "outcome"),
)
NODE_EXCHANGE_SECONDS = Histogram(
    "batchquery_node_exchange_seconds", "How long an HTTP request to a node took.", ("chain", "node"), buckets=_SECONDS
)

Request = tuple[str, list[Any]]
"""A method and its parameters, as JSON has them."""

Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True)
class Further(Generic[Answer_co]):
    """A result that needs another request to the same node: the request, and how to read its result.

    If the node refuses it, it gave no usable answer.
    """

    request: Request
    read: "Callable[[Any], Answer_co | Further[Answer_co]]"
    lacking: str
    """The problem of a node that refuses it: words between the node's name and the refusal."""


@dataclass(frozen=True)
class Question(Generic[Answer_co]):
    """A request to a node, and how to read its result: by a function whose `ValueError` makes it no answer."""

    request: Request
    read: "Callable[[Any], Answer_co | Further[Answer_co] | RpcRefused]"
    block: int | None = None
    """The number of the block whose state it needs, where that may be one that not every node keeps."""


class _BatchRefused(NodeUnavailable):
    """One JSON-RPC error for a whole batch: the node takes no batches, or none of this size."""

    kind = "too_long"


class _ReplyTooLong(InvalidReply):
    """The reply is longer than it may be."""

    kind = "too_long"


class _TimedOut(NodeUnavailable):
    """The node did not answer in time."""

    kind = "timed_out"


def without_answer(host: str, failed: bounded_http.Failed) -> NodeUnavailable:
    """Return what is wrong with a node that gave no usable HTTP answer."""
    kinds: dict[type[bounded_http.Failed], type[NodeUnavailable]] = {
        bounded_http.TooLong: _ReplyTooLong,
        bounded_http.TimedOut: _TimedOut,
    }
    return kinds.get(type(failed), NodeUnavailable)(f"{host} {failed}")


def has_too_many_values(content: bytes) -> bool:
    """Return whether JSON may have more than `MAX_REPLY_VALUES`."""
    return sum(map(content.count, (b",", b"[", b"{"))) > MAX_REPLY_VALUES


# What fewer requests may fare better with.
_TOO_MUCH = (_BatchRefused, _ReplyTooLong, _TimedOut)


class Endpoint:
    """One node, asked in batches by any number of threads. It remembers how much the node answers at once."""

    def __init__(
        self, chain_id: int, url: str, host: str, *, timeout_seconds: float, clock: Callable[[], float]
    ) -> None:
        self.host = host
        self._chain_id = chain_id
        self._url = url
        self._timeout = timeout_seconds
        self._clock = clock
        self._ids = itertools.count(1)
        self._batch_size: float = BATCH_SIZE
        self._halved_at = clock()

    @property
    def batch_size(self) -> float:
        """Return the maximum weight of a batch."""
        doublings = (self._clock() - self._halved_at) // _DOUBLING_SECONDS
        return min(BATCH_SIZE, self._batch_size * 2 ** min(doublings, 8))

    def ask(
        self, batched: Mapping[int, Request], *, ends: float, check_node: Callable[[], None]
    ) -> Iterator[tuple[int, Any | RpcRefused | NodeUnavailable]]:
        """Yield the result of each request, or what is wrong with it.

        After the time at which it `ends`, nothing more is asked for once a request has hung. `check_node` raises what
        is wrong with a node that answers nothing. Raises `NodeUnavailable` where the node gives no answer at all, or
        none any more.
        """
        waiting = [list(batched)]
        while waiting:
            size = self.batch_size
            chunk, rest = _split(waiting[0], batched, size)
            waiting[:1] = [rest] if rest else []
            try:
                results = self.exchange([batched[index] for index in chunk])
            except NodeUnavailable as error:
                if len(chunk) > 1:
                    self._halve(size)
                if isinstance(error, _TimedOut) and self._clock() >= ends:
                    raise
                if len(chunk) > 1 and isinstance(error, _TOO_MUCH):
                    halves = [chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :]]
                    # Whatever it is that takes so long, the others come first.
                    waiting = [*waiting, *halves] if isinstance(error, _TimedOut) else [*halves, *waiting]
                    continue
                if len(chunk) > 1 or len(batched) == 1:
                    raise
                # It may be this request's fault, or the node is down.
                if waiting:
                    check_node()
                results = [error]
            yield from zip(chunk, results, strict=True)

    def _halve(self, size: float) -> None:
        """Ask for half of this size at once. Where several threads have failed with it, it is halved once."""
        self._batch_size, self._halved_at = max(1, min(self.batch_size, size / 2)), self._clock()

    def chain_id(self) -> int:
        """Ask the node which chain it is of. Raises `NodeUnavailable`."""
        (answer,) = self.exchange([("eth_chainId", [])])
        if isinstance(answer, NodeUnavailable):
            raise answer
        try:
            return read_quantity(answer)
        except ValueError:
            raise InvalidReply(f"{self.host} does not tell its chain id") from None

    def exchange(self, batched: Sequence[Request]) -> list[Any | RpcRefused | NodeUnavailable]:
        """Send requests in one HTTP exchange: one JSON-RPC object for one request, a JSON-RPC batch for several.

        Return for each request its result, or what is wrong with the reply to it alone. Raises `NodeUnavailable` for
        what is wrong with all.
        """
        began, outcome = time.monotonic(), "answered"
        try:
            return self._exchange(batched)
        except NodeUnavailable as error:
            outcome = error.kind
            raise
        finally:
            labels = str(self._chain_id), self.host
            NODE_EXCHANGES.labels(*labels, outcome).inc()
            NODE_EXCHANGE_SECONDS.labels(*labels).observe(time.monotonic() - began)

    def _exchange(self, batched: Sequence[Request]) -> list[Any | RpcRefused | NodeUnavailable]:
        ids = [next(self._ids) for _ in batched]
        bodies = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in zip(ids, batched, strict=True)
        ]
        max_bytes = min(MAX_REPLY_BYTES, sum(_most_bytes(request) for request in batched))
        reply = self._post(bodies if len(bodies) > 1 else bodies[0], max_bytes)
        if isinstance(reply, dict) and isinstance(reply.get("error"), dict):
            # The only reply that may lack an id: the node did not look into what it was sent.
            refusal = read_refusal(self.host, batched[0][0], reply["error"], secrets_of(self._url))
            if len(batched) > 1:
                raise _BatchRefused(f"{self.host} refuses a batch of {len(batched)} requests")
            if reply.get("id") is None:
                return [refusal]
        by_id: dict[int, Any] = {}
        for one in reply if isinstance(reply, list) else [reply]:
            number = one.get("id") if isinstance(one, dict) else None
            if type(number) is not int or number not in ids or number in by_id:
                raise InvalidReply(f"{self.host} sent a reply that belongs to no request")
            by_id[number] = one
        results = [self._result(method, by_id.get(number)) for number, (method, _) in zip(ids, batched, strict=True)]
        limits = [one for one in results if isinstance(one, NodeUnavailable) and not isinstance(one, InvalidReply)]
        if len(limits) == len(results):
            raise limits[0]
        return results

    def _post(self, body: Any, max_bytes: int) -> Any:
        """Send a body to the node, and return its reply, read from JSON.

        Raises `NodeUnavailable`, and as `without_answer` tells.
        """
        try:
            answer = bounded_http.post(
                Post(
                    self._url,
                    json.dumps(body).encode(),
                    max_bytes=max_bytes,
                    silence_seconds=self._timeout,
                    total_seconds=3 * self._timeout,
                    read_statuses=_READ_STATUSES,
                )
            )
        except bounded_http.Failed as failed:
            raise without_answer(self.host, failed) from None
        if answer.status not in _READ_STATUSES:
            raise BadStatus(f"{self.host} answered with HTTP status {answer.status}")
        if has_too_many_values(answer.content):
            raise _ReplyTooLong(f"{self.host} sent more than {MAX_REPLY_VALUES} values")
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError):
            raise InvalidReply(f"{self.host} answered with something that is not JSON") from None

    def _result(self, method: str, reply: dict[str, Any] | None) -> Any | RpcRefused | NodeUnavailable:
        """Return the result in a reply, a refusal, or what is wrong with the reply."""
        if reply is None:
            return InvalidReply(f"{self.host} left requests without a reply")
        error = reply.get("error")
        if isinstance(error, dict):
            try:
                return read_refusal(self.host, method, error, secrets_of(self._url))
            except NodeUnavailable as limited:
                return limited
        if error is not None or "result" not in reply:
            return InvalidReply(f"{self.host} answered {method} with neither a result nor an error")
        return reply["result"]


def _weight(request: Request) -> float:
    """Return how much of `BATCH_SIZE` the request takes."""
    method, params = request
    return 1 + len(params[1]) / _SLOTS_PER_REQUEST if method == "eth_getProof" else 1


def _split(waiting: Sequence[int], batched: Mapping[int, Request], size: float) -> tuple[list[int], list[int]]:
    """Return the first of the waiting requests, no more than `size` in weight but at least one, and the rest."""
    weights = itertools.accumulate(_weight(batched[index]) for index in waiting)
    count = max(1, sum(1 for _ in itertools.takewhile(lambda weight: weight <= size, weights)))
    return list(waiting[:count]), list(waiting[count:])


def _most_bytes(request: Request) -> int:
    """Return the maximum size of the reply to a request, in bytes."""
    method, params = request
    if method == "eth_getProof":
        return _PROOF_BYTES * (2 + len(params[1]))
    return _REPLY_BYTES.get(method, _USUAL_BYTES)
