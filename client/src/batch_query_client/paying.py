"""Sending of a self-funded batch's transactions (`sender: self`), one after another, until the batch is complete.

The service proposes the transactions, so each is checked before it is signed. It must prove something to a facts
registry, must send no money, and must call a contract that can't move the sender's money.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from batch_query_client import operations
from batch_query_client.answers import UnsignedTransaction, UnsignedTransactions
from batch_query_client.effects import Now, Pause, Steps, Tell
from batch_query_client.errors import NodeRefused, NotDoneInTime, TransactionFailed, UnsafeTransaction, WrongFact
from batch_query_client.json_rpc import Node, read_data, read_quantity, transaction_call
from batch_query_client.operations import Access
from batch_query_client.plain_text import hex_data
from batch_query_client.registry import require_source, selector

# Packed proofs (docs/developing/proof-format.md) begin with the size of a block number, or with the RLP of a header.
_PACKED = {*range(1, 9), 0xF9}
# Other functions of registries and block hash sources that a transaction may call.
_KNOWN = {
    selector("proveTimestamp(bytes,bytes,uint256)"),
    selector("attest(uint256,bytes32,bytes)"),
    selector("record()"),
}
# Function of the multicall contract. That contract calls others as itself, and has no rights over the sender's money.
_MULTICALL = selector("run((address,bytes)[])")
# Seconds between requests for more transactions: the first pause, which doubles after empty answers, and the maximum.
_POLL_SECONDS, _LONGEST_POLL_SECONDS = 2, 16
# Seconds within which the service sees a mined transaction. If it proposes the transaction later, a reorganisation
# undid it.
_NOTICED_SECONDS = 60
_PRIORITY_FEE = 1_000_000_000  # wei per gas, if the node suggests no priority fee


class TransactionSigner(Protocol):
    """An account that signs transactions, such as eth-account's `LocalAccount`."""

    @property
    def address(self) -> Any: ...

    def sign_transaction(self, transaction_dict: Any) -> Any: ...


@dataclass(frozen=True)
class ToSign:
    """A transaction to sign, as it is shown to the person who confirms it."""

    what: str
    to: str
    gas: int
    max_fee_per_gas: int
    """In wei."""
    chain_id: int

    @property
    def most_wei(self) -> int:
        """Return the maximum cost in wei, without a rollup's data fee."""
        return self.gas * self.max_fee_per_gas


@dataclass(frozen=True)
class Sent:
    """A transaction that was mined."""

    hash: str
    what: str
    gas_used: int
    cost: int
    """In wei, without a rollup's data fee."""
    chain_id: int


@dataclass(frozen=True)
class Sending:
    """The progress of paying: mined transactions, and sentences about what the service waits for."""

    sent: tuple[Sent, ...]
    waits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Payer:
    """The signer who pays, and the limits on the payment."""

    signer: TransactionSigner
    confirm: Callable[[ToSign], object]
    """Called before each signature. False: the transaction isn't signed."""
    most_wei: int | None = None
    """Maximum cost of all transactions together, in wei. None: no limit but `confirm`."""


def send(
    access: Access,
    internal_id: str,
    node: Node,
    payer: Payer,
    *,
    timeout: float,
    progress: Callable[[Sending], object] | None = None,
) -> Steps[tuple[Sent, ...]]:
    """Send the transactions of the batch until it is complete, each after the previous one is mined.

    Raises `UnsafeTransaction`, `TransactionFailed`, `NotDoneInTime`, and the errors of the service and the node.
    """
    began = yield Now()
    sources = (yield from operations.details(access, internal_id)).source_chain_ids
    sent: list[Sent] = []
    mined_at: dict[tuple[str, bytes], float] = {}
    quiet = 0
    while True:
        answer = yield from operations.transactions(access, internal_id)
        quiet += 1
        for unsigned in answer.transactions:
            named = (unsigned.to, unsigned.data)
            if (yield Now()) - mined_at.get(named, -_NOTICED_SECONDS) < _NOTICED_SECONDS:
                continue
            yield from _check(node, answer, unsigned, sources)
            sent.append(
                (yield from _send_one(node, unsigned, payer, sum(transaction.cost for transaction in sent), timeout))
            )
            mined_at[named] = yield Now()
            quiet = 0
        if answer.is_complete:
            return tuple(sent)
        if progress is not None:
            yield Tell(progress, Sending(tuple(sent), answer.waits))
        if (yield Now()) - began > timeout:
            sentence = " ".join([f"The batch {internal_id} is not complete after {timeout:g} s.", *answer.waits])
            raise NotDoneInTime(sentence, internal_id=internal_id, waits=answer.waits)
        yield Pause(min(_POLL_SECONDS * 2**quiet, _LONGEST_POLL_SECONDS))


