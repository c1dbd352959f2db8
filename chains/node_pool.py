"""The nodes of one chain: JSON-RPC over HTTP, with failover.

A node that fails rests, and the next one is asked. A node that lacks old states is asked for them last.
RPC URLs often hold a provider's key, so no error, `repr` or log line here shows more of them than the host.
"""

import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Generic, TypeVar

from chains import bounded_http, together
from chains.bounded_http import Post
from chains.chains_file import Chain
from chains.encoding import read_quantity
from chains.exchange_metrics import NODE_EXCHANGE_SECONDS, NODE_EXCHANGES
from chains.node_errors import (
    FINAL,
    BadStatus,
    ChainError,
    InvalidReply,
    LimitsRequests,
    NodeUnavailable,
    RpcRefused,
    WrongChain,
    read_refusal,
)
from chains.untrusted_text import secrets_of

# Requests of one exchange at the most, by their weight (`_weight`). Nodes take a hundred at least; of one that takes
# fewer, or is too slow for so many, fewer are asked for.
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
MAX_REST_SECONDS = 60
# How long a node's chain id counts: its URL may lead to another chain one day.
CHAIN_CHECK_SECONDS = 30
# For so long after a failure, the only node is not asked again.
FAIL_FAST_SECONDS = 3
# After so many time-outs' time tasks that share exchanges wait no longer, and nothing is asked a node again that hung:
# a task's lease expires while it waits.
_PATIENCE = 2
# A node that has not answered a batch in time is asked for so many times fewer: each attempt may take as long.
_SLOWER = 4
# Good exchanges at the most before a node is asked for more again.
_MOST_UNTIL_MORE = 256
# Stands for "needs no block's state".
_NO_STATE = 0
# Codes by which JSON-RPC refuses how something is asked, and not what: no JSON, no request, no parameters of a method.
_NOT_UNDERSTOOD = {-32700, -32600, -32602}

Request = tuple[str, list[Any]]
"""A method and its parameters, as JSON has them."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Further(Generic[Answer]):
    """A result that needs another request to the same node: the request, and how to read its result.

    If the node refuses it, it gave no usable answer.
    """

    request: Request
    read: "Reader[Answer]"
    lacking: str
    """What is wrong with a node that refuses it: a sentence between the node's name and the refusal."""


Reader = Callable[[Any], Answer | Further[Answer]]


@dataclass(frozen=True)
class _Question:
    """Requests that one task has at a time, and how to read their results."""

    batched: Sequence[Request]
    read: Callable[[int, Any], Any]
    blocks: Sequence[int] | None
    least: int
    """So many of the first requests are asked, however long that takes."""


@dataclass(eq=False)
class _Node:
    url: str = field(repr=False)
    host: str
    chain_checked_at: float | None = None
    """When it told the right chain id; None: it has failed since, or was never asked."""
    failures: int = 0
    answers: bool = True
    """Whether it answered when it last failed."""
    failed_at: float = 0
    rests_until: float = 0
    problem: NodeUnavailable | None = None
    batch_size: float = BATCH_SIZE
    until_more: int = 1
    """Good exchanges of this size after which it may be larger again."""
    good: int = 0
    has_grown: bool = False
    """Whether that was the last change of its size."""
    lacks: dict[str, int] = field(default_factory=dict)
    """For each method, the newest block whose state it refused and another node served: what is pruned stays pruned.
    Or _NO_STATE, if it refused a further request that the method's results take."""
    plainly: dict[str, bool] = field(default_factory=dict)
    """For each method, whether it takes only the plainer form of a request (`_plainer`): as it once showed, and until
    it fails."""

    @property
    def secrets(self) -> list[str]:
        return secrets_of(self.url)

    def may_refuse(self, method: str, block: int) -> bool:
        return block <= self.lacks.get(method, -1)

    def shrink(self, size: float) -> None:
        """After a batch that failed: ask for no more than this weight."""
        if self.has_grown:
            self.until_more = min(2 * self.until_more, _MOST_UNTIL_MORE)
        self.batch_size = min(self.batch_size, max(1, size))
        self.good, self.has_grown = 0, False

    def grow(self) -> None:
        """After a batch of its size that went well: ask for more, at once or after some more of these."""
        self.good += 1
        if self.good >= self.until_more and self.batch_size < BATCH_SIZE:
            self.batch_size = min(2 * self.batch_size, BATCH_SIZE)
            self.good, self.has_grown = 0, True


