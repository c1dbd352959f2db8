"""The nodes of one chain: JSON-RPC over HTTP, with failover.

A node that fails rests, and the next one is asked. A node that lacks old states is asked for them last.
RPC URLs often hold a provider's key, so no error, `repr` or log line here shows more of them than the host.
"""

import itertools
import json
import threading
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
from chains.node_errors import (
    FINAL,
    ChainError,
    InvalidReply,
    NodeUnavailable,
    RpcRefused,
    WrongChain,
    read_refusal,
)
from chains.together import Outcome, Raised
from chains.untrusted_text import secrets_of

# Requests of one exchange at the most. Nodes take a hundred at least; of one that takes fewer, fewer are asked for.
BATCH_SIZE = 200
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
# For so long after a failure, the only node is not asked again.
FAIL_FAST_SECONDS = 3
# Stands for "needs no block's state".
_NO_STATE = 0

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


@dataclass(eq=False)
class _Node:
    url: str = field(repr=False)
    host: str
    chain_checked: bool = False
    failures: int = 0
    failed_at: float = 0
    rests_until: float = 0
    problem: NodeUnavailable | None = None
    batch_size: int = BATCH_SIZE
    lacks: dict[str, int] = field(default_factory=dict)
    """For each method, the newest block whose state it refused and another node served: what is pruned stays pruned.
    Or _NO_STATE, if it refused a further request that the method's results take."""

    @property
    def secrets(self) -> list[str]:
        return secrets_of(self.url)

    def may_refuse(self, method: str, block: int) -> bool:
        return block <= self.lacks.get(method, -1)


