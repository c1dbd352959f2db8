"""The nodes of one chain: which one is asked for what, and which is after it.

A node that fails rests, and the next one is asked. A node that lacks old states is asked for them last.
RPC URLs often hold a provider's key, so no error, `repr` or log line here shows more of them than the host.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from chains.chains_file import Chain
from chains.node_errors import (
    FINAL,
    ChainError,
    InvalidReply,
    LimitsRequests,
    NodeUnavailable,
    RpcRefused,
    WrongChain,
)
from chains.request_batches import NODE_EXCHANGES, Endpoint, Further, Question, Request

Answer = TypeVar("Answer")

MAX_REST_SECONDS = 60
# How long a node's chain id counts: its URL may lead to another chain one day.
CHAIN_CHECK_SECONDS = 30
# For so long after a failure, the only node is not asked again.
FAIL_FAST_SECONDS = 3
# Time-outs after which a node that hung isn't asked again: all that is asked in the same list waits with it.
_PATIENCE = 2
# Stands for "needs no block's state".
_NO_STATE = 0
# Codes by which JSON-RPC refuses how something is asked, and not what: no JSON, no request, no parameters of a method.
_NOT_UNDERSTOOD = {-32700, -32600, -32602}


@dataclass(eq=False)
class _Node:
    endpoint: Endpoint
    chain_checked_at: float | None = None
    """The time when it told the right chain id; None: it has failed since, or was never asked."""
    failures: int = 0
    answers: bool = True
    """True if it answered when it last failed."""
    failed_at: float = 0
    rests_until: float = 0
    problem: NodeUnavailable | None = None
    lacks: dict[str, int] = field(default_factory=dict)
    """For each method, the newest block whose state it refused and another node served: what is pruned stays pruned.
    Or _NO_STATE, if it refused a further request that the method's results take."""
    plainly: dict[str, bool] = field(default_factory=dict)
    """For each method, whether it takes only the plainer form of a request (`_plainer`): as it once showed, and until
    it fails."""

    @property
    def host(self) -> str:
        return self.endpoint.host

    def may_refuse(self, method: str, block: int) -> bool:
        return block <= self.lacks.get(method, -1)


@dataclass
class _Said:
    """The nodes' answers and failures, by the places of the requests."""

    answers: dict[int, Any] = field(default_factory=dict)
    refusals: dict[int, dict[_Node, RpcRefused]] = field(default_factory=lambda: defaultdict(dict))
    faults: dict[int, list[NodeUnavailable]] = field(default_factory=lambda: defaultdict(list))
    """The faults in the answers to one request."""
    problems: dict[_Node, NodeUnavailable] = field(default_factory=dict)
    """The problem of each node that is asked for nothing more."""

    def note(self, node: _Node, index: int, answer: Any | RpcRefused | NodeUnavailable) -> None:
        if isinstance(answer, NodeUnavailable):
            self.faults[index].append(answer)
        elif _is_answer(answer):
            self.answers[index] = answer
        else:
            self.refusals[index][node] = answer