@dataclass
class _Said:
    """What the nodes said to the requests, by their places."""

    answers: dict[int, Any] = field(default_factory=dict)
    refusals: dict[int, dict[_Node, RpcRefused]] = field(default_factory=lambda: defaultdict(dict))
    faults: dict[int, list[NodeUnavailable]] = field(default_factory=lambda: defaultdict(list))
    """What was wrong with the answer to one request."""
    problems: dict[_Node, NodeUnavailable] = field(default_factory=dict)
    """What is wrong with a node, which is asked for nothing more."""

    def note(self, node: _Node, index: int, answer: Any | RpcRefused | NodeUnavailable) -> None:
        if isinstance(answer, NodeUnavailable):
            self.faults[index].append(answer)
        elif _is_answer(answer):
            self.answers[index] = answer
        else:
            self.refusals[index][node] = answer


class _BatchTooLong(Exception):
    """One JSON-RPC error for a whole batch: the node takes no batches, or none of this length. Or the reply is longer
    than it may be, which that to fewer requests may not be.
    """


class _ReplyTooLong(InvalidReply):
    """The reply is longer than it may be."""


class _TimedOut(NodeUnavailable):
    """The node did not answer in time."""

    kind = "timed_out"


class NodePool:
    """The nodes of one chain, asked in the order of its configuration, by any number of threads."""

    def __init__(
        self,
        chain: Chain,
        *,
        timeout_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._chain = chain
        self._timeout = timeout_seconds
        self._clock = clock
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._nodes = [_Node(url, host) for url, host in zip(chain.rpc_urls, chain.hosts, strict=True)]

    def one(self, request: Request, read: Reader[Answer]) -> Answer:
        (answer,) = self.many([request], lambda _, result: read(result))
        if isinstance(answer, ChainError):
            raise answer
        return answer

    def many(
        self,
        batched: Sequence[Request],
        read: Callable[[int, Any], Answer | Further[Answer]],
        *,
        blocks: Sequence[int] | None = None,
    ) -> list[Answer | RpcRefused | NodeUnavailable]:
        """Return the answers, each read from its result by `read`, whose `ValueError` sends us to the next node.

        A request without a usable answer has the reason in its place: it is no fault of the others. `blocks` holds for
        each request the number of the block whose state it needs.
        """
        if not batched:
            return []
        # What tasks that run side by side ask at the same time goes out as one.
        return together.share_exchange(self, _Question(batched, read, blocks, len(batched)), self._answer_all)

    def _answer_all(self, questions: Sequence[_Question]) -> list[list[Any]]:
        merged = _Merged(questions) if len(questions) > 1 else None
        question = merged.question if merged else questions[0]
        try:
            answers = self._ask_nodes(question)
        except NodeUnavailable as error:
            answers = [error] * len(question.batched)
        return merged.divided(answers) if merged else [answers]

    def _ask_nodes(self, question: _Question) -> list[Any | RpcRefused | NodeUnavailable]:
        """Return the answer to each request, or why no node gave one."""
        batched, blocks = question.batched, question.blocks
        said = _Said()
        self._fail_fast()
        ends = self._clock() + _PATIENCE * self._timeout
        for node, turn in self._turns(batched, blocks):
            asked = {index: batched[index] for index in turn if index not in said.answers}
            if asked and node not in said.problems:
                self._ask_node(node, asked, question, ends, said)
        refused = {index: next(iter(by.values())) for index, by in said.refusals.items() if index not in said.answers}
        for index, refusal in refused.items():
            refusal.may_pass = bool(said.problems) or index in said.faults
        if blocks:
            stateful = [i for i in said.refusals if i in said.answers and blocks[i] != _NO_STATE]
            self._ask_last((node, batched[i][0], blocks[i]) for i in stateful for node in said.refusals[i])
        outcome = said.answers | refused
        return [
            outcome[index] if index in outcome else self._why([*said.problems.values(), *said.faults[index]])
            for index in range(len(batched))
        ]

    def _ask_node(
        self, node: _Node, asked: Mapping[int, Request], question: _Question, ends: float, said: _Said
    ) -> None:
        """Ask one node, and note what it said; if anything was wrong, it rests."""
        fault: NodeUnavailable | None = None
        try:
            self._check_chain(node)
            for index, answer in self._answers(node, asked, question, ends, said.problems):
                said.note(node, index, answer)
                if isinstance(answer, NodeUnavailable):
                    fault = answer
        except NodeUnavailable as error:
            # It may be the fault of a request. A node that is down doesn't tell its chain id either, before the next.
            self._rest(node, error, answers=node.chain_checked_at is not None and not isinstance(error, LimitsRequests))
            said.problems[node] = error
        else:
            if fault:
                self._rest(node, fault, answers=True)
            else:
                self._recovered(node)

    def _answers(
        self,
        node: _Node,
        batched: Mapping[int, Request],
        question: _Question,
        ends: float,
        problems: dict[_Node, NodeUnavailable],
    ) -> Iterator[tuple[int, Any | RpcRefused | NodeUnavailable]]:
        """Yield one node's answer to each request, after any further request that a result needs.

        If the node refuses a further request, that is noted in `problems`, and no answer is yielded. The node does not
        rest for it, but is asked last for the like.

        A request that the node does not understand is sent again in a plainer form.
        """
        plainer = {
            index: _plainer(request, question.blocks[index] if question.blocks else None)
            for index, request in batched.items()
        }
        asked = {index: plainer[index] if node.plainly.get(one[0]) else one for index, one in batched.items()}
        further = dict[int, Further[Any]]()
        while asked:
            following, again = dict[int, Further[Any]](), dict[int, Request]()
            for index, result in self._ask(node, asked, question.least, ends):
                before = further.get(index)
                reader = before.read if before else partial(question.read, index)
                method = batched[index][0]
                answer = _read(node, asked[index][0], reader, result)
                if isinstance(answer, Further):
                    following[index] = answer
                elif before and isinstance(answer, RpcRefused):
                    why = NodeUnavailable(f"{node.host} {before.lacking} ({answer.code})")
                    why.message = answer.message
                    problems[node] = why
                    self._ask_last([(node, method, _NO_STATE)])
                elif plainer[index] != asked[index] and method not in node.plainly and _is_not_understood(answer):
                    again[index] = plainer[index]
                else:
                    if plainer[index] != batched[index] and _is_answer(answer):
                        self._note_form(node, method, is_plainer=asked[index] == plainer[index])
                    yield index, answer
            asked, further = {index: one.request for index, one in following.items()} | again, following

    def _ask(
        self, node: _Node, batched: Mapping[int, Request], least: int, ends: float
    ) -> Iterator[tuple[int, Any | RpcRefused | NodeUnavailable]]:
        """Yield the result of each request from one node, asked in bounded batches; or what is wrong with it.

        When it `ends` only the first of them, in the number of `least`, are still asked for. Raises `NodeUnavailable`
        where the node gives no answer at all, or none any more.
        """
        waiting = list(batched)
        fault: NodeUnavailable | None = None
        has_shrunk = False
        while waiting:
            chunk = _first(waiting, batched, node.batch_size)
            size = sum(_weight(batched[index]) for index in chunk)
            waiting = waiting[len(chunk) :]
            try:
                results = self._exchange(node, [batched[index] for index in chunk])
            except _BatchTooLong:
                self._shrink(node, size / 2)
                has_shrunk = True
                waiting = chunk + waiting
                continue
            except NodeUnavailable as error:
                if len(chunk) > 1:
                    self._shrink(node, size / _SLOWER)
                    has_shrunk = True
                    if not isinstance(error, _TimedOut) or self._clock() >= ends:
                        raise
                    # Whatever it is that takes so long, the others come first.
                    waiting += chunk
                    continue
                # It may be this request's fault, or that of several. But a node that is down answers nothing.
                if len(batched) == 1 or (fault and not self._is_up(node)):
                    raise
                fault = error
                results = [error]
            else:
                fault = None
                if waiting and not has_shrunk:
                    self._grow(node)
            yield from zip(chunk, results, strict=True)
            if self._clock() >= ends:
                least = 0 if fault else least
                late = [index for index in waiting if index >= least]
                yield from ((index, NodeUnavailable(f"{node.host} answers too slowly")) for index in late)
                waiting = [index for index in waiting if index < least]

    def _shrink(self, node: _Node, size: float) -> None:
        with self._lock:
            node.shrink(size)

    def _grow(self, node: _Node) -> None:
        with self._lock:
            node.grow()

    def _exchange(self, node: _Node, batched: Sequence[Request]) -> list[Any | RpcRefused | NodeUnavailable]:
        """Call `_exchange_once`, and count its outcome and seconds."""
        chain, began = str(self._chain.id), time.monotonic()
        outcome = "answered"
        try:
            return self._exchange_once(node, batched)
        except _BatchTooLong:
            outcome = "too_long"
            raise
        except NodeUnavailable as error:
            outcome = error.kind
            raise
        finally:
            NODE_EXCHANGES.labels(chain, node.host, outcome).inc()
            NODE_EXCHANGE_SECONDS.labels(chain, node.host).observe(time.monotonic() - began)

    def _exchange_once(self, node: _Node, batched: Sequence[Request]) -> list[Any | RpcRefused | NodeUnavailable]:
        """One HTTP request: one JSON-RPC object for one request, a JSON-RPC batch for several.

        Gives for each request its result, or what is wrong with the reply to it alone. Raises `NodeUnavailable` for
        what is wrong with all, and `_BatchTooLong` where fewer requests may fare better.
        """
        ids = [next(self._ids) for _ in batched]
        bodies = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in zip(ids, batched, strict=True)
        ]
        max_bytes = min(MAX_REPLY_BYTES, sum(_most_bytes(request) for request in batched))
        try:
            reply = self._post(node, bodies if len(bodies) > 1 else bodies[0], max_bytes)
        except _ReplyTooLong as too_long:
            if len(batched) > 1:
                raise _BatchTooLong from None
            return [InvalidReply(str(too_long))]
        if isinstance(reply, dict) and isinstance(reply.get("error"), dict):
            # The only reply that may lack an id: the node did not look into what it was sent.
            refusal = read_refusal(node.host, batched[0][0], reply["error"], node.secrets)
            if len(batched) > 1:
                raise _BatchTooLong
            if reply.get("id") is None:
                return [refusal]
        by_id: dict[int, Any] = {}
        for one in reply if isinstance(reply, list) else [reply]:
            number = one.get("id") if isinstance(one, dict) else None
            if type(number) is not int or number not in ids or number in by_id:
                raise InvalidReply(f"{node.host} sent a reply that belongs to no request")
            by_id[number] = one
        results = [_result(node, method, by_id.get(number)) for number, (method, _) in zip(ids, batched, strict=True)]
        limits = [one for one in results if isinstance(one, NodeUnavailable) and not isinstance(one, InvalidReply)]
        if len(limits) == len(results):
            raise limits[0]
        return results

    def _post(self, node: _Node, body: Any, max_bytes: int) -> Any:
        """Send a body to the node, and return its reply, read from JSON.

        Raises `NodeUnavailable`, `_TimedOut`, `_ReplyTooLong`.
        """
        try:
            answer = bounded_http.post(
                Post(
                    node.url,
                    json.dumps(body).encode(),
                    max_bytes=max_bytes,
                    silence_seconds=self._timeout,
                    total_seconds=3 * self._timeout,
                    read_statuses=_READ_STATUSES,
                )
            )
        except bounded_http.TooLong as error:
            raise _ReplyTooLong(f"{node.host} {error}") from None
        except bounded_http.TimedOut as error:
            raise _TimedOut(f"{node.host} {error}") from None
        except bounded_http.Failed as failed:
            raise NodeUnavailable(f"{node.host} {failed}") from None
        if answer.status not in _READ_STATUSES:
            raise BadStatus(f"{node.host} answered with HTTP status {answer.status}")
        if sum(map(answer.content.count, (b",", b"[", b"{"))) > MAX_REPLY_VALUES:
            raise _ReplyTooLong(f"{node.host} sent more than {MAX_REPLY_VALUES} values")
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError):
            raise InvalidReply(f"{node.host} answered with something that is not JSON") from None

    def tell_all(self, request: Request) -> None:
        """Send the request to every node that doesn't rest, whatever each makes of it. Does nothing with one node."""
        for node in self._nodes_in_order() if len(self._nodes) > 1 else ():
            if node.rests_until > self._clock():
                continue
            try:
                self._check_chain(node)
                self._exchange(node, [request])
            except NodeUnavailable as error:
                self._rest(node, error)

    def wrong_chains(self) -> dict[int, WrongChain]:
        """Ask every node for its chain id. Return what those of other chains say, by the place of their URLs."""
        found: dict[int, WrongChain] = {}
        for place, node in enumerate(self._nodes):
            try:
                self._check_chain(node, anew=True)
            except NodeUnavailable as error:
                self._rest(node, error)
                if isinstance(error, WrongChain):
                    found[place] = error
        return found

    def _is_up(self, node: _Node) -> bool:
        """Ask anew for the node's chain id. Return whether it tells it."""
        node.chain_checked_at = None
        try:
            self._check_chain(node)
        except NodeUnavailable:
            return False
        return True

    def _check_chain(self, node: _Node, *, anew: bool = False) -> None:
        """Ask for the node's chain id: before its first use, after each failure, and from time to time."""
        checked_at = node.chain_checked_at
        if not anew and checked_at is not None and self._clock() - checked_at < CHAIN_CHECK_SECONDS:
            return
        (answer,) = self._exchange(node, [("eth_chainId", [])])
        if isinstance(answer, NodeUnavailable):
            raise answer
        try:
            chain_id = read_quantity(answer)
        except ValueError:
            raise InvalidReply(f"{node.host} does not tell its chain id") from None
        if chain_id != self._chain.id:
            raise WrongChain(f"{node.host} is a node of chain {chain_id}, not of {self._chain.id}")
        node.chain_checked_at = self._clock()

    def _fail_fast(self) -> None:
        """Raise `NodeUnavailable` without asking, if every node has just failed: a hung one costs a whole time-out.

        A node that answered, if only with nonsense, has not: what is wrong with an answer may be the question's fault.
        """
        now = self._clock()
        with self._lock:
            problems = [
                node.problem
                for node in self._nodes
                if node.problem and not node.answers and now < min(node.rests_until, node.failed_at + FAIL_FAST_SECONDS)
            ]
        if len(problems) == len(self._nodes):
            raise self._why(problems)

    def _nodes_in_order(self) -> list[_Node]:
        """Return the nodes in the order of the configuration, with those that rest at the end."""
        now = self._clock()
        with self._lock:
            return sorted(self._nodes, key=lambda node: max(node.rests_until - now, 0))

    def _turns(self, batched: Sequence[Request], blocks: Sequence[int] | None) -> list[tuple[_Node, list[int]]]:
        """Return which node to ask for which requests, in this order, until they are answered."""
        nodes = self._nodes_in_order()
        known = list(zip((method for method, _ in batched), blocks or [_NO_STATE] * len(batched), strict=True))
        with self._lock:
            late = {
                node: [index for index, (method, block) in enumerate(known) if node.may_refuse(method, block)]
                for node in nodes
            }
        early = {node: [index for index in range(len(batched)) if index not in late[node]] for node in nodes}
        return [*early.items(), *late.items()]

    def _ask_last(self, lacking: Iterable[tuple[_Node, str, int]]) -> None:
        """From now on, ask these nodes last for this method at this block or an earlier one."""
        with self._lock:
            for node, method, block in lacking:
                node.lacks[method] = max(block, node.lacks.get(method, block))

    def _note_form(self, node: _Node, method: str, *, is_plainer: bool) -> None:
        with self._lock:
            node.plainly.setdefault(method, is_plainer)

    @property
    def asked_plainly(self) -> frozenset[str]:
        """The methods that some node takes only in the plainer form."""
        with self._lock:
            return frozenset(method for node in self._nodes for method, plainly in node.plainly.items() if plainly)

    def _rest(self, node: _Node, problem: NodeUnavailable, *, answers: bool = False) -> None:
        """Ask other nodes first for a while."""
        with self._lock:
            node.problem = problem
            node.answers = answers
            node.failed_at = self._clock()
            seconds = min(2**node.failures, MAX_REST_SECONDS)
            node.failures = min(node.failures + 1, 10)
            node.rests_until = self._clock() + seconds
            node.chain_checked_at = None
            # It may come back as another version, or another client.
            node.plainly.clear()

    def _recovered(self, node: _Node) -> None:
        with self._lock:
            node.failures = 0
            node.rests_until = 0
            node.problem = None

    def _why(self, problems: Sequence[NodeUnavailable]) -> NodeUnavailable:
        kinds = {type(problem) for problem in problems}
        kind = kinds.pop() if len(kinds) == 1 else NodeUnavailable
        reasons = tuple(map(str, problems))
        why = kind(f"No node of {self._chain.label} can be used: {'; '.join(reasons)}.")
        why.reasons = reasons
        why.message = next((problem.message for problem in problems if problem.message), "")
        return why


