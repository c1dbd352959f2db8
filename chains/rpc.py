"""One JSON-RPC client per chain. What it can be asked is in `chains.questions`."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from eth_utils.crypto import keccak

from chains import questions
from chains.chains_file import Chain
from chains.header import ExecutionHeader
from chains.node_errors import (
    AlreadyKnown,
    ChainError,
    InvalidReply,
    NodeOfWrongChain,
    NonceTooLow,
    Reverted,
    RpcRefused,
)
from chains.nodes import ChainNodes, Question
from chains.questions import NO_PRICE, BlockIdentifier, Fees, Log, ProofRequest, Tag, Topic, VerifiedAccountProof

# In wei for a unit of gas, where nodes suggest none: geth builds blocks of what pays as much.
_LEAST_PRIORITY_FEE = 1_000_000

Answer = TypeVar("Answer")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


def result(answer: Answer | ChainError) -> Answer:
    """Return the answer, or raise why there is none."""
    if isinstance(answer, ChainError):
        raise answer
    return answer


class RpcClient:
    """A client of one chain, for any number of threads.

    Every method may raise `NodeUnavailable`, which may pass, and `RpcRefused`. If one node refuses a request, the
    others are asked too, because nodes differ in what they keep and serve. A revert is the chain's own answer.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        timeout_seconds: float = 10,
        ask_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.chain = chain
        self._nodes = ChainNodes(chain, timeout_seconds=timeout_seconds, ask_seconds=ask_seconds, clock=clock)

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
        """Ask questions of any kinds in one exchange. Return the answers in their order, as one list for each list.

        A question without an answer has the reason in its place: that is no fault of the others.
        """
        answers = iter(self._nodes.ask([question for each in lists for question in each]))
        divided = tuple([next(answers) for _ in each] for each in lists)
        return divided if len(divided) > 1 else divided[0]

    def answers(self, asked: Sequence[Question[Answer]]) -> list[Answer]:
        """Return the answers to all of the questions, in order. Raises the first error among them."""
        return [result(answer) for answer in self.ask(asked)]

    def answer(self, question: Question[Answer]) -> Answer:
        """Return the answer to a question, or raise why there is none."""
        return result(self.ask([question])[0])

    def call(self, method: str, *params: Any) -> Any:
        """Return the `result` of one request, as JSON has it."""
        return self.answer(questions.plain(method, *params))

    def wrong_chains(self) -> dict[int, NodeOfWrongChain]:
        """Ask every node for its chain id. Return what those of other chains say, by the place of their URLs."""
        found = {place: node.wrong_chain() for place, node in enumerate(self._nodes.all)}
        return {place: wrong for place, wrong in found.items() if wrong}

    # Blocks

    def head(self) -> ExecutionHeader:
        """Return the latest block's header."""
        return self.must_have_head(self.header("latest"))

    def must_have_head(self, answer: ExecutionHeader | ChainError | None) -> ExecutionHeader:
        """Return the latest block's header, by the answer to the question for it, or raise why there is none."""
        header = result(answer)
        if header is None:
            raise InvalidReply(f"{self.chain.label} has no latest block.")
        return header

    def header(self, block: int | Tag) -> ExecutionHeader | None:
        """Return the block's header, with a computed hash and not the node's. None if there is no such block yet."""
        return self.answer(questions.header(block))

    def headers(self, numbers: Sequence[int]) -> list[ExecutionHeader | None]:
        """Return what `header` does, for several blocks, in order."""
        return self.answers([questions.header(number) for number in numbers])

    def known_header(self, number: int) -> ExecutionHeader:
        """Return the header of a block below the head, which every node has. Raises `InvalidReply` where one hasn't."""
        return self._must_have(number, self.header(number))

    def known_headers(self, numbers: Sequence[int]) -> list[ExecutionHeader]:
        """Return what `known_header` does, for several blocks, in order."""
        return [self._must_have(*found) for found in zip(numbers, self.headers(numbers), strict=True)]

    def _must_have(self, number: int, header: ExecutionHeader | None) -> ExecutionHeader:
        if header is None:
            raise InvalidReply(f"A node of chain {self.chain.id} doesn't have block {number}, below its own head.")
        return header

    def proofs(
        self, wanted: Sequence[ProofRequest], *, beside: Sequence[Question[Any]] = ()
    ) -> list[VerifiedAccountProof | ChainError]:
        """Return `eth_getProof` (EIP-1186) of each account and its slots at its block, in order, or why there is none.

        `beside` is asked with it. Where every node sends a proof that doesn't verify, the reason is `UnverifiedProof`.
        """
        return self.ask(beside, [questions.proof(request) for request in wanted])[1]

    def logs(self, address: str, topics: Sequence[Topic], first: int, last: int) -> list[Log]:
        """Return the logs of one contract in a range of blocks, as `questions.logs` does."""
        return self.answer(questions.logs(address, topics, first, last))

    # State

    @property
    def asks_latest_for_pending(self) -> bool:
        """Return whether a node refused calls of the pending block, and answers them at the latest one."""
        methods = "eth_call", "eth_estimateGas"
        return any(node.takes_only_plainer(method) for node in self._nodes.all for method in methods)

    def eth_call(self, to: str, data: bytes, block: BlockIdentifier = "latest") -> bytes:
        """Return what the call returns. Raises `Reverted`."""
        return self.answer(questions.call(to, data, block))

    def eth_calls(
        self, calls: Sequence[tuple[str, bytes]], block: BlockIdentifier = "latest"
    ) -> list[bytes | Reverted]:
        """Return what each (to, data) returns, in order. A reverted call has its revert as result."""
        answers = self.ask([questions.call(to, data, block) for to, data in calls])
        return [answer if isinstance(answer, Reverted) else result(answer) for answer in answers]

    def code(self, address: str, block: BlockIdentifier = "latest") -> bytes:
        return self.answer(questions.code(address, block))

    def balance(self, address: str, block: BlockIdentifier = "latest") -> int:
        """Return the account's balance in wei."""
        return self.answer(questions.balance(address, block))

    def storages(self, wanted: Sequence[tuple[str, int, BlockIdentifier]]) -> list[int]:
        """Return the values of several slots, in order."""
        return self.answers([questions.storage(*one) for one in wanted])

    def nonce(self, address: str, block: BlockIdentifier = "latest") -> int:
        return self.answer(questions.nonce(address, block))

    # Transactions

    def fees(self) -> Fees:
        """Return the present fees, in one exchange where nodes answer as most do."""
        heads, suggested = self.ask([questions.header("latest")], [questions.priority_fee()])
        return self.fees_by(heads[0], suggested[0])

    def fees_by(self, head: ExecutionHeader | ChainError | None, suggested: int | ChainError) -> Fees:
        """Return the present fees by the head and the node's suggestion. Ask for a base fee that isn't in the head."""
        return Fees(self._base_fee(self.must_have_head(head)), self._priority_fee(suggested))

    def _base_fee(self, head: ExecutionHeader) -> int:
        if head.is_ethereums and (head.base_fee_per_gas or 0) < NO_PRICE:
            return head.base_fee_per_gas or 0
        return self.answer(questions.base_fee(head.number))

    def _priority_fee(self, suggested: int | ChainError) -> int:
        told = _LEAST_PRIORITY_FEE if isinstance(suggested, RpcRefused) else result(suggested)
        return max(self.chain.min_priority_fee, told)

    def estimate_gas(self, sender: str, to: str | None, data: bytes, block: BlockIdentifier = "pending") -> int:
        """Return the gas that the node estimates. Raises `Reverted`, `InsufficientFunds`."""
        return self.answer(questions.gas_estimate(sender, to, data, block))

    def tell_all(self, question: Question[Any]) -> None:
        """Send a request to every node, where there are several: the first that accepts it may pass it on to nobody."""
        self._nodes.tell_all(question)

    def sent(self, raw: bytes, answer: bytes | ChainError) -> bytes:
        """Return the hash of a transaction that was sent, by what the node said of it: a success if it knew it already.

        Raises `NonceTooLow`, `ReplacementUnderpriced`, `FeeTooLow`, `InsufficientFunds`, or another `ChainError`.
        """
        tx_hash = keccak(raw)
        if isinstance(answer, AlreadyKnown):
            return tx_hash
        if isinstance(answer, NonceTooLow):
            # This very transaction may have used the nonce: it was sent before, and is in a block by now.
            if self.call("eth_getTransactionByHash", f"0x{tx_hash.hex()}") is None:
                raise answer
            return tx_hash
        return result(answer)
