"""Questions to the nodes of a chain. A question has a JSON-RPC request and a function that reads its result.

Numbers become ints, and data becomes bytes. Results are checked as far as is possible without another request: headers
are hashed, proofs are verified, and malformed results are refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Literal, TypeVar

from eth_utils.crypto import keccak

from chains.chains_file import Chain
from chains.encoding import (
    HISTORY_CONTRACT,
    hex_data,
    history_slot,
    read_data,
    read_list,
    read_number,
    read_object,
    read_quantity,
)
from chains.nodes import coming_forks
from chains.nodes.chain_nodes import Question
from chains.nodes.coming_forks import ComingFork
from chains.nodes.node_batches import Request
from chains.nodes.node_errors import FINAL, SEND, ImplausibleGas, OtherAccounts, Reverted, RpcRefused, UnreadableHeader
from chains.tries.header import Header, InvalidHeader, UnknownLayout
from chains.tries.trie import EMPTY_TRIE_ROOT, InvalidProof, OtherAccountForm, StateAccount, verify_account, verify_slot

HASH_BYTES = 32
WORD_BYTES = 32
# Wei per gas that nobody could pay.
NO_PRICE = 2**96
# Blocks whose priority fees are compared with a suggestion, and the least of them that must have taken some.
_FEE_BLOCKS, _LEAST_PAYING_BLOCKS = 10, 3
# Init code: GAS, PUSH0, MSTORE, PUSH1 32, PUSH0, RETURN.
_RETURN_GAS = bytes.fromhex("5a5f5260205ff3")
# Limits of our database columns. EIP-2681 allows nonces, and headers block numbers, of twice that.
_NONCES = _BLOCKS = 2**63

Tag = Literal["latest", "safe", "finalized", "earliest"]
BlockIdentifier = int | bytes | Tag | Literal["pending"]
"""A block's number, hash (EIP-1898) or name."""
Topic = bytes | None
"""A log's topic in one place. None: any topic."""

Answer = TypeVar("Answer")


# --- Answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProofRequest:
    """A request to prove an account and some of its slots at one block."""

    block_number: int
    block_hash: bytes
    state_root: bytes
    address: str
    slots: Sequence[int] = ()


@dataclass(frozen=True)
class VerifiedSlotProof:
    slot: int
    value: int
    nodes: tuple[bytes, ...]


@dataclass(frozen=True)
class VerifiedAccountProof:
    """Verified values, and the trie nodes that prove them.

    The nodes begin with the root, and exclude embedded nodes.
    """

    address: str
    account: StateAccount
    nodes: tuple[bytes, ...]
    slots: tuple[VerifiedSlotProof, ...]


@dataclass(frozen=True)
class Fees:
    """Fees in wei per gas. `base_fee` is the latest block's, zero on a chain without base fees."""

    base_fee: int
    priority_fee: int
    suggested: int
    """The priority fee that a node suggests, which may be far above those that blocks took."""
    doubt: str = ""
    """A sentence about nodes that suggest tips that differ by far."""


@dataclass(frozen=True)
class Receipt:
    tx_hash: bytes
    block_number: int
    block_hash: bytes
    status: int | None
    """1 for success, 0 for a revert. None: unknown."""
    gas_used: int
    effective_gas_price: int | None
    """In wei. None: unknown."""
    data_fee: int | None = None
    """OP Stack's fee for the transaction's data on L1, in wei, besides the gas. None: unknown."""
    has_operator_fee: bool = False
    """True if the chain's operator charges a further fee (OP Stack since Isthmus)."""


@dataclass(frozen=True)
class Log:
    block_number: int
    topics: tuple[bytes, ...]
    data: bytes


# --- Questions --------------------------------------------------------------------------------------------------------


def header(block: int | Tag) -> Question[Header | None]:
    """Ask for a block's header, and check its hash. None if the block doesn't exist yet.

    Chains may have no final block, and an answer without a header's form counts as none.
    """
    return _header("Number", block)


def header_by_hash(block_hash: bytes) -> Question[Header | None]:
    return _header("Hash", block_hash)


