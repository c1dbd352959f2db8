"""One JSON-RPC client per chain, with numbers as ints and data as bytes.

It checks all that can be checked without asking another node: it hashes headers again, and takes malformed replies for
no reply.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from chains import together
from chains.chains_file import Chain
from chains.encoding import hex_data, read_data, read_list, read_object, read_quantity
from chains.header import Header, InvalidHeader, verify
from chains.node_errors import (
    AlreadyKnown,
    ChainError,
    FeeTooLow,
    InsufficientFunds,
    InvalidReply,
    NodeUnavailable,
    NonceTooLow,
    OtherAccounts,
    ReplacementUnderpriced,
    Reverted,
    RpcRefused,
    WrongChain,
)
from chains.node_pool import NodePool
from chains.request_batches import Endpoint, Further, Request
from chains.trie import Account, InvalidProof, OtherAccountForm, verify_account, verify_slot

__all__ = [
    "AccountProof",
    "BlockIdentifier",
    "ChainError",
    "FeeTooLow",
    "Fees",
    "InsufficientFunds",
    "InvalidReply",
    "Log",
    "NodeUnavailable",
    "NonceTooLow",
    "ProofRequest",
    "Receipt",
    "ReplacementUnderpriced",
    "Reverted",
    "RpcClient",
    "RpcRefused",
    "SlotProof",
    "Tag",
    "WrongChain",
]

HASH_BYTES = 32
WORD_BYTES = 32
# Every transaction takes as much (yellow paper, G_transaction).
TRANSACTION_GAS = 21_000
# In wei for a unit of gas: nobody could pay it.
_NO_PRICE = 2**96
# Half of those of EIP-2681, and of what a header holds: what a column holds.
_NONCES = _BLOCKS = 2**63
# Slots in one request for a proof, and how many times fewer after one that got no answer.
_MOST_SLOTS = 200
_FEWER_SLOTS = 4
# In wei for a unit of gas, where neither nodes nor blocks tell of one: geth builds blocks of what pays as much.
_LEAST_PRIORITY_FEE = 1_000_000
_FEE_HISTORY_BLOCKS = 10

Tag = Literal["latest", "safe", "finalized", "earliest"]
BlockIdentifier = int | bytes | Tag | Literal["pending"]
"""A block by its number, by its hash (EIP-1898), or by name."""
Topic = bytes | None
"""A log's topic in one place: a certain one, one of several, or any."""

Answer = TypeVar("Answer")


# --- Questions and answers --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProofRequest:
    """An account, and slots of it, at one block."""

    block_number: int
    block_hash: bytes
    state_root: bytes
    address: str
    slots: Sequence[int] = ()


@dataclass(frozen=True)
class SlotProof:
    slot: int
    value: int
    nodes: tuple[bytes, ...]


@dataclass(frozen=True)
class AccountProof:
    """Verified values with the trie nodes that prove them, root first, without embedded ones."""

    address: str
    account: Account
    nodes: tuple[bytes, ...]
    slots: tuple[SlotProof, ...]


@dataclass(frozen=True)
class Fees:
    """In wei for a unit of gas. `base_fee` is that of the latest block; zero on a chain without base fees."""

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
    data_fee: int | None = None
    """In wei, besides the gas: what an OP Stack chain charges for the transaction's data on its L1. None: unknown."""
    has_operator_fee: bool = False
    """True if the chain's operator charges another fee (OP Stack, Isthmus)."""


@dataclass(frozen=True)
class Log:
    block_number: int
    topics: tuple[bytes, ...]
    data: bytes