class NodePool:
    """The nodes of one chain, asked in the order of its configuration, by any number of threads."""

    def __init__(
        self,
        chain: Chain,
        endpoints: Iterable[Endpoint],
        *,
        timeout_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._chain = chain
        self._timeout = timeout_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._nodes = [_Node(endpoint) for endpoint in endpoints]

    def ask(self, questions: Sequence[Question[Answer]]) -> list[Answer | ChainError]:
        """Return the answers in the order of the questions. One without a usable answer has the reason in its place."""
        if not questions:
            return []
        try:
            return self._ask_nodes(questions)
        except NodeUnavailable as error:
            return [error] * len(questions)

    def _ask_nodes(self, questions: Sequence[Question[Any]]) -> list[Any | ChainError]:
        """Return the answer to each question, or why no node gave one."""
        said = _Said()
        self._fail_fast()
        ends = self._clock() + _PATIENCE * self._timeout
        for node, turn in self._turns(questions):
            asked = {index: questions[index] for index in turn if index not in said.answers}
            if asked and node not in said.problems:
                self._ask_node(node, asked, ends, said)
        refused = {index: next(iter(by.values())) for index, by in said.refusals.items() if index not in said.answers}
        for index, refusal in refused.items():
            refusal.may_pass = bool(said.problems) or index in said.faults
        self._ask_last(
            (node, questions[index].request[0], block)
            for index, by in said.refusals.items()
            if index in said.answers and (block := questions[index].block)
            for node in by
        )
        outcome = said.answers | refused
        return [
            outcome[index] if index in outcome else self._why([*said.problems.values(), *said.faults[index]])
            for index in range(len(questions))
        ]

    def _ask_node(self, node: _Node, asked: Mapping[int, Question[Any]], ends: float, said: _Said) -> None:
        """Ask one node, and note what it said; if anything was wrong, it rests."""
        fault: NodeUnavailable | None = None
        try:
            self._check_chain(node)
            for index, answer in self._answers(node, asked, ends, said.problems):
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
        questions: Mapping[int, Question[Any]],
        ends: float,
        problems: dict[_Node, NodeUnavailable],
    ) -> Iterator[tuple[int, Any | RpcRefused | NodeUnavailable]]:
        """Yield one node's answer to each request, after any further request that a result needs.

        If the node refuses a further request, that is noted in `problems`, and no answer is yielded. The node does not
        rest for it, but is asked last for the like.

        A request that the node does not understand is sent again in a plainer form.
        """
        usual = {index: question.request for index, question in questions.items()}
        plainer = {index: _plainer(question) for index, question in questions.items()}
        asked = {index: plainer[index] if node.plainly.get(one[0]) else one for index, one in usual.items()}
        further = dict[int, Further[Any]]()
        while asked:
            following, again = dict[int, Further[Any]](), dict[int, Request]()
            for index, result in node.endpoint.ask(
                asked, ends=ends, check_node=partial(self._check_chain, node, anew=True)
            ):
                before = further.get(index)
                method = usual[index][0]
                answer = self._read(node, asked[index][0], (before or questions[index]).read, result)
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
                    if plainer[index] != usual[index] and _is_answer(answer):
                        self._note_form(node, method, is_plainer=asked[index] == plainer[index])
                    yield index, answer
            asked, further = {index: one.request for index, one in following.items()} | again, following

    def _read(
        self, node: _Node, method: str, read: Callable[[Any], Any], result: Any
    ) -> Any | Further[Any] | RpcRefused | NodeUnavailable:
        if isinstance(result, RpcRefused | NodeUnavailable):
            return result
        try:
            return read(result)
        except ValueError as error:
            # Besides the exchange, which was answered.
            NODE_EXCHANGES.labels(str(self._chain.id), node.host, InvalidReply.kind).inc()
            return InvalidReply(f"{node.host} answered {method} with {error}")

    def tell_all(self, request: Request) -> None:
        """Send the request to every node that doesn't rest, whatever each makes of it. Does nothing with one node."""
        for node in self._nodes_in_order() if len(self._nodes) > 1 else ():
            if node.rests_until > self._clock():
                continue
            try:
                self._check_chain(node)
                node.endpoint.exchange([request])
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

    def _check_chain(self, node: _Node, *, anew: bool = False) -> None:
        """Ask for the node's chain id: before its first use, after each failure, and from time to time."""
        checked_at = node.chain_checked_at
        if not anew and checked_at is not None and self._clock() - checked_at < CHAIN_CHECK_SECONDS:
            return
        node.chain_checked_at = None
        chain_id = node.endpoint.chain_id()
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

    def _turns(self, questions: Sequence[Question[Any]]) -> list[tuple[_Node, list[int]]]:
        """Return which node to ask which questions, in this order, until they are answered."""
        nodes = self._nodes_in_order()
        with self._lock:
            late = {
                node: [
                    index
                    for index, question in enumerate(questions)
                    if node.may_refuse(question.request[0], question.block or _NO_STATE)
                ]
                for node in nodes
            }
        early = {node: [index for index in range(len(questions)) if index not in late[node]] for node in nodes}
        return [*early.items(), *late.items()]

    def _ask_last(self, lacking: Iterable[tuple[_Node, str, int]]) -> None:
        """Ask these nodes last, from now on, for this method at this block or an earlier one."""
        with self._lock:
            for node, method, block in lacking:
                node.lacks[method] = max(block, node.lacks.get(method, block))

    def _note_form(self, node: _Node, method: str, *, is_plainer: bool) -> None:
        with self._lock:
            node.plainly.setdefault(method, is_plainer)

    @property
    def asked_plainly(self) -> frozenset[str]:
        """Return the methods that some node takes only in the plainer form."""
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


def _is_answer(answer: Any) -> bool:
    """Return whether the answer is the chain's, so that no other node is asked for it."""
    return not isinstance(answer, RpcRefused | NodeUnavailable) or isinstance(answer, FINAL)


def _is_not_understood(answer: Any) -> bool:
    """Return whether a node may refuse the form of a request, and so all requests of this form."""
    if not isinstance(answer, RpcRefused) or isinstance(answer, FINAL):
        return False
    return answer.code in _NOT_UNDERSTOOD or "pending" in answer.message


def _plainer(question: Question[Any]) -> Request:
    """Return the request in a form that every node takes.

    A proof names its block by number instead of hash (EIP-1898), where the number is known. What is asked of the
    pending block is asked of the latest one. Other requests stay as they are.
    """
    method, params = question.request
    if method == "eth_getProof" and question.block is not None:
        return method, [*params[:2], hex(question.block)]
    if method in {"eth_call", "eth_estimateGas"} and params[1] == "pending":
        return method, [params[0], "latest"]
    return question.request