class _Merged:
    """Questions of several tasks as one. A request that several have is in it once."""

    def __init__(self, questions: Sequence[_Question]) -> None:
        self._questions = questions
        # By request: the questions that have it, and their readers of its result.
        self._places: dict[str, int] = {}
        self._readers: list[list[Reader[Any]]] = []
        batched: list[Request] = []
        blocks: list[int] = []
        self._asked: list[list[tuple[int, int]]] = []
        for question in questions:
            asked: list[tuple[int, int]] = []
            for index, request in enumerate(question.batched):
                place = self._places.setdefault(json.dumps(request), len(batched))
                if place == len(batched):
                    batched.append(request)
                    blocks.append(_NO_STATE if question.blocks is None else question.blocks[index])
                    self._readers.append([])
                asked.append((place, len(self._readers[place])))
                self._readers[place].append(partial(question.read, index))
            self._asked.append(asked)
        # However long it takes, one question is answered.
        least = 1 + max(place for place, _ in self._asked[0])
        self.question = _Question(
            batched, lambda place, result: _read_for_each(self._readers[place], result), blocks, least
        )

    def divided(self, answers: Sequence[Any | RpcRefused | NodeUnavailable]) -> list[list[Any]]:
        """For each question what it would have been answered by itself."""
        return [[_of_turn(answers[place], turn) for place, turn in asked] for asked in self._asked]