def _header(by: str, block: int | bytes | Tag) -> Question[Header | None]:
    def read(result: Any) -> Header | Question[Header | None] | None:
        return _read_header(result, block)

    name = hex_data(block) if isinstance(block, bytes) else _block(block)
    method = f"eth_getHeaderBy{by}"
    lacking = UnreadableHeader(f"has pruned block {name}, and refuses {method}")
    return Question(
        (f"eth_getBlockBy{by}", [name, False]),
        _optional(read) if block == "finalized" else read,
        without_body=Question((method, [name]), read, lacking=lacking),
    )


def proof(account: ProofRequest) -> Question[VerifiedAccountProof]:
    """Ask for `eth_getProof` (EIP-1186) by block hash (EIP-1898), or by number if a node refuses the hash.

    If a proof doesn't verify, the next node is asked.
    """

    def request(block: int | bytes) -> Request:
        return "eth_getProof", [account.address, [_word(slot) for slot in account.slots], _block(block)]

    return Question(
        request(account.block_hash), lambda result: _read_proof(result, account), request(account.block_number)
    )


def logs(address: str, topics: Sequence[Topic], first: int, last: int) -> Question[list[Log]]:
    """Ask for the logs of one contract in the blocks from `first` to `last`, both included, in the chain's order.

    The topics of a log must begin with `topics`; None matches any topic. Nodes refuse ranges above their limit.
    """
    log_filter = {
        "address": address,
        "topics": [_topic(topic) for topic in topics],
        "fromBlock": hex(first),
        "toBlock": hex(last),
    }

    def read(result: Any) -> list[Log]:
        entries = [_read_log(log, address) for log in _read_nullable_list(result)]
        if not all(first <= log.block_number <= last and _begins_with(log, topics) for log in entries):
            raise ValueError("other logs than the requested ones")
        return entries

    return Question(("eth_getLogs", [log_filter]), read)


def call(
    to: str, data: bytes, block: BlockIdentifier = "latest", *, final: tuple[type[RpcRefused], ...] = ()
) -> Question[bytes]:
    """Ask for the return data of a call. If every node refuses, it may be `Reverted`.

    Name `FINAL` refusals where honest nodes may say so, too: then no other node is waited for.
    """
    return _on_top("eth_call", {"to": to, "data": hex_data(data)}, block, read_data, final)


def gas_of_call(most: int) -> Question[int]:
    """Ask how much gas the node leaves to a call that may have `most`. Nodes lower it to a limit of their own."""
    transaction = {"data": hex_data(_RETURN_GAS), "gas": hex(most)}
    return Question(("eth_call", [transaction, "latest"]), _read_word)


def run(sender: str, to: str | None, data: bytes, block: BlockIdentifier, *, gas: int) -> Question[bytes]:
    """Ask for the return data of a transaction with this gas limit after a block."""
    transaction = {"from": sender, "data": hex_data(data), "gas": hex(gas)} | ({} if to is None else {"to": to})
    return _on_top("eth_call", transaction, block, read_data, FINAL)


def code(address: str, block: BlockIdentifier = "latest") -> Question[bytes]:
    return Question(("eth_getCode", [address, _block(block)]), read_data)


def balance(address: str, block: BlockIdentifier = "latest") -> Question[int]:
    """Ask for an account's balance in wei."""
    return Question(("eth_getBalance", [address, _block(block)]), read_quantity)


def storage(address: str, slot: int, block: BlockIdentifier = "latest") -> Question[int]:
    """Ask for a slot's value."""
    return Question(("eth_getStorageAt", [address, _word(slot), _block(block)]), _read_word)


def kept_hash(number: int, chain: Chain, at: BlockIdentifier) -> Question[int]:
    """Ask for the hash that the history contract (EIP-2935) keeps for a block, in the state `at`. 0: none."""
    return storage(HISTORY_CONTRACT, history_slot(number, chain.history_window), at)


def keeps_hashes(head: Header, chain: Chain) -> Question[bool]:
    """Ask whether the history contract (EIP-2935) in the head's state has the hash of the head's parent."""
    kept = kept_hash(head.number - 1, chain, head.number)
    return Question(kept.request, lambda result: _read_word(result) == int.from_bytes(head.parent_hash))


def nonce(address: str, block: BlockIdentifier = "latest") -> Question[int]:
    return Question(("eth_getTransactionCount", [address, _block(block)]), _read_nonce)


