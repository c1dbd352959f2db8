"""One JSON-RPC client per chain: several nodes behind it, none of them believed further than it can be checked.

A node that fails rests while the next one is asked. RPC URLs often hold a provider's key, so no error, `repr` or log
line here shows more of them than the host.
"""

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Literal, TypeVar

import requests
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains.config import Chain
from chains.encoding import read_data, read_list, read_object, read_quantity
from chains.header import Header, InvalidHeader

BATCH_SIZE = 50
MAX_REPLY_BYTES = 64 * 1024 * 1024
MAX_REST_SECONDS = 60

Tag = Literal["latest", "safe", "finalized", "earliest"]
Block = int | bytes | Tag | Literal["pending"]
"""A block by its number, by its hash (EIP-1898), or by name."""

Request = tuple[str, list[Any]]
"""A method and its parameters, as JSON has them."""

Answer = TypeVar("Answer")


# --- Errors -----------------------------------------------------------------------------------------------------------


class ChainError(Exception):
    """Whatever went wrong between us and a chain. The message is one plain sentence without secrets."""


class NodeUnavailable(ChainError):
    """No node gave a usable answer. It may pass: try again later."""


class WrongChain(NodeUnavailable):
    """The node belongs to another chain than the configuration says."""


class InvalidReply(NodeUnavailable):
    """The node lies or talks nonsense."""


class RpcRefused(ChainError):
    """The node answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(f"The node refused: {message} ({code}).")


class Reverted(RpcRefused):
    """Execution reverted. `data` is the revert data as bytes, empty where the node gave none."""

    data: bytes


class NonceTooLow(RpcRefused):
    """A transaction with this nonce is already in a block."""


class ReplacementUnderpriced(RpcRefused):
    """Another transaction with this nonce waits already, and the new one does not pay enough more."""


class InsufficientFunds(RpcRefused):
    """The sender can't pay for the transaction."""


class _AlreadyKnown(RpcRefused):
    """The node has this very transaction. Success, for who sends it."""


# What is true of the chain, whichever node says it; any other refusal may be one node's alone.
_FINAL = (Reverted, NonceTooLow, ReplacementUnderpriced, InsufficientFunds, _AlreadyKnown)


# --- Answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlotProof:
    slot: int
    nodes: tuple[bytes, ...]


@dataclass(frozen=True)
class AccountProof:
    """Trie nodes, root first, as a node sent them. Nothing is verified: that needs the state root (`chains.trie`)."""

    address: str
    nodes: tuple[bytes, ...]
    slots: tuple[SlotProof, ...]


@dataclass(frozen=True)
class Fees:
    """In wei for a unit of gas. `base_fee` is the latest block's, zero on a chain without one."""

    base_fee: int
    priority_fee: int


@dataclass(frozen=True)
class Receipt:
    tx_hash: bytes
    block_number: int
    block_hash: bytes
    status: int
    """1 for success, 0 for a revert."""
    gas_used: int
    effective_gas_price: int
    """In wei."""
    contract_address: str | None
    sender: str


# --- The client -------------------------------------------------------------------------------------------------------


@dataclass
class _Node:
    url: str = field(repr=False)
    host: str
    chain_checked: bool = False
    failures: int = 0
    rests_until: float = 0
    batch_size: int = BATCH_SIZE


class _BatchRefused(Exception):
    """One JSON-RPC error for a whole batch: the node takes no batches, or none of this length."""


