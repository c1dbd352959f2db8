"""The nodes of one chain, each asked in JSON-RPC batches. `chains.nodes.questions` has the questions.

An RPC URL often holds a provider's key, so errors, `repr`s and log lines show only its host.
"""

import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Generic, TypeVar

from chains import bounded_http
from chains.bounded_http import Failed, HttpRequest
from chains.encoding import read_quantity
from chains.nodes import short_logs
from chains.nodes.node_batches import (
    BATCH_SIZE,
    MAX_REPLY_VALUES,
    NODE_EXCHANGES,
    BatchRefused,
    Division,
    ExchangeBudget,
    NodeTimedOut,
    ReplyTooLong,
    Request,
    Results,
    count_exchange,
    has_too_many_values,
    without_answer,
)
from chains.nodes.node_errors import (
    FINAL,
    NO_METHOD,
    PRUNED,
    TOO_SLOW,
    BadStatus,
    ChainError,
    InvalidReply,
    LimitsRequests,
    NodeOfWrongChain,
    NodeUnavailable,
    RpcRefused,
    UnverifiedProof,
    plain,
    read_refusal,
    secrets_of,
    words_of,
)
from chains.nodes.unanswered_methods import UnansweredMethods
from chains.tries.trie import InvalidProof

# Maximum bytes of the reply to one batch.
MAX_REPLY_BYTES = 16 * 1024 * 1024
# Maximum bytes of the reply to one request. `_USUAL_BYTES` is generous for most methods.
_USUAL_BYTES = 1024 * 1024
# Methods that are answered by one word.
_OF_WORDS = ("eth_chainId", "eth_getBalance", "eth_getTransactionCount", "eth_getStorageAt", "eth_maxPriorityFeePerGas")
# Methods whose answers have logs, which are shortened while they are received.
_OF_LOGS = ("eth_getBlockReceipts", "eth_getTransactionReceipt")
_REPLY_BYTES = {
    **dict.fromkeys(_OF_WORDS, 16 * 1024),
    # A contract's code is the longest answer. A stranger's contract may answer more.
    "eth_call": 64 * 1024,
    # A block's JSON lists the hashes of its transactions. Some chains have tens of thousands in a block.
    "eth_getBlockByNumber": 4 * 1024 * 1024,
    "eth_getBlockByHash": 4 * 1024 * 1024,
    "eth_getLogs": 8 * 1024 * 1024,
    # All receipts of a block are asked for alone. A transaction may have nearly all logs of its block.
    **dict.fromkeys(("debug_getRawReceipts", *_OF_LOGS), MAX_REPLY_BYTES),
}
# A proof has up to 64 trie nodes of up to 532 bytes. Hexadecimal doubles the size.
_PROOF_BYTES = 80 * 1024
# Some nodes send JSON-RPC errors with HTTP 400. Only _PEEKED_BYTES of an answer with another status are read.
_READ_STATUSES = {HTTPStatus.OK, HTTPStatus.BAD_REQUEST}
_PEEKED_BYTES = 4096
_LIMIT_STATUSES = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.PAYMENT_REQUIRED}
# Statuses of proxies and of wrong keys, whose JSON-RPC errors say nothing about the request.
_NO_ANSWER = {
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}
# Statuses with which nodes refuse a range of logs, whatever stands in the body.
_REFUSED_RANGE = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INTERNAL_SERVER_ERROR,
}
# Methods that can be done without. A proxy may refuse them by any status, and the node's answer to another method tells
# whether it refuses everything.
_REPLACEABLE = {"eth_getBlockReceipts", "eth_maxPriorityFeePerGas", "eth_feeHistory"}
MAX_REST_SECONDS = 60
_MOST_REDIRECTS = 3
# A node may ask for a longer rest in the header Retry-After. It is asked again after this time.
_LONGEST_RETRY_AFTER = 600
# Seconds for which the answer to the chain id shows that a node answers.
_ANSWERING_SECONDS = 1
# Seconds until a node's chain id is checked again, because its URL may lead to another chain later.
CHAIN_CHECK_SECONDS = 30
# Seconds to remember the request form and the batch size that a node accepts.
_FORM_SECONDS = 600
# Seconds to pause at a limit. Providers count requests per second.
LIMIT_PAUSE_SECONDS = 1
# Seconds without any request after all nodes failed, because each try of a hanging node takes a whole time-out.
FAIL_FAST_SECONDS = 3
# geth's codes: for a batch that takes too long, or a request in it; and for a batch whose answers are too long.
_OF_BATCH = {TOO_SLOW, -32003}
# JSON-RPC codes for a request that the node can't read: invalid JSON, invalid request, invalid parameters.
_NOT_UNDERSTOOD = {-32700, -32600, -32602}

