"""What the service answers, checked and typed.

Numbers that may be large are decimal strings in the API, and `int` here. Fields that are unknown are ignored, as the
API's specification asks of clients. `source` is the API's own JSON.
"""

import builtins
import re
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

from batch_query_client.plain_text import plain
from batch_query_client.questions import NUMBERS

_DECIMAL = re.compile(r"[0-9]{1,78}", re.ASCII)
_QUANTITY = re.compile("0x[0-9a-fA-F]{1,64}", re.ASCII)
_DATA = re.compile(r"0x(?:[0-9a-fA-F]{2})*", re.ASCII)


def _quantity(value: Any) -> Any:
    """Read a quantity as JSON-RPC writes it, such as 0x1f; others are left to pydantic."""
    return int(value, 16) if isinstance(value, str) and _QUANTITY.fullmatch(value) else value


def _data(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and _DATA.fullmatch(value):
        return bytes.fromhex(value[2:])
    raise ValueError("no hexadecimal data")


def _text(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value or ""


Number = Annotated[int, Field(ge=0, lt=1 << 256)]
Quantity = Annotated[Number, BeforeValidator(_quantity)]
Data = Annotated[bytes, BeforeValidator(_data)]
Word = Annotated[Data, Field(min_length=32, max_length=32)]
# What the service says may be what a node, or another user, has said. Null is as good as nothing.
Text = Annotated[str, BeforeValidator(_text)]


class AnswerModel(BaseModel):
    """Values don't change."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    @cached_property
    def source(self) -> dict[str, Any]:
        """Return the JSON object as the service answered it; empty: the value was made here."""
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
    """The status of a batch, in one of three words."""

    query_status: Text
    """DONE, IN_PROGRESS or REJECTED."""
    error: Text = ""
    code: Text = ""
    retryable: bool = False
    info: tuple[Text, ...] = ()
    """Sentences about what the batch waits for."""


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
    """By which a batch is proven. The gas is that of the whole transaction, which may serve other batches too."""

    hash: Text
    chain_id: Number
    nonce: Number | None = None
    status: Text = ""
    gas_used: Number | None = None
    block_number: Number | None = None


class Step(AnswerModel):
    kind: Text
    status: Text = ""
    """IN_PROGRESS, COMPLETED, or empty where it has not begun."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    transaction_hash: Text = ""


class ContractCall(AnswerModel):
    """With which a program reads a fact: `eth_call` it at the newest block."""

    to: Text
    data: Data


class Fact(AnswerModel):
    """One word that a facts registry holds, or will."""

    source_chain_id: Number
    destination_chain_id: Number
    """Whose registry it is."""
    block_number: Number | None = None
    """The source chain's block. None: the query names a time, or `latest`, and its block is not fixed yet."""
    account: Text = ""
    """Empty: the fact is about the block's header, or about a time."""
    property: Text
    """`ACCOUNT_PROPERTIES`, `HEADER_PROPERTIES`, SLOT, or BLOCK_AT_TIMESTAMP."""
    slot: Text = ""
    """0x and 64 digits."""
    timestamp: Number | None = None
    """The time of BLOCK_AT_TIMESTAMP, in seconds."""
    word: Word | None = None
    """32 bytes. None: not proven yet."""
    registry: Text = ""
    call: ContractCall | None = None
    transaction_hash: Text = ""

    @builtins.property
    def value(self) -> int:
        """Return the word as a number: a balance in wei, a time in seconds. Raises `ValueError` if it isn't proven."""
        if self.word is None:
            raise ValueError(f"{self.name} is not proven yet.")
        return int.from_bytes(self.word)

    @builtins.property
    def is_number(self) -> bool:
        """Return whether the fact is meant as a number, and not as a hash, an address, or whatever a slot holds."""
        return self.property in NUMBERS and (self.property != "NONCE" or self.account != "")

    @builtins.property
    def name(self) -> str:
        """Return the fact's name for people."""
        what = {"SLOT": f"slot {self.slot}", "BLOCK_AT_TIMESTAMP": f"block at time {self.timestamp}"}
        of = f" of {self.account}" if self.account else ""
        return f"{what.get(self.property, self.property)}{of} at block {self.block_number} of {self.source_chain_id}"


class _QueryFact(AnswerModel):
    """A fact, without what its query says."""

    property: Text
    slot: Text = ""
    word: Word | None = None
    registry: Text = ""
    call: ContractCall | None = None


class Query(AnswerModel):
    """One account, or one header, at one block."""

    number: Number
    """In the batch, from 1."""
    source_chain_id: Number
    selector: Text
    block_number: Number | None = None
    block_hash: Text = ""
    block_timestamp: Number | None = None
    """In seconds."""
    account: Text = ""
    name: Text = ""
    """The ENS name by which the account was asked for."""
    is_completed: bool
    step: Text = ""
    """At which it is."""
    steps: tuple[Step, ...] = ()
    facts: tuple[_QueryFact, ...] = ()


class BatchSummary(AnswerModel):
    """A batch as lists have it."""

    internal_id: Text
    status: Text
    """RECEIVED, ACCEPTED, IN_PROGRESS, DONE or REJECTED."""
    query_status: Text
    """DONE, IN_PROGRESS or REJECTED."""
    destination_chain_id: Number
    source_chain_ids: tuple[Number, ...] = ()
    fee: Number | None = None
    """The most that it may cost, in wei. None: the caller pays, and there is no such limit."""
    sender: Text = ""
    created_at: datetime
    finished_at: datetime | None = None
    queries: Number = 0
    """Number of queries."""
    queries_completed: Number = 0
    gas_used: Number | None = None
    spent: Number | None = None
    """Its cost so far, in wei."""
    rejection: Rejection | None = None


class BatchDetails(BatchSummary):
    """A batch with its queries, as it was when it was read."""

    accepted_at: datetime | None = None
    deadline_at: datetime | None = None
    estimated_gas: Number | None = None
    estimated_wei: Number | None = None
    waits: tuple[Wait, ...] = ()
    went_back_at: datetime | None = None
    went_back_because: Text = ""
    transactions: tuple[SentTransaction, ...] = ()
    query_list: tuple[Query, ...] = ()
    """All of them, or while it is followed the first hundred."""
    next: str | None = None

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return the facts of all queries, in their order. Those of a query are readable as soon as it is completed."""
        return tuple(self._fact(query, fact) for query in self.query_list for fact in query.facts)

    def _fact(self, query: Query, fact: _QueryFact) -> Fact:
        is_time = fact.property == "BLOCK_AT_TIMESTAMP"
        return Fact(
            source_chain_id=query.source_chain_id,
            destination_chain_id=self.destination_chain_id,
            block_number=query.block_number,
            account="" if is_time else query.account,
            timestamp=_time_of(query.selector) if is_time else None,
            property=fact.property,
            slot=fact.slot,
            word=fact.word,
            registry=fact.registry,
            call=fact.call,
        )


def _time_of(selector: str) -> int | None:
    kind, _, seconds = selector.partition(":")
    return int(seconds) if kind == "timestamp" and _DECIMAL.fullmatch(seconds) else None


class BatchPage(AnswerModel):
    """A part of a list of batches."""

    batch_queries: tuple[BatchSummary, ...]
    next: str | None = None
    """The cursor of the next part. None: there is none."""


class FactPage(AnswerModel):
    """A part of a list of facts."""

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
    """A chain that the service serves."""

    chain_id: Number
    name: Text
    currency: Text
    """The coin that 10^18 wei are, such as ETH."""


class Chains(AnswerModel):
    chains: tuple[Chain, ...]


# --- What it costs ----------------------------------------------------------------------------------------------------


class Gas(AnswerModel):
    expected: Number
    bound: Number
    """The upper bound, which is compared with fees and budgets."""


class Wei(AnswerModel):
    expected: Number
    bound: Number


class EstimatedPart(AnswerModel):
    """Headers, accounts, slots and so on of one source chain."""

    count: Number
    in_registry: Number
    """Number of them that cost nothing, because the registry has them."""
    gas: Gas


class EstimatedJumps(AnswerModel):
    """Blocks that are reached by the beacon chain of one source chain."""

    count: Number
    from_block: Number | None = None
    """The block where the jumps begin. None where they need none."""


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
    """The present cost of a batch, and whether it would be accepted now."""

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
    """None where the fee is the estimate."""
    rejections: tuple[EstimatedRejection, ...]
    waits: tuple[Text, ...]


# --- Paid by the caller -----------------------------------------------------------------------------------------------


class UnsignedTransaction(AnswerModel):
    """To be signed and sent by anybody."""

    to: Text
    data: Data
    value: Quantity = 0
    gas: Quantity
    chain_id: Quantity
    what: Text = ""
    queries: tuple[Number, ...] = ()
    """Their numbers in the batch."""


class UnsignedTransactions(AnswerModel):
    """The transactions to send next, in this order."""

    chain_id: Number
    is_complete: bool
    """Nothing is missing once these are on the chain."""
    waits: tuple[Text, ...] = ()
    """Sentences about what must happen before there is more to send."""
    transactions: tuple[UnsignedTransaction, ...] = ()
    calls: dict[str, Any] = {}
    """The same as the parameters of `wallet_sendCalls` (EIP-5792)."""
