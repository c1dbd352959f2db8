"""A client of beacon nodes: the standard API (github.com/ethereum/beacon-APIs), and two clients' own for summaries.

What a node says is believed as far as it can be verified: a header and a block by their root, summaries by the root of
their state. One that says something else counts as failing, and the next is asked. Roots of slots can't be verified one
by one.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import accumulate, takewhile
from typing import Any
from urllib.parse import urlsplit

from chains import bounded_http
from chains.beacon import blocks, jumps, ssz
from chains.beacon.blocks import BeaconHeader, ExecutionBranch
from chains.beacon.era_files import MOST_BLOCK
from chains.beacon.jumps import HISTORICAL_SUMMARIES, Anchor, BeaconChain
from chains.bounded_http import Post
from chains.chains_file import Chain
from chains.encoding import hex_data, read_data, read_list, read_object
from chains.exchange_metrics import NODE_EXCHANGE_SECONDS, NODE_EXCHANGES
from chains.node_errors import BadStatus, InvalidReply, LimitsRequests, NodeUnavailable, RpcRefused
from chains.node_pool import NodePool
from chains.request_batches import Answer, Request, has_too_many_values, without_answer

# The endpoints that tell a state's historical summaries with their branch: Nimbus's, and Lodestar's.
SUMMARIES_PATHS = (
    "/nimbus/v1/debug/beacon/states/{}/historical_summaries",
    "/eth/v1/lodestar/states/{}/historical_summaries",
)
_JSON, _SSZ = "application/json", "application/octet-stream"
# Bytes of an answer at most. A summary takes about 200, and there are 13 a fortnight.
_MOST_USUAL, _MOST_SUMMARIES = 16 * 1024, 2 * 1024**2
# Requests that go to one node at the same time, at most; and how long after it limited them it is asked for twice as
# many as before.
AT_ONCE = 32
_DOUBLING_SECONDS = 60
# Bytes that the answers to these may have together.
_MOST_AT_ONCE = 4 * MOST_BLOCK
_INTEGER = re.compile(r"[0-9]{1,20}")
# Refusals of one request, as far as the node is concerned: what it hasn't, and what it doesn't know.
_REFUSED = frozenset(
    {
        HTTPStatus.NOT_FOUND,
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.NOT_ACCEPTABLE,
        HTTPStatus.GONE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.NOT_IMPLEMENTED,
    }
)


class BeaconClient:
    """A client of a chain's beacon nodes, for any number of threads. All its methods may raise `NodeUnavailable`."""

    def __init__(
        self,
        chain: Chain,
        beacon_chain: BeaconChain,
        *,
        timeout_seconds: float = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chain = chain
        self._beacon_chain = beacon_chain
        endpoints = [
            BeaconEndpoint(chain.id, url, host, timeout_seconds=timeout_seconds, clock=clock)
            for url, host in zip(chain.beacon_urls, chain.beacon_hosts, strict=True)
        ]
        self._nodes, *self._alone = [
            NodePool(chain, some, timeout_seconds=timeout_seconds, clock=clock, kind="beacon node")
            for some in (endpoints, *([one] for one in endpoints))
        ]

    def __repr__(self) -> str:
        return f"BeaconClient({self._chain.name!r}, {', '.join(self._chain.beacon_hosts)})"

    @property
    def count(self) -> int:
        """Return how many nodes there are."""
        return len(self._alone)

    def header(self, root: bytes | str) -> BeaconHeader:
        """Return the header with this root; or that of the block "finalized", which is the node's word."""
        identifier = root if isinstance(root, str) else hex_data(root)
        expected = None if isinstance(root, str) else root
        request = _json(f"/eth/v1/beacon/headers/{identifier}")
        return self._one(request, lambda content: _read_header(content, expected), f"the beacon header {identifier}")

    def block(self, root: bytes, slot: int) -> ExecutionBranch:
        """Return the execution block of the beacon block with this root, and what proves it. Raises `CannotProve`.

        That is, where the layout of blocks at that slot isn't known.
        """
        layout, preset = self._beacon_chain.layout(slot), self._beacon_chain.preset

        def read(content: bytes) -> ExecutionBranch:
            found = blocks.execution_branch(content, layout, preset=preset)
            if found.header.root != root or found.header.slot != slot:
                raise ValueError("another block than was asked for")
            return found

        request = (f"/eth/v2/beacon/blocks/{hex_data(root)}", [_SSZ, MOST_BLOCK])
        return self._one(request, read, f"the beacon block of slot {slot}")

    def summaries(self, header: BeaconHeader) -> Anchor:
        """Return the historical summaries of a block's state, verified against the header's state root."""
        answers = self._nodes.many(
            [(path.format(header.slot), [_JSON, _MOST_SUMMARIES]) for path in SUMMARIES_PATHS],
            lambda _, content: _read_anchor(content, header),
        )
        for answer in answers:
            if isinstance(answer, Anchor):
                return answer
        for answer in answers:
            if isinstance(answer, NodeUnavailable):
                raise answer
        (refused, *_) = (answer for answer in answers if isinstance(answer, RpcRefused))
        raise self._lacking(
            f"the historical summaries of the state of slot {header.slot}, which Nimbus and Lodestar tell", refused
        )

    def block_roots(self, slots: Sequence[int], *, only: int | None = None) -> list[bytes | None]:
        """Return the root of the block of each slot, None where it was missed: of the first of these, at least one.

        Not verified: a node may lie, or lack blocks. With `only`, one node alone is asked, by its place.
        """
        requests = [_json(f"/eth/v1/beacon/blocks/{slot}/root") for slot in slots]
        nodes = self._nodes if only is None else self._alone[only % self.count]
        found: list[bytes | None] = []
        for answer in nodes.many(requests, lambda _, content: _read_root(content)):
            if isinstance(answer, bytes):
                found.append(answer)
            elif isinstance(answer, RpcRefused):
                # Also if another node could not be asked: it may be down for long, and a wrong root shows in the end.
                found.append(None)
            elif found:
                break
            else:
                raise answer
        return found

    def _one(self, request: Request, read: Callable[[bytes], Answer], what: str) -> Answer:
        try:
            return self._nodes.one(request, read)
        except RpcRefused as refused:
            raise self._lacking(what, refused) from None

    def _lacking(self, what: str, refused: RpcRefused) -> NodeUnavailable:
        of = f"beacon node of {self._chain.label}"
        if refused.may_pass:
            return NodeUnavailable(f"Some {of} has not {what} (HTTP status {refused.code}), and another can't be used.")
        return NodeUnavailable(f"No {of} has {what} (HTTP status {refused.code}).")


class BeaconEndpoint:
    """One beacon node, asked by GETs, some at the same time. A request is a path, with what is accepted and how much.

    It remembers how many the node takes at the same time.
    """

    def __init__(
        self, chain_id: int, url: str, host: str, *, timeout_seconds: float, clock: Callable[[], float]
    ) -> None:
        self.host = host
        self._chain_id = chain_id
        self._url = url
        self._timeout = timeout_seconds
        self._clock = clock
        self._most: float = AT_ONCE
        self._halved_at = clock()

    @property
    def at_once(self) -> int:
        """Return how many requests it is sent at the same time."""
        doublings = (self._clock() - self._halved_at) // _DOUBLING_SECONDS
        return int(min(AT_ONCE, self._most * 2 ** min(doublings, 8)))

    def ask(
        self, batched: Mapping[int, Request], *, ends: float, least: int, check_node: Callable[[], None]
    ) -> Iterator[tuple[int, Any | RpcRefused | NodeUnavailable]]:
        """Yield the content of each answer, or what is wrong with it, as `chains.request_batches.Endpoint`.

        After the time at which it `ends` nothing more is asked for: roots of slots are many.
        """
        waiting = list(batched)
        while waiting:
            size = min(self.at_once, _fitting(batched[index] for index in waiting))
            chunk, waiting = waiting[:size], waiting[size:]
            answers = self.exchange([batched[index] for index in chunk])
            problems = [answer for answer in answers if isinstance(answer, NodeUnavailable)]
            if any(isinstance(problem, LimitsRequests) for problem in problems):
                self._most, self._halved_at = max(1, min(self._most, size / 2)), self._clock()
            if len(problems) == len(answers):
                raise problems[0]
            yield from zip(chunk, answers, strict=True)
            if problems:
                # What is left fares no better now. Others may be asked, and what was answered isn't lost.
                yield from ((index, problems[0]) for index in waiting)
                return
            if self._clock() >= ends:
                yield from ((index, NodeUnavailable(f"{self.host} answers too slowly")) for index in waiting)
                return

    def chain_id(self) -> int:
        """Ask the node which chain it is of. Raises `NodeUnavailable`."""
        (answer,) = self.exchange([_json("/eth/v1/config/deposit_contract")])
        if isinstance(answer, NodeUnavailable):
            raise answer
        try:
            return _read_integer(_data(b"" if isinstance(answer, RpcRefused) else answer).get("chain_id"))
        except ValueError:
            raise InvalidReply(f"{self.host} does not tell its chain id") from None

    def exchange(self, batched: Sequence[Request]) -> list[Any | RpcRefused | NodeUnavailable]:
        """Send GETs at the same time, and return for each the content of the answer, or what is wrong with it."""
        began = time.monotonic()
        parts = urlsplit(self._url)
        posts = [
            Post(
                parts._replace(path=parts.path.rstrip("/") + path).geturl(),
                b"",
                max_bytes=max_bytes,
                silence_seconds=self._timeout,
                total_seconds=3 * self._timeout,
                read_statuses={HTTPStatus.OK},
                method="GET",
                headers={"Accept": accept},
            )
            for path, (accept, max_bytes) in batched
        ]
        results = [self._result(answer) for answer in bounded_http.post_all(posts)]
        labels, seconds = (str(self._chain_id), self.host), time.monotonic() - began
        for result in results:
            outcome = result.kind if isinstance(result, NodeUnavailable) else "answered"
            NODE_EXCHANGES.labels(*labels, outcome).inc()
            # They share the time.
            NODE_EXCHANGE_SECONDS.labels(*labels).observe(seconds / len(results))
        return results

    def _result(self, answer: bounded_http.Answer | bounded_http.Failed) -> bytes | RpcRefused | NodeUnavailable:
        if isinstance(answer, bounded_http.Failed):
            return without_answer(self.host, answer)
        if answer.status == HTTPStatus.OK:
            return answer.content
        if answer.status in _REFUSED:
            return RpcRefused(answer.status, "")
        kind = LimitsRequests if answer.status == HTTPStatus.TOO_MANY_REQUESTS else BadStatus
        return kind(f"{self.host} answered with HTTP status {answer.status}")


def _fitting(requests: Iterable[Request]) -> int:
    """Return how many of these may be sent at the same time, one at least."""
    sums = accumulate(most for _, (_, most) in requests)
    return max(1, sum(1 for _ in takewhile(lambda total: total <= _MOST_AT_ONCE, sums)))


def _json(path: str) -> Request:
    return path, [_JSON, _MOST_USUAL]


# --- What comes back --------------------------------------------------------------------------------------------------


def _data(content: bytes) -> dict[str, Any]:
    if has_too_many_values(content):
        raise ValueError("too many values")
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("something that is not JSON") from None
    return read_object(read_object(answer).get("data"))


def _read_integer(written: Any) -> int:
    if not isinstance(written, str) or not _INTEGER.fullmatch(written):
        raise ValueError("a number that is none")
    return int(written)


def _read_root(content: bytes) -> bytes:
    return read_data(_data(content).get("root"), 32)


def _read_header(content: bytes, root: bytes | None) -> BeaconHeader:
    message = read_object(read_object(_data(content).get("header")).get("message"))
    slot, proposer = (_read_integer(message.get(name)) for name in ("slot", "proposer_index"))
    roots = (read_data(message.get(name), 32) for name in ("parent_root", "state_root", "body_root"))
    header = BeaconHeader(slot, proposer, *roots)
    if root not in {None, header.root}:
        raise ValueError("another header than was asked for")
    return header


def _read_anchor(content: bytes, header: BeaconHeader) -> Anchor:
    data = _data(content)
    summaries = []
    for one in read_list(data.get("historical_summaries")):
        both = (read_object(one).get(name) for name in ("block_summary_root", "state_summary_root"))
        first, second = (read_data(each, 32) for each in both)
        summaries.append((first, second))
    branch = [read_data(sibling, 32) for sibling in read_list(data.get("proof"))]
    root = ssz.list_root([ssz.merge(*each) for each in summaries], jumps.HISTORY_DEPTH)
    if ssz.climb(root, branch, HISTORICAL_SUMMARIES) != header.state_root:
        raise ValueError("summaries that are not those of the state")
    return Anchor(header, summaries, branch)
