"""A JSON-RPC client of one chain. `chains.nodes.questions` has the questions."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from eth_utils.crypto import keccak

from chains.chains_file import Chain
from chains.encoding import in_units
from chains.nodes import questions
from chains.nodes.chain_nodes import ChainNodes, Question, RpcNode
from chains.nodes.node_batches import ExchangeBudget, ReplyTooLong
from chains.nodes.node_errors import (
    FINAL,
    NO_METHOD,
    ChainError,
    InvalidReply,
    NodeOfWrongChain,
    NodeUnavailable,
    Reverted,
    RpcRefused,
)
from chains.nodes.questions import NO_PRICE, BlockIdentifier, Fees, Log, ProofRequest, Tag, Topic, VerifiedAccountProof
from chains.nodes.unanswered_methods import Unanswered
from chains.tries.header import Header
from chains.tries.trie import StateAccount

# Wei per gas if nodes suggest no priority fee. It is geth's default minimum for its blocks.
_LEAST_PRIORITY_FEE = 1_000_000

# One node alone isn't believed about a price above this multiple of the usual one. Honest nodes that sample the same
# blocks differ two- or threefold.
TIMES_USUAL = 4
_HARMLESS_TIP = TIMES_USUAL * _LEAST_PRIORITY_FEE
# Seconds for which a comparison of tips holds.
_COMPARED_SECONDS = 600
# Answers that differ by this factor are a problem for the operator.
TIMES_DOUBTFUL = 10
# A reorg rarely replaces a block this far below the head.
KEPT_BELOW = 4
# Maximum blocks in one question for logs.
LONGEST_LOG_RANGE = 1_000_000
# Maximum requests of one `LogReader` that may be refused.
_MOST_REFUSALS = 8
FEE_QUESTIONS: Sequence[Question[Any]] = (
    *(questions.header("latest"), questions.priority_fee()),
    questions.paid_priority_fee(),
)

Answer = TypeVar("Answer")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


def result(answer: Answer | ChainError) -> Answer:
    """Return the answer, or raise the error that took its place."""
    if isinstance(answer, ChainError):
        raise answer
    return answer


def _unless_far_above(tip: int, usual: int) -> int:
    """Return the tip, or the usual one if it is far above that."""
    least = max(usual, _LEAST_PRIORITY_FEE)
    return tip if tip <= TIMES_USUAL * least else least


class RpcClient:
    """A client of one chain, for any number of threads.

    Every method may raise `NodeUnavailable`, which may be temporary, and `RpcRefused`. If one node refuses a request,
    the others are asked too, because nodes keep and serve different data.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        timeout_seconds: float = 10,
        ask_seconds: float = math.inf,
        budget: ExchangeBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With a `budget`, every method may also raise `OutOfExchanges`."""
        self.chain = chain
        self.log_range = LONGEST_LOG_RANGE
        """The blocks of which nodes may answer the logs at once, as `LogReader` has learned."""
        options: dict[str, Any] = {"timeout_seconds": timeout_seconds, "ask_seconds": ask_seconds, "clock": clock}
        nodes = [
            RpcNode(chain.id, url, host, budget=budget, **options)
            for url, host in zip(chain.rpc_urls, chain.hosts, strict=True)
        ]
        self._nodes = ChainNodes(chain.label, nodes, clock)
        # The highest tip that nodes' last comparison allows, and when it was, by `time.monotonic`.
        self._most_tip, self._tips_compared_at = 0, -math.inf

    @overload
    def ask(self, a: Sequence[Question[A]], /) -> list[A | ChainError]: ...
    @overload
    def ask(
        self, a: Sequence[Question[A]], b: Sequence[Question[B]], /
    ) -> tuple[list[A | ChainError], list[B | ChainError]]: ...
    @overload
    def ask(
        self, a: Sequence[Question[A]], b: Sequence[Question[B]], c: Sequence[Question[C]], /
    ) -> tuple[list[A | ChainError], list[B | ChainError], list[C | ChainError]]: ...
    def ask(self, *lists: Sequence[Question[Any]]) -> Any:
        """Ask lists of questions in one exchange. Return a list of answers for each list, in the same order.

        A question without an answer has its error instead.
        """
        answers = iter(self._nodes.ask([question for questions in lists for question in questions]))
        divided = tuple([next(answers) for _ in questions] for questions in lists)
        return divided if len(divided) > 1 else divided[0]

    def answers(self, questions: Sequence[Question[Answer]]) -> list[Answer]:
        """Return the answers to all questions, in order. Raises the first error among them."""
        return [result(answer) for answer in self.ask(questions)]

    def answer(self, question: Question[Answer]) -> Answer:
        """Return the answer to a question. Raises its error if there is none."""
        return result(self.ask([question])[0])

    def call(self, method: str, *params: Any) -> Any:
        """Return the `result` of one request, as JSON."""
        return self.answer(questions.plain(method, *params))

    def wrong_chains(self) -> dict[int, NodeOfWrongChain]:
        """Ask every node for its chain id. Return the errors of nodes of other chains, by the index of their URL."""
        errors = {index: node.wrong_chain() for index, node in enumerate(self._nodes.all)}
        return {index: wrong for index, wrong in errors.items() if wrong}

    def syncing_nodes(self) -> list[str]:
        """Ask every node that answers whether it syncs. Return the hosts of those that do."""
        hosts: list[str] = []
        for node in self._nodes.all:
            with suppress(NodeUnavailable):
                hosts += [node.host for _, syncs in node.ask({0: questions.syncing()}) if syncs is True]
        return hosts

    def resting_nodes(self) -> dict[str, NodeUnavailable]:
        """Return the last fault of each node that rests now, by its host."""
        return {node.host: node.problem for node in self._nodes.all if node.problem and node.is_resting}

    def unanswered(self) -> dict[tuple[str, str], Unanswered]:
        """Return which methods each node doesn't answer in time, by host and method."""
        return {
            (node.host, method): unanswered
            for node in self._nodes.all
            for method, unanswered in node.unanswered.by_method().items()
            if unanswered.is_alone
        }

    def ask_each(self, questions: Sequence[Question[Answer]]) -> dict[str, list[Answer | ChainError]]:
        """Return the answers of each node that answers, by its host. Empty if there is only one that isn't down.

        Ask so before one node's answer costs money, stops sending, or calls a person.
        """
        return self._nodes.ask_each(questions)

    def first_of_each(
        self, forms: Sequence[Question[Answer]], is_usable: Callable[[Any], bool]
    ) -> dict[str, Answer | ChainError]:
        """Ask each node that isn't down for the same in one form after the other. Return its answer by its host.

        If no answer is usable, it is the one to the form that was asked first. Nodes' forms are remembered.
        """
        return self._nodes.first_of_each(forms, is_usable)

    def refused_batches(self) -> dict[str, int]:
        """Return the numbers of requests in batches that failed, by the host of the node."""
        return {node.host: node.refused_size for node in self._nodes.all if node.refused_size}

    def answers_of_each(self, question: Question[Answer]) -> dict[str, Answer]:
        """Return the answer of each node that has one, by its host, as `ask_each` does."""
        told = {host: answers[0] for host, answers in self.ask_each([question]).items()}
        return {host: answer for host, answer in told.items() if not isinstance(answer, ChainError)}

    def rest(self, host: str, why: str) -> None:
        """Ask the nodes of a host last for a while, because others have shown that it is wrong. `why` is a sentence."""
        for node in self._nodes.all:
            if node.host == host:
                node.rest_long(NodeUnavailable(why))

    # Blocks

    def head(self) -> Header:
        """Return the latest block's header."""
        return self.must_have_head(self.header("latest"))

    def must_have_head(self, answer: Header | ChainError | None) -> Header:
        """Return the latest block's header in an answer. Raises its error if there is none."""
        header = result(answer)
        if header is None:
            raise InvalidReply(f"{self.chain.label} has no latest block.")
        return header

    def header(self, block: int | Tag) -> Header | None:
        """Return the block's header, whose hash is checked. None if the block doesn't exist yet."""
        return self.answer(questions.header(block))

    def headers(self, numbers: Sequence[int]) -> list[Header | None]:
        """Return the headers of several blocks, in order. None for blocks that don't exist yet."""
        return self.answers([questions.header(number) for number in numbers])

    def known_header(self, number: int) -> Header:
        """Return the header of a block below the head. Raises `InvalidReply` if the node lacks it."""
        return self.must_have(number, self.header(number))

    def known_headers(self, numbers: Sequence[int]) -> list[Header]:
        """Return the `known_header` of several blocks, in order."""
        return [self.must_have(*numbered) for numbered in zip(numbers, self.headers(numbers), strict=True)]

    def must_have(self, number: int, header: Header | None) -> Header:
        """Return the header in an answer about a block below the head. Raises `InvalidReply` if there is none."""
        if header is None:
            raise InvalidReply(f"A node of chain {self.chain.id} doesn't have block {number}, below its own head.")
        return header

    def proofs(
        self, requests: Sequence[ProofRequest], *, beside: Sequence[Question[Any]] = ()
    ) -> list[VerifiedAccountProof | ChainError]:
        """Return the proof (`eth_getProof`, EIP-1186) for each request, or its error, in order.

        `beside` has questions that go in the same exchange. If every node sends a proof that doesn't verify, the
        reason is `UnverifiedProof`.
        """
        return self.ask(beside, [questions.proof(request) for request in requests])[1]

    def proven_account(self, address: str, block: int) -> StateAccount | None:
        """Return the account by proof, at a block of which nodes tell the same hash. None if nobody proves it.

        It shows which node is right where their answers differ.
        """
        told = list(self.answers_of_each(questions.header(block)).values())
        if len(told) < 2 or (header := told[0]) is None or any(other != header for other in told):
            return None
        (proof,) = self.proofs([ProofRequest(block, header.hash, header.state_root, address)])
        return None if isinstance(proof, ChainError) else proof.account

    def logs(self, address: str, topics: Sequence[Topic], first: int, last: int) -> list[Log]:
        """Return the logs of one contract in a range of blocks, as `questions.logs` does.

        `LogReader` divides a range that nodes refuse.
        """
        return self.answer(questions.logs(address, topics, first, last))

    def difference(self, seen: Mapping[int, Header | None]) -> str:
        """Return a sentence about the first of these blocks of which nodes tell different hashes. Empty: none.

        A node may tell otherwise when it is compared, so the headers that were `seen` before are compared too.
        """
        told = self.ask_each([questions.header(number) for number in seen])
        for place, (number, before) in enumerate(seen.items()):
            headers = {host: of_node[place] for host, of_node in told.items()} | {"an earlier answer": before}
            hashes = {host: header.hash.hex() for host, header in headers.items() if isinstance(header, Header)}
            if len({*hashes.values()}) > 1:
                by_host = ", ".join(f"0x{block_hash[:8]}… by {host}" for host, block_hash in hashes.items())
                return f"The nodes of {self.chain.label} tell different hashes of block {number}: {by_host}."
        return ""

    def agreed(self, numbers: Sequence[int]) -> tuple[dict[int, Header], int]:
        """Return the headers that every node of the chain tells alike, and the newest block that all call final.

        A node that doesn't answer agrees with nothing. Without a final block, only block 0 is final.
        """
        hosts, blocks = self.chain.hosts, list[int | Tag](["finalized", *numbers])
        asked = [questions.header(block) for block in blocks]
        told = self.ask_each(asked) if len(hosts) > 1 else {hosts[0]: self.ask(asked)}
        if len(told) < len(hosts):
            return {}, 0
        finals, *by_number = zip(*told.values(), strict=True)
        agreed = {
            number: headers[0]
            for number, headers in zip(numbers, by_number, strict=True)
            if isinstance(headers[0], Header) and all(header == headers[0] for header in headers)
        }
        return agreed, min(final.number if isinstance(final, Header) else 0 for final in finals)

    def base_fee_doubt(self, base_fee: int) -> str:
        """Return a sentence if a node tells a base fee far below this one, in wei. Empty: none does."""
        told = self.answers_of_each(questions.header("latest"))
        fees = {head.base_fee_per_gas: host for host, head in told.items() if head and head.base_fee_per_gas}
        lowest = min(fees, default=base_fee)
        if _unless_far_above(base_fee, lowest) == base_fee:
            return ""
        high, low = (in_units(wei, 9, 3) for wei in (base_fee, lowest))
        return f"A node of {self.chain.label} tells a base fee of {high} gwei, and {fees[lowest]} one of {low} gwei."

    # State

    @property
    def asks_latest_for_pending(self) -> bool:
        """Return whether a node refused calls on the pending block, and answered them on the latest block."""
        methods = "eth_call", "eth_estimateGas"
        return any(node.takes_only_plainer(method) for node in self._nodes.all for method in methods)

    def eth_call(self, to: str, data: bytes, block: BlockIdentifier = "latest") -> bytes:
        """Return the return data of a call. Raises `Reverted`."""
        return self.answer(questions.call(to, data, block))

    def eth_calls(
        self, calls: Sequence[tuple[str, bytes]], block: BlockIdentifier = "latest"
    ) -> list[bytes | Reverted]:
        """Return the return data of each call (to, data), in order. A reverted call has its `Reverted` instead."""
        answers = self.ask([questions.call(to, data, block, final=FINAL) for to, data in calls])
        return [answer if isinstance(answer, Reverted) else result(answer) for answer in answers]

    def code(self, address: str, block: BlockIdentifier = "latest") -> bytes:
        return self.answer(questions.code(address, block))

    def balance(self, address: str, block: BlockIdentifier = "latest") -> int:
        """Return the account's balance in wei."""
        return self.answer(questions.balance(address, block))

    def storages(self, slots: Sequence[tuple[str, int, BlockIdentifier]]) -> list[int]:
        """Return the values of several slots, in order."""
        return self.answers([questions.storage(*slot) for slot in slots])

    def nonce(self, address: str, block: BlockIdentifier = "latest") -> int:
        return self.answer(questions.nonce(address, block))

    # Transactions

    def fees(self, usual_tip: int = 0) -> Fees:
        """Return the current fees as `fees_by`, usually in one exchange."""
        return self.fees_by(self.ask(FEE_QUESTIONS), usual_tip)

    def fees_by(self, answers: Sequence[Any], usual_tip: int = 0) -> Fees:
        """Return the current fees from the answers to `FEE_QUESTIONS`, of which the last one may be missing.

        Ask for the base fee if the head lacks it. A tip far above the lowest that a node told lately, and an offer
        above the chain's cap, are compared with those of each node. The usual tip is no measure of a rise, because it
        is what was paid: a node could raise it step by step.
        """
        fees = self._fees_of(answers)
        is_payable = 2 * fees.base_fee + fees.priority_fee <= self.chain.max_fee_per_gas
        is_known = time.monotonic() - self._tips_compared_at < _COMPARED_SECONDS
        if is_payable and fees.priority_fee <= max(_HARMLESS_TIP, self._most_tip if is_known else 0):
            return fees
        told: dict[str, Fees] = {}
        for host, answers_of_node in self.ask_each(FEE_QUESTIONS).items():
            with suppress(ChainError):
                told[host] = self._fees_of(answers_of_node)
        if not told:
            return fees
        lowest_tip = max(_LEAST_PRIORITY_FEE, min(of_node.priority_fee for of_node in told.values()))
        most_tip = max(TIMES_USUAL * lowest_tip, usual_tip)
        if len(told) > 1:
            self._most_tip, self._tips_compared_at = most_tip, time.monotonic()
        tip = fees.priority_fee if fees.priority_fee <= most_tip else max(lowest_tip, usual_tip)
        base_fee = fees.base_fee
        if not is_payable:
            base_fee = _unless_far_above(fees.base_fee, min(of_node.base_fee for of_node in told.values()))
        low, high = (which(told, key=lambda host: told[host].suggested) for which in (min, max))
        doubt = ""
        most_usual = min(most_tip, TIMES_USUAL * max(usual_tip, _LEAST_PRIORITY_FEE))
        is_odd = not is_payable or max(fees.suggested, fees.priority_fee) > most_usual
        if is_odd and told[high].suggested > TIMES_DOUBTFUL * max(told[low].suggested, base_fee):
            tips = [in_units(wei, 9, 3) for wei in (told[high].suggested, told[low].suggested, tip)]
            doubt = (
                f"{high} suggests a tip of {tips[0]} gwei on {self.chain.label}, and {low} one of {tips[1]} gwei. "
                f"The service offers {tips[2]} gwei."
            )
        return Fees(base_fee, tip, fees.suggested, doubt)

    def _fees_of(self, answers: Sequence[Any]) -> Fees:
        """Return a node's fees. A suggestion far above the tips that recent blocks took counts as much as these."""
        head, suggested, *paid = answers
        is_lacking = isinstance(suggested, RpcRefused | InvalidReply)
        suggestion = _LEAST_PRIORITY_FEE if is_lacking else result(suggested)
        tip = min([suggestion, *(_unless_far_above(suggestion, fee) for fee in paid if isinstance(fee, int) and fee)])
        return Fees(self._base_fee(self.must_have_head(head)), max(self.chain.min_priority_fee, tip), suggestion)

    def _base_fee(self, head: Header) -> int:
        if head.is_ethereums and (head.base_fee_per_gas or 0) < NO_PRICE:
            return head.base_fee_per_gas or 0
        return self.answer(questions.base_fee(head.number))

    def estimate_gas(
        self,
        sender: str,
        to: str | None,
        data: bytes,
        block: BlockIdentifier = "pending",
        *,
        least: int = 0,
        most: int | None = None,
    ) -> int:
        """Return the node's estimate of gas. Raises `Reverted`, `ImplausibleGas`."""
        return self.answer(questions.gas_estimate(sender, to, data, block, least=least, most=most))

    def tell_all(self, question: Question[Answer]) -> list[Answer | ChainError]:
        """Send a request to every node if there are several, because the first node may not pass it on.

        Return the answers of those that answer.
        """
        return self._nodes.tell_all(question)

    def sent(self, raw: bytes, answer: bytes | ChainError) -> bytes:
        """Return the hash of a sent transaction. It is sent although a node refuses it, if the node has it already.

        Raises `ChainError`.
        """
        tx_hash = keccak(raw)
        if isinstance(answer, RpcRefused) and self.ask([questions.is_known(tx_hash)]) == [True]:
            return tx_hash
        return result(answer)