class RpcClient:
    """A client of one chain, for any number of threads.

    Every method may raise `NodeUnavailable`, which may pass, and `RpcRefused`. A request that one node refuses is put
    to the others too, because nodes differ in what they keep and serve; a revert is the chain's answer and final.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        timeout_seconds: float = 10,
        session: requests.Session | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.chain = chain
        self._timeout = timeout_seconds
        self._clock = clock
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._nodes = [_Node(url, host) for url, host in zip(chain.rpc_urls, chain.hosts, strict=True)]
        if session is None:
            session = requests.Session()
            # Cookies are the one thing of a session that threads would write at once, and no node needs them.
            session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session = session

    def __repr__(self) -> str:
        return f"RpcClient({self.chain.name!r}, {', '.join(self.chain.hosts)})"

    def close(self) -> None:
        self._session.close()

    def call(self, method: str, *params: Any) -> Any:
        """The `result` of one request, as JSON has it."""
        return self._one((method, list(params)), lambda result: result)

    def batch(self, batched: Sequence[Request]) -> list[Any | RpcRefused]:
        """The results in the order of the requests, with the refusal in the place of each refused one."""
        return self._many(batched, lambda _, result: result)

    # Blocks

    def head(self) -> Header:
        """The latest block's header."""
        header = self.header("latest")
        if header is None:
            raise InvalidReply(f"{self._name()} has no latest block.")
        return header

    def header(self, block: int | Tag) -> Header | None:
        """None where there is no such block yet. The hash is recomputed: the node's word is not enough."""

        def read(result: Any) -> Header | None:
            header = _read_header(result)
            if header is not None and isinstance(block, int) and header.number != block:
                raise ValueError("another block than was asked for")
            return header

        return self._one(("eth_getBlockByNumber", [_block(block), False]), read)

    def header_by_hash(self, block_hash: bytes) -> Header | None:
        def read(result: Any) -> Header | None:
            header = _read_header(result)
            if header is not None and header.hash != block_hash:
                raise ValueError("another block than was asked for")
            return header

        return self._one(("eth_getBlockByHash", [_hex(block_hash), False]), read)

    def proofs(
        self, block_number: int, block_hash: bytes, wanted: Sequence[tuple[str, Sequence[int]]]
    ) -> list[AccountProof | RpcRefused]:
        """`eth_getProof` (EIP-1186) of each account and its slots at one block, in order.

        Asked by block hash (EIP-1898), and by number where a node refuses that. Not verified here.
        """

        def ask(places: Sequence[int], block: Block) -> list[AccountProof | RpcRefused]:
            batched = [
                (
                    "eth_getProof",
                    [
                        wanted[place][0],
                        [_hex(slot.to_bytes(32, "big")) for slot in wanted[place][1]],
                        _block(block),
                    ],
                )
                for place in places
            ]
            return self._many(batched, lambda index, result: _read_proof(result, *wanted[places[index]]))

        answers = ask(range(len(wanted)), block_hash)
        refused = [place for place, answer in enumerate(answers) if isinstance(answer, RpcRefused)]
        for place, answer in zip(refused, ask(refused, block_number), strict=True):
            answers[place] = answer
        return answers

    # State

    def eth_call(self, to: str, data: bytes, block: Block = "latest") -> bytes:
        """What the call returns. Raises `Reverted`."""
        return self._one(("eth_call", [{"to": to, "data": _hex(data)}, _block(block)]), read_data)

    def eth_calls(self, calls: Sequence[tuple[str, bytes]], block: Block = "latest") -> list[bytes | Reverted]:
        """What each (to, data) returns, in order, with the revert in the place of each reverted one."""
        batched: list[Request] = [("eth_call", [{"to": to, "data": _hex(data)}, _block(block)]) for to, data in calls]
        answers: list[bytes | Reverted] = []
        for answer in self._many(batched, lambda _, result: read_data(result)):
            if not isinstance(answer, bytes | Reverted):
                raise answer
            answers.append(answer)
        return answers

    def code(self, address: str, block: Block = "latest") -> bytes:
        return self._one(("eth_getCode", [address, _block(block)]), read_data)

    def balance(self, address: str, block: Block = "latest") -> int:
        """In wei."""
        return self._one(("eth_getBalance", [address, _block(block)]), read_quantity)

    def nonce(self, address: str, block: Block = "latest") -> int:
        return self._one(("eth_getTransactionCount", [address, _block(block)]), read_quantity)

    # Transactions

    def fees(self) -> Fees:
        base_fee = self.head().base_fee_per_gas or 0
        try:
            priority_fee = self._one(("eth_maxPriorityFeePerGas", []), read_quantity)
        except RpcRefused:
            priority_fee = self._one(("eth_feeHistory", [hex(10), "latest", [50]]), _read_priority_fee)
        return Fees(base_fee, priority_fee)

    def estimate_gas(self, sender: str, to: str | None, data: bytes, block: Block = "pending") -> int:
        """Raises `Reverted`, `InsufficientFunds`. `to=None` creates a contract."""
        transaction = {"from": sender, "data": _hex(data)} | ({} if to is None else {"to": to})
        return self._one(("eth_estimateGas", [transaction, _block(block)]), read_quantity)

    def send_raw(self, raw: bytes) -> bytes:
        """Broadcast a signed transaction and return its hash. A node that knows it already is a success.

        Raises `NonceTooLow`, `ReplacementUnderpriced`, `InsufficientFunds`, or another `RpcRefused`.
        """
        tx_hash = keccak(raw)

        def read(result: Any) -> bytes:
            if read_data(result, 32) != tx_hash:
                raise ValueError("another transaction's hash")
            return tx_hash

        try:
            return self._one(("eth_sendRawTransaction", [_hex(raw)]), read)
        except _AlreadyKnown:
            return tx_hash
        except NonceTooLow:
            # The nonce may be used up by this very transaction, sent before and in a block by now.
            if self.call("eth_getTransactionByHash", _hex(tx_hash)) is None:
                raise
            return tx_hash

    def receipt(self, tx_hash: bytes) -> Receipt | None:
        """None until the transaction is in a block."""

        def read(result: Any) -> Receipt | None:
            if result is None:
                return None
            receipt = _read_receipt(result)
            if receipt.tx_hash != tx_hash:
                raise ValueError("another transaction's receipt")
            return receipt

        return self._one(("eth_getTransactionReceipt", [_hex(tx_hash)]), read)

    # Nodes

    def _one(self, request: Request, read: Callable[[Any], Answer]) -> Answer:
        (answer,) = self._many([request], lambda _, result: read(result))
        if isinstance(answer, RpcRefused):
            raise answer
        return answer

    def _many(self, batched: Sequence[Request], read: Callable[[int, Any], Answer]) -> list[Answer | RpcRefused]:
        """The answers, each read from its result by `read`, whose `ValueError` sends us to the next node."""
        answers: dict[int, Answer | RpcRefused] = {}
        refusals: dict[int, RpcRefused] = {}
        problems: list[NodeUnavailable] = []
        for node in self._nodes_in_order() if batched else ():
            try:
                self._check_chain(node)
                for index, result in self._ask(node, {i: batched[i] for i in range(len(batched)) if i not in answers}):
                    if isinstance(result, RpcRefused):
                        (answers if isinstance(result, _FINAL) else refusals).setdefault(index, result)
                        continue
                    try:
                        answers[index] = read(index, result)
                    except ValueError as error:
                        raise InvalidReply(f"{node.host} answered {batched[index][0]} with {error}") from None
            except NodeUnavailable as error:
                self._rest(node)
                problems.append(error)
            else:
                self._recovered(node)
            if len(answers) == len(batched):
                break
        outcome: dict[int, Answer | RpcRefused] = {**refusals, **answers}
        if len(outcome) < len(batched):
            raise self._why(problems)
        return [outcome[index] for index in range(len(batched))]

    def _ask(self, node: _Node, batched: dict[int, Request]) -> Iterator[tuple[int, Any | RpcRefused]]:
        """The results of all requests from one node, in bounded batches."""
        waiting = list(batched)
        while waiting:
            chunk = waiting[: node.batch_size]
            try:
                results = self._exchange(node, [batched[index] for index in chunk])
            except _BatchRefused:
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
        reply = self._post(node, bodies if len(bodies) > 1 else bodies[0])
        if isinstance(reply, dict) and isinstance(reply.get("error"), dict):
            # The only reply that may lack an id: the node did not look into what it was sent.
            refusal = _refusal(node, batched[0][0], reply["error"])
            if len(batched) > 1:
                raise _BatchRefused
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

    def _post(self, node: _Node, body: Any) -> Any:
        problem = ""
        try:
            status, content = self._read_bounded(node.url, body)
        except requests.Timeout:
            problem = f"did not answer within {self._timeout:g} seconds"
        except requests.exceptions.SSLError:
            problem = "has no valid TLS certificate"
        except requests.ConnectionError:
            problem = "can't be reached"
        except (requests.RequestException, OSError, ValueError):
            problem = "broke off its answer"
        # Outside of `except`, so that no chained exception shows the URL.
        if problem:
            raise NodeUnavailable(f"{node.host} {problem}")
        if content is None:
            raise InvalidReply(f"{node.host} sent more than {MAX_REPLY_BYTES} bytes")
        # Some nodes send JSON-RPC errors as HTTP 400.
        if status not in {200, 400}:
            raise NodeUnavailable(f"{node.host} answered with HTTP status {status}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise InvalidReply(f"{node.host} answered with something that is not JSON") from None

    def _read_bounded(self, url: str, body: Any) -> tuple[int, bytes | None]:
        """The reply's status and content, which is None where it is too long."""
        # The time-out of requests is for one read; a node that drips bytes must end too.
        deadline = time.monotonic() + 3 * self._timeout
        content = bytearray()
        with self._session.post(url, json=body, timeout=self._timeout, allow_redirects=False, stream=True) as response:
            for part in response.iter_content(64 * 1024):
                content += part
                if len(content) > MAX_REPLY_BYTES:
                    return response.status_code, None
                if time.monotonic() > deadline:
                    raise requests.Timeout
            return response.status_code, bytes(content)

    def _check_chain(self, node: _Node) -> None:
        """A node's chain id is asked before its first use, and again after each failure."""
        if node.chain_checked:
            return
        (answer,) = self._exchange(node, [("eth_chainId", [])])
        try:
            chain_id = read_quantity(answer)
        except ValueError:
            raise InvalidReply(f"{node.host} does not tell its chain id") from None
        if chain_id != self.chain.id:
            raise WrongChain(f"{node.host} is a node of chain {chain_id}, not of {self.chain.id}")
        node.chain_checked = True

    def _nodes_in_order(self) -> list[_Node]:
        """The nodes in the order of the configuration, those that rest at the end: a rested node beats none."""
        now = self._clock()
        with self._lock:
            return sorted(self._nodes, key=lambda node: max(node.rests_until - now, 0))

    def _rest(self, node: _Node) -> None:
        with self._lock:
            seconds = min(2**node.failures, MAX_REST_SECONDS)
            node.failures = min(node.failures + 1, 10)
            node.rests_until = self._clock() + seconds
            node.chain_checked = False

    def _recovered(self, node: _Node) -> None:
        with self._lock:
            node.failures = 0
            node.rests_until = 0

    def _why(self, problems: Sequence[NodeUnavailable]) -> NodeUnavailable:
        kinds = {type(problem) for problem in problems}
        kind = kinds.pop() if len(kinds) == 1 else NodeUnavailable
        return kind(f"No node of {self._name()} can be used: {'; '.join(map(str, problems))}.")

    def _name(self) -> str:
        return f"{self.chain.name} ({self.chain.id})"


# --- What goes out ----------------------------------------------------------------------------------------------------


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}"


