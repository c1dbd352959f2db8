"""A client of beacon nodes, by their standard API (github.com/ethereum/beacon-APIs).

Historical summaries are not in that API, so it also uses endpoints of Nimbus and Lodestar, and whole states since
Gloas.

Every answer is verified: headers and blocks by their root, summaries and states by the state root, the block roots of a
period by the period's root. If one node's answer is false, the next node is asked.
"""

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar

from chains import bounded_http
from chains.beacon import blocks, ssz
from chains.beacon.blocks import BeaconHeader, ExecutionBranch
from chains.beacon.era_files import MOST_BLOCK
from chains.beacon.jumps import Anchor, BeaconChain, CannotProve
from chains.beacon.ssz import InvalidSsz
from chains.beacon.states import ReadState, StateReader
from chains.chains_file import Chain
from chains.encoding import hex_data, read_data, read_list, read_object
from chains.nodes.node_batches import Request, count_exchange, has_too_many_values, without_answer
from chains.nodes.node_errors import BadStatus, LimitsRequests, NodeUnavailable, RpcRefused
from chains.nodes.rpc import result

Answer = TypeVar("Answer")

# Endpoints for a state's historical summaries with their branch: Nimbus's and Lodestar's.
SUMMARIES_PATHS = (
    "/nimbus/v1/debug/beacon/states/{}/historical_summaries",
    "/eth/v1/lodestar/states/{}/historical_summaries",
)
_SPEC_PATH = "/eth/v1/config/spec"
_JSON, _SSZ = "application/json", "application/octet-stream"
# Maximum bytes of an answer. A summary takes about 200 bytes of JSON, and mainnet adds 13 summaries in a fortnight.
_MOST_USUAL, _MOST_SUMMARIES, _MOST_SPEC = 16 * 1024, 2 * 1024**2, 128 * 1024
# Seconds for which it is not asked again whether a node fits, and for which a state that no node had isn't.
_JUDGED_SECONDS, _RESTS_SECONDS = 600, 600
# Maximum requests for block roots that one node gets at the same time.
_ROOTS_AT_ONCE = 32
# Maximum seconds to read one period from one node. The worker has other work to do.
_PERIOD_SECONDS = 120
# Maximum bytes of a state, and of a state for its summaries alone. A state of mainnet has 313 MB, and hashing it takes
# a minute. A state of Sepolia has some megabytes. A state may take three times the seconds in all.
_MOST_STATE, _MOST_SMALL_STATE, _STATE_SECONDS = 512 * 1024**2, 32 * 1024**2, 45
_INTEGER = re.compile(r"[0-9]{1,20}")
# HTTP statuses that refuse one request: the node lacks the object or the endpoint, but works.
_REFUSED = frozenset({400, 404, 405, 406, 410, 415, 501})