def _of_turn(answer: Any, turn: int) -> Any:
    return answer if isinstance(answer, RpcRefused | NodeUnavailable) else answer[turn]


def _read_for_each(readers: Sequence[Reader[Any]], result: Any) -> list[Any] | Further[list[Any]]:
    answers = [read(result) for read in readers]
    further = next((answer for answer in answers if isinstance(answer, Further)), None)
    if further is None:
        return answers
    # Those that need more have the same request, and so need the same.
    reads = [one.read if isinstance(one, Further) else partial(_known, one) for one in answers]
    return Further(further.request, partial(_read_for_each, reads), further.lacking)


def _known(answer: Any, _: Any) -> Any:
    return answer


def _is_answer(answer: Any) -> bool:
    """Return whether the answer is the chain's, so that no other node is asked for it."""
    return not isinstance(answer, RpcRefused | NodeUnavailable) or isinstance(answer, FINAL)


def _is_not_understood(answer: Any) -> bool:
    """Return whether a node may refuse the form of a request, and so all requests of this form."""
    if not isinstance(answer, RpcRefused) or isinstance(answer, FINAL):
        return False
    return answer.code in _NOT_UNDERSTOOD or "pending" in answer.message


def _plainer(request: Request, block: int | None) -> Request:
    """Return the request in a form that every node takes.

    A proof names its block by number instead of hash (EIP-1898), where the number is known. What is asked of the
    pending block is asked of the latest one. Other requests stay as they are.
    """
    method, params = request
    if method == "eth_getProof" and block is not None:
        return method, [*params[:2], hex(block)]
    if method in {"eth_call", "eth_estimateGas"} and params[1] == "pending":
        return method, [params[0], "latest"]
    return request