def syncing() -> Question[bool]:
    """Ask whether the node lacks blocks of its chain. A node that only indexes blocks says that it syncs, too."""

    def read(result: Any) -> bool:
        if not isinstance(result, dict):
            return bool(result)
        current, highest = (_number(result.get(name)) for name in ("currentBlock", "highestBlock"))
        # geth names no highest block before it has found a peer.
        return not current or highest is None or current < highest

    return Question(("eth_syncing", []), read)


def base_fee(number: int) -> Question[int]:
    """Ask for a block's base fee, in wei per gas."""
    return Question(("eth_feeHistory", [hex(1), hex(number), []]), _read_base_fee)


def priority_fee() -> Question[int]:
    """Ask for the priority fee that the node suggests, in wei per gas."""
    return Question(("eth_maxPriorityFeePerGas", []), _optional(_read_price))


def paid_priority_fee() -> Question[int]:
    """Ask for the median priority fee that recent blocks took, in wei per gas. 0 if too few took any."""
    return Question(("eth_feeHistory", [hex(_FEE_BLOCKS), "latest", [50]]), _optional(_read_paid_fee))


def coming_fork() -> Question[ComingFork | None]:
    """Ask for the next fork (EIP-7910). A node may lack the method."""
    return Question(("eth_config", []), _optional(coming_forks.read))


def gas_estimate(
    sender: str,
    to: str | None,
    data: bytes,
    block: BlockIdentifier = "pending",
    *,
    least: int = 0,
    most: int | None = None,
) -> Question[int]:
    """Ask for a node's estimate of gas. If every node refuses, it may be `Reverted`.

    `to=None` creates a contract. An estimate below `least` or above `most` is an `ImplausibleGas`.
    """
    transaction = {"from": sender, "data": hex_data(data)} | ({} if to is None else {"to": to})

    def read(result: Any) -> int:
        gas = read_quantity(result)
        if gas < least:
            raise ImplausibleGas(f"{gas} gas for what takes {least} at least")
        if most is not None and gas > most:
            raise ImplausibleGas(f"{gas} gas for what takes {most} at most")
        return gas

    # Sending stops if nothing can be sent after the pending block. After the latest one, true proofs may revert.
    return _on_top("eth_estimateGas", transaction, block, read, final=() if block == "pending" else (Reverted,))


def _on_top(
    method: str,
    transaction: dict[str, str],
    block: BlockIdentifier,
    read: Callable[[Any], Answer],
    final: tuple[type[RpcRefused], ...],
) -> Question[Answer]:
    """Ask for the effect of a transaction after a block. If the node has no pending block, use the latest."""
    plainer = (method, [transaction, "latest"]) if block == "pending" else None
    return Question((method, [transaction, _block(block)]), read, plainer, final=final)


def raw_transaction(raw: bytes) -> Question[bytes]:
    """Send a signed transaction. The answer is its hash."""
    tx_hash = keccak(raw)

    def read(result: Any) -> bytes:
        if read_data(result, 32) != tx_hash:
            raise ValueError("another transaction's hash")
        return tx_hash

    return Question((SEND, [hex_data(raw)]), read)


def is_known(tx_hash: bytes) -> Question[bool]:
    """Ask whether the node has a transaction, in a block or waiting for one."""

    def read(result: Any) -> bool:
        if result is not None and _read_field(read_object(result), "hash", _read_hash) != tx_hash:
            raise ValueError("another transaction")
        return result is not None

    return Question(("eth_getTransactionByHash", [hex_data(tx_hash)]), read)


def receipt(tx_hash: bytes) -> Question[Receipt | None]:
    """Ask for a transaction's receipt. None until the transaction is in a block."""

    def read(result: Any) -> Receipt | None:
        if result is None:
            return None
        receipt = read_object(result)
        if _read_field(receipt, "transactionHash", _read_hash) != tx_hash:
            raise ValueError("another transaction's receipt")
        # OpenEthereum returns such a receipt for a transaction of the pending block.
        is_pending = receipt.get("blockNumber") is None and receipt.get("blockHash") is None
        return None if is_pending else _read_receipt(receipt)

    return Question(("eth_getTransactionReceipt", [hex_data(tx_hash)]), read)