class _BatchTooLong(Exception):
    """One JSON-RPC error for a whole batch: the node takes no batches, or none of this length. Or the reply is longer
    than it may be, which that to fewer requests may not be.
    """


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
        if isinstance(answer, RpcRefused):
            raise answer
        return answer

    def many(
        self,
        batched: Sequence[Request],
        read: Callable[[int, Any], Answer | Further[Answer]],
        *,
        blocks: Sequence[int] | None = None,
    ) -> list[Answer | RpcRefused]:
        """The answers, each read from its result by `read`, whose `ValueError` sends us to the next node.

        `blocks` holds for each request the number of the block whose state it needs.
        """
        if not batched:
            return []
        # What tasks that run side by side ask at the same time goes out as one.
        return together.share_exchange(self, _Question(batched, read, blocks), self._answer_all)

    def _answer_all(self, questions: Sequence[_Question]) -> list[Outcome[list[Any]]]:
        if len(questions) == 1:
            return [self._answer(questions[0])]
        merged = _Merged(questions)
        answers = self._answer(merged.question)
        # Where one may be why there is no usable answer, each is asked by itself: it must not be the others' loss.
        # Nodes that don't answer rest by then, which costs no more time.
        divided = [None] * len(questions) if isinstance(answers, Raised) else merged.divided(answers)
        return [
            self._answer(question) if answer is None else answer
            for question, answer in zip(questions, divided, strict=True)
        ]

    def _answer(self, question: _Question) -> Outcome[list[Any]]:
        try:
            return self._ask_nodes(question.batched, question.read, question.blocks)
        except ChainError as error:
            return Raised(error)

    def _ask_nodes(
        self, batched: Sequence[Request], read: Callable[[int, Any], Any], blocks: Sequence[int] | None
    ) -> list[Any | RpcRefused]:
        answers: dict[int, Any] = {}
        refusals: dict[int, dict[_Node, RpcRefused]] = defaultdict(dict)
        problems: dict[_Node, NodeUnavailable] = {}
        self._fail_fast()
        for node, turn in self._turns(batched, blocks):
            asked = {index: batched[index] for index in turn if index not in answers}
            if not asked or node in problems:
                continue
            try:
                self._check_chain(node)
                for index, answer in self._answers(node, asked, read, problems):
                    if isinstance(answer, RpcRefused) and not isinstance(answer, FINAL):
                        refusals[index][node] = answer
                    else:
                        answers[index] = answer
            except NodeUnavailable as error:
                self._rest(node, error)
                problems[node] = error
            else:
                self._recovered(node)
        refused = {index: next(iter(said.values())) for index, said in refusals.items() if index not in answers}
        if len(answers) + len(refused) < len(batched):
            raise self._why(list(problems.values()))
        for refusal in refused.values():
            refusal.may_pass = bool(problems)
        if blocks:
            stateful = [i for i in refusals if i in answers and blocks[i] != _NO_STATE]
            self._ask_last((node, batched[i][0], blocks[i]) for i in stateful for node in refusals[i])
        outcome = answers | refused
        return [outcome[index] for index in range(len(batched))]

    def _answers(
        self,
        node: _Node,
        batched: Mapping[int, Request],
        read: Callable[[int, Any], Answer | Further[Answer]],
        problems: dict[_Node, NodeUnavailable],
    ) -> Iterator[tuple[int, Answer | RpcRefused]]:
        """What one node makes of the requests, and of those that its results take besides. Refusing one of these is
        noted in `problems`; the node does not rest for it, but is asked last for the like.
        """
        asked, further = batched, dict[int, Further[Answer]]()
        while asked:
            following: dict[int, Further[Answer]] = {}
            for index, result in self._ask(node, asked):
                before = further.get(index)
                reader = before.read if before else partial(read, index)
                answer = _read(node, asked[index][0], reader, result)
                if isinstance(answer, Further):
                    following[index] = answer
                elif before and isinstance(answer, RpcRefused):
                    why = f"{node.host} {before.lacking}{answer.told}"
                    problems[node] = NodeUnavailable(why)
                    self._ask_last([(node, batched[index][0], _NO_STATE)])
                else:
                    yield index, answer
            asked, further = {index: one.request for index, one in following.items()}, following

    def _ask(self, node: _Node, batched: Mapping[int, Request]) -> Iterator[tuple[int, Any | RpcRefused]]:
        """The results of all requests from one node, in bounded batches."""
        waiting = list(batched)
        while waiting:
            chunk = waiting[: node.batch_size]
            try:
                results = self._exchange(node, [batched[index] for index in chunk])
            except _BatchTooLong:
                node.batch_size = max(1, len(chunk) // 2)
                continue
            yield from zip(chunk, results, strict=True)
            waiting = waiting[len(chunk) :]

    def _exchange(self, node: _Node, batched: Sequence[Request]) -> list[Any | RpcRefused]:
        """One HTTP request: one JSON-RPC object for one request, a JSON-RPC batch for several."""
        ids = [next(self._ids) for _ in batched]
        bodies = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in zip(ids, batched, strict=True)
        ]
        max_bytes = min(MAX_REPLY_BYTES, sum(_most_bytes(request) for request in batched))
        reply = self._post(node, bodies if len(bodies) > 1 else bodies[0], max_bytes)
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
        if len(by_id) < len(ids):
            raise InvalidReply(f"{node.host} left requests without a reply")
        return [_result(node, method, by_id[number]) for number, (method, _) in zip(ids, batched, strict=True)]

    def _post(self, node: _Node, body: Any, max_bytes: int) -> Any:
        """Raises `_BatchTooLong` where fewer requests may get an answer that is short enough."""
        too_long = ""
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
            too_long = str(error)
        except bounded_http.Failed as failed:
            raise NodeUnavailable(f"{node.host} {failed}") from None
        else:
            if answer.status not in _READ_STATUSES:
                raise NodeUnavailable(f"{node.host} answered with HTTP status {answer.status}")
            if sum(map(answer.content.count, (b",", b"[", b"{"))) > MAX_REPLY_VALUES:
                too_long = f"sent more than {MAX_REPLY_VALUES} values"
        if too_long and isinstance(body, list):
            raise _BatchTooLong
        if too_long:
            raise InvalidReply(f"{node.host} {too_long}")
        try:
            return json.loads(answer.content)
        except (ValueError, RecursionError):
            raise InvalidReply(f"{node.host} answered with something that is not JSON") from None

    def _check_chain(self, node: _Node) -> None:
        """Ask for the node's chain id, before its first use and again after each failure."""
        if node.chain_checked:
            return
        (answer,) = self._exchange(node, [("eth_chainId", [])])
        try:
            chain_id = read_quantity(answer)
        except ValueError:
            raise InvalidReply(f"{node.host} does not tell its chain id") from None
        if chain_id != self._chain.id:
            raise WrongChain(f"{node.host} is a node of chain {chain_id}, not of {self._chain.id}")
        node.chain_checked = True

    def _fail_fast(self) -> None:
        """Raises `NodeUnavailable` without asking, if every node has just failed: a hung one costs a whole time-out."""
        now = self._clock()
        with self._lock:
            problems = [
                node.problem
                for node in self._nodes
                if node.problem and now < min(node.rests_until, node.failed_at + FAIL_FAST_SECONDS)
            ]
        if len(problems) == len(self._nodes):
            raise self._why(problems)

    def _nodes_in_order(self) -> list[_Node]:
        """The nodes in the order of the configuration, with those that rest at the end."""
        now = self._clock()
        with self._lock:
            return sorted(self._nodes, key=lambda node: max(node.rests_until - now, 0))

    def _turns(self, batched: Sequence[Request], blocks: Sequence[int] | None) -> list[tuple[_Node, list[int]]]:
        """Which node to ask for which requests, in this order, until they are answered."""
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

    def _rest(self, node: _Node, problem: NodeUnavailable) -> None:
        with self._lock:
            node.problem = problem
            node.failed_at = self._clock()
            seconds = min(2**node.failures, MAX_REST_SECONDS)
            node.failures = min(node.failures + 1, 10)
            node.rests_until = self._clock() + seconds
            node.chain_checked = False

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
        self.question = _Question(batched, lambda place, result: _read_for_each(self._readers[place], result), blocks)

    def divided(self, answers: Sequence[Any | RpcRefused]) -> Iterator[list[Any | RpcRefused] | None]:
        """For each question what it would have been answered by itself; None where a result can't be read."""
        for asked in self._asked:
            mine = [(answers[place], turn) for place, turn in asked]
            read = [answer if isinstance(answer, RpcRefused) else answer[turn] for answer, turn in mine]
            yield None if any(answer is _UNREADABLE for answer in read) else read