# The place of the form that `RpcNode.first_of` asks first, and the time until which that counts, by the node's URL, for
# all clients of this process.
_known_forms: dict[str, tuple[int, float]] = {}

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


@dataclass(frozen=True)
class Question(Generic[Answer_co]):
    """A request to a node, and the function that reads its result.

    The function raises `ValueError` for an invalid result.
    """

    request: Request
    read: "Callable[[Any], Answer_co | Question[Answer_co] | RpcRefused]"
    """May return another question, which then goes to the same node."""
    plainer: Request | None = None
    """The request in a form that more nodes accept."""
    lacking: NodeUnavailable | None = None
    """If set, a refusal makes the node unusable for the question, with this error. Its words stand after the node's
    name.
    """
    final: tuple[type[RpcRefused], ...] = FINAL
    """Refusals after which no other node is asked."""
    without_body: "Question[Answer_co] | None" = None
    """A question that goes to the same node if the node has pruned the block's body."""


class ChainNodes:
    """The nodes of one chain, asked in the order of its configuration, by any number of threads.

    If a node doesn't answer a question, the next node is asked. A node that fails rests, which means that it is asked
    last for a while.
    """

    def __init__(self, label: str, nodes: "Sequence[RpcNode]", clock: Callable[[], float]) -> None:
        """`label` is the chain's."""
        self.all = nodes
        self._label = label
        self._clock = clock

    def ask(self, questions: Sequence[Question[Answer]]) -> list[Answer | ChainError]:
        """Return the answers in the order of the questions. A question without an answer has its error instead."""
        answers: dict[int, Any] = {}
        refusals: dict[int, RpcRefused] = {}
        faults: dict[int, list[NodeUnavailable]] = defaultdict(list)
        problems = [node.problem for node in self.all if node.problem and node.has_just_failed]
        for node in [node for node in self._in_order() if not node.has_just_failed]:
            unanswered = {index: question for index, question in enumerate(questions) if index not in answers}
            if not unanswered:
                break
            try:
                for index, answer in node.ask(unanswered):
                    if isinstance(answer, NodeUnavailable):
                        faults[index].append(answer)
                    elif is_answer(answer, questions[index].final):
                        answers[index] = answer
                    else:
                        refusals[index] = answer if answer.may_pass else refusals.get(index, answer)
            except NodeUnavailable as error:
                problems.append(error)
        for index, refusal in refusals.items():
            has_failed = bool(problems) or not all(isinstance(fault, UnverifiedProof) for fault in faults[index])
            refusal.may_pass = refusal.may_pass or has_failed
        outcome = refusals | answers
        return [
            outcome[index] if index in outcome else self._why([*problems, *faults[index]])
            for index in range(len(questions))
        ]

    def ask_each(self, questions: Sequence[Question[Answer]]) -> dict[str, list[Answer | ChainError]]:
        """Ask each node by itself, but for those that are down or wrong. Return its answers by its host.

        A node may fall silent so that it isn't compared: then the others' answers count. Empty if there are no others.
        """
        nodes = self._not_out()
        told: dict[str, list[Any]] = {}
        for node in nodes if len(nodes) > 1 else ():
            with suppress(NodeUnavailable):
                told[node.host] = [
                    answer for _, answer in sorted(node.ask(dict(enumerate(questions))), key=itemgetter(0))
                ]
        return told

    def first_of_each(
        self, forms: Sequence[Question[Answer]], is_usable: Callable[[Any], bool]
    ) -> dict[str, Answer | ChainError]:
        """Return the first usable answer of each node that isn't down, by its host, as `RpcNode.first_of` does."""
        told: dict[str, Answer | ChainError] = {}
        for node in self._not_out():
            with suppress(NodeUnavailable):
                told[node.host] = node.first_of(forms, is_usable)
        return told

    def _not_out(self) -> "list[RpcNode]":
        return [node for node in self.all if not (node.is_resting and node.is_out)]

    def tell_all(self, question: Question[Answer]) -> list[Answer | ChainError]:
        """Send the question to every node that isn't resting. Return the answers of those that answer.

        Do nothing if there is only one node.
        """
        answers: list[Any] = []
        for node in self._in_order() if len(self.all) > 1 else ():
            if not node.is_resting:
                with suppress(NodeUnavailable):
                    answers += [answer for _, answer in node.ask({0: question})]
        return answers

    def _in_order(self) -> "list[RpcNode]":
        """Return the nodes in the order of the configuration, with resting nodes at the end."""
        now = self._clock()
        return sorted(self.all, key=lambda node: max(node.rests_until - now, 0))

    def _why(self, problems: Sequence[NodeUnavailable]) -> NodeUnavailable:
        kinds = {type(problem) for problem in problems}
        # A shorter request may be answered although other nodes are down.
        kind = ReplyTooLong if ReplyTooLong in kinds else kinds.pop() if len(kinds) == 1 else NodeUnavailable
        reasons = tuple(map(str, problems))
        serves = "serves a usable proof" if kind is UnverifiedProof else "can be used"
        why = kind(f"No node of {self._label} {serves}: {'; '.join(reasons)}.")
        why.reasons = reasons
        why.message = next((problem.message for problem in problems if problem.message), "")
        return why