class BeaconClient:
    """A client of a chain's beacon nodes, for any number of threads. All its methods may raise `NodeUnavailable`.

    The nodes are asked in order. A node that failed is asked last.
    """

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
        self._clock = clock
        self._failed_states: dict[tuple[bytes, int], tuple[float, Sequence[str]]] = {}
        """When no node had a state, by the root of its block and the maximum of bytes, and the reasons."""
        self._endpoints = [
            BeaconEndpoint(chain.id, url, host, timeout_seconds)
            for url, host in zip(chain.beacon_urls, chain.beacon_hosts, strict=True)
        ]

    def header(self, root: bytes | str) -> BeaconHeader:
        """Return the header with this root, or the finalized header for "finalized".

        Only the latter can't be verified.
        """
        identifier = root if isinstance(root, str) else hex_data(root)
        expected = None if isinstance(root, str) else root
        request = _json(f"/eth/v1/beacon/headers/{identifier}")
        return self._first(request, lambda content: _read_header(content, expected), f"the beacon header {identifier}")

    def block(self, root: bytes) -> ExecutionBranch:
        """Return the execution block that the beacon block with this root names, and its proof."""
        chain, name = self._beacon_chain, hex_data(root)

        def read(content: bytes) -> ExecutionBranch:
            # A false slot gives another root, and so does the layout of another fork.
            slot = blocks.slot_of(content)
            with suppress(InvalidSsz, CannotProve):
                branch = blocks.execution_branch(content, chain.layout(slot), preset=chain.preset)
                if branch.header.root == root:
                    return branch
            raise ValueError(f"another block than the requested one, or not with the layout of slot {slot}")

        return self._first((f"/eth/v2/beacon/blocks/{name}", [_SSZ, MOST_BLOCK]), read, f"the beacon block {name}")

    def summaries(self, header: BeaconHeader) -> Anchor:
        """Return the historical summaries of a block's state, verified against the header's state root."""
        object_name, reasons = f"the historical summaries of the state of slot {header.slot}", list[str]()
        for path in SUMMARIES_PATHS:
            request = (path.format(header.slot), [_JSON, _MOST_SUMMARIES])
            try:
                return self._first(request, lambda content: self._read_anchor(content, header), object_name)
            except NodeUnavailable as error:
                reasons += error.reasons
        if header.slot >= self._beacon_chain.gloas:
            try:
                state = self._state(header, _MOST_SMALL_STATE)
                return Anchor(header, state.summaries, state.summaries_branch)
            except NodeUnavailable as error:
                reasons += error.reasons
        raise self._lacking(f"{object_name}, which Nimbus and Lodestar tell", reasons)

    def _read_anchor(self, content: bytes, header: BeaconHeader) -> Anchor:
        data = _data(content)
        summaries = []
        for summary in map(read_object, read_list(data.get("historical_summaries"))):
            first, second = (read_data(summary.get(name), 32) for name in ("block_summary_root", "state_summary_root"))
            summaries.append((first, second))
        anchor = Anchor(header, summaries, [read_data(sibling, 32) for sibling in read_list(data.get("proof"))])
        if not anchor.is_true(self._beacon_chain):
            raise ValueError("summaries that don't belong to the state")
        return anchor

    def last_roots(self, header: BeaconHeader) -> tuple[bytes, Sequence[bytes]]:
        """Return the last block roots in a block's state, and their branch, verified against the header's state root.

        The roots are in the order of their slots' places in a period. No endpoint has the branch, so the whole state is
        read.
        """
        state = self._state(header, _MOST_STATE)
        return state.block_roots, state.block_roots_branch

    def _state(self, header: BeaconHeader, most: int) -> ReadState:
        """Return the parts of a block's whole state, which has `most` bytes at most."""
        object_name = f"the state of slot {header.slot}"
        try:
            reader = StateReader(self._beacon_chain, header.slot)
        except CannotProve as unknown:
            raise self._lacking(object_name, [str(unknown).removesuffix(".")]) from None

        def read(_: bytes) -> ReadState:
            with suppress(InvalidSsz):
                if (state := reader.end()).root == header.state_root:
                    return state
            raise ValueError("another state than the requested one")

        request = (f"/eth/v2/debug/beacon/states/{header.slot}", [_SSZ, most])
        now = self._clock()
        self._failed_states = {key: one for key, one in self._failed_states.items() if now - one[0] < _RESTS_SECONDS}
        if failed := self._failed_states.get((header.root, most)):
            raise self._lacking(object_name, failed[1])
        try:
            return self._first(request, read, object_name, reader)
        except NodeUnavailable as error:
            self._failed_states[header.root, most] = self._clock(), error.reasons
            raise

    def block_roots(self, period: int, root: bytes) -> bytes:
        """Return the block root of each slot of a period. A missed slot has the root of the block before it.

        `root` is the root of the whole list. A node is asked for all slots of the period before the next node is tried.
        """
        problems: list[str] = []
        for endpoint in self._in_order():
            try:
                roots = self._roots_of(endpoint, period)
            except NodeUnavailable as problem:
                problems.append(str(problem))
            except ValueError as wrong:
                problems.append(f"{endpoint.host} answered with {wrong}")
            else:
                if ssz.tree_root(roots, self._beacon_chain.period_depth) == root:
                    return b"".join(roots)
                lacks = f"{endpoint.host} lacks blocks, or tells roots that are not the chain's"
                problems.append(self._why_unfit(endpoint) or lacks)
        raise self._lacking(f"the block roots of period {period}", problems)

    def _roots_of(self, endpoint: "BeaconEndpoint", period: int) -> list[bytes]:
        depth, ends = self._beacon_chain.period_depth, self._clock() + _PERIOD_SECONDS
        first, end = period << depth, period + 1 << depth
        roots: list[bytes] = []
        # Slots before the chain's first block have a root of zeros.
        last = bytes(32)
        # If the period begins with missed slots, they have the root of a block just before the period.
        for start in range(max(0, first - _ROOTS_AT_ONCE), end, _ROOTS_AT_ONCE):
            if self._clock() > ends:
                raise NodeUnavailable(f"{endpoint.host} is too slow")
            slots = range(start, min(start + _ROOTS_AT_ONCE, end))
            for answer in endpoint.exchange([_json(f"/eth/v1/beacon/blocks/{slot}/root") for slot in slots]):
                # A refused slot counts as missed. If it was not missed, the check against the period's root fails.
                last = last if isinstance(answer, RpcRefused) else _read_root(result(answer))
                roots.append(last)
            if not any(last):
                raise NodeUnavailable(f"{endpoint.host} has no block of slots {start} to {slots[-1]}")
        return roots[-(1 << depth) :]

    def _first(
        self,
        request: Request,
        read: Callable[[bytes], Answer],
        object_name: str,
        reader: StateReader | None = None,
    ) -> Answer:
        """Return the answer of the first node whose answer can be read, by `reader` if one is given."""
        reasons: list[str] = []
        for endpoint in self._in_order():
            (answer,) = endpoint.exchange([request], reader)
            try:
                return read(result(answer))
            except RpcRefused as refused:
                status = f"{endpoint.host} answered with HTTP status {refused.code}"
                reasons.append(self._why_unfit(endpoint) or status)
            except NodeUnavailable as error:
                endpoint.failed_at = self._clock()
                reasons.append(str(error))
            except ValueError as error:
                endpoint.failed_at = self._clock()
                reasons.append(self._why_unfit(endpoint) or f"{endpoint.host} answered with {error}")
        raise self._lacking(object_name, reasons)

    @property
    def unfit(self) -> list[str]:
        """Return, for each node that serves another chain or doesn't know its forks, a sentence without a period."""
        return [why for endpoint in self._endpoints if (why := self._why_unfit(endpoint))]

    def _why_unfit(self, endpoint: "BeaconEndpoint") -> str:
        """Return why a node can't be used, if it says that it has another network, or another slot of Gloas."""
        if self._clock() - endpoint.judged_at < _JUDGED_SECONDS:
            return endpoint.unfit
        chain, node = self._beacon_chain, f"{endpoint.host} in beacon_urls"
        genesis, spec = endpoint.exchange([_json("/eth/v1/beacon/genesis"), (_SPEC_PATH, [_JSON, _MOST_SPEC])])
        endpoint.unfit, endpoint.judged_at = "", self._clock()
        # A node need not say any of this. It is asked only after it has failed.
        with suppress(NodeUnavailable, RpcRefused, ValueError):
            told = _data(result(spec))
            gloas = told.get("GLOAS_FORK_EPOCH")
            slot = None if gloas is None else _read_integer(gloas) * _read_integer(told.get("SLOTS_PER_EPOCH"))
            # A chain with Gloas from its first block on has it from slot 1 on here.
            if chain.gloas < chain.end and slot != chain.gloas and not (slot == 0 and chain.gloas == 1):
                endpoint.unfit = f"{node} doesn't know that Gloas begins at slot {chain.gloas:,}: update it"
            elif chain.gloas == chain.end and slot is not None and chain.time_of(slot) <= time.time():
                endpoint.unfit = f"{node} says that Gloas has begun at slot {slot:,}, which the service doesn't know"
        with suppress(NodeUnavailable, RpcRefused, ValueError):
            began = _read_integer(_data(result(genesis)).get("genesis_time"))
            if began != chain.genesis_time:
                endpoint.unfit = (
                    f"{node} is of another network: its chain began at {began}, and that of chain {self._chain.id} at "
                    f"{chain.genesis_time}"
                )
        return endpoint.unfit

    def _in_order(self) -> "list[BeaconEndpoint]":
        return sorted(self._endpoints, key=lambda endpoint: endpoint.failed_at)

    def _lacking(self, object_name: str, reasons: Sequence[str]) -> NodeUnavailable:
        told = "; ".join(dict.fromkeys(reasons))
        error = NodeUnavailable(f"No beacon node in beacon_urls of {self._chain.label} has {object_name}: {told}.")
        error.reasons = tuple(reasons)
        return error