def plain(method: str, *params: Any) -> Question[Any]:
    """Ask for the `result` of a request, as JSON."""
    return Question((method, list(params)), lambda result: result)


# --- Parameters -------------------------------------------------------------------------------------------------------


def _word(number: int) -> str:
    return hex_data(number.to_bytes(32, "big"))


def _topic(topic: Topic) -> Any:
    return None if topic is None else hex_data(topic)


def _block(block: BlockIdentifier) -> Any:
    if isinstance(block, int):
        return hex(block)
    return {"blockHash": hex_data(block)} if isinstance(block, bytes) else block


# --- Results ----------------------------------------------------------------------------------------------------------


def _read_header(result: Any, requested: int | bytes | Tag) -> Header | Question[Header | None] | None:
    if result is None:
        return None
    block = read_object(result)
    try:
        number, block_hash = read_number(block.get("number")), read_data(block.get("hash"), HASH_BYTES)
    except ValueError as error:
        raise ValueError(f"a block whose number or hash is {error}") from None
    if number >= _BLOCKS:
        raise ValueError("an impossibly high block number")
    if not isinstance(requested, str) and requested not in {number, block_hash}:
        raise ValueError("another block than the requested one")
    try:
        return Header.from_rpc(block)
    except UnknownLayout as unknown:
        return _raw_header(number, block_hash, str(unknown))
    except InvalidHeader as invalid:
        raise UnreadableHeader(f"block {number}, which can't be read: {str(invalid).removesuffix('.')}") from None


def _raw_header(number: int, block_hash: bytes, fault: str) -> Question[Header | None]:
    """Ask for the raw header (`debug_getRawHeader`), because the block's JSON has the fault `fault`."""

    def read(result: Any) -> Header:
        encoded = read_data(result)
        if keccak(encoded) != block_hash:
            raise ValueError(
                f"no header of block {number}: The header's hash is not the block's hash. It is false, or the chain "
                f"computes it in an unknown way"
            )
        try:
            header = Header.decode(encoded)
        except InvalidHeader as invalid:
            raise UnreadableHeader(f"no header of block {number}: {str(invalid).removesuffix('.')}") from None
        if header.number != number:
            raise ValueError(f"the header of block {header.number} instead of block {number}")
        # The field names in the JSON have shown that the layout is not Ethereum's.
        return header.with_shared_fields()

    lacking = UnreadableHeader(
        f"sent block {number}, {fault}, and refuses debug_getRawHeader, which the service needs for other header "
        f"layouts"
    )
    return Question(("debug_getRawHeader", [hex(number)]), read, lacking=lacking)


def _read_proof(result: Any, request: ProofRequest) -> VerifiedAccountProof | RpcRefused:
    """Read and verify a proof. Raises `InvalidProof`, also for a malformed result."""
    about = f"{request.address} at block {request.block_number}"
    if not result or result == "0x":
        raise InvalidProof(f"no proof of {about}")
    try:
        result = read_object(result)
        storage = [read_object(proof) for proof in _read_nullable_list(result.get("storageProof"))]
        nodes, slots = _read_nodes(result.get("accountProof")), []
        account = verify_account(request.state_root, request.address, nodes)
        if not storage and account.storage_root == EMPTY_TRIE_ROOT:
            # Besu and ethrex leave out the slots of an account without storage. The account's proof shows that they are
            # 0.
            storage = [{"key": hex(slot)} for slot in request.slots]
        if [_read_key(proof.get("key")) for proof in storage] != list(request.slots):
            raise ValueError("It has storage proofs for other slots than the requested ones.")  # noqa: TRY301 - handled like the other faults of the proof.
        for slot, proof in zip(request.slots, storage, strict=True):
            slot_nodes = _read_nodes(proof.get("proof"))
            slots.append(VerifiedSlotProof(slot, verify_slot(account.storage_root, slot, slot_nodes), slot_nodes))
    except OtherAccountForm as other:
        return OtherAccounts(str(other))
    except ValueError as invalid:
        fault = str(invalid).removesuffix(".")
        raise InvalidProof(
            f"a proof of {about} that does not verify: {fault}"
            if isinstance(invalid, InvalidProof) or fault.startswith("It ")
            else f"a malformed proof of {about}, with {fault}"
        ) from None
    return VerifiedAccountProof(request.address, account, nodes, tuple(slots))