def _block(block: Block) -> Any:
    if isinstance(block, int):
        return hex(block)
    return {"blockHash": _hex(block)} if isinstance(block, bytes) else block


# --- What comes back --------------------------------------------------------------------------------------------------


def _result(node: _Node, method: str, reply: dict[str, Any]) -> Any | RpcRefused:
    error = reply.get("error")
    if isinstance(error, dict):
        return _refusal(node, method, error)
    if error is not None or "result" not in reply:
        raise InvalidReply(f"{node.host} answered {method} with neither a result nor an error")
    return reply["result"]


# The words of geth, Nethermind, Erigon, Besu, reth and anvil, in that order where they differ.
_TRANSACTION_REFUSALS: tuple[tuple[type[RpcRefused], re.Pattern[str]], ...] = (
    (
        _AlreadyKnown,
        re.compile(r"(?i)already known|alreadyknown|existing tx with same hash|known transaction|already imported"),
    ),
    (
        ReplacementUnderpriced,
        re.compile(r"(?i)replacement transaction underpriced|replacementnotallowed|could not replace existing tx"),
    ),
    (NonceTooLow, re.compile(r"(?i)nonce[_ ](is )?too[_ ]low|oldnonce|nonce has already been used")),
    (
        InsufficientFunds,
        re.compile(r"(?i)insufficient ?funds|upfront cost exceeds account balance|insufficient sender balance"),
    ),
)
_RATE_LIMIT = re.compile(r"(?i)rate.?limit|too many requests|request limit|compute units|(quota|capacity).*exceeded")
_RATE_LIMIT_CODES = {429, -32005, -32029}
_REVERT = re.compile(r"(?i)\brevert")
_REVERT_CODE = 3
_NETHERMIND_VM_ERROR = -32015