class BeaconEndpoint:
    """One beacon node. A request is a GET: a path, the accepted content type and the maximum size in bytes."""

    def __init__(self, chain_id: int, url: str, host: str, timeout_seconds: float) -> None:
        self.host = host
        self.failed_at = 0.0
        self.judged_at, self.unfit = -math.inf, ""
        """When the node was asked for its network and forks, and what is wrong with them."""
        self._chain_id = chain_id
        self._url = url
        self._timeout = timeout_seconds

    def exchange(
        self, batched: Sequence[Request], reader: StateReader | None = None
    ) -> list[bytes | RpcRefused | NodeUnavailable]:
        """Send GET requests at the same time. Return the content of each answer, or its error.

        If a reader is given, it gets the content instead.
        """
        began = time.monotonic()
        seconds = _STATE_SECONDS if reader else self._timeout
        posts = [
            bounded_http.get(self._url, path, {"Accept": accept}, most, seconds=seconds, status=HTTPStatus.OK)
            for path, (accept, most) in batched
        ]
        if reader:
            reader.begin()
            posts = [replace(post, take=reader.feed) for post in posts]
        answers = [self._result(answer) for answer in bounded_http.send_all(posts)]
        # The requests ran at the same time, so each is counted with an equal share of the time.
        seconds = (time.monotonic() - began) / len(answers)
        for answer in answers:
            count_exchange(self._chain_id, self.host, answer, seconds)
        return answers

    def _result(self, answer: bounded_http.HttpReply | bounded_http.Failed) -> bytes | RpcRefused | NodeUnavailable:
        if isinstance(answer, bounded_http.Failed):
            return without_answer(self.host, answer)
        if answer.status == HTTPStatus.OK:
            return answer.content
        if answer.status in _REFUSED:
            return RpcRefused(answer.status, "")
        kind = LimitsRequests if answer.status == HTTPStatus.TOO_MANY_REQUESTS else BadStatus
        return kind(f"{self.host} {answer.status_text}")


def _json(path: str) -> Request:
    return path, [_JSON, _MOST_USUAL]


# --- Answers ----------------------------------------------------------------------------------------------------------


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
        raise ValueError("an invalid number")
    return int(written)


def _read_root(content: bytes) -> bytes:
    return read_data(_data(content).get("root"), 32)


def _read_header(content: bytes, root: bytes | None) -> BeaconHeader:
    message = read_object(read_object(_data(content).get("header")).get("message"))
    slot, proposer = (_read_integer(message.get(name)) for name in ("slot", "proposer_index"))
    roots = (read_data(message.get(name), 32) for name in ("parent_root", "state_root", "body_root"))
    header = BeaconHeader(slot, proposer, *roots)
    if root not in {None, header.root}:
        raise ValueError("another header than the requested one")
    return header