def _read_key(key: Any) -> int:
    """Read a slot's key. Old versions of Besu write it without 0x."""
    return read_quantity(key if not isinstance(key, str) or key.startswith("0x") else f"0x{key}")


def _read_nullable_list(value: Any) -> list[Any]:
    """Read a list. Erigon, like other programs in Go, writes null for an empty list."""
    return [] if value is None else read_list(value)


def _read_nodes(nodes: Any) -> tuple[bytes, ...]:
    read = [node for node in map(read_data, _read_nullable_list(nodes)) if node]
    # A trie node that is shorter than a hash is embedded in its parent, except the root. Some RPC nodes send it again.
    return tuple(node for index, node in enumerate(read) if index == 0 or len(node) >= HASH_BYTES)


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
        topics=tuple(read_data(topic, 32) for topic in _read_nullable_list(result.get("topics"))),
        data=read_data(result.get("data")),
    )


def _begins_with(log: Log, topics: Sequence[Topic]) -> bool:
    return len(log.topics) >= len(topics) and all(
        expected is None or topic == expected for expected, topic in zip(topics, log.topics, strict=False)
    )


def _read_price(result: Any) -> int:
    price = read_quantity(result)
    if price >= NO_PRICE:
        raise ValueError("an impossibly high price")
    return price


def _read_paid_fee(result: Any) -> int:
    # A block without transactions has a reward of 0.
    rewards = [
        _read_price(next(iter(read_list(of_block)), None)) for of_block in read_list(read_object(result).get("reward"))
    ]
    paid = [reward for reward in rewards if reward]
    return median_low(paid) if len(paid) >= _LEAST_PAYING_BLOCKS else 0


def _optional(read: Callable[[Any], Answer]) -> Callable[[Any], Answer | RpcRefused]:
    """Read an answer that can be done without. An unusable one counts as a refusal: the node needs no rest."""

    def read_or_refuse(result: Any) -> Answer | RpcRefused:
        try:
            return read(result)
        except ValueError as error:
            return RpcRefused(0, str(error))

    return read_or_refuse


def _read_nonce(result: Any) -> int:
    nonce = read_quantity(result)
    if nonce >= _NONCES:
        raise ValueError("an impossibly high nonce")
    return nonce


def _read_base_fee(result: Any) -> int:
    """Read the base fee of the first block in a fee history.

    The history has an extra entry for the block after the last.
    """
    return _read_price(next(iter(read_list(read_object(result).get("baseFeePerGas"))), None))


def _read_receipt(result: dict[str, Any]) -> Receipt:
    """Read a receipt. Necessary fields must be valid; other invalid fields become None.

    Nodes leave fields out, or fill them with null, "", "0x" or other words.
    """
    operator_fees = [result.get(name) for name in ("operatorFeeScalar", "operatorFeeConstant")]
    return Receipt(
        tx_hash=_read_field(result, "transactionHash", _read_hash),
        block_number=_read_field(result, "blockNumber", read_number),
        block_hash=_read_field(result, "blockHash", _read_hash),
        status=_number(result.get("status")),
        gas_used=_read_field(result, "gasUsed", read_number),
        effective_gas_price=_number(result.get("effectiveGasPrice")),
        # Arbitrum's `gasUsedForL1` is a part of `gasUsed`.
        data_fee=_number(result.get("l1Fee")),
        # An unreadable fee counts as a fee, so that `chains.rollups` asks the chain for it.
        has_operator_fee=any(fee is not None and _number(fee) != 0 for fee in operator_fees),
    )


def _read_field(result: dict[str, Any], name: str, read: Callable[[Any], Answer]) -> Answer:
    try:
        return read(result.get(name))
    except ValueError as error:
        raise ValueError(f"{error} as {name}") from None


def _read_hash(result: Any) -> bytes:
    return read_data(result, HASH_BYTES)


def _number(value: Any) -> int | None:
    """Return a number in any form. None if the value is none."""
    try:
        return read_number(value)
    except ValueError:
        return None