_UNREADABLE = object()


def _read_for_each(readers: Sequence[Reader[Any]], result: Any) -> list[Any] | Further[list[Any]]:
    answers = [_read_or_not(read, result) for read in readers]
    further = [answer for answer in answers if isinstance(answer, Further)]
    if not further:
        return answers
    # Whoever has the same request reads its result in the same way.
    first = further[0]
    return Further(first.request, partial(_read_for_each, [one.read for one in further]), first.lacking)


def _read_or_not(read: Reader[Any], result: Any) -> Any:
    try:
        return read(result)
    except ValueError:
        return _UNREADABLE


def _most_bytes(request: Request) -> int:
    """How long the reply to it may be."""
    method, params = request
    if method == "eth_getProof":
        return _PROOF_BYTES * (2 + len(params[1]))
    return _REPLY_BYTES.get(method, _USUAL_BYTES)


def _read(node: _Node, method: str, read: Reader[Answer], result: Any) -> Answer | Further[Answer] | RpcRefused:
    if isinstance(result, RpcRefused):
        return result
    try:
        return read(result)
    except ValueError as error:
        raise InvalidReply(f"{node.host} answered {method} with {error}") from None


def _result(node: _Node, method: str, reply: dict[str, Any]) -> Any | RpcRefused:
    error = reply.get("error")
    if isinstance(error, dict):
        return read_refusal(node.host, method, error, node.secrets)
    if error is not None or "result" not in reply:
        raise InvalidReply(f"{node.host} answered {method} with neither a result nor an error")
    return reply["result"]