def _refusal(node: _Node, method: str, error: dict[str, Any]) -> RpcRefused:
    """The typed error for a JSON-RPC error. Raises `NodeUnavailable` for what merely means "later"."""
    code = error.get("code")
    code = code if type(code) is int else 0
    # Whatever a node writes ends up in logs and pages: one printable line, bounded.
    message = "".join(letter if letter.isprintable() else " " for letter in str(error.get("message", ""))[:300])
    if code in _RATE_LIMIT_CODES or _RATE_LIMIT.search(message):
        raise NodeUnavailable(f"{node.host} limits our requests")
    if method in {"eth_call", "eth_estimateGas"} and (
        code in {_REVERT_CODE, _NETHERMIND_VM_ERROR} or _REVERT.search(message)
    ):
        return Reverted(code, message, _revert_data(error.get("data")))
    if method in {"eth_sendRawTransaction", "eth_estimateGas"}:
        for kind, words in _TRANSACTION_REFUSALS:
            if words.search(message):
                return kind(code, message, error.get("data"))
    return RpcRefused(code, message, error.get("data"))


def _revert_data(data: Any) -> bytes:
    """Revert data as nodes send it: hex, hex behind the word "Reverted", or either inside an object."""
    if isinstance(data, dict):
        data = data.get("data")
    if isinstance(data, str):
        data = data.removeprefix("Reverted ")
    try:
        return read_data(data)
    except ValueError:
        return b""