def _check(
    node: Node, answer: UnsignedTransactions, unsigned: UnsignedTransaction, source_chain_ids: Collection[int]
) -> Steps[None]:
    yield from node.require_chain(answer.chain_id)
    if unsigned.chain_id != answer.chain_id:
        raise UnsafeTransaction("The service asks to sign a transaction for another chain. It was not signed.")
    if unsigned.value:
        raise UnsafeTransaction("The service asks to sign a transaction that sends money. It was not signed.")
    name = unsigned.data[:4]
    if name == _MULTICALL:
        return
    if name in _KNOWN or (unsigned.data and unsigned.data[0] in _PACKED):
        for chain_id in source_chain_ids:
            try:
                yield from require_source(node, unsigned.to, chain_id)
            except WrongFact:
                continue
            return
    raise UnsafeTransaction(
        f"The service asks to sign a transaction to {unsigned.to} that proves nothing to a facts registry. It was not "
        "signed."
    )


def _send_one(node: Node, unsigned: UnsignedTransaction, payer: Payer, spent: int, timeout: float) -> Steps[Sent]:
    """Sign and send one transaction, and wait for its receipt. `spent` is the cost of the earlier ones, in wei."""
    sender = str(payer.signer.address)
    try:
        # A call is made first, so that a transaction that would revert costs nothing.
        yield from node.call("eth_call", transaction_call(unsigned.to, unsigned.data) | {"from": sender}, "pending")
    except NodeRefused as refused:
        raise TransactionFailed(f"The transaction would revert, so it was not sent. {refused}") from None
    nonce = read_quantity((yield from node.call("eth_getTransactionCount", sender, "pending")))
    fees = yield from _fees(node)
    to_sign = ToSign(unsigned.what, unsigned.to, unsigned.gas, fees["maxFeePerGas"], unsigned.chain_id)
    if payer.most_wei is not None and spent + to_sign.most_wei > payer.most_wei:
        raise TransactionFailed(f"The next transaction may cost {to_sign.most_wei} wei, which is above the limit.")
    if not (yield Tell(payer.confirm, to_sign)):
        raise TransactionFailed("The transaction was not confirmed, so it was not signed.")
    fields = {
        "type": 2,
        "chainId": unsigned.chain_id,
        "nonce": nonce,
        "to": unsigned.to,
        "value": 0,
        "data": hex_data(unsigned.data),
        "gas": unsigned.gas,
        **fees,
    }
    raw = bytes(payer.signer.sign_transaction(fields).raw_transaction)
    sent = yield from node.call("eth_sendRawTransaction", hex_data(raw))
    return (yield from _receipt(node, hex_data(read_data(sent)), unsigned, timeout))


def _fees(node: Node) -> Steps[dict[str, int]]:
    """Return fees that suffice even if the base fee doubles, as wallets do (EIP-1559)."""
    block = yield from node.call("eth_getBlockByNumber", "latest", False)
    base = read_quantity(block.get("baseFeePerGas", "0x0")) if isinstance(block, Mapping) else 0
    try:
        tip = read_quantity((yield from node.call("eth_maxPriorityFeePerGas")))
    except NodeRefused:
        tip = _PRIORITY_FEE
    return {"maxFeePerGas": 2 * base + tip, "maxPriorityFeePerGas": tip}


def _receipt(node: Node, transaction: str, unsigned: UnsignedTransaction, timeout: float) -> Steps[Sent]:
    began = yield Now()
    while True:
        # A node may refuse receipts for a while, such as a geth that indexes transactions.
        (receipt,) = yield from node.calls([("eth_getTransactionReceipt", [transaction])])
        if isinstance(receipt, Mapping):
            break
        if (yield Now()) - began > timeout:
            refusal = f" {receipt}" if isinstance(receipt, NodeRefused) else ""
            raise TransactionFailed(f"The transaction {transaction} was not mined within {timeout:g} s.{refusal}")
        yield Pause(_POLL_SECONDS)
    if read_quantity(receipt.get("status")) != 1:
        raise TransactionFailed(f"The transaction {transaction} has reverted.")
    gas = read_quantity(receipt.get("gasUsed"))
    cost = gas * read_quantity(receipt.get("effectiveGasPrice", "0x0"))
    return Sent(transaction, unsigned.what, gas, cost, unsigned.chain_id)
