"""The service's answers, checked and typed.

Large numbers are decimal strings in the API, and `int` here. Unknown fields are ignored, as the API's specification
requires. `source` is the API's own JSON.
"""

import builtins
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel

from batch_query_client.amounts import answer_type, is_amount, typed
from batch_query_client.plain_text import plain
from batch_query_client.questions import NUMBERS

_DECIMAL = re.compile(r"[0-9]{1,78}", re.ASCII)
_QUANTITY = re.compile("0x[0-9a-fA-F]{1,64}", re.ASCII)
_DATA = re.compile(r"0x[0-9a-fA-F]*", re.ASCII)


def _quantity(value: Any) -> Any:
    """Read a JSON-RPC quantity, such as 0x1f. Return other values unchanged, for pydantic to check."""
    return int(value, 16) if isinstance(value, str) and _QUANTITY.fullmatch(value) else value


def _data(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and len(value) % 2 == 0 and _DATA.fullmatch(value):
        return bytes.fromhex(value[2:])
    raise ValueError("no hexadecimal data")


def _text(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value or ""


Number = Annotated[int, Field(ge=0, lt=1 << 256)]
Quantity = Annotated[Number, BeforeValidator(_quantity)]
Data = Annotated[bytes, BeforeValidator(_data)]
Word = Annotated[Data, Field(min_length=32, max_length=32)]
# Words that may come from a node or another user, so unprintable characters are removed. Null becomes an empty text.
Text = Annotated[str, BeforeValidator(_text)]


_BITS_OF_WORD = 256


class AnswerModel(BaseModel):
    """The base of answers. They are immutable."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    @cached_property
    def source(self) -> dict[str, Any]:
        """Return the service's JSON object. Empty if the value was made by this library."""
        return {}

    @model_validator(mode="wrap")
    @classmethod
    def _keep_source(cls, value: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        made = handler(value)
        if info.mode == "json":
            made.__dict__["source"] = value
        return made


# --- A batch ----------------------------------------------------------------------------------------------------------


class Submitted(AnswerModel):
    internal_id: Annotated[str, Field(pattern="^[0-9A-Za-z]{1,64}$")]


class Status(AnswerModel):
    """The status of a batch, in the form of the status endpoint."""

    query_status: Text
    """DONE, IN_PROGRESS or REJECTED."""
    label: Text = ""
    error: Text = ""
    code: Text = ""
    retryable: bool = False
    info: tuple[Text, ...] = ()
    """Sentences that say what the batch waits for."""


class Rejection(AnswerModel):
    code: Text
    error: Text
    retryable: bool


class Wait(AnswerModel):
    """A reason why a batch waits."""

    sentence: Text
    code: Text | None = None
    """A stable word, by which programs tell waits apart. None: the service is older, or has no code for it."""
    failing_since: datetime | None = None
    next_try_at: datetime | None = None


class SentTransaction(AnswerModel):
    """A transaction that proves a batch. `gas_used` is for the whole transaction, which other batches may share."""

    hash: Text
    chain_id: Number
    nonce: Number | None = None
    status: Text = ""
    gas_used: Number | None = None
    block_number: Number | None = None


class Step(AnswerModel):
    kind: Text
    status: Text = ""
    """IN_PROGRESS, COMPLETED, or empty before it begins."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    transaction_hash: Text = ""


class ShownTransaction(AnswerModel):
    """The transaction that a query, a fact or a proof is about."""

    index: Number | None = None
    """In its block. None: not known yet."""
    hash: Text = ""
    """It is the word of the service and its nodes, unless a HASH is proven. Empty: they don't tell it."""


class SlotPart(AnswerModel):
    """A part of a word, in bits."""

    offset: Number
    """From the lowest bit."""
    size: Number
    form: Text
    """How the call answers it: unsigned, signed, left (padded on the right) or bool."""

    @property
    def is_whole(self) -> bool:
        """Return whether it is the whole word, without a sign."""
        return self.size == _BITS_OF_WORD and self.form == "unsigned"

    def of(self, word: bytes, *, is_amount: bool = False) -> int:
        """Return the part of a word as a number. Bytes are the number that they are, unless it `is_amount`."""
        number = int.from_bytes(word) >> self.offset & ((1 << self.size) - 1)
        match self.form:
            case "bool":
                return int(number != 0)
            case "left" if is_amount:
                return number << (_BITS_OF_WORD - self.size)
            case "signed" if number >> (self.size - 1):
                return number - (1 << self.size)
        return number

    @classmethod
    def stated(cls, name: Mapping[str, Any] | None) -> "SlotPart | None":
        """Return the part of the word that a slot's name states, as the stated type of the answer reads it.

        None: it states neither a part nor a type, or none that is known.
        """
        kind = answer_type(name)
        match (name or {}).get("part") or (kind and {"offset": 0, "size": _BITS_OF_WORD, "form": "unsigned"}):
            case {"offset": int(offset), "size": int(size), "form": "unsigned" | "signed" | "left" | "bool" as form}:
                if 0 <= offset < offset + size <= _BITS_OF_WORD:
                    offset, size, form = typed(offset, size, form, kind)
                    return cls(offset=offset, size=size, form=form)
        return None


class ShownLog(AnswerModel):
    """A log of a receipt."""

    index: Number
    """Within the receipt, not within the block."""
    emitter: Annotated[str, Field(pattern="^0x[0-9a-fA-F]{40}$")]
    topics: tuple[Word, ...]
    data: Data


class ContractCall(AnswerModel):
    """The call that reads a fact, for `eth_call` at the newest block."""

    to: Text
    data: Data


class _QueryFact(AnswerModel):
    """A fact within a query. The query has the account and the block."""

    property: Text
    """One of `ACCOUNT_PROPERTIES`, `HEADER_PROPERTIES`, `TRANSACTION_PROPERTIES`, SLOT, LOG, or BLOCK_AT_TIMESTAMP."""
    slot: Text = ""
    """0x and 64 digits."""
    slot_name: dict[str, Any] | None = None
    """How the request has named the slot, if it has."""
    transaction: ShownTransaction | None = None
    log: ShownLog | None = None
    """The log whose hash is the word of a LOG. The service tells it: `facts_on_chain` compares it with the word."""
    word: Word | None = None
    """32 bytes. None: not proven yet."""
    registry: Text = ""
    call: ContractCall | None = None


class Fact(_QueryFact):
    """One word that a facts registry holds, or is going to hold."""

    source_chain_id: Number
    destination_chain_id: Number
    """The chain of the registry."""
    block_number: Number | None = None
    """The source chain's block. None: not fixed yet, for a query that names a time or `latest`."""
    account: Text = ""
    """Empty for facts about a block's header, a transaction or a time."""
    timestamp: Number | None = None
    """The time of BLOCK_AT_TIMESTAMP, in seconds."""
    transaction_hash: Text = ""

    @builtins.property
    def value(self) -> int:
        """Return the word as a number, such as a balance in wei or a time in seconds.

        If the slot's name states a part of the word, it is the number of this part. Raises `ValueError` if the fact
        isn't proven.
        """
        if self.word is None:
            raise ValueError(f"{self.name} is not proven yet.")
        part = SlotPart.stated(self.slot_name)
        return part.of(self.word, is_amount=is_amount(self.slot_name)) if part else int.from_bytes(self.word)

    @builtins.property
    def is_number(self) -> bool:
        """Return whether the fact is a number, not a hash, an address or a slot's word."""
        return self.property in NUMBERS and (self.property != "NONCE" or self.account != "")

    @builtins.property
    def name(self) -> str:
        """Return the fact's name for people."""
        labels = {"SLOT": f"slot {self.slot}", "BLOCK_AT_TIMESTAMP": f"block at time {self.timestamp}"}
        if self.log is not None:
            labels["LOG"] = f"log {self.log.index}"
        subject = self.account
        if self.transaction is not None:
            index, digest = self.transaction.index, self.transaction.hash
            subject = f"transaction {digest if index is None else index}"
        label = labels.get(self.property, self.property)
        return f"{label}{' of ' * bool(subject)}{subject} at block {self.block_number} of {self.source_chain_id}"


class Query(AnswerModel):
    """An account, a transaction or a header at one block, with the requested facts."""

    number: Number
    """Number in the batch, from 1."""
    source_chain_id: Number
    selector: Text
    block_number: Number | None = None
    block_hash: Text = ""
    block_timestamp: Number | None = None
    """In seconds."""
    account: Text = ""
    name: Text = ""
    """The ENS name in the request."""
    transaction: ShownTransaction | None = None
    is_completed: bool
    step: Text = ""
    """The current step."""
    steps: tuple[Step, ...] = ()
    facts: tuple[_QueryFact, ...] = ()


class BatchSummary(AnswerModel):
    """A batch in a list of batches."""

    internal_id: Text
    status: Text
    """RECEIVED, ACCEPTED, IN_PROGRESS, DONE or REJECTED."""
    query_status: Text
    """DONE, IN_PROGRESS or REJECTED."""
    label: Text = ""
    destination_chain_id: Number
    source_chain_ids: tuple[Number, ...] = ()
    fee: Number | None = None
    """Maximum cost in wei. None: the caller pays, without this limit."""
    sender: Text = ""
    created_at: datetime
    finished_at: datetime | None = None
    queries: Number = 0
    """Number of queries."""
    queries_completed: Number = 0
    gas_used: Number | None = None
    spent: Number | None = None
    """Cost so far in wei."""
    rejection: Rejection | None = None


class BatchDetails(BatchSummary):
    """A batch with its queries, as of the time of the request."""

    accepted_at: datetime | None = None
    deadline_at: datetime | None = None
    estimated_gas: Number | None = None
    estimated_wei: Number | None = None
    waits: tuple[Wait, ...] = ()
    went_back_at: datetime | None = None
    went_back_because: Text = ""
    transactions: tuple[SentTransaction, ...] = ()
    query_list: tuple[Query, ...] = ()
    """All queries. In a callback for progress, the first hundred."""
    next: str | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return the facts of all queries, in order.

        The facts of a query have words as soon as the query is completed.
        """
        return tuple(self._fact(query, fact) for query in self.query_list for fact in query.facts)

    def _fact(self, query: Query, fact: _QueryFact) -> Fact:
        is_time = fact.property == "BLOCK_AT_TIMESTAMP"
        about = {
            "source_chain_id": query.source_chain_id,
            "destination_chain_id": self.destination_chain_id,
            "block_number": query.block_number,
            "account": "" if is_time else query.account,
            "timestamp": _time_of(query.selector) if is_time else None,
            "transaction": fact.transaction or query.transaction,
        }
        return Fact(**dict(fact) | about)


def _time_of(selector: str) -> int | None:
    kind, _, seconds = selector.partition(":")
    return int(seconds) if kind == "timestamp" and _DECIMAL.fullmatch(seconds) else None


class BatchPage(AnswerModel):
    """A page of a list of batches."""

    batch_queries: tuple[BatchSummary, ...]
    next: str | None = None
    """The cursor of the next part. None: this is the last."""


class FactPage(AnswerModel):
    """A page of a list of facts."""

    facts: tuple[Fact, ...]
    next: str | None = None


class Cancelled(AnswerModel):
    internal_id: Text
    query_status: Text


class Connection(AnswerModel):
    """A pair of chains between which facts can be proven."""

    origin_chain_id: Number
    """The source chain."""
    destination_chain_id: Number


class Connections(AnswerModel):
    connections: tuple[Connection, ...]


class Chain(AnswerModel):
    """A chain of the service."""

    chain_id: Number
    name: Text
    currency: Text
    """The currency, of which 10^18 wei are one unit, such as ETH."""


class Chains(AnswerModel):
    chains: tuple[Chain, ...]


# --- Estimates --------------------------------------------------------------------------------------------------------


class Gas(AnswerModel):
    expected: Number
    bound: Number
    """Upper bound, compared with fees and budgets."""


class Wei(AnswerModel):
    expected: Number
    bound: Number


class EstimatedPart(AnswerModel):
    """The cost of one kind of fact of a source chain, such as headers, accounts or slots."""

    count: Number
    in_registry: Number
    """Number of these facts that the registry already has. They cost nothing."""
    gas: Gas


class EstimatedJumps(AnswerModel):
    """Old blocks of a source chain that are proven by its beacon chain."""

    count: Number
    from_block: Number | None = None
    """The block where the jumps begin. None if they need no block."""


class EstimatedSource(AnswerModel):
    source_chain_id: Number
    gas: Gas
    jumps: EstimatedJumps | None = None
    parts: dict[str, EstimatedPart] = {}


class EstimatedRejection(AnswerModel):
    source_chain_id: Number | None = None
    code: Text
    error: Text
    retryable: bool


class FeeCheck(AnswerModel):
    sufficient: bool


class Estimate(AnswerModel):
    """The current cost of a batch, and whether the batch would be accepted now."""

    gas: Gas
    wei: Wei
    gas_price: Number
    """In wei."""
    sources: tuple[EstimatedSource, ...]
    transactions: Number
    blocks_to_done: Number
    """Number of blocks of the destination chain until the batch is done."""
    seconds_to_done: Number
    fee: FeeCheck | None = None
    """None: the fee is the estimate."""
    rejections: tuple[EstimatedRejection, ...]
    waits: tuple[Text, ...]


# --- Proofs for reading -----------------------------------------------------------------------------------------------


class ProofRoot(AnswerModel):
    """The root of a trie under which a proof is verified."""

    property: Text
    """STORAGE_ROOT of the account, or STATE_ROOT, RECEIPTS_ROOT or WITHDRAWALS_ROOT of the block."""
    word: Word
    is_fact: bool
    """The facts registry holds it. Until then the view reverts."""
    batch: dict[str, Any] | None = None
    """The body of a batch query, without its `fee`, that makes the root a fact. None: it is one."""


class ProofView(ContractCall):
    """The call of a `FactsReader` that verifies a proof. `to` is empty if none is deployed."""

    function: Text


class ShownWithdrawal(AnswerModel):
    """A withdrawal from the beacon chain (EIP-4895)."""

    place: Number
    """Within its block."""
    index: Number
    """Over all blocks."""
    validator_index: Number
    address: Text
    amount: Number
    """In Gwei."""


class ReadProof(AnswerModel):
    """A value with the proof by which a contract reads it without storing it."""

    source_chain_id: Number
    block_number: Number
    account: Text
    """Empty: it is about a transaction or a withdrawal."""
    property: Text
    """One of `ACCOUNT_PROPERTIES` and `TRANSACTION_PROPERTIES`, SLOT, LOG or WITHDRAWAL. HASH has no proof."""
    slot: Text
    """0x and 64 digits, for a SLOT."""
    slot_name: dict[str, Any] | None = None
    transaction: ShownTransaction | None = None
    log: ShownLog | None = None
    withdrawal: ShownWithdrawal | None = None
    word: Word
    """The value as the view returns it; for a LOG the hash that a registry stores, for a WITHDRAWAL the amount."""
    proof: Data
    """One RLP list of the trie's nodes, the root first."""
    root: ProofRoot
    view: ProofView


class ReadProofs(AnswerModel):
    proofs: tuple[ReadProof, ...]


class SlotOfCall(AnswerModel):
    """A slot that a view call reads."""

    account: Text
    slot: Text
    """0x and 64 digits."""
    slot_name: dict[str, Any] | None = None
    layout: Text
    """`layout_unknown`: it stands for these arguments only."""
    certainty: Text
    """is_value, part_of_word, one_of_several, computed or path_only."""
    part: SlotPart | None = None
    word: Word
    value: Text
    """The part, by the type that the signature names: a number in decimal, an address or bytes with 0x, true or false.

    Without a type it is a number. Empty: the word isn't the answer.
    """
    only_at_this_block: bool
    """True if slots of `depends_on` choose it, such as an array's last element: later it may be another slot."""

    @property
    def is_answer(self) -> bool:
        """Return whether the word, or a part of it, is the call's answer, and no other slot changes it."""
        return self.certainty in {"is_value", "part_of_word"}


class DependingSlot(AnswerModel):
    """A slot of a proxy, of an array's length, or of another word that leads to a slot."""

    account: Text
    slot: Text
    slot_name: dict[str, Any] | None = None
    word: Word
    role: Text


class SlotHints(AnswerModel):
    decimals: Number | None = None
    """The contract's `decimals()`. Nothing proves it."""
    symbol: Text = ""
    """The contract's `symbol()`. Nothing proves it: anybody can give a token any."""
    nft: Text | None = None
    """The standard of NFTs that the contract says it follows, such as ERC-721. Nothing proves it."""


class FoundSlots(AnswerModel):
    """The slots from which a view call answers at a block."""

    source_chain_id: Number
    block_number: Number
    block_hash: Text
    found_by: Text
    confirmed_by: tuple[Text, ...] = ()
    """The hosts of the nodes that confirm the slots. One: only this node says so. Empty: the service is older."""
    slots: Annotated[tuple[SlotOfCall, ...], Field(min_length=1)]
    depends_on: tuple[DependingSlot, ...] = ()
    hints: SlotHints = SlotHints()
    batch: dict[str, Any]
    """The `data` of a request body that proves the slots."""


# --- Paid by the caller -----------------------------------------------------------------------------------------------


class UnsignedTransaction(AnswerModel):
    """A transaction that anybody may sign and send."""

    to: Text
    data: Data
    value: Quantity = 0
    gas: Quantity
    chain_id: Quantity
    what: Text = ""
    queries: tuple[Number, ...] = ()
    """Numbers of the queries that it serves."""


class UnsignedTransactions(AnswerModel):
    """The transactions to send next, in this order."""

    chain_id: Number
    is_complete: bool
    """True if the batch is complete once these are on the chain."""
    waits: tuple[Text, ...] = ()
    """Sentences that say what must happen before there are more transactions."""
    transactions: tuple[UnsignedTransaction, ...] = ()
    calls: dict[str, Any] = {}
    """The same as the parameters of `wallet_sendCalls` (EIP-5792)."""