def _read_header(result: Any) -> Header | None:
    if result is None:
        return None
    block = read_object(result)
    header = Header.from_rpc(block)
    if header.hash != read_data(block.get("hash"), 32):
        raise InvalidHeader("a block whose hash is not the hash of its header")
    return header


def _read_proof(result: Any, address: str, slots: Sequence[int]) -> AccountProof:
    result = read_object(result)
    storage = [read_object(proof) for proof in read_list(result.get("storageProof"))]
    if [read_quantity(proof.get("key")) for proof in storage] != list(slots):
        raise ValueError("storage proofs for other slots than were asked for")
    proven = tuple(SlotProof(slot, _read_nodes(proof.get("proof"))) for slot, proof in zip(slots, storage, strict=True))
    return AccountProof(address, _read_nodes(result.get("accountProof")), proven)


def _read_nodes(nodes: Any) -> tuple[bytes, ...]:
    return tuple(read_data(node) for node in read_list(nodes))


def _read_priority_fee(result: Any) -> int:
    rewards = [read_list(row) for row in read_list(read_object(result).get("reward"))]
    medians = sorted(read_quantity(row[0]) for row in rewards if row)
    return medians[len(medians) // 2] if medians else 0


def _read_receipt(result: Any) -> Receipt:
    result = read_object(result)
    contract = result.get("contractAddress")
    return Receipt(
        tx_hash=read_data(result.get("transactionHash"), 32),
        block_number=read_quantity(result.get("blockNumber")),
        block_hash=read_data(result.get("blockHash"), 32),
        status=read_quantity(result.get("status")),
        gas_used=read_quantity(result.get("gasUsed")),
        effective_gas_price=read_quantity(result.get("effectiveGasPrice")),
        contract_address=None if contract is None else to_checksum_address(read_data(contract, 20)),
        sender=to_checksum_address(read_data(result.get("from"), 20)),
    )