class RpcNode:
    """One node, asked by any number of threads. It is used only while it reports the right chain id."""

    def __init__(
        self,
        chain_id: int,
        url: str,
        host: str,
        *,
        timeout_seconds: float = 10,
        ask_seconds: float = math.inf,
        budget: ExchangeBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask_seconds` is the time after which no more questions of a list go to the node.

        With a `budget`, every method may raise `OutOfExchanges`.
        """
        self.host = host
        self.problem: NodeUnavailable | None = None
        """The last fault. None: the node has answered since."""
        self.refused_size: int | None = None
        """The number of requests in the last batch that failed. None: none has."""
        self.rests_until = 0.0
        self.is_out = False
        """True if it last began to rest because it was down or wrong, and not for a bad answer to some question."""
        self.unanswered = UnansweredMethods(timeout_seconds, clock)
        self._chain_id = chain_id
        self._url = url
        self._timeout = timeout_seconds
        self._ask_seconds = ask_seconds
        self._budget = budget
        self._clock = clock
        self._ids = itertools.count(1)
        self._failures = 0
        self._down_until = 0.0
        # Until then it rests although it answers.
        self._wrong_until = 0.0
        self._checked_at: float | None = None
        """The time when the node reported the right chain id. None: it has failed since, or was never asked."""
        self._forms: dict[str, tuple[bool, float]] = {}
        """For each method: True if the node accepts only the plainer form, and the time until which that counts."""
        self._batch_limit = BATCH_SIZE, 0.0
        """The number of requests that the node accepts in a batch, and the time until which that counts."""

    def __repr__(self) -> str:
        return f"RpcNode({self.host!r})"

    @property
    def has_just_failed(self) -> bool:
        """Return whether the node failed within the last `FAIL_FAST_SECONDS`, or limits requests for now.

        A malformed answer doesn't count, because the question may be the cause.
        """
        return self._clock() < min(self._down_until, self.rests_until)

    @property
    def is_resting(self) -> bool:
        return self._clock() < self.rests_until

    def takes_only_plainer(self, method: str) -> bool:
        """Return whether the node recently refused the usual form of the method, and accepted the plainer form."""
        return self._form(method) is True

    def ask(self, questions: Mapping[int, Question[Any]]) -> Iterator[tuple[int, Any | RpcRefused | NodeUnavailable]]:
        """Yield the answer to each question, or its error. After an error the node rests.

        Where it only refuses, it is asked for its chain id: a node that refuses this too has spent a quota.

        Raises `NodeUnavailable` if the node doesn't answer, or stops answering.
        """
        fault: NodeUnavailable | None = None
        is_answering = False
        refusals: dict[int, RpcRefused] = {}
        try:
            self.check_chain()
            for index, answer in self._answers(questions):
                if type(answer) is RpcRefused and answer.code != NO_METHOD:
                    refusals[index] = answer
                    continue
                if isinstance(answer, NodeUnavailable):
                    fault = answer
                else:
                    is_answering = True
                yield index, answer
            if refusals and not is_answering:
                self.check_chain(_ANSWERING_SECONDS)
        except NodeUnavailable as error:
            # A request may be the cause. If the node is down, the check of its chain id fails before the next
            # questions.
            is_limited = (isinstance(error, LimitsRequests) or error.retry_after > 0) and not is_answering
            self._rest(error, is_down=self._checked_at is None or is_limited)
            if is_answering:
                yield from refusals.items()
            raise
        yield from refusals.items()
        if fault:
            self._rest(fault)
        elif self._clock() >= self._wrong_until:
            self._failures, self.rests_until, self.problem = 0, 0.0, None

    def first_of(self, forms: Sequence[Question[Any]], is_usable: Callable[[Any], bool]) -> Any:
        """Ask in the form that the node answered last time, else in the first, and then in all others at once.

        Return the first usable answer, or the error or answer to the form that was asked first. Raises
        `NodeUnavailable` if the node answers nothing.
        """
        first, until = _known_forms.get(self._url, (0, math.inf))
        # There may be fewer forms than last time.
        first = first % len(forms) if self._clock() < until else 0
        told: Any
        try:
            ((_, told),) = self.ask({0: forms[first]})
        except NodeUnavailable as error:
            # It has no answer in another form in time.
            if self.is_out or isinstance(error, NodeTimedOut):
                raise
            told = error
        if is_usable(told):
            return told
        others = dict(self.ask({place: form for place, form in enumerate(forms) if place != first}))
        for place in sorted(others):
            if is_usable(others[place]):
                # The last one is a makeshift.
                if place < len(forms) - 1:
                    _known_forms[self._url] = place, self._clock() + _FORM_SECONDS
                return others[place]
        return told

    def wrong_chain(self) -> NodeOfWrongChain | None:
        """Check the chain id now. Return the error if the node serves another chain."""
        self._checked_at = None
        try:
            self.check_chain()
        except NodeUnavailable as error:
            self._rest(error, is_down=True)
            return error if isinstance(error, NodeOfWrongChain) else None
        return None

    def check_chain(self, seconds: float = CHAIN_CHECK_SECONDS) -> None:
        """Check the chain id before the first use, after each failure, and if it wasn't checked for these seconds."""
        if self._checked_at is not None and self._clock() - self._checked_at < seconds:
            return
        self._checked_at = None
        chain_id = self.chain_id()
        if chain_id != self._chain_id:
            raise NodeOfWrongChain(f"{self.host} is a node of chain {chain_id}, not of {self._chain_id}")
        self._checked_at = self._clock()

    def chain_id(self) -> int:
        """Return the chain id that the node reports. Raises `NodeUnavailable`."""
        (answer,) = self._exchange([("eth_chainId", [])])
        if isinstance(answer, NodeUnavailable):
            raise answer
        if isinstance(answer, RpcRefused):
            limited = LimitsRequests(f"{self.host} refuses every request ({answer.code})")
            limited.message = answer.message
            raise limited
        try:
            return read_quantity(answer)
        except ValueError:
            raise InvalidReply(f"{self.host} does not report its chain id") from None

    def rest_long(self, problem: NodeUnavailable) -> None:
        """Let a node that answers wrongly rest for `MAX_REST_SECONDS`. Its next answer would end an ordinary rest."""
        self._rest(problem)
        self.is_out = True
        self.rests_until = self._wrong_until = self._clock() + MAX_REST_SECONDS

    def _rest(self, problem: NodeUnavailable, *, is_down: bool = False) -> None:
        """Let the node rest, so that other nodes are asked before it for a while."""
        now = self._clock()
        rest = max(min(2**self._failures, MAX_REST_SECONDS), min(problem.retry_after, _LONGEST_RETRY_AFTER))
        at_once = rest if isinstance(problem, LimitsRequests) or problem.retry_after else FAIL_FAST_SECONDS
        self._down_until = now + at_once if is_down else now
        self._checked_at = None
        # When it comes back, the node may run another version or another client.
        self._forms.clear()
        if now < self._wrong_until:
            return
        self.problem, self.is_out = problem, is_down
        self.rests_until = now + rest
        self._failures = min(self._failures + 1, 10)

    # Forms of requests

    def _form(self, method: str) -> bool | None:
        is_plainer, until = self._forms.get(method, (None, 0))
        return is_plainer if self._clock() < until else None

    def _answers(
        self, questions: Mapping[int, Question[Any]]
    ) -> Iterator[tuple[int, Any | RpcRefused | NodeUnavailable]]:
        """Yield the answers. Also ask follow-up questions, and repeat refused requests in their plainer form."""
        open_questions = {
            index: replace(question, request=question.plainer)
            if question.plainer and self.takes_only_plainer(question.request[0])
            else question
            for index, question in questions.items()
        }
        while open_questions:
            again: dict[int, Question[Any]] = {}
            for index, result in self._results({index: question.request for index, question in open_questions.items()}):
                question = open_questions[index]
                method, is_plainer = question.request[0], question.request == question.plainer
                answer = self._read(question, result)
                if isinstance(answer, RpcRefused) and answer.code == PRUNED and question.without_body:
                    again[index] = question.without_body
                elif isinstance(answer, Question):
                    again[index] = answer
                elif not question.plainer:
                    yield index, answer
                elif not is_plainer and self._form(method) is None and _is_not_understood(answer):
                    again[index] = replace(question, request=question.plainer)
                else:
                    if is_answer(answer) and self._form(method) is None:
                        self._forms[method] = is_plainer, self._clock() + _FORM_SECONDS
                    yield index, answer
            open_questions = again

    def _read(self, question: Question[Any], result: Any) -> Any | Question[Any] | RpcRefused | NodeUnavailable:
        if isinstance(result, RpcRefused) and question.lacking:
            # A node that ran out of time may answer later.
            kind = NodeUnavailable if result.code == TOO_SLOW else type(question.lacking)
            without = kind(f"{self.host} {question.lacking} ({result.code})")
            without.message = result.message
            return without
        if isinstance(result, RpcRefused | NodeUnavailable):
            return result
        try:
            return question.read(result)
        except (ValueError, NodeUnavailable) as error:
            # The HTTP exchange itself has been counted as answered, so this is counted separately.
            NODE_EXCHANGES.labels(str(self._chain_id), self.host, InvalidReply.kind).inc()
            invalid = UnverifiedProof if type(error) is InvalidProof else InvalidReply
            kind = type(error) if isinstance(error, NodeUnavailable) else invalid
            return kind(f"{self.host} answered {question.request[0]} with {error}")

    # Batches

    def _results(self, requests: Mapping[int, Request]) -> Iterator[tuple[int, Any | RpcRefused | NodeUnavailable]]:
        """Yield the result of each request, or its error.

        Raises `NodeUnavailable` if the node doesn't answer, stops answering, or limits requests.
        """
        limit, until = self._batch_limit
        limit = limit if self._clock() < until else BATCH_SIZE
        hung = self.unanswered.hung(requests)
        # A few exchanges leave no time for more than one sign.
        division = Division(requests, limit, 1) if self._budget else Division(requests, limit, hung=hung)
        ends_at = time.monotonic() + self._ask_seconds
        try:
            while wave := division.next_wave():
                if time.monotonic() > ends_at:
                    raise NodeTimedOut(f"{self.host} takes longer than {self._ask_seconds:g} seconds for all")
                bodies = [[requests[index] for index in batch.indexes] for batch in wave]
                seconds = self._timeout if division.has_failed else 3 * self._timeout
                for batch, outcome in zip(wave, self._exchanges(bodies, seconds), strict=True):
                    if batch.has_hung and len(batch.indexes) == 1:
                        is_silent = isinstance(outcome, NodeTimedOut)
                        self.unanswered.note_alone(requests[batch.indexes[0]], is_silent=is_silent)
                    yield from division.take(batch, outcome)
                division.end_wave()
                if division.pause():
                    seconds_left = self._budget.seconds_left if self._budget else math.inf
                    time.sleep(min(LIMIT_PAUSE_SECONDS, seconds_left))
            yield from division.unanswered.items()
        finally:
            self.refused_size = division.refused_size or self.refused_size
            if (learned := division.learned_limit) is not None:
                self._batch_limit = learned, self._clock() + _FORM_SECONDS

    def _exchange(self, batched: Sequence[Request]) -> Results:
        (outcome,) = self._exchanges([batched], 3 * self._timeout)
        if isinstance(outcome, NodeUnavailable):
            raise outcome
        return outcome

    def _exchanges(self, batches: Sequence[Sequence[Request]], seconds: float) -> Iterator[Results | NodeUnavailable]:
        """Send each batch as an HTTP request, all at the same time. Yield the results of each batch, or its error."""
        ids = [[next(self._ids) for _ in batch] for batch in batches]
        if self._budget:
            self._budget.take(len(batches))
            seconds = min(seconds, self._budget.seconds_left)
        began = time.monotonic()
        answers = bounded_http.send_all([self._post(*both, seconds) for both in zip(batches, ids, strict=True)])
        took = time.monotonic() - began
        for batch, of_batch, answer in zip(batches, ids, answers, strict=True):
            outcome: Results | NodeUnavailable
            try:
                outcome = self._read_reply(batch, of_batch, self._json(batch, answer))
                outcome = self._with_refusals_checked(batch, outcome)
            except NodeUnavailable as error:
                # The traceback and this frame refer to each other, which would keep the replies in memory.
                outcome = error.with_traceback(None)
            except RecursionError:
                outcome = InvalidReply(f"{self.host} answered with lists nested too deeply to be read")
            count_exchange(self._chain_id, self.host, outcome, took)
            is_silent = isinstance(outcome, NodeTimedOut)
            if is_silent or not isinstance(outcome, NodeUnavailable):
                self.unanswered.note({method for method, _ in batch}, took, is_silent=is_silent)
            yield outcome

    def _with_refusals_checked(self, batch: Sequence[Request], results: Results) -> Results:
        """Return the results of a batch.

        If several are refused alike, send one of them alone to see if the batch is the cause.
        """
        refusals: dict[int, RpcRefused] = {}
        for index, result in enumerate(results):
            refusal = result.refusal if isinstance(result, BatchRefused) else result
            if isinstance(refusal, RpcRefused) and not isinstance(refusal, FINAL) and refusal.code != NO_METHOD:
                refusals[index] = refusal
        if len(refusals) < 2 or len({refusal.code for refusal in refusals.values()}) > 1:
            return results
        first, told = next(iter(refusals.items()))
        try:
            (alone,) = self._exchange([batch[first]])
        except NodeUnavailable:
            return results
        if isinstance(alone, RpcRefused) and alone.code == told.code and alone.is_like(told):
            return [refusals.get(index, result) for index, result in enumerate(results)]
        of_batch = BatchRefused(f"{self.host} refuses a batch")
        return [of_batch if index in refusals else result for index, result in enumerate(results)]

    def _post(self, batch: Sequence[Request], ids: Sequence[int], seconds: float) -> HttpRequest:
        """Return the HTTP request. A single request is a JSON-RPC object, several are a JSON-RPC batch."""
        bodies = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, (method, params) in zip(ids, batch, strict=True)
        ]
        return HttpRequest(
            self._url,
            json.dumps(bodies if len(bodies) > 1 else bodies[0]).encode(),
            max_bytes=min(MAX_REPLY_BYTES, sum(map(_most_bytes, batch))),
            silence_seconds=min(self._timeout, seconds),
            total_seconds=seconds,
            asked=batch[0][0] if len({method for method, _ in batch}) == 1 else "",
            read_statuses=_READ_STATUSES,
            peeked_bytes=_PEEKED_BYTES,
            redirects=_MOST_REDIRECTS,
            shorten=short_logs.shorten if all(method in _OF_LOGS for method, _ in batch) else None,
        )

    def _json(self, batch: Sequence[Request], answer: bounded_http.HttpReply | Failed) -> Any:
        if isinstance(answer, Failed):
            raise without_answer(self.host, answer)
        if has_too_many_values(answer.content):
            raise ReplyTooLong(f"{self.host} sent more than {MAX_REPLY_VALUES:,} values")
        try:
            reply = json.loads(answer.content)
        except (ValueError, RecursionError):
            reply = answer.content.decode(errors="replace")
            if answer.status == HTTPStatus.OK:
                invalid = InvalidReply(f"{self.host} answered with something that is not JSON")
                invalid.message = plain(words_of(reply), secrets_of(self._url))
                raise invalid from None
        return reply if answer.status == HTTPStatus.OK else self._refusal_by_status(batch, answer, reply)

    def _refusal_by_status(self, batch: Sequence[Request], answer: bounded_http.HttpReply, reply: Any) -> Any:
        """Return the JSON-RPC error that comes with an HTTP status, if it is about the request.

        Raises `NodeUnavailable` otherwise, because a proxy's errors have the same form.
        """
        status, words = answer.status, words_of(reply)
        # Proxies name their own failures by a text in `error`, too.
        is_error = isinstance(reply, dict) and isinstance(reply.get("error"), dict)
        refusal = reply if is_error else {"error": {"code": status, "message": words}}
        if [method for method, _ in batch] == ["eth_getLogs"]:
            if status in _REFUSED_RANGE and answer.content:
                return refusal
            is_error = is_error and status != HTTPStatus.FORBIDDEN
        elif status == HTTPStatus.BAD_REQUEST and (
            isinstance(reply, list) or (isinstance(reply, dict) and "id" in reply)
        ):
            return reply
        is_of_method = is_error or batch[0][0] in _REPLACEABLE
        if is_of_method and len(batch) == 1 and status not in _NO_ANSWER | _LIMIT_STATUSES:
            return refusal
        fault: NodeUnavailable = BadStatus(f"{self.host} {answer.status_text}")
        if status in _LIMIT_STATUSES:
            fault = LimitsRequests(f"{self.host} limits our requests (HTTP status {status})")
        fault.message, fault.retry_after = plain(words, secrets_of(self._url)), answer.retry_after
        raise fault

    def _read_reply(self, batch: Sequence[Request], ids: Sequence[int], reply: Any) -> Results:
        """Return the result of each request, or the error in its reply.

        Raises `NodeUnavailable` for an error of the whole reply.
        """
        if isinstance(reply, dict) and isinstance(reply.get("error"), dict | str):
            # Only an error about the whole request may lack an id, because the node didn't read the ids.
            refusal = read_refusal(self.host, batch[0][0], reply["error"], secrets_of(self._url))
            if len(batch) > 1:
                raise InvalidReply(f"{self.host} refuses a batch of {len(batch)} requests")
            if reply.get("id") is None:
                return [refusal]
        by_id: dict[int, Any] = {}
        for entry in reply if isinstance(reply, list) else [reply]:
            number = _id(entry.get("id")) if isinstance(entry, dict) else -1
            if number not in ids or number in by_id:
                raise InvalidReply(f"{self.host} sent a reply that belongs to no request")
            by_id[number] = entry
        is_cut = len(by_id) < len(batch) > 1
        results = [
            self._result(method, by_id.get(number), is_alone=len(batch) == 1, is_cut=is_cut)
            for number, (method, _) in zip(ids, batch, strict=True)
        ]
        limits = [result for result in results if isinstance(result, LimitsRequests)]
        if len(limits) == len(results):
            raise limits[0]
        return results

    def _result(
        self, method: str, reply: dict[str, Any] | None, *, is_alone: bool, is_cut: bool
    ) -> Any | RpcRefused | NodeUnavailable:
        """Return the result in a reply, a refusal, or the error of the reply.

        `is_cut` is True if other requests of the batch have no reply. If a batch is too large, geth sends an error for
        its first request only.
        """
        if reply is None:
            lacking = f"{self.host} left requests without a reply"
            return InvalidReply(lacking) if is_alone else BatchRefused(lacking)
        error = reply.get("error")
        if error and isinstance(error, dict | str):
            refusal = self._refusal(method, error)
            if type(refusal) is RpcRefused and not is_alone and (is_cut or refusal.code in _OF_BATCH):
                of_batch = BatchRefused(f"{self.host} refuses a batch")
                of_batch.refusal = refusal
                return of_batch
            return refusal
        if not error:
            # Some nodes leave a result out that is null.
            return reply.get("result")
        return InvalidReply(f"{self.host} answered {method} with neither a result nor an error")

    def _refusal(self, method: str, error: Mapping[str, Any] | str) -> RpcRefused | NodeUnavailable:
        try:
            return read_refusal(self.host, method, error, secrets_of(self._url))
        except NodeUnavailable as limited:
            return limited


def is_answer(answer: Any, final: tuple[type[RpcRefused], ...] = FINAL) -> bool:
    """Return whether the chain itself gave the answer, so that no other node needs to be asked."""
    return not isinstance(answer, RpcRefused | NodeUnavailable) or isinstance(answer, final)


def _id(told: Any) -> int:
    """Return the id of a reply, which some nodes send back as a string. -1 if it is neither that nor an integer."""
    if isinstance(told, str) and told.isascii() and told.isdecimal():
        return int(told[:20])
    return told if type(told) is int else -1


def _is_not_understood(answer: Any) -> bool:
    """Return whether the node may have refused the form of the request. It would refuse all requests of that form."""
    if not isinstance(answer, RpcRefused) or isinstance(answer, FINAL):
        return False
    return answer.code in _NOT_UNDERSTOOD or "pending" in answer.message


def _most_bytes(request: Request) -> int:
    """Return the maximum size of the reply to a request, in bytes."""
    method, params = request
    if params[1:] == [True]:
        return MAX_REPLY_BYTES  # a block with all its transactions
    if method == "eth_getProof":
        return _PROOF_BYTES * (2 + len(params[1]))
    return _REPLY_BYTES.get(method, _USUAL_BYTES)