# --- Logs in ranges ---------------------------------------------------------------------------------------------------
#
# Nodes limit the blocks, the logs or the time of a request, and say so in many ways. So a range that is refused is
# asked for in quarters, whatever the node says, and the ranges become longer again while they are answered. A node that
# doesn't answer changes nothing. A node may lack the newest blocks of another one, so the first refused range from the
# end is asked for without these blocks before it is made shorter.


@dataclass(frozen=True)
class LogRange:
    """The logs of the blocks from `first` to `last`, both included, in the chain's order."""

    logs: Sequence[Log]
    first: int
    last: int


class LogReader:
    """A reader of a contract's logs for one turn. It limits the requests, and those that are refused."""

    def __init__(
        self, rpc: RpcClient, address: str, topics: Sequence[Topic], *, requests: int, blocks: int = LONGEST_LOG_RANGE
    ) -> None:
        """`blocks` are those of the first of at most so many requests. Later ones have more while nothing is found."""
        self._rpc = rpc
        self._address = address
        self._topics = topics
        self._blocks = blocks
        self._shortest_refused = LONGEST_LOG_RANGE + 1
        self._refusals = 0
        self._is_answered = False
        self.requests_left = requests

    def read_all(self, first: int, last: int) -> list[Log]:
        """Return the logs of these blocks. If they take too many requests, those of the first blocks are left out."""
        logs: list[Log] = []
        unread = last
        while unread >= first and self.requests_left:
            try:
                newest = self.read(first, unread, from_end=True)
            except RpcRefused:
                if self.requests_left or unread == last:
                    raise
                break
            logs[:0], unread = newest.logs, newest.first - 1
        return logs

    def read(self, first: int, last: int, *, from_end: bool = False) -> LogRange:
        """Return the logs of as many blocks of the range as nodes allow. `from_end` begins with the newest ones.

        Raises `NodeUnavailable`, and `RpcRefused` if even a single block is refused, or too many ranges.
        """
        known, left_out = self._rpc.log_range, 0
        while True:
            self.requests_left -= 1
            blocks = min(self._blocks, self._rpc.log_range)
            newest = last - left_out
            start = max(first, newest - blocks + 1) if from_end else first
            end = min(newest, start + blocks - 1)
            try:
                logs = self._rpc.logs(self._address, self._topics, start, end)
            except (RpcRefused, ReplyTooLong) as refused:
                if start == end:
                    # The length isn't the cause.
                    self._rpc.log_range = known
                if not self._may_ask_again(end - start + 1, refused):
                    raise
                if from_end and not self._is_answered and self._refusals == 1 and end - KEPT_BELOW > start:
                    left_out = KEPT_BELOW
                else:
                    left_out = 0
                    self._shorten(end - start + 1)
                continue
            self._is_answered = True
            self._lengthen(end - start + 1)
            if not logs:
                self._blocks = min(LONGEST_LOG_RANGE, 4 * self._blocks)
            return LogRange(logs, start, end)

    def _may_ask_again(self, blocks: int, refused: RpcRefused | ReplyTooLong) -> bool:
        """Count a refusal. Return whether to ask for another range."""
        if blocks == 1 or (isinstance(refused, RpcRefused) and refused.code == NO_METHOD):
            return False
        self._refusals += 1
        return self._refusals < _MOST_REFUSALS and self.requests_left > 0

    def _shorten(self, blocks: int) -> None:
        self._shortest_refused = min(self._shortest_refused, blocks)
        self._rpc.log_range = blocks // 4 or 1

    def _lengthen(self, blocks: int) -> None:
        longer = 2 * self._rpc.log_range
        if blocks == self._rpc.log_range and longer < self._shortest_refused:
            self._rpc.log_range = longer