def _weight(request: Request) -> float:
    """Return how much of `BATCH_SIZE` the request takes."""
    method, params = request
    return 1 + len(params[1]) / _SLOTS_PER_REQUEST if method == "eth_getProof" else 1


def _first(waiting: Sequence[int], batched: Mapping[int, Request], size: float) -> list[int]:
    """Return the first of the waiting requests: at least one, and otherwise no more than `size` in weight."""
    weights = itertools.accumulate(_weight(batched[index]) for index in waiting)
    count = sum(1 for _ in itertools.takewhile(lambda weight: weight <= size, weights))
    return list(waiting[: max(1, count)])


def _most_bytes(request: Request) -> int:
    """Return the maximum size of the reply to a request, in bytes."""
    method, params = request
    if method == "eth_getProof":
        return _PROOF_BYTES * (2 + len(params[1]))
    return _REPLY_BYTES.get(method, _USUAL_BYTES)


def _read(
    node: _Node, method: str, read: Reader[Answer], result: Any
) -> Answer | Further[Answer] | RpcRefused | NodeUnavailable:
    if isinstance(result, RpcRefused | NodeUnavailable):
        return result
    try:
        return read(result)
    except ValueError as error:
        return InvalidReply(f"{node.host} answered {method} with {error}")


def _result(node: _Node, method: str, reply: dict[str, Any] | None) -> Any | RpcRefused | NodeUnavailable:
    """Return the result in a reply, a refusal, or what is wrong with the reply."""
    if reply is None:
        return InvalidReply(f"{node.host} left requests without a reply")
    error = reply.get("error")
    if isinstance(error, dict):
        try:
            return read_refusal(node.host, method, error, node.secrets)
        except NodeUnavailable as limited:
            return limited
    if error is not None or "result" not in reply:
        return InvalidReply(f"{node.host} answered {method} with neither a result nor an error")
    return reply["result"]