# --- The client -------------------------------------------------------------------------------------------------------


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.chain = chain
        self.slots_at_once = _MOST_SLOTS
        """The most slots of one account that a request for a proof names: nodes may be too slow for more."""
        endpoints = [
            Endpoint(chain.id, url, host, timeout_seconds=timeout_seconds, clock=clock)
            for url, host in zip(chain.rpc_urls, chain.hosts, strict=True)
        ]
        self._nodes = NodePool(chain, endpoints, timeout_seconds=timeout_seconds, clock=clock)

    def __repr__(self) -> str:
        return f"RpcClient({self.chain.name!r}, {', '.join(self.chain.hosts)})"

    def call(self, method: str, *params: Any) -> Any:
        """Return the `result` of one request, as JSON has it."""
        return self._nodes.one((method, list(params)), lambda result: result)

    def batch(self, batched: Sequence[Request]) -> list[Any | RpcRefused]:
        """Return the results in the order of the requests. A refused request has its refusal as result."""
        answers = self._nodes.many(batched, lambda _, result: result)
        if lacking := next((answer for answer in answers if isinstance(answer, NodeUnavailable)), None):
            raise lacking
        return answers

    def wrong_chains(self) -> dict[int, WrongChain]:
        """Ask every node for its chain id. Return what those of other chains say, by the place of their URLs."""
        return self._nodes.wrong_chains()

    # Blocks

    def head(self) -> Header:
        """Return the latest block's header."""
        header = self.header("latest")
        if header is None:
            raise InvalidReply(f"{self.chain.label} has no latest block.")
        return header

    def header(self, block: int | Tag) -> Header | None:
        """Return the block's header, with a computed hash and not the node's. None if there is no such block yet."""
        return self._nodes.one(_header_request(block), lambda result: _read_header(result, block))

    def headers(self, numbers: Sequence[int]) -> list[Header | None]:
        """Return what `header` does, for several blocks, in order."""
        batched = [_header_request(number) for number in numbers]
        return self._each(batched, lambda index, result: _read_header(result, numbers[index]))

    def known_header(self, number: int) -> Header:
        """Return the header of a block below the head, which every node has. Raises `InvalidReply` where one hasn't."""
        return self._must_have(number, self.header(number))

    def known_headers(self, numbers: Sequence[int]) -> list[Header]:
        """Return what `known_header` does, for several blocks, in order."""
        return [self._must_have(*found) for found in zip(numbers, self.headers(numbers), strict=True)]

    def _must_have(self, number: int, header: Header | None) -> Header:
        if header is None:
            raise InvalidReply(f"A node of chain {self.chain.id} doesn't have block {number}, below its own head.")
        return header

    def header_by_hash(self, block_hash: bytes) -> Header | None:
        request = ("eth_getBlockByHash", [hex_data(block_hash), False])
        return self._nodes.one(request, lambda result: _read_header(result, block_hash))

    def proofs(self, wanted: Sequence[ProofRequest]) -> list[AccountProof | RpcRefused | NodeUnavailable]:
        """Return `eth_getProof` (EIP-1186) of each account and its slots at its block, in order, or why there is none.

        Asked by block hash (EIP-1898), and by number where a node refuses that. A proof that does not verify is no
        answer, so the next node is asked.
        """
        batched = [
            ("eth_getProof", [one.address, [_word(slot) for slot in one.slots], _block(one.block_hash)])
            for one in wanted
        ]
        answers = self._nodes.many(
            batched,
            lambda index, result: _read_proof(result, wanted[index]),
            blocks=[one.block_number for one in wanted],
        )
        self._note_slots(wanted, answers)
        return answers

    def _note_slots(self, wanted: Sequence[ProofRequest], answers: Sequence[AccountProof | ChainError]) -> None:
        """Ask for fewer slots at once if this number got no answer, and for more again if it did."""
        asked = list(zip((len(one.slots) for one in wanted), answers, strict=True))
        failed = [slots for slots, answer in asked if slots > 1 and isinstance(answer, NodeUnavailable)]
        if failed:
            self.slots_at_once = max(1, min(self.slots_at_once, min(failed) // _FEWER_SLOTS))
        elif any(slots >= self.slots_at_once and isinstance(answer, AccountProof) for slots, answer in asked):
            self.slots_at_once = min(_MOST_SLOTS, 2 * self.slots_at_once)

    def logs(self, address: str, topics: Sequence[Topic], first: int, last: int) -> list[Log]:
        """Return the logs of one contract in the blocks from `first` to `last`, both included, in the chain's order.

        `topics` are those that a log must begin with; None stands for any. Nodes refuse ranges that they find too
        long.
        """
        wanted = {
            "address": address,
            "topics": [_topic(topic) for topic in topics],
            "fromBlock": hex(first),
            "toBlock": hex(last),
        }

        def read(result: Any) -> list[Log]:
            logs = [_read_log(log, address) for log in read_list(result)]
            if not all(first <= log.block_number <= last and _begins_with(log, topics) for log in logs):
                raise ValueError("other logs than were asked for")
            return logs

        return self._nodes.one(("eth_getLogs", [wanted]), read)

    # State

    @property
    def asks_latest_for_pending(self) -> bool:
        """Return whether a node refused calls of the pending block, and answers them at the latest one."""
        return not self._nodes.asked_plainly.isdisjoint({"eth_call", "eth_estimateGas"})

    def eth_call(self, to: str, data: bytes, block: BlockIdentifier = "latest") -> bytes:
        """Return what the call returns. Raises `Reverted`."""
        return self._nodes.one(("eth_call", [{"to": to, "data": hex_data(data)}, _block(block)]), read_data)

    def eth_calls(
        self, calls: Sequence[tuple[str, bytes]], block: BlockIdentifier = "latest"
    ) -> list[bytes | Reverted]:
        """Return what each (to, data) returns, in order. A reverted call has its revert as result."""
        batched: list[Request] = [
            ("eth_call", [{"to": to, "data": hex_data(data)}, _block(block)]) for to, data in calls
        ]
        answers: list[bytes | Reverted] = []
        for answer in self._nodes.many(batched, lambda _, result: read_data(result)):
            if not isinstance(answer, bytes | Reverted):
                raise answer
            answers.append(answer)
        return answers

    def code(self, address: str, block: BlockIdentifier = "latest") -> bytes:
        return self._nodes.one(("eth_getCode", [address, _block(block)]), read_data)

    def balance(self, address: str, block: BlockIdentifier = "latest") -> int:
        """Return the account's balance in wei."""
        return self._nodes.one(("eth_getBalance", [address, _block(block)]), read_quantity)

    def storage(self, address: str, slot: int, block: BlockIdentifier = "latest") -> int:
        """Return the slot's value."""
        return self.storages([(address, slot, block)])[0]

    def storages(self, wanted: Sequence[tuple[str, int, BlockIdentifier]]) -> list[int]:
        """Return the values of several slots, in order."""
        batched = [("eth_getStorageAt", [address, _word(slot), _block(block)]) for address, slot, block in wanted]
        return self._each(batched, lambda _, result: _read_word(result))

    def nonce(self, address: str, block: BlockIdentifier = "latest") -> int:
        return self._nodes.one(("eth_getTransactionCount", [address, _block(block)]), _read_nonce)

    # Transactions

    def fees(self) -> Fees:
        return Fees(*together.together(self._base_fee, self._priority_fee))

    def _base_fee(self) -> int:
        head = self.head()
        if head.is_ethereums and (head.base_fee_per_gas or 0) < _NO_PRICE:
            return head.base_fee_per_gas or 0
        return self._nodes.one(("eth_feeHistory", [hex(1), hex(head.number), []]), _read_base_fee)

    def _priority_fee(self) -> int:
        told: int | None = None
        with suppress(RpcRefused):
            told = self._nodes.one(("eth_maxPriorityFeePerGas", []), _read_price)
        if told is None:
            with suppress(RpcRefused):
                told = self._nodes.one(
                    ("eth_feeHistory", [hex(_FEE_HISTORY_BLOCKS), "latest", [50]]), _read_priority_fee
                )
        return max(self.chain.min_priority_fee, _LEAST_PRIORITY_FEE if told is None else told)

    def estimate_gas(self, sender: str, to: str | None, data: bytes, block: BlockIdentifier = "pending") -> int:
        """Return the gas that the node estimates. Raises `Reverted`, `InsufficientFunds`.

        `to=None` creates a contract.
        """
        transaction = {"from": sender, "data": hex_data(data)} | ({} if to is None else {"to": to})
        return self._nodes.one(("eth_estimateGas", [transaction, _block(block)]), _read_gas)

    def send_raw(self, raw: bytes, *, to_all: bool = False) -> bytes:
        """Broadcast a signed transaction and return its hash. It is a success if the node already knows it.

        With `to_all` every node gets it, not just the first that accepts it: that one may pass it on to nobody.

        Raises `NonceTooLow`, `ReplacementUnderpriced`, `FeeTooLow`, `InsufficientFunds`, or another `RpcRefused`.
        """
        tx_hash, request = keccak(raw), ("eth_sendRawTransaction", [hex_data(raw)])

        def read(result: Any) -> bytes:
            if read_data(result, 32) != tx_hash:
                raise ValueError("another transaction's hash")
            return tx_hash

        if to_all:
            self._nodes.tell_all(request)
        try:
            return self._nodes.one(request, read)
        except AlreadyKnown:
            return tx_hash
        except NonceTooLow:
            # This very transaction may have used the nonce: it was sent before, and is in a block by now.
            if self.call("eth_getTransactionByHash", hex_data(tx_hash)) is None:
                raise
            return tx_hash

    def receipt(self, tx_hash: bytes) -> Receipt | None:
        """Return the transaction's receipt. None until it is in a block."""
        return self.receipts([tx_hash])[0]

    def receipts(self, tx_hashes: Sequence[bytes]) -> list[Receipt | None]:
        """Return what `receipt` does, for several transactions, in order."""

        def read(index: int, result: Any) -> Receipt | None:
            if result is None:
                return None
            receipt = _read_receipt(result)
            if receipt.tx_hash != tx_hashes[index]:
                raise ValueError("another transaction's receipt")
            return receipt

        return self._each([("eth_getTransactionReceipt", [hex_data(tx_hash)]) for tx_hash in tx_hashes], read)

    def _each(self, batched: Sequence[Request], read: Callable[[int, Any], Answer | Further[Answer]]) -> list[Answer]:
        """Return the answers to all of the requests, in order. Raises the first error among them."""
        answers: list[Answer] = []
        for answer in self._nodes.many(batched, read):
            if isinstance(answer, ChainError):
                raise answer
            answers.append(answer)
        return answers


# --- What goes out ----------------------------------------------------------------------------------------------------


def _word(number: int) -> str:
    return hex_data(number.to_bytes(32, "big"))


def _header_request(block: int | Tag) -> Request:
    return "eth_getBlockByNumber", [_block(block), False]


def _topic(topic: Topic) -> Any:
    return None if topic is None else hex_data(topic)


def _block(block: BlockIdentifier) -> Any:
    if isinstance(block, int):
        return hex(block)
    return {"blockHash": hex_data(block)} if isinstance(block, bytes) else block


# --- What comes back --------------------------------------------------------------------------------------------------


def _read_header(result: Any, wanted: int | bytes | Tag) -> Header | Further[Header | None] | None:
    if result is None:
        return None
    block = read_object(result)
    number, block_hash = read_quantity(block.get("number")), read_data(block.get("hash"), 32)
    if number >= _BLOCKS:
        raise ValueError("a block that no chain can have reached")
    if not isinstance(wanted, str) and wanted not in {number, block_hash}:
        raise ValueError("another block than was asked for")
    try:
        return Header.from_rpc(block)
    except InvalidHeader:
        return _raw_header(number, block_hash)


def _raw_header(number: int, block_hash: bytes) -> Further[Header | None]:
    """Ask for the raw header (`debug_getRawHeader`) of a block whose JSON fields don't add up to it."""

    def read(result: Any) -> Header:
        try:
            header = verify(read_data(result), block_hash)
        except InvalidHeader as invalid:
            raise ValueError(f"no header of block {number}: {str(invalid).removesuffix('.')}") from None
        if header.number != number:
            raise ValueError(f"the header of block {header.number} instead of block {number}")
        # Their names in JSON tell that these fields are not Ethereum's, whatever their sizes.
        return header.with_shared_fields()

    lacking = (
        f"sent block {number}, whose fields don't make a header of its hash, and refuses debug_getRawHeader, by which "
        "headers of other layouts are read"
    )
    return Further(("debug_getRawHeader", [hex(number)]), read, lacking)


def _read_proof(result: Any, wanted: ProofRequest) -> AccountProof | RpcRefused:
    result = read_object(result)
    storage = [read_object(proof) for proof in read_list(result.get("storageProof"))]
    if [read_quantity(proof.get("key")) for proof in storage] != list(wanted.slots):
        raise ValueError("storage proofs for other slots than were asked for")
    nodes, slots = _read_nodes(result.get("accountProof")), []
    try:
        account = verify_account(wanted.state_root, wanted.address, nodes)
        for slot, proof in zip(wanted.slots, storage, strict=True):
            slot_nodes = _read_nodes(proof.get("proof"))
            slots.append(SlotProof(slot, verify_slot(account.storage_root, slot, slot_nodes), slot_nodes))
    except OtherAccountForm as other:
        return OtherAccounts(str(other))
    except InvalidProof as invalid:
        raise ValueError(
            f"a proof of {wanted.address} at block {wanted.block_number} that does not verify: "
            f"{str(invalid).removesuffix('.')}"
        ) from None
    return AccountProof(wanted.address, account, nodes, tuple(slots))


def _read_nodes(nodes: Any) -> tuple[bytes, ...]:
    read = [read_data(node) for node in read_list(nodes)]
    # A trie node shorter than a hash is part of its parent, except the root. Some RPC nodes repeat it.
    return tuple(node for place, node in enumerate(read) if place == 0 or len(node) >= HASH_BYTES)


def _read_word(result: Any) -> int:
    data = read_data(result)
    if len(data) > WORD_BYTES:
        raise ValueError(f"{len(data)} bytes instead of a word")
    return int.from_bytes(data, "big")


def _read_log(result: Any, address: str) -> Log:
    result = read_object(result)
    if read_data(result.get("address"), 20) != bytes.fromhex(address[2:]):
        raise ValueError("another contract's log")
    return Log(
        block_number=read_quantity(result.get("blockNumber")),
        topics=tuple(read_data(topic, 32) for topic in read_list(result.get("topics"))),
        data=read_data(result.get("data")),
    )


def _begins_with(log: Log, topics: Sequence[Topic]) -> bool:
    return len(log.topics) >= len(topics) and all(
        wanted is None or topic == wanted for wanted, topic in zip(topics, log.topics, strict=False)
    )


def _read_price(result: Any) -> int:
    price = read_quantity(result)
    if price >= _NO_PRICE:
        raise ValueError("a price that nobody can pay")
    return price


def _read_gas(result: Any) -> int:
    gas = read_quantity(result)
    if gas < TRANSACTION_GAS:
        raise ValueError(f"{gas} gas, less than every transaction takes")
    return gas


def _read_nonce(result: Any) -> int:
    nonce = read_quantity(result)
    if nonce >= _NONCES:
        raise ValueError("a nonce that no account can have reached")
    return nonce


def _read_base_fee(result: Any) -> int:
    """Read the base fee of the oldest block that was asked about.

    The last entry is about the block after the newest.
    """
    return _read_price(next(iter(read_list(read_object(result).get("baseFeePerGas"))), None))


def _read_priority_fee(result: Any) -> int | None:
    """Read the median priority fee of blocks that aren't empty; None where all are."""
    history = read_object(result)
    empty = {place for place, ratio in enumerate(read_list(history.get("gasUsedRatio", []))) if ratio == 0}
    rewards = [read_list(row) for row in read_list(history.get("reward"))]
    medians = sorted(_read_price(row[0]) for place, row in enumerate(rewards) if row and place not in empty)
    return medians[len(medians) // 2] if medians else None


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
        # Arbitrum's `gasUsedForL1` is a part of `gasUsed`.
        data_fee=None if result.get("l1Fee") is None else read_quantity(result["l1Fee"]),
        has_operator_fee=any(
            read_quantity(result.get(name) or "0x0") for name in ("operatorFeeScalar", "operatorFeeConstant")
        ),
    )
